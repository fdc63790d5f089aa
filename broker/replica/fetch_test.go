package replica_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func TestFetchReadsFromTheBatchThatHoldsTheOffset(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{})
	for range 3 {
		r.produce("t", 1, r.batchOf(3, 10)).now()
	}
	for from, want := range map[wire.Offset][]wire.Offset{0: {0, 3, 6}, 2: {0, 3, 6}, 3: {3, 6}, 8: {6}} {
		got := r.fetch(asks("t", from)).now()
		if bases := r.offsets(got); got.Code != wire.None || !slices.Equal(bases, want) {
			t.Errorf("from %d: %v %v", from, got.Code, bases)
		}
		if got.HighWatermark != 9 || got.LastStableOffset != 9 || got.LogStartOffset != 0 || got.Aborted != nil {
			t.Errorf("from %d: %+v", from, got)
		}
	}
}

// BO-014: a fetch with nothing to read waits as long as it may, and is answered empty then; what comes meanwhile ends the wait.
func TestBO014FetchWaits(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{})
	r.put("t", 1)
	p := r.fetch(asks("t", 1))
	p.waits()
	r.sleep(499 * time.Millisecond)
	p.waits()
	r.sleep(time.Millisecond)
	if got := p.now(); got.Code != wire.None || got.Records.Length != 0 || got.HighWatermark != 1 {
		t.Fatalf("%+v", got)
	}
	p = r.fetch(asks("t", 1))
	r.put("t", 1)
	if got := r.offsets(p.now()); !slices.Equal(got, []wire.Offset{1}) {
		t.Fatalf("%v", got)
	}
}

// What does not wait although there are no records: errors, no time, nothing asked, nothing that is known.
func TestFetchIsAnsweredAtOnce(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{})
	r.put("t", 1)
	ahead := asks("t", 1)
	ahead.CurrentLeaderEpoch = 5
	negative := asks("t", 0)
	negative.MaxBytes = -1
	known := asks("t", 1)
	for _, c := range []struct {
		what       string
		partitions []replica.FetchPartition
		wait       time.Duration
		code       wire.Code // of the last partition
	}{
		{"no time", []replica.FetchPartition{known}, 0, wire.None},
		{"negative time", []replica.FetchPartition{known}, -1, wire.None},
		{"unknown topic", []replica.FetchPartition{asks("none", 0)}, time.Hour, wire.UnknownTopicOrPartition},
		{"unknown id", []replica.FetchPartition{{ByID: true, TopicID: wire.TopicID{9}}}, time.Hour, wire.UnknownTopicID},
		{"offset out of range", []replica.FetchPartition{known, asks("t", 9)}, time.Hour, wire.OffsetOutOfRange},
		{"unknown leader epoch", []replica.FetchPartition{known, ahead}, time.Hour, wire.UnknownLeaderEpoch},
		{"negative limit", []replica.FetchPartition{known, negative}, time.Hour, wire.UnknownServerError},
	} {
		p := r.fetchAll(&replica.FetchRequest{
			ReplicaID: replica.ConsumerID, MaxWait: c.wait, MinBytes: 1, MaxBytes: 1 << 20, Partitions: c.partitions,
		})
		if p.calls != 1 {
			t.Errorf("%s: waits", c.what)
			continue
		}
		if got := p.results[len(p.results)-1].Code; got != c.code {
			t.Errorf("%s: %v", c.what, got)
		}
	}
	if p := r.fetch(); p.calls != 1 || len(p.results) != 0 {
		t.Error("a fetch of nothing waits")
	}
}

// A consumer that asks for a deleted topic beside others waits for the others: it must not spin.
func TestUnknownTopicBesideOthersWaits(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{})
	p := r.fetch(asks("none", 0), asks("t", 0))
	p.waits()
	r.put("t", 1)
	if p.calls != 1 || p.results[0].Code != wire.UnknownTopicOrPartition || p.results[1].Records.Length == 0 {
		t.Fatalf("%+v", p.results)
	}
	if p.results[0].Aborted == nil || p.results[1].Aborted != nil {
		t.Fatalf("aborted lists %v and %v", p.results[0].Aborted, p.results[1].Aborted)
	}
}

// min.bytes counts what all partitions have, and ends the wait when it is reached, not before.
func TestFetchWaitsForMinBytes(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{partitions: 2})
	one, two := asks("t", 0), asks("t", 0)
	two.Partition = 1
	p := r.fetchAll(&replica.FetchRequest{
		ReplicaID: replica.ConsumerID, MaxWait: time.Minute, MinBytes: 1000, MaxBytes: 1 << 20,
		Partitions: []replica.FetchPartition{one, two},
	})
	r.put("t", 1)
	p.waits()
	r.produce("t", 1, r.batchOf(1, 500)).now()
	p.waits()
	r.produceAll(&replica.ProduceRequest{Acks: 1, Partitions: []replica.ProducePartition{
		{Topic: "t", Partition: 1, Records: r.batchOf(1, 500)},
	}}).now()
	if p.calls != 1 {
		t.Fatal("still waits")
	}
	if a, b := r.offsets(p.results[0]), r.offsets(p.results[1]); len(a) != 2 || len(b) != 1 {
		t.Fatalf("%v %v", a, b)
	}
}

// A fetch from a segment that is full gets what is there: no later append can add to its answer.
func TestFetchFromAFullSegmentDoesNotWait(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{configs: map[string]string{"segment.bytes": "1048576", "max.message.bytes": "1100000"}})
	for range 3 {
		r.produce("t", 1, r.batchOf(1, 600_000)).now()
	}
	p := r.fetchAll(&replica.FetchRequest{
		ReplicaID: replica.ConsumerID, MaxWait: time.Minute, MinBytes: 2_000_000, MaxBytes: 10 << 20,
		Partitions: []replica.FetchPartition{{Topic: "t", MaxBytes: 10 << 20, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1}},
	})
	if got := r.offsets(p.now()); !slices.Equal(got, []wire.Offset{0}) {
		t.Fatalf("%v", got)
	}
}

// Nor does one whose answer has no room for the next batch, though min.bytes are not in it.
func TestFetchWhoseAnswerIsFullDoesNotWait(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{partitions: 3})
	size := int32(len(r.batchOf(1, 500)))
	parts := []replica.FetchPartition{asks("t", 0), asks("t", 0), asks("t", 0)}
	for p := range parts {
		parts[p].Partition = int32(p)
		r.produceAll(&replica.ProduceRequest{Acks: 1, Partitions: []replica.ProducePartition{
			{Topic: "t", Partition: int32(p), Records: r.batchOf(1, 500)},
		}}).now()
	}
	for _, limit := range []int32{size, size + 100} {
		p := r.fetchAll(&replica.FetchRequest{
			ReplicaID: replica.ConsumerID, MaxWait: time.Minute, MinBytes: size + 100, MaxBytes: limit, Partitions: parts,
		})
		if p.calls != 1 || p.results[0].Records.Length != int64(size) {
			t.Fatalf("limit %d: %d answers, %+v", limit, p.calls, p.results)
		}
	}
	parts[1].MaxBytes, parts[2].MaxBytes = 100, 100 // their own limits keep them out: there may be more of the first
	r.fetchAll(&replica.FetchRequest{
		ReplicaID: replica.ConsumerID, MaxWait: time.Minute, MinBytes: size + 100, MaxBytes: 1 << 20, Partitions: parts,
	}).waits()
}

// BO-009: the first batch comes whole however small the limits; later partitions get what is left of them.
func TestBO009FirstBatchComesWhole(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{partitions: 3})
	for p := range int32(2) {
		for range 2 {
			r.produceAll(&replica.ProduceRequest{Acks: 1, Partitions: []replica.ProducePartition{
				{Topic: "t", Partition: p, Records: r.batchOf(1, 500)},
			}}).now()
		}
	}
	size := int64(len(r.batchOf(1, 500)))
	part := func(p, limit int32) replica.FetchPartition {
		a := asks("t", 0)
		a.Partition, a.MaxBytes = p, limit
		return a
	}
	for _, c := range []struct {
		what  string
		limit int32
		parts []replica.FetchPartition
		want  []int64
	}{
		{"partition limit of 1", 1 << 20, []replica.FetchPartition{part(0, 1)}, []int64{size}},
		{"limit of 1", 1, []replica.FetchPartition{part(0, 1<<20)}, []int64{size}},
		{"limits of 0", 0, []replica.FetchPartition{part(0, 0)}, []int64{size}},
		{"nothing left for the second", 1, []replica.FetchPartition{part(0, 1<<20), part(1, 1<<20)}, []int64{size, 0}},
		{"an empty partition first", 1, []replica.FetchPartition{part(2, 1<<20), part(1, 1)}, []int64{0, size}},
		{"a second batch is cut", 1 << 20, []replica.FetchPartition{part(0, int32(size)+30), part(1, int32(size)+130)}, []int64{size + 30, size + 130}},
		{"what is left is less than a batch", int32(size) + 100, []replica.FetchPartition{part(0, int32(size)), part(1, 1<<20)}, []int64{size, 0}},
		{"nothing is left", int32(size) + 100, []replica.FetchPartition{part(0, 1<<20), part(1, 1<<20)}, []int64{size + 100, 0}},
	} {
		p := r.fetchAll(&replica.FetchRequest{
			ReplicaID: replica.ConsumerID, MinBytes: 1, MaxBytes: c.limit, Partitions: c.parts,
		})
		var got []int64
		for _, result := range p.results {
			got = append(got, result.Records.Length)
			r.offsets(result)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

// BO-010: many partitions together stay within the limits; those that get nothing have no error.
func TestBO010LimitsHold(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{partitions: 20})
	var parts []replica.FetchPartition
	for p := range int32(20) {
		for range 4 {
			r.produceAll(&replica.ProduceRequest{Acks: 1, Partitions: []replica.ProducePartition{
				{Topic: "t", Partition: p, Records: r.batchOf(1, 4000)},
			}}).now()
		}
		a := asks("t", 0)
		a.Partition, a.MaxBytes = p, 10_000
		parts = append(parts, a)
	}
	p := r.fetchAll(&replica.FetchRequest{ReplicaID: replica.ConsumerID, MaxBytes: 50_000, Partitions: parts})
	total := int64(0)
	for i, result := range p.results {
		if result.Code != wire.None || result.Records.Length > 10_000 {
			t.Errorf("partition %d: %v, %d bytes", i, result.Code, result.Records.Length)
		}
		total += result.Records.Length
		r.offsets(result)
	}
	if total > 50_000 || total < 40_000 {
		t.Errorf("%d bytes in all", total)
	}
}

func TestFetchMaxBytesOfTheBrokerHolds(t *testing.T) {
	r := newRig(t, "fetch.max.bytes=2000")
	r.create("t", topic{})
	for range 4 {
		r.produce("t", 1, r.batchOf(1, 900)).now()
	}
	got := r.fetch(asks("t", 0)).now()
	if got.Records.Length > 2000 || len(r.offsets(got)) != 2 {
		t.Fatalf("%d bytes", got.Records.Length)
	}
}

// BO-012: every partition is answered once, in the order of the request, known or not.
func TestBO012ManyTopics(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"a", "b", "c"} {
		r.create(name, topic{partitions: 3})
	}
	r.put("a", 1)
	var parts []replica.FetchPartition
	for p := range int32(4) {
		for _, name := range []string{"c", "none", "a", "b"} {
			asked := asks(name, 0)
			asked.Partition = p
			parts = append(parts, asked)
		}
	}
	p := r.fetchAll(&replica.FetchRequest{ReplicaID: replica.ConsumerID, MaxBytes: 1 << 20, Partitions: parts})
	if p.calls != 1 || len(p.results) != len(parts) {
		t.Fatalf("%d results", len(p.results))
	}
	for i, result := range p.results {
		want := wire.None
		if parts[i].Topic == "none" || parts[i].Partition == 3 {
			want = wire.UnknownTopicOrPartition
		}
		if result.Code != want {
			t.Errorf("%s-%d: %v", parts[i].Topic, parts[i].Partition, result.Code)
		}
		r.offsets(result)
	}
}

// BO-013: between high watermark and log end there is nothing to read and no error; beyond is out of range.
func TestBO013BetweenHighWatermarkAndLogEnd(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{replicas: []wire.BrokerID{1, 2}})
	r.put("t", 3)
	r.follow(2, "t", 1).now()
	for offset, want := range map[wire.Offset]wire.Code{1: wire.None, 2: wire.None, 3: wire.None, 4: wire.OffsetOutOfRange, -1: wire.OffsetOutOfRange} {
		p := r.fetch(asks("t", offset))
		r.sleep(time.Second)
		got := p.now()
		if got.Code != want || got.Records.Length != 0 {
			t.Errorf("offset %d: %+v", offset, got)
		}
		if want != wire.None && (got.HighWatermark != -1 || got.LastStableOffset != -1 || got.LogStartOffset != -1) {
			t.Errorf("offset %d: an error with offsets %+v", offset, got)
		}
	}
	if got := r.offsets(r.fetch(asks("t", 0)).now()); !slices.Equal(got, []wire.Offset{0}) {
		t.Errorf("reads %v", got)
	}
}

// A consumer waits for the high watermark, a follower for the log's end.
func TestWhatEndsAWait(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{replicas: []wire.BrokerID{1, 2, 3}})
	consumer := r.fetch(asks("t", 0))
	asked := asks("t", 0)
	follower := r.fetchAll(&replica.FetchRequest{
		ReplicaID: 2, ReplicaEpoch: 1, MaxWait: time.Minute, MinBytes: 1, MaxBytes: 1 << 20,
		Partitions: []replica.FetchPartition{asked},
	})
	follower.waits()
	r.put("t", 1)
	r.offsets(follower.now())
	consumer.waits()
	r.follow(2, "t", 1).now()
	consumer.waits()
	r.follow(3, "t", 1).now()
	if got := r.offsets(consumer.now()); len(got) != 1 {
		t.Fatalf("%v", got)
	}
}

// BO-107: a fetch that claims to be of a broker that is no replica is refused and moves nothing.
func TestBO107FetchAsAReplicaThatIsNone(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{replicas: []wire.BrokerID{1, 2}})
	r.put("t", 3)
	if got := r.follow(3, "t", 3).now(); got.Code != wire.NotLeaderOrFollower || got.Records.Length != 0 {
		t.Fatalf("%+v", got)
	}
	stale := asks("t", 3)
	p := r.fetchAll(&replica.FetchRequest{ReplicaID: 2, ReplicaEpoch: 0, Partitions: []replica.FetchPartition{stale}})
	if got := p.now(); got.Code != wire.NotLeaderOrFollower {
		t.Fatalf("former incarnation: %+v", got)
	}
	if hw := r.info("t").HighWatermark; hw != 0 {
		t.Fatalf("high watermark %d", hw)
	}
}

// The follower's way into the ISR: it catches up, the leader asks the controller, and waits for it from then on.
func TestFollowerJoinsTheISR(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{replicas: []wire.BrokerID{1, 2}, isr: []wire.BrokerID{1}})
	r.put("t", 2)
	r.wakes = nil
	r.follow(2, "t", 2).now()
	if len(r.wakes) != 1 || !r.m.NextWake().Equal(r.now) {
		t.Fatalf("woken at %v, next wake %v", r.wakes, r.m.NextWake())
	}
	asked := r.sleep(0)
	if asked == nil || asked.BrokerID != self || len(asked.Partitions) != 1 || len(asked.Partitions[0].ISR) != 2 || asked.Partitions[0].ISR[1].Epoch != 1 {
		t.Fatalf("asked %+v", asked)
	}
	if twice := r.sleep(time.Second); twice != nil {
		t.Fatalf("asked twice %+v", twice)
	}
	r.m.ISRDecided(r.now, asked, nil) // the answer was lost
	again := r.sleep(15 * time.Second)
	if again == nil {
		t.Fatal("not asked again")
	}
	r.decide(again)
	r.put("t", 1)
	if at := r.info("t"); at.InSyncReplicas != 2 || at.HighWatermark != 2 {
		t.Fatalf("%+v", at)
	}
}

// The answers of Fetch by leader epoch (KIP-320) and by last fetched epoch (KIP-595).
func TestFetchEpochs(t *testing.T) {
	r := newRig(t)
	id := r.create("t", topic{replicas: []wire.BrokerID{1, 2}})
	r.put("t", 2) // epoch 0: offsets 0 and 1
	r.lead(id, 2)
	r.lead(id, 1) // epoch 2
	r.put("t", 3) // offsets 2 to 4
	r.follow(2, "t", 5).now()
	for _, c := range []struct {
		what          string
		current, last wire.LeaderEpoch
		offset        wire.Offset
		code          wire.Code
		diverging     replica.EpochEnd
	}{
		{"current", 2, -1, 0, wire.None, replica.EpochEnd{Epoch: -1, Offset: -1}},
		{"older", 1, -1, 0, wire.FencedLeaderEpoch, replica.EpochEnd{Epoch: -1, Offset: -1}},
		{"newer", 3, -1, 0, wire.UnknownLeaderEpoch, replica.EpochEnd{Epoch: -1, Offset: -1}},
		{"negative is none", -2, -1, 0, wire.None, replica.EpochEnd{Epoch: -1, Offset: -1}},
		{"last fetched in line", 2, 0, 2, wire.None, replica.EpochEnd{Epoch: -1, Offset: -1}},
		{"last fetched ends earlier", 2, 0, 3, wire.None, replica.EpochEnd{Epoch: 0, Offset: 2}},
		{"last fetched between", 2, 1, 2, wire.None, replica.EpochEnd{Epoch: 0, Offset: 2}},
		{"beyond the end", 2, 2, 9, wire.None, replica.EpochEnd{Epoch: 2, Offset: 5}},
		{"last fetched above all", 2, 3, 2, wire.OffsetOutOfRange, replica.EpochEnd{Epoch: -1, Offset: -1}},
	} {
		asked := asks("t", c.offset)
		asked.CurrentLeaderEpoch, asked.LastFetchedEpoch = c.current, c.last
		p := r.fetch(asked)
		got := p.now()
		if got.Code != c.code || got.Diverging != c.diverging {
			t.Errorf("%s: %v, diverging %+v", c.what, got.Code, got.Diverging)
		}
		if (got.Code == wire.FencedLeaderEpoch) != got.Leader.Known {
			t.Errorf("%s: leader hint %+v", c.what, got.Leader)
		}
		if c.diverging.Epoch >= 0 && got.Records.Length > 0 {
			t.Errorf("%s: records beside a diverging epoch", c.what)
		}
		r.offsets(got)
	}
}

// A change of the leader ends every wait on the partition, with the new leader in the answer.
func TestLeaderChangeEndsAWait(t *testing.T) {
	r := newRig(t)
	id := r.create("t", topic{replicas: []wire.BrokerID{1, 2}})
	p := r.fetch(asks("t", 0))
	r.lead(id, 2)
	if got := p.now(); got.Code != wire.NotLeaderOrFollower || got.Leader != (replica.LeaderHint{Known: true, ID: 2, Epoch: 1}) {
		t.Fatalf("%+v", got)
	}
}

// A topic that is deleted, and made again under its name, while a session by id asks for it.
func TestFetchByIDOfATopicThatGoes(t *testing.T) {
	r := newRig(t)
	id := r.create("t", topic{})
	fetch := func(name string) *pending[replica.FetchResult] {
		return r.fetch(replica.FetchPartition{ByID: true, TopicID: id, Topic: name, MaxBytes: 100, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1})
	}
	p := fetch("")
	p.waits()
	r.remove(id)
	if got := p.now(); got.Code != wire.UnknownTopicOrPartition {
		t.Errorf("while it waits: %v", got.Code)
	}
	if got := fetch("t").now(); got.Code != wire.UnknownTopicOrPartition {
		t.Errorf("known by name: %v", got.Code)
	}
	if got := fetch("").now(); got.Code != wire.UnknownTopicID {
		t.Errorf("never known: %v", got.Code)
	}
	r.create("t", topic{})
	if got := fetch("t").now(); got.Code != wire.InconsistentTopicID {
		t.Errorf("the name has another id: %v", got.Code)
	}
}

// BO-030, the fetch half, as measured on Kafka 4.4: zstd is served as it is, whatever the topic says.
func TestBO030ZstdIsServed(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{configs: map[string]string{"compression.type": "zstd"}})
	r.put("t", 1)
	stored := r.batches(r.fetch(asks("t", 0)).now())
	if len(stored) != 1 || stored[0].Codec() != record.Zstd {
		t.Fatalf("%d batches", len(stored))
	}
}

// read_committed reads up to the last stable offset and is told what to skip.
func TestReadCommitted(t *testing.T) {
	r := newRig(t)
	r.create("__consumer_offsets", topic{}) // transactional batches come from coordinators alone until transactions are built
	tp := wire.TopicPartition{Topic: "__consumer_offsets"}
	appendBatch := func(b record.Batch) wire.Offset {
		t.Helper()
		end, err := r.m.AppendAsCoordinator(r.now, tp, 0, b)
		if err != nil {
			t.Fatal(err)
		}
		r.m.Advance(r.now)
		return end
	}
	appendBatch(r.batchOf(1, 10))                                                                         // 0
	appendBatch(r.batchOf(2, 10, producer(7, 0, 0), transactional))                                       // 1, 2
	appendBatch(record.NewEndTxnMarker(7, 0, r.now.UnixMilli(), record.EndTxnMarker{Type: record.Abort})) // 3
	appendBatch(r.batchOf(1, 10, producer(8, 0, 0), transactional))                                       // 4
	fetch := func(from wire.Offset) *pending[replica.FetchResult] {
		return r.fetchAll(&replica.FetchRequest{
			ReplicaID: replica.ConsumerID, Isolation: replica.ReadCommitted, MaxWait: time.Minute, MinBytes: 1, MaxBytes: 1 << 20,
			Partitions: []replica.FetchPartition{asks(tp.Topic, from)},
		})
	}
	got := fetch(0).now()
	if got.HighWatermark != 5 || got.LastStableOffset != 4 || fmt.Sprint(got.Aborted) != "[{7 1}]" {
		t.Errorf("%+v", got)
	}
	if bases := r.offsets(got); !slices.Equal(bases, []wire.Offset{0, 1, 3}) {
		t.Errorf("reads %v", bases)
	}
	short := asks(tp.Topic, 0)
	short.MaxBytes = 1
	first := r.fetchAll(&replica.FetchRequest{
		ReplicaID: replica.ConsumerID, Isolation: replica.ReadCommitted, MaxBytes: 1 << 20, Partitions: []replica.FetchPartition{short},
	}).now()
	if len(first.Aborted) != 0 {
		t.Errorf("what was aborted later: %+v", first.Aborted)
	}
	r.offsets(first)
	waiting := fetch(4)
	waiting.waits()
	appendBatch(record.NewEndTxnMarker(8, 0, r.now.UnixMilli(), record.EndTxnMarker{Type: record.Commit})) // 5
	got = waiting.now()
	if got.LastStableOffset != 6 || got.Aborted == nil || len(got.Aborted) != 0 {
		t.Errorf("%+v", got)
	}
	if bases := r.offsets(got); !slices.Equal(bases, []wire.Offset{4, 5}) {
		t.Errorf("reads %v", bases)
	}
}
