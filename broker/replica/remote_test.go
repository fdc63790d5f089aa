package replica_test

import (
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// bucket is a Tier that answers when the test wants.
type bucket struct {
	hold    bool // leaderships are held
	led     []replica.Leadership
	fetches []*replica.RemoteFetch
	answer  []func([]replica.RemoteResult)
	times   []replica.RemoteTime
	found   log.TimestampOffset // of look-ups
	during  func()              // what happens during a look-up; nil for nothing
	lost    [2]wire.Offset      // from the first up to the second
	starts  []wire.Offset
	written []func(time.Time, error)
}

func (b *bucket) Lead(_ time.Time, l replica.Leadership) bool {
	b.led = append(b.led, l)
	return b.hold
}

func (b *bucket) Resign(wire.TopicPartition) {}

func (b *bucket) Changed(wire.TopicPartition) {}

func (b *bucket) SkipLost(_ wire.TopicPartition, offset wire.Offset) wire.Offset {
	if b.lost[0] <= offset && offset < b.lost[1] {
		return b.lost[1]
	}
	return offset
}

func (b *bucket) RecordStart(_ time.Time, _ wire.TopicPartition, offset wire.Offset, _ time.Time, done func(time.Time, error)) {
	b.starts, b.written = append(b.starts, offset), append(b.written, done)
}

func (b *bucket) Fetch(_ time.Time, r *replica.RemoteFetch, done func([]replica.RemoteResult)) {
	b.fetches, b.answer = append(b.fetches, r), append(b.answer, done)
}

func (b *bucket) OffsetForTimestamp(_ time.Time, r replica.RemoteTime, done func(log.TimestampOffset, error)) {
	b.times = append(b.times, r)
	if b.during != nil {
		b.during()
	}
	done(b.found, nil)
}

// piece is a file of records as the tier gives them.
type piece struct {
	vfs.File
	released *int
}

func (p piece) rangeOf(n int64) vfs.Range {
	return vfs.Range{File: p, Length: n, Release: func() { *p.released++ }}
}

var tieredTopic = topic{configs: map[string]string{"remote.storage.enable": "true", "local.retention.bytes": "1"}}

// cold is a rig with a topic t of ten records, of which those below 6 are in the bucket alone.
func cold(t *testing.T) (*rig, *bucket) {
	t.Helper()
	r, b := newRig(t), &bucket{found: log.NoTimestampOffset}
	r.tier = b
	r.restart()
	r.create("t", tieredTopic)
	l, _ := r.logs.Get(wire.TopicPartition{Topic: "t"})
	for _, n := range []int{3, 3, 4} {
		r.put("t", n)
		if err := l.Roll(r.now); err != nil {
			t.Fatal(err)
		}
	}
	l.SetTiered(6)
	r.m.Retain(t.Context(), r.now)
	if at := r.info("t").Positions; at.LogStartOffset != 0 || at.LocalLogStartOffset != 6 || at.TieredEndOffset != 6 || at.LogEndOffset != 10 {
		t.Fatalf("%+v", at)
	}
	return r, b
}

func TestFetchBelowTheLocalStartAsksTheTier(t *testing.T) {
	r, b := cold(t)
	p := r.fetch(asks("t", 2))
	p.waits()
	asked := b.fetches[0]
	if got := asked.Partitions[0]; got.Topic != "t" || got.Offset != 2 || got.UpTo != 6 || got.MaxBytes != 1<<20 || !asked.MinOneBatch {
		t.Errorf("%+v", got)
	}
	if wait := asked.Deadline.Sub(r.now); wait != 500*time.Millisecond { // remote.fetch.max.wait.ms
		t.Errorf("it may take %v", wait)
	}
	released := 0
	b.answer[0]([]replica.RemoteResult{{Records: piece{nil, &released}.rangeOf(7), Aborted: []replica.AbortedTransaction{{ProducerID: 4, FirstOffset: 3}}}})
	got := p.now()
	if got.Code != wire.None || got.Records.Length != 7 || got.HighWatermark != 10 || got.LogStartOffset != 0 || len(got.Aborted) != 1 {
		t.Errorf("%+v", got)
	}
	got.Records.Release()
	if released != 1 {
		t.Errorf("released %d times", released)
	}
	r.fetch(asks("t", 6)).now().Records.Release()
	if len(b.fetches) != 1 {
		t.Error("what is here was asked of the tier")
	}
}

func TestAFetchThatHasEnoughDoesNotWaitForTheTier(t *testing.T) {
	r, b := cold(t)
	r.create("hot", topic{})
	r.put("hot", 1)
	p := r.fetch(asks("hot", 0), asks("t", 0))
	if !b.fetches[0].Deadline.Equal(r.now) || b.fetches[0].MinOneBatch {
		t.Errorf("%+v", b.fetches[0])
	}
	b.answer[0]([]replica.RemoteResult{{}})
	if len(p.results) != 2 || p.results[0].Records.Length == 0 || p.results[1].Code != wire.None || p.results[1].Records.Length != 0 {
		t.Errorf("%+v", p.results)
	}
	p.results[0].Records.Release()
}

// BO-092: one budget for all partitions, set aside before anything is read.
func TestBO092TheTierGetsWhatTheOthersLeave(t *testing.T) {
	r, b := cold(t)
	r.create("hot", topic{})
	r.put("hot", 3)
	request := &replica.FetchRequest{ReplicaID: replica.ConsumerID, MaxWait: time.Second, MinBytes: 1, MaxBytes: 100}
	request.Partitions = []replica.FetchPartition{asks("t", 0), asks("t", 3), asks("hot", 0)}
	request.Partitions[0].MaxBytes = 60
	p := r.fetchAll(request)
	if got := b.fetches[0]; got.MaxBytes != 100 || got.Partitions[0].MaxBytes != 60 || got.Partitions[1].MaxBytes != 40 {
		t.Errorf("%+v", got)
	}
	b.answer[0](make([]replica.RemoteResult, 2))
	if p.results[2].Records.Length != 0 {
		t.Errorf("%d bytes beyond the limit", p.results[2].Records.Length)
	}
}

func TestAnErrorOfTheTierIsThePartitions(t *testing.T) {
	r, b := cold(t)
	p := r.fetch(asks("t", 0))
	b.answer[0]([]replica.RemoteResult{{Code: wire.KafkaStorageError}})
	if got := p.now(); got.Code != wire.KafkaStorageError || got.HighWatermark != wire.NoOffset {
		t.Errorf("%+v", got)
	}
}

func TestWhatTheTierBringsAfterALeadershipIsGivenBack(t *testing.T) {
	r, b := cold(t)
	id := r.info("t").TopicID
	p := r.fetch(asks("t", 0))
	r.remove(id)
	released := 0
	b.answer[0]([]replica.RemoteResult{{Records: piece{nil, &released}.rangeOf(7)}})
	if got := p.now(); got.Code != wire.NotLeaderOrFollower || released != 1 {
		t.Errorf("%+v, released %d times", got, released)
	}
}

// A follower is told that what it wants is in the bucket.
func TestFollowersBelowTheLocalStart(t *testing.T) {
	r, b := newRig(t), &bucket{}
	r.tier = b
	r.restart()
	r.create("t", topic{replicas: []wire.BrokerID{1, 2}, isr: []wire.BrokerID{1}, configs: tieredTopic.configs})
	l, _ := r.logs.Get(wire.TopicPartition{Topic: "t"})
	r.put("t", 3)
	if err := l.Roll(r.now); err != nil {
		t.Fatal(err)
	}
	r.put("t", 1)
	l.SetTiered(3)
	r.m.Retain(t.Context(), r.now)
	if got := r.follow(2, "t", 0).now(); got.Code != wire.OffsetMovedToTieredStorage {
		t.Errorf("%+v", got)
	}
	if got := r.follow(2, "t", 3).now(); got.Code != wire.None {
		t.Errorf("%+v", got)
	}
}

// BO-091: look-ups by time look at the bucket first, then here.
func TestBO091OffsetsOfBothSides(t *testing.T) {
	r, b := cold(t)
	first := r.list("t", 0)
	if len(b.times) != 1 || b.times[0].From != 0 || b.times[0].UpTo != 6 || first.Offset != 6 {
		t.Errorf("%+v finds %+v", b.times, first)
	}
	b.found = log.TimestampOffset{Timestamp: 5, Offset: 2}
	if got := r.list("t", 0); got.Offset != 2 || got.Timestamp != 5 {
		t.Errorf("%+v", got)
	}
	if got := r.list("t", replica.MaxTimestamp); got.Offset != 6 {
		t.Errorf("the largest is here: %+v", got)
	}
	b.found.Timestamp = 1 << 60
	if got := r.list("t", replica.MaxTimestamp); got.Offset != 2 {
		t.Errorf("the largest is in the bucket: %+v", got)
	}
	for timestamp, want := range map[int64]wire.Offset{
		replica.EarliestTimestamp: 0, replica.EarliestLocalTimestamp: 6, replica.LatestTieredTimestamp: 5,
		replica.EarliestPendingUploadTimestamp: 6, replica.LatestTimestamp: 10,
	} {
		if got := r.list("t", timestamp); got.Code != wire.None || got.Offset != want || got.LeaderEpoch != 0 {
			t.Errorf("%d: %+v, want %d", timestamp, got, want)
		}
	}
	r.create("new", tieredTopic)
	if got := r.list("new", replica.LatestTieredTimestamp); got != nothing {
		t.Errorf("nothing is tiered: %+v", got)
	}
	if got := r.list("new", replica.EarliestPendingUploadTimestamp); got.Offset != 0 {
		t.Errorf("all is to be uploaded: %+v", got)
	}
}

// What local retention takes while the bucket is asked is looked for there.
func TestBO091LocalRetentionDuringALookUp(t *testing.T) {
	r, b := cold(t)
	l, _ := r.logs.Get(wire.TopicPartition{Topic: "t"})
	r.put("t", 1)
	if err := l.Roll(r.now); err != nil {
		t.Fatal(err)
	}
	b.during = func() {
		if len(b.times) > 1 {
			b.found = log.TimestampOffset{Timestamp: 5, Offset: 7}
		}
		l.SetTiered(10)
		r.m.Retain(t.Context(), r.now)
	}
	if got := r.list("t", 0); got.Offset != 7 || len(b.times) != 2 || b.times[1].UpTo != 10 {
		t.Errorf("%+v, asked %+v", got, b.times)
	}
}

// Safety rule 21: a leadership that is held serves nobody until the log was compared with the bucket.
func TestSafety21AHeldLeadershipServesNobody(t *testing.T) {
	r, b := newRig(t), &bucket{hold: true}
	r.tier = b
	r.restart()
	r.create("t", tieredTopic)
	tp := wire.TopicPartition{Topic: "t"}
	if len(b.led) != 1 || b.led[0].TopicPartition != tp || b.led[0].Log == nil {
		t.Fatalf("%+v", b.led)
	}
	if got := r.produce("t", 1, r.batchOf(1, 10)).now(); got.Code != wire.NotLeaderOrFollower {
		t.Errorf("produce: %+v", got)
	}
	if got := r.fetch(asks("t", 0)).now(); got.Code != wire.NotLeaderOrFollower {
		t.Errorf("fetch: %+v", got)
	}
	if got := r.list("t", -1); got.Code != wire.NotLeaderOrFollower {
		t.Errorf("list: %+v", got)
	}
	r.configure("t", "max.message.bytes", "1000")
	if !r.info("t").Held {
		t.Error("a new config lets it serve")
	}
	if err := b.led[0].Log.StartFromTier(r.now, 40, 10, []log.EpochEntry{{Start: 10}}, nil); err != nil {
		t.Fatal(err)
	}
	r.m.Release(r.now, tp, 7)
	if !r.info("t").Held {
		t.Error("the release of another epoch lets it serve")
	}
	r.m.Release(r.now, tp, 0)
	if got := r.produce("t", -1, r.batchOf(1, 10)).now(); got.Code != wire.None || got.BaseOffset != 40 || got.LogStartOffset != 10 {
		t.Errorf("produce: %+v", got)
	}
	if at := r.info("t").Positions; at.HighWatermark != 41 || at.LogStartOffset != 10 {
		t.Errorf("%+v", at)
	}
}

// Safety rule 23: DeleteRecords of a tiered topic is answered when the bucket has the new log start.
func TestSafety23DeleteRecordsWaitsForTheBucket(t *testing.T) {
	r, b := cold(t)
	p := r.deleteRecords("t", 4)
	p.waits()
	if !slices.Equal(b.starts, []wire.Offset{4}) {
		t.Fatal(b.starts)
	}
	b.written[0](r.now, nil)
	if got := p.now(); got.Code != wire.None || got.LowWatermark != 4 {
		t.Errorf("%+v", got)
	}
	p = r.deleteRecords("t", 5)
	b.written[1](r.now, wire.RequestTimedOut)
	if got := p.now(); got.Code != wire.RequestTimedOut || got.LowWatermark != wire.NoOffset {
		t.Errorf("%+v", got)
	}
	p = r.deleteRecords("t", 6)
	r.sleep(11 * time.Second)
	if got := p.now(); got.Code != wire.RequestTimedOut {
		t.Errorf("the bucket is away: %+v", got)
	}
	b.written[2](r.now, nil)
	r.configure("t", "remote.storage.enable", "false") // what is in the bucket stays there
	p = r.deleteRecords("t", 7)
	p.waits()
	b.written[3](r.now, nil)
	if got := p.now(); got.Code != wire.None || got.LowWatermark != 7 {
		t.Errorf("switched off: %+v", got)
	}
}

// A consumer that was at the end when a cluster was lost stands within what is lost until something comes.
func TestAFetchWithinWhatIsLostWaitsForTheNextRecord(t *testing.T) {
	r, b := newRig(t), &bucket{hold: true, found: log.NoTimestampOffset, lost: [2]wire.Offset{6, 40}}
	r.tier = b
	r.restart()
	r.create("t", tieredTopic)
	if err := b.led[0].Log.StartFromTier(r.now, 40, 0, []log.EpochEntry{{Start: 0}}, nil); err != nil {
		t.Fatal(err)
	}
	r.m.Release(r.now, wire.TopicPartition{Topic: "t"}, 0)
	p := r.fetch(asks("t", 6))
	p.waits()
	r.put("t", 1)
	got := p.now()
	if got.Code != wire.None || got.Records.Length == 0 || got.HighWatermark != 41 {
		t.Errorf("%+v", got)
	}
	got.Records.Release()
}

// A partition that is named twice is one, and is asked for once.
func TestDeleteRecordsOfAPartitionThatIsNamedTwice(t *testing.T) {
	r, b := cold(t)
	p := &pending[replica.DeleteRecordsResult]{t: t}
	request := &replica.DeleteRecordsRequest{Timeout: 10 * time.Second}
	for _, offset := range []wire.Offset{2, 4, 3} {
		request.Partitions = append(request.Partitions, replica.DeleteRecordsPartition{Topic: "t", Offset: offset})
	}
	r.m.DeleteRecords(r.now, request, p.done)
	p.waits()
	if !slices.Equal(b.starts, []wire.Offset{4}) {
		t.Fatal(b.starts)
	}
	b.written[0](r.now, nil)
	for row, got := range p.results {
		if got.Code != wire.None || got.LowWatermark != 4 {
			t.Errorf("%d: %+v", row, got)
		}
	}
	if len(p.results) != 3 {
		t.Errorf("%d results", len(p.results))
	}
}
