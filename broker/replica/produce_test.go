package replica_test

import (
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func TestProduceIsAnsweredAtOnceWithoutFollowers(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{})
	for i, acks := range []int16{1, -1, 0} {
		got := r.produce("t", acks, r.batchOf(2, 10)).now()
		if got.Code != wire.None || got.BaseOffset != wire.Offset(2*i) || got.LogAppendTime != -1 || got.LogStartOffset != 0 {
			t.Fatalf("acks %d: %+v", acks, got)
		}
	}
	if at := r.info("t"); at.HighWatermark != 6 || at.LogEndOffset != 6 {
		t.Fatalf("%+v", at)
	}
}

func TestProduceWithoutPartitionsIsAnswered(t *testing.T) {
	r := newRig(t)
	if p := r.produceAll(&replica.ProduceRequest{Acks: -1}); p.calls != 1 || len(p.results) != 0 {
		t.Fatalf("%+v", p)
	}
}

func flipped(b record.Batch) record.Batch {
	b[len(b)-1] ^= 1
	return b
}

// What is refused, with Kafka's code, and whether the answer has the log start offset.
func TestProduceRefusals(t *testing.T) {
	r := newRig(t)
	id := r.create("t", topic{})
	r.create("small", topic{configs: map[string]string{"max.message.bytes": "200"}})
	r.create("compacted", topic{configs: map[string]string{"cleanup.policy": "compact"}})
	r.create("elsewhere", topic{replicas: []wire.BrokerID{2}, leader: 2})
	r.create("led elsewhere"[:3], topic{replicas: []wire.BrokerID{2, 1}, leader: 2})
	r.create("__consumer_offsets", topic{})
	plain := func() record.Batch { return r.batchOf(1, 10) }
	for _, c := range []struct {
		what     string
		request  replica.ProduceRequest
		code     wire.Code
		logStart wire.Offset
	}{
		{"unknown topic", replica.ProduceRequest{Acks: 1, Partitions: []replica.ProducePartition{{Topic: "none", Records: plain()}}}, wire.UnknownTopicOrPartition, -1},
		{"unknown partition", replica.ProduceRequest{Acks: 1, Partitions: []replica.ProducePartition{{Topic: "t", Partition: 1, Records: plain()}}}, wire.UnknownTopicOrPartition, -1},
		{"negative partition", replica.ProduceRequest{Acks: 1, Partitions: []replica.ProducePartition{{Topic: "t", Partition: -1, Records: plain()}}}, wire.UnknownTopicOrPartition, -1},
		{"empty name", replica.ProduceRequest{Acks: 1, Partitions: []replica.ProducePartition{{Records: plain()}}}, wire.UnknownTopicOrPartition, -1},
		{"BO-031 zero id", replica.ProduceRequest{Acks: 1, ByID: true, Partitions: []replica.ProducePartition{{Records: plain()}}}, wire.UnknownTopicID, -1},
		{"BO-031 unknown id", replica.ProduceRequest{Acks: 1, ByID: true, Partitions: []replica.ProducePartition{{TopicID: wire.TopicID{9}, Records: plain()}}}, wire.UnknownTopicID, -1},
		{"unknown partition by id", replica.ProduceRequest{Acks: 1, ByID: true, Partitions: []replica.ProducePartition{{TopicID: id, Partition: 1, Records: plain()}}}, wire.UnknownTopicOrPartition, -1},
		{"BO-028 acks 2", replica.ProduceRequest{Acks: 2, Partitions: []replica.ProducePartition{{Topic: "t", Records: plain()}}}, wire.InvalidRequiredAcks, -1},
		{"BO-028 acks -2", replica.ProduceRequest{Acks: -2, Partitions: []replica.ProducePartition{{Topic: "t", Records: plain()}}}, wire.InvalidRequiredAcks, -1},
		{"on other brokers", replica.ProduceRequest{Acks: 1, Partitions: []replica.ProducePartition{{Topic: "elsewhere", Records: plain()}}}, wire.NotLeaderOrFollower, -1},
		{"led by another broker", replica.ProduceRequest{Acks: 1, Partitions: []replica.ProducePartition{{Topic: "led", Records: plain()}}}, wire.NotLeaderOrFollower, -1},
		{"internal topic", replica.ProduceRequest{Acks: 1, Partitions: []replica.ProducePartition{{Topic: "__consumer_offsets", Records: plain()}}}, wire.InvalidTopic, -1},
		{"null records", replica.ProduceRequest{Acks: 1, Partitions: []replica.ProducePartition{{Topic: "t"}}}, wire.InvalidRecord, -1},
		{"BO-020 flipped bit", replica.ProduceRequest{Acks: 1, Partitions: []replica.ProducePartition{{Topic: "t", Records: flipped(plain())}}}, wire.CorruptMessage, -1},
		{"BO-022 two batches", replica.ProduceRequest{Acks: 1, Partitions: []replica.ProducePartition{{Topic: "t", Records: append(plain(), plain()...)}}}, wire.InvalidRecord, -1},
		{"too large", replica.ProduceRequest{Acks: 1, Partitions: []replica.ProducePartition{{Topic: "small", Records: r.batchOf(1, 300)}}}, wire.MessageTooLarge, -1},
		{"zstd before v7", replica.ProduceRequest{Acks: 1, Partitions: []replica.ProducePartition{{Topic: "t", Records: r.batchOf(1, 9, codec(record.Zstd))}}}, wire.UnsupportedCompressionType, -1},
		{"transactional without a transactional id", replica.ProduceRequest{Acks: 1, Partitions: []replica.ProducePartition{{Topic: "t", Records: r.batchOf(1, 9, producer(9, 0, 0), transactional)}}}, wire.TransactionalIDAuthorizationFailed, -1},
		{"transactional of an unknown producer", replica.ProduceRequest{Acks: 1, HasTransactionalID: true, Partitions: []replica.ProducePartition{{Topic: "t", Records: r.batchOf(1, 9, producer(9, 0, 0), transactional)}}}, wire.InvalidProducerIDMapping, -1},
		{"control batch", replica.ProduceRequest{Acks: 1, Partitions: []replica.ProducePartition{{Topic: "t", Records: r.batchOf(1, 9, func(b *record.Builder) { b.Control = true })}}}, wire.InvalidRecord, 0},
		{"first sequence of a known producer is not the next", replica.ProduceRequest{Acks: 1, Partitions: []replica.ProducePartition{{Topic: "t", Records: r.batchOf(1, 9, producer(1, 0, 5))}}}, wire.OutOfOrderSequenceNumber, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			if c.code == wire.OutOfOrderSequenceNumber {
				r.produce("t", 1, r.batchOf(1, 9, producer(1, 0, 0))).now()
			}
			end := r.info("t").LogEndOffset
			r.t = t
			got := r.produceAll(&c.request).now()
			if got.Code != c.code || got.BaseOffset != -1 || got.LogAppendTime != -1 || got.LogStartOffset != c.logStart {
				t.Errorf("%+v", got)
			}
			if got.Code == wire.NotLeaderOrFollower && got.Leader != (replica.LeaderHint{Known: true, ID: 2}) {
				t.Errorf("leader hint %+v", got.Leader)
			}
			if at := r.info("t"); at.LogEndOffset != end {
				t.Errorf("the log ends at %d, before at %d", at.LogEndOffset, end)
			}
		})
	}
	got := r.produce("compacted", 1, r.batchOf(0, 0, func(b *record.Builder) {
		b.Append(r.now.UnixMilli(), []byte("a"), nil)
		b.Append(r.now.UnixMilli(), nil, []byte("v"))
	})).now()
	if got.Code != wire.InvalidRecord || len(got.RecordErrors) != 1 || got.RecordErrors[0].Index != 1 || got.LogStartOffset != 0 {
		t.Errorf("BO-024 keyless record: %+v", got)
	}
}

func TestOneAnswerTellsOfSoManyRecordsAndNoMore(t *testing.T) {
	r := newRig(t)
	r.create("compacted", topic{configs: map[string]string{"cleanup.policy": "compact"}})
	request := &replica.ProduceRequest{Acks: 1}
	for range 30 {
		request.Partitions = append(request.Partitions, replica.ProducePartition{Topic: "compacted", Records: r.batchOf(0, 0, func(b *record.Builder) {
			for range 1000 {
				b.Append(r.now.UnixMilli(), nil, nil)
			}
		})})
	}
	p := r.produceAll(request)
	told := 0
	for _, got := range p.results {
		told += len(got.RecordErrors)
		if got.Code != wire.InvalidRecord || got.Message == "" {
			t.Fatalf("%+v", got)
		}
	}
	if told != 10_000 {
		t.Errorf("%d records are told of", told)
	}
}

func transactional(b *record.Builder) { b.Transactional = true }

// BO-020: a bad partition does not hold up the others of its request.
func TestBO020OtherPartitionsOfARequestAreUnaffected(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{partitions: 3})
	p := r.produceAll(&replica.ProduceRequest{Acks: -1, Partitions: []replica.ProducePartition{
		{Topic: "t", Partition: 0, Records: r.batchOf(1, 10)},
		{Topic: "t", Partition: 1, Records: flipped(r.batchOf(1, 10))},
		{Topic: "t", Partition: 2, Records: r.batchOf(1, 10)},
	}})
	if p.calls != 1 {
		t.Fatal("no answer")
	}
	for i, code := range []wire.Code{wire.None, wire.CorruptMessage, wire.None} {
		if p.results[i].Code != code {
			t.Errorf("partition %d: %v", i, p.results[i].Code)
		}
	}
}

// BO-026: the answer has the append time where the topic stamps its records, and -1 where it doesn't.
func TestBO026LogAppendTime(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{configs: map[string]string{"message.timestamp.type": "LogAppendTime"}})
	batch := r.batchOf(1, 10)
	r.sleep(time.Minute)
	got := r.produce("t", 1, batch).now()
	if got.Code != wire.None || got.LogAppendTime != r.now.UnixMilli() {
		t.Fatalf("%+v", got)
	}
	stored := r.batches(r.fetch(asks("t", 0)).now())
	if len(stored) != 1 || stored[0].MaxTimestamp() != got.LogAppendTime {
		t.Fatalf("consumer reads %d batches", len(stored))
	}
}

func TestDuplicateIsAnsweredWithItsFirstOffset(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{})
	r.put("t", 3)
	first := r.produce("t", -1, r.batchOf(2, 10, producer(7, 0, 0))).now()
	again := r.produce("t", -1, r.batchOf(2, 10, producer(7, 0, 0))).now()
	if first.BaseOffset != 3 || first.LogAppendTime != -1 {
		t.Fatalf("first time %+v", first)
	}
	// The measured oddity: the batch's own maximum timestamp stands for the append time.
	if again.Code != wire.None || again.BaseOffset != 3 || again.LogAppendTime != r.now.UnixMilli()+1 {
		t.Fatalf("again %+v", again)
	}
	if end := r.info("t").LogEndOffset; end != 5 {
		t.Fatalf("the log ends at %d", end)
	}
}

// BO-032: a producer whose state is gone goes on wherever it was.
func TestBO032SequenceAfterExpiry(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{})
	r.produce("t", 1, r.batchOf(7, 1, producer(7, 0, 0))).now()
	r.sleep(25 * time.Hour)
	r.m.ExpireProducers(t.Context(), r.now)
	if known, _ := r.m.DescribeProducers(wire.TopicPartition{Topic: "t"}); len(known) != 0 {
		t.Fatalf("%+v", known)
	}
	if got := r.produce("t", 1, r.batchOf(1, 1, producer(7, 0, 9))).now(); got.Code != wire.None {
		t.Fatal(got.Code)
	}
}

// BO-033: a stop and a start between a batch and its retry don't make a second one, nor a false gap.
func TestBO033RetryAcrossARestart(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{})
	for i := range int32(5) {
		r.produce("t", -1, r.batchOf(1, 10, producer(7, 0, i))).now()
	}
	r.restart()
	for i := range int32(6) {
		if got := r.produce("t", -1, r.batchOf(1, 10, producer(7, 0, i))).now(); got.Code != wire.None || got.BaseOffset != wire.Offset(i) {
			t.Fatalf("sequence %d: %+v", i, got)
		}
	}
}

// BO-035: a gap on one partition says nothing of the others, and the resend of the others is recognised.
func TestBO035GapOnOnePartition(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{partitions: 2})
	r.produce("t", -1, r.batchOf(1, 10, producer(7, 0, 0))).now()
	for range 2 {
		p := r.produceAll(&replica.ProduceRequest{Acks: -1, Partitions: []replica.ProducePartition{
			{Topic: "t", Partition: 0, Records: r.batchOf(1, 10, producer(7, 0, 2))},
			{Topic: "t", Partition: 1, Records: r.batchOf(1, 10, producer(7, 0, 0))},
		}})
		if p.results[0].Code != wire.OutOfOrderSequenceNumber || p.results[1].Code != wire.None || p.results[1].BaseOffset != 0 {
			t.Fatalf("%+v", p.results)
		}
	}
}

// acks=-1 waits for the high watermark; acks=1 does not. The high watermark moves with the slowest of the ISR.
func TestAcksAllWaitsForTheISR(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{replicas: []wire.BrokerID{1, 2, 3}})
	if got := r.produce("t", 1, r.batchOf(1, 10)).now(); got.Code != wire.None {
		t.Fatal(got.Code)
	}
	p := r.produce("t", -1, r.batchOf(1, 10))
	p.waits()
	r.follow(2, "t", 2).now()
	p.waits()
	r.follow(3, "t", 1).now()
	p.waits()
	if at := r.info("t"); at.HighWatermark != 1 {
		t.Fatalf("high watermark %d", at.HighWatermark)
	}
	r.follow(3, "t", 2).now()
	if got := p.now(); got.Code != wire.None || got.BaseOffset != 1 {
		t.Fatalf("%+v", got)
	}
}

func TestAcksAllTimesOutAndKeepsTheData(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{replicas: []wire.BrokerID{1, 2}})
	p := r.produce("t", -1, r.batchOf(1, 10))
	if len(r.wakes) != 1 || !r.wakes[0].Equal(r.now.Add(10*time.Second)) || !r.m.NextWake().Equal(r.wakes[0]) {
		t.Fatalf("woken at %v, next wake %v", r.wakes, r.m.NextWake())
	}
	r.sleep(10*time.Second - 1)
	p.waits()
	r.sleep(1)
	if got := p.now(); got.Code != wire.RequestTimedOut {
		t.Fatalf("%+v", got)
	}
	if end := r.info("t").LogEndOffset; end != 1 {
		t.Fatalf("the log ends at %d", end)
	}
}

// BO-108: below the effective minimum acks=-1 is refused before the append, acks=1 is taken and not committed; a minimum above
// the number of replicas counts as that number.
func TestBO108MinISR(t *testing.T) {
	r := newRig(t)
	two := map[string]string{"min.insync.replicas": "2"}
	r.create("one", topic{configs: two})
	if got := r.produce("one", -1, r.batchOf(1, 10)).now(); got.Code != wire.None {
		t.Fatalf("one replica: %v", got.Code)
	}
	r.create("t", topic{replicas: []wire.BrokerID{1, 2, 3}, isr: []wire.BrokerID{1}, configs: two})
	if got := r.produce("t", -1, r.batchOf(1, 10)).now(); got.Code != wire.NotEnoughReplicas || r.info("t").LogEndOffset != 0 {
		t.Fatalf("acks=-1: %+v, log end %d", got, r.info("t").LogEndOffset)
	}
	if got := r.produce("t", 1, r.batchOf(1, 10)).now(); got.Code != wire.None {
		t.Fatalf("acks=1: %v", got.Code)
	}
	if at := r.info("t"); at.HighWatermark != 0 || at.LogEndOffset != 1 || !at.UnderMinISR || !at.UnderReplicated() {
		t.Fatalf("%+v", at)
	}
}

// The ISR shrinks below the minimum while a produce waits: what was appended stays, and the answer says so.
func TestISRShrinksBelowTheMinimumWhileAProduceWaits(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{replicas: []wire.BrokerID{1, 2}, configs: map[string]string{"min.insync.replicas": "2"}})
	r.put("t", 1)
	r.follow(2, "t", 1).now()
	p := r.produce("t", -1, r.batchOf(1, 10))
	r.follow(2, "t", 2) // the high watermark reaches it
	if got := p.now(); got.Code != wire.None {
		t.Fatal(got.Code)
	}
	slow := r.produceAll(&replica.ProduceRequest{
		Acks: -1, Timeout: time.Hour,
		Partitions: []replica.ProducePartition{{Topic: "t", Records: r.batchOf(1, 10)}},
	})
	if asked := r.sleep(15 * time.Second); asked != nil {
		t.Fatalf("asked early %+v", asked)
	}
	r.sleep(15 * time.Second)
	asked := r.sleep(15 * time.Second)
	if asked == nil || len(asked.Partitions) != 1 || len(asked.Partitions[0].ISR) != 1 {
		t.Fatalf("asked %+v", asked)
	}
	slow.waits()
	r.decide(asked)
	slow.waits() // the high watermark stands still under the minimum
	r.configure("t", "min.insync.replicas", "1")
	if got := slow.now(); got.Code != wire.None {
		t.Fatal(got.Code)
	}
}

// Who loses the leadership can't promise what was appended under it.
func TestLeadershipLostWhileAProduceWaits(t *testing.T) {
	r := newRig(t)
	id := r.create("t", topic{replicas: []wire.BrokerID{1, 2}})
	p := r.produce("t", -1, r.batchOf(1, 10))
	r.lead(id, 2)
	if got := p.now(); got.Code != wire.NotLeaderOrFollower || got.Leader != (replica.LeaderHint{Known: true, ID: 2, Epoch: 1}) {
		t.Fatalf("%+v", got)
	}
}

// Nor under another epoch, be the leader the same: what lies between is not known here.
func TestNewEpochWhileAProduceWaits(t *testing.T) {
	r := newRig(t)
	id := r.create("t", topic{replicas: []wire.BrokerID{1, 2}})
	p := r.produce("t", -1, r.batchOf(1, 10))
	r.lead(id, 1)
	if got := p.now(); got.Code != wire.NotLeaderOrFollower || got.Leader != (replica.LeaderHint{Known: true, ID: 1, Epoch: 1}) {
		t.Fatalf("%+v", got)
	}
}

// The ISR shrinks below the minimum between the move of the high watermark and the answer.
func TestNotEnoughReplicasAfterAppend(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{replicas: []wire.BrokerID{1, 2}, configs: map[string]string{"min.insync.replicas": "2"}})
	id := r.info("t").TopicID
	first := &pending[replica.ProduceResult]{t: t}
	r.m.Produce(r.now, &replica.ProduceRequest{
		Acks: -1, Timeout: time.Minute,
		Partitions: []replica.ProducePartition{{Topic: "t", Records: r.batchOf(1, 10)}},
	},
		func(results []replica.ProduceResult) {
			first.done(results)
			p := r.image.TopicByID(id).Partitions[0]
			r.commit(&metadata.PartitionChangeRecord{TopicID: id, PartitionEpoch: p.PartitionEpoch + 1, ISR: []wire.BrokerID{1}})
		})
	second := r.produce("t", -1, r.batchOf(1, 10))
	r.follow(2, "t", 2).now()
	if got := first.now(); got.Code != wire.None {
		t.Fatalf("%+v", got)
	}
	if got := second.now(); got.Code != wire.NotEnoughReplicasAfterAppend || got.BaseOffset != 1 {
		t.Fatalf("%+v", got)
	}
}

func TestTopicDeletedWhileAProduceWaits(t *testing.T) {
	r := newRig(t)
	id := r.create("t", topic{replicas: []wire.BrokerID{1, 2}})
	p := r.produce("t", -1, r.batchOf(1, 10))
	r.remove(id)
	if got := p.now(); got.Code != wire.NotLeaderOrFollower {
		t.Fatalf("%+v", got)
	}
}

// compressed.batch.validation: a batch whose body is damaged is found the first time that a connection uses the codec, always
// under full, and on compacted topics.
func TestCompressedBatchValidation(t *testing.T) {
	wrongCount := func(r *rig) record.Batch { // the header promises one record more than the body has
		b := r.batchOf(2, 10, codec(record.LZ4))
		b[26]++ // lastOffsetDelta
		b[60]++ // count
		b.SetCRC()
		return b
	}
	for _, c := range []struct {
		name    string
		configs map[string]string
		seen    uint8
		code    wire.Code
	}{
		{"first batch of the codec", nil, 1 << record.Gzip, wire.InvalidRecord},
		{"a later one", nil, 1 << record.LZ4, wire.None},
		{"full", map[string]string{"compressed.batch.validation": "full"}, 1 << record.LZ4, wire.InvalidRecord},
		{"header", map[string]string{"compressed.batch.validation": "header"}, 0, wire.None},
		{"compacted", map[string]string{"cleanup.policy": "compact"}, 1 << record.LZ4, wire.InvalidRecord},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.create("t", topic{configs: c.configs})
			seen := c.seen
			got := r.produceAll(&replica.ProduceRequest{
				Acks: 1, SeenCodecs: &seen,
				Partitions: []replica.ProducePartition{{Topic: "t", Records: wrongCount(r)}},
			}).now()
			if got.Code != c.code || seen != c.seen {
				t.Errorf("%v, seen %b", got.Code, seen)
			}
			good := r.produceAll(&replica.ProduceRequest{
				Acks: 1, SeenCodecs: &seen,
				Partitions: []replica.ProducePartition{{Topic: "t", Records: r.batchOf(2, 10, codec(record.LZ4))}},
			}).now()
			if remembers := seen&(1<<record.LZ4) != 0; good.Code != wire.None || !remembers && c.name != "header" {
				t.Errorf("%v, seen %b", good.Code, seen)
			}
		})
	}
}

// BO-082: a full disk refuses with a retriable error, appends nothing, and is over when there is room.
func TestBO082FullDisk(t *testing.T) {
	fs := vfs.NewMem()
	r := newRigOn(t, fs, "/data")
	r.create("t", topic{})
	r.put("t", 1)
	fs.SetSpace(1)
	if got := r.produce("t", 1, r.batchOf(1, 1000)).now(); got.Code != wire.KafkaStorageError || got.LogStartOffset != -1 {
		t.Fatalf("%+v", got)
	}
	if got := r.offsets(r.fetch(asks("t", 0)).now()); len(got) != 1 {
		t.Fatalf("reads %v", got)
	}
	r.create("new", topic{})
	if got := r.produce("new", 1, r.batchOf(1, 10)).now(); got.Code != wire.KafkaStorageError {
		t.Fatalf("%+v", got)
	}
	fs.SetSpace(1 << 30)
	r.m.DeleteDue(t.Context(), r.now)
	for _, name := range []string{"t", "new"} {
		if got := r.produce(name, 1, r.batchOf(1, 1000)).now(); got.Code != wire.None {
			t.Fatalf("%s: %+v", name, got)
		}
	}
}

func TestConfigChangeCounts(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{})
	r.configure("t", "max.message.bytes", "100")
	if got := r.produce("t", 1, r.batchOf(1, 1000)).now(); got.Code != wire.MessageTooLarge {
		t.Fatal(got.Code)
	}
	c, _, err := config.Parse([]config.Source{{Format: config.Flags, Pairs: []string{"node.id=1", "log.dirs=/data", "message.max.bytes=50"}}})
	if err != nil {
		t.Fatal(err)
	}
	r.create("other", topic{})
	r.m.SetConfig(r.now, c)
	if got := r.produce("other", 1, r.batchOf(1, 100)).now(); got.Code != wire.MessageTooLarge {
		t.Fatal(got.Code)
	}
}
