package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// fetchOf reads the first records of topics. What it returns is nil for as long as there is no answer.
func (r *rig) fetchOf(topics ...string) *[]replica.FetchResult {
	r.t.Helper()
	request := &replica.FetchRequest{ReplicaID: replica.ConsumerID, MaxBytes: 1 << 20, MaxWait: time.Second, MinBytes: 1}
	for _, topic := range topics {
		request.Partitions = append(request.Partitions, replica.FetchPartition{
			Topic: topic, MaxBytes: 1 << 16, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1, LogStartOffset: -1,
		})
	}
	got := new([]replica.FetchResult)
	r.e.Replicas().Fetch(r.now, request, func(results []replica.FetchResult) {
		*got = results
		for _, result := range results {
			if result.Records.Release != nil {
				result.Records.Release()
			}
		}
	})
	return got
}

// coldTopics makes topics of one record each that is in the bucket alone.
func (r *rig) coldTopics(topics ...string) {
	r.t.Helper()
	for _, topic := range topics {
		r.create(topic)
		r.produceTo(topic, ledger{})
	}
	r.stop()
	r.wipe()
	r.open()
	r.settled()
}

// FM-45: with all tasks for cold reads stuck at a store that hangs, and no place left to wait for one, what is in memory is served.
func TestWhatIsInMemoryIsServedWhileTheStoreHangs(t *testing.T) {
	r := tiered(t, "remote.log.reader.threads=1", "remote.log.reader.max.pending.tasks=1")
	r.coldTopics("known", "other")
	is := func(got *[]replica.FetchResult, row int, code wire.Code, records bool) {
		t.Helper()
		if *got == nil {
			t.Fatal("there is no answer")
		}
		if result := (*got)[row]; result.Code != code || (result.Records.Length > 0) != records {
			t.Errorf("row %d: %v with %d bytes", row, result.Code, result.Records.Length)
		}
	}
	first := r.fetchOf("known")
	r.until("it is read", func() bool { return *first != nil })
	is(first, 0, wire.None, true)
	r.closed[LaneCold] = true // nobody comes back
	waiting := []*[]replica.FetchResult{r.fetchOf("other")}
	r.turn()
	is(r.fetchOf("known"), 0, wire.None, true)
	is(r.fetchOf("known", "other"), 0, wire.None, true)
	waiting = append(waiting, r.fetchOf("other", "known")) // its turn is now
	r.turn()
	for _, got := range waiting {
		if *got != nil {
			t.Errorf("a read that has to wait is answered with %+v", *got)
		}
	}
	is(r.fetchOf("other"), 0, wire.KafkaStorageError, false)
	both := r.fetchOf("other", "known")
	is(both, 0, wire.KafkaStorageError, false)
	is(both, 1, wire.None, true)
	r.release(LaneCold)
	r.until("those who waited are answered", func() bool { return *waiting[0] != nil && *waiting[1] != nil })
	is(waiting[1], 0, wire.None, true)
	is(waiting[1], 1, wire.None, true)
}

// remote.log.reader.threads counts as it is altered: for how many reads are out, and for how many may be.
func TestReadersOfTheBucketCanBeAltered(t *testing.T) {
	r := tiered(t, "remote.log.reader.threads=1", "remote.log.reader.max.pending.tasks=1")
	r.coldTopics("t")
	r.closed[LaneCold] = true
	ask := func(n int) (asked []*[]replica.FetchResult) {
		for range n {
			asked = append(asked, r.fetchOf("t"))
		}
		r.turn()
		return asked
	}
	out := func(want int) {
		t.Helper()
		if len(r.held) != want {
			t.Errorf("%d reads are out, not %d", len(r.held), want)
		}
	}
	asked := ask(2)
	out(1)
	r.alter("remote.log.reader.threads", "3")
	out(2)
	asked = append(asked, ask(2)...)
	out(3)
	for i, got := range asked {
		if *got != nil {
			t.Errorf("read %d has a place, and is answered with %+v", i, *got)
		}
	}
	if refused := ask(1)[0]; *refused == nil || (*refused)[0].Code != wire.KafkaStorageError {
		t.Errorf("a read without a place: %+v", *refused)
	}
	r.alter("remote.log.reader.threads", "1") // fewer than are out
	out(3)
	r.release(LaneCold)
	r.until("all are answered", func() bool {
		return !slices.ContainsFunc(asked, func(got *[]replica.FetchResult) bool { return *got == nil })
	})
	r.kill()
	r.open() // what was altered last is still so
	r.settled()
	r.closed[LaneCold] = true
	ask(2)
	out(1)
}

// Manifests are read one after the other at a start. A fetch of what is in the bucket alone waits for that of its partition, until its deadline.
func TestAColdFetchWaitsForItsManifest(t *testing.T) {
	r := tiered(t)
	r.coldTopics("t")
	restart := func() {
		r.stop()
		r.files = r.files.ProcessCrashClone()
		r.open()
		r.closed[LaneTier] = true
		r.until("it serves", r.e.Serving)
	}
	restart()
	got := r.fetchOf("t")
	r.pass(100 * time.Millisecond)
	if *got != nil {
		t.Fatalf("answered with %+v", *got)
	}
	r.release(LaneTier)
	r.until("it is answered", func() bool { return *got != nil })
	if result := (*got)[0]; result.Code != wire.None || result.Records.Length == 0 {
		t.Errorf("%v with %d bytes", result.Code, result.Records.Length)
	}
	restart()
	got = r.fetchOf("t")
	asked := r.now
	r.until("it is answered", func() bool { return *got != nil })
	if took := r.now.Sub(asked); (*got)[0].Code != wire.KafkaStorageError || took > time.Second {
		t.Errorf("without the manifest: %v after %v", (*got)[0].Code, took)
	}
}

// Whoever has enough from the local disk does not wait for a place among the reads of the bucket, and nobody waits longer than
// remote.fetch.max.wait.ms.
func TestNoFetchWaitsPastItsDeadlineForAPlaceAmongColdReads(t *testing.T) {
	r := tiered(t, "remote.log.reader.threads=1", "remote.fetch.max.wait.ms=500")
	r.coldTopics("stuck", "cold", "other")
	r.create("local")
	r.produceTo("local", ledger{})
	r.closed[LaneCold] = true
	r.fetchOf("stuck")
	r.turn()

	mixed := r.fetchOf("local", "other")
	if *mixed == nil || (*mixed)[0].Records.Length == 0 {
		t.Errorf("with local records: %+v", *mixed)
	}
	waiting := r.fetchOf("cold")
	r.pass(400 * time.Millisecond)
	if *waiting != nil {
		t.Errorf("before its deadline: %+v", *waiting)
	}
	r.pass(200 * time.Millisecond)
	if *waiting == nil || (*waiting)[0].Code != wire.None || (*waiting)[0].Records.Length != 0 {
		t.Errorf("at its deadline: %+v", *waiting)
	}
	r.release(LaneCold)
	r.until("it is read", func() bool {
		got := r.fetchOf("cold")
		r.turn()
		return *got != nil && (*got)[0].Records.Length > 0
	})
}
