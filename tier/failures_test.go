package tier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

// A damaged segment is held back, with everything behind it, and kept; other partitions go on.
func TestFM49ADamagedSegmentIsHeldBack(t *testing.T) {
	r := newRig(t, "orders", "payments")
	r.topic.RemoteStorageEnable = false
	r.lead(StartHere)
	r.produce(20)
	for _, topic := range r.names {
		if err := r.log(topic).Flush(); err != nil {
			t.Fatal(err)
		}
	}
	f, err := r.disk.Open("/data/orders-0/00000000000000000006.log")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("damage"), 200); err != nil {
		t.Fatal(err)
	}
	r.topic.RemoteStorageEnable, r.topic.LocalRetentionBytes = true, 1<<10
	for _, topic := range r.names {
		r.log(topic).UpdateConfig(r.topic)
	}
	r.crash(log.StopProcessCrash)
	r.lead(StartHere)
	r.pass(5 * time.Minute)
	if s := r.stats("orders"); s.TieredEnd != 6 || s.BehindSegments == 0 || s.Damaged != 1 || r.log("orders").LocalStartOffset() > 6 {
		t.Errorf("%+v, local start %d", s, r.log("orders").LocalStartOffset())
	}
	if list, err := r.m.Explain(t.Context(), r.now, "orders"); err != nil || len(list[0].Damaged) != 1 || list[0].Damaged[0].Start != 6 {
		t.Errorf("explained as %+v, %v", list, err)
	}
	if s := r.stats("payments"); s.BehindSegments != 0 || s.TieredEnd < 18 || s.Damaged != 0 {
		t.Errorf("the other partition: %+v", s)
	}
	// Once retention has passed it the uploads go on behind it.
	r.topic.RetentionBytes = 1 << 11
	r.log("orders").UpdateConfig(r.topic)
	r.m.Changed(tpOf("orders"))
	r.produce(20)
	r.pass(5 * time.Minute)
	if s := r.stats("orders"); s.TieredEnd < 30 || s.Damaged != 0 {
		t.Errorf("behind it: %+v", s)
	}
}

// A log does not begin anew from an object that is not what the manifest says; it waits for one that is.
func TestFM49NothingIsRestoredFromADamagedObject(t *testing.T) {
	const leaderEpochAt = 15 // outside of a batch's own checksum
	for topic, damaged := range map[string]struct {
		kind manifest.Kind
		at   int
	}{
		"orders":                  {manifest.AuxObject, 200},
		wire.ConsumerOffsetsTopic: {manifest.LogObject, leaderEpochAt},
	} {
		r := newRig(t, topic)
		r.lead(StartHere)
		r.produce(40)
		r.settle()
		tail := r.state(topic).Tail
		key := manifest.Prefix(topic, testTopicID, 0) + "/" + tail[len(tail)-1].Key(damaged.kind)
		sound, _, err := object.Read(t.Context(), r.bucket, key, math.MaxInt32)
		if err != nil {
			t.Fatal(err)
		}
		put := func(b []byte) {
			if _, err := r.bucket.Put(t.Context(), key, bytes.NewReader(b), object.Condition{}); err != nil {
				t.Fatal(err)
			}
		}
		flipped := bytes.Clone(sound)
		flipped[damaged.at] ^= 1
		put(flipped)
		r.loseDisk()
		r.crash(log.StopPowerLoss)
		r.lead(StartVerified)
		r.pass(time.Minute)
		if s := r.stats(topic); !s.Held || !errors.Is(s.Err, errObject) {
			t.Errorf("%s: %+v", topic, s)
		}
		put(sound)
		r.pass(time.Minute)
		if s := r.stats(topic); s.Held || s.Err != nil {
			t.Errorf("%s, with the object as it was: %+v", topic, s)
		}
		r.check()
	}
}

// cuttingStore keeps only a part of what it is given, and says that all went well: a proxy that cuts.
type cuttingStore struct {
	object.Store
	cuts *int
}

func (s cuttingStore) Put(ctx context.Context, key string, body object.Body, cond object.Condition) (object.Token, error) {
	if (strings.HasSuffix(key, ".log") || strings.HasSuffix(key, ".aux")) && *s.cuts > 0 {
		*s.cuts--
		return s.Store.Put(ctx, key, io.NewSectionReader(body, 0, body.Size()/2), cond)
	}
	return s.Store.Put(ctx, key, body, cond)
}

func TestFM39AnObjectThatIsNotWholeIsNeverNamed(t *testing.T) {
	r := newRig(t)
	cuts := 3
	r.store = cuttingStore{r.bucket, &cuts}
	r.crash(log.StopProcessCrash)
	r.lead(StartHere)
	r.produce(20)
	r.step()
	if r.stats("orders").Err == nil {
		t.Error("nobody noticed")
	}
	r.pass(time.Minute)
	r.check()
	if left := r.unnamed("orders"); cuts != 0 || len(left) > 0 || r.state("orders").End < 18 {
		t.Errorf("%d cuts to come, left over %v, %d segments", cuts, left, r.state("orders").Segments)
	}
}

func TestFM40TheSecondLeaderOfARangeMakesTheFirstOnesAnOrphan(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(8)
	var inside string
	r.hook = func(point string) {
		if point == pointUpload+pointCommit && inside == "" {
			inside = point
			m, err := manifest.Open(t.Context(), r.bucket, manifest.Prefix("orders", testTopicID, 0), manifest.Options{
				Writer: chain.Writer{Broker: 2, Incarnation: "other"}, Nonce: func() string { return "other" },
			})
			if err != nil {
				t.Fatal(err)
			}
			if outcome, err := m.Commit(t.Context(), r.now, 5); outcome != object.Done {
				t.Fatal(err)
			}
		}
	}
	r.settle()
	if s := r.stats("orders"); !s.Stopped || r.state("orders").Segments != 0 || len(r.unnamed("orders")) != 2 {
		t.Errorf("%+v, left over %v", s, r.unnamed("orders"))
	}
	// Its objects are of an epoch that is over: the next leader's sweep has them.
	r.epoch = 6
	r.crash(log.StopProcessCrash)
	r.lead(StartHere)
	r.pass(2 * testGrace)
	r.check()
	if left := r.unnamed("orders"); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestFM41AThousandOrphans(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(40)
	r.settle()
	prefix := manifest.Prefix("orders", testTopicID, 0) + "/"
	for i := range 1000 {
		key := prefix + manifest.Name{Base: wire.Offset(i % 40), Epoch: 0, Nonce: fmt.Sprint("lost", i)}.Key(manifest.LogObject)
		if _, err := r.bucket.Put(t.Context(), key, strings.NewReader("lost"), object.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	r.crash(log.StopProcessCrash)
	r.lead(StartHere)
	r.produce(11)
	r.pass(2 * testGrace)
	if left := r.unnamed("orders"); len(left) > 0 {
		t.Errorf("%d are left", len(left))
	}
	r.check()
}

func TestFM43LocalDataStaysUntilItsEntryWasReadBack(t *testing.T) {
	for _, fault := range []faultstore.Fault{faultstore.Refuse, faultstore.FalseFailure, faultstore.Throttle} {
		r := newRig(t)
		r.topic.LocalRetentionBytes, r.topic.LocalRetentionMs = 1, 1
		r.lead(StartHere)
		r.faults = func(c faultstore.Call) faultstore.Fault {
			if c.Op == faultstore.Put && strings.Contains(c.Key, "/manifest/") {
				return fault
			}
			return faultstore.None
		}
		r.produce(40)
		r.pass(10 * time.Minute)
		if l := r.log("orders"); l.LocalStartOffset() != 0 {
			t.Errorf("fault %d: local start %d", fault, l.LocalStartOffset())
		}
		r.faults = nil
		r.pass(10 * time.Minute)
		if l := r.log("orders"); l.LocalStartOffset() < 36 || l.StartOffset() != 0 {
			t.Errorf("afterwards: log start %d, local start %d", l.StartOffset(), l.LocalStartOffset())
		}
		r.check()
	}
}

func TestFM44AManifestThatIsDamagedStopsTheTierAndNothingElse(t *testing.T) {
	r := newRig(t, "orders", "payments")
	r.topic.LocalRetentionBytes = 1 << 10
	r.lead(StartHere)
	r.produce(20)
	r.settle()
	key := manifest.Prefix("orders", testTopicID, 0) + "/manifest/" + fmt.Sprintf("%020d.json", 2)
	if err := r.bucket.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	here := r.log("orders").LocalStartOffset()
	r.crash(log.StopProcessCrash)
	r.lead(StartHere)
	r.produce(20)
	r.pass(10 * time.Minute)
	if s := r.stats("orders"); !s.Stopped || !errors.Is(s.Err, chain.ErrHalt) || r.log("orders").LocalStartOffset() != here {
		t.Errorf("%+v, local start %d", s, r.log("orders").LocalStartOffset())
	}
	if s := r.stats("payments"); s.Err != nil || s.BehindSegments > 0 {
		t.Errorf("%+v", s)
	}
}

func TestFM46AnEmptiedBucketIsFilledAgainFromWhatIsHere(t *testing.T) {
	r := newRig(t)
	r.topic.LocalRetentionBytes = 3 << 10
	r.lead(StartHere)
	r.produce(40)
	r.settle()
	local := r.log("orders").LocalStartOffset()
	if local == 0 {
		t.Fatal("all is here")
	}
	var keys []string
	for info := range r.bucket.List(t.Context(), "", "") {
		keys = append(keys, info.Key)
	}
	for _, key := range keys {
		if err := r.bucket.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	r.crash(log.StopProcessCrash)
	r.lead(StartHere)
	r.settle()
	s := r.state("orders")
	if len(s.Lost) != 1 || s.Lost[0] != (manifest.Range{Start: 0, End: local}) || s.LogStart != 0 {
		t.Errorf("lost %v, log start %d", s.Lost, s.LogStart)
	}
	if r.stats("orders").Lost != int64(local) || r.log("orders").LocalStartOffset() != local {
		t.Errorf("%+v, local start %d", r.stats("orders"), r.log("orders").LocalStartOffset())
	}
	for offset := range local {
		r.ledger["orders"][offset] = ""
	}
	r.check()
}

func TestFM47AStoreThatThrottlesIsNotStormed(t *testing.T) {
	topics := make([]string, 40)
	for i := range topics {
		topics[i] = fmt.Sprint("topic", i)
	}
	r := newRig(t, topics...)
	r.lead(StartHere)
	r.produce(8)
	calls := 0
	r.faults = func(faultstore.Call) faultstore.Fault { calls++; return faultstore.Throttle }
	r.pass(10 * time.Minute)
	calls = 0
	r.pass(10 * time.Minute)
	if perMinute := calls / 10; perMinute > 4*len(topics) {
		t.Errorf("%d requests a minute", perMinute)
	}
	r.faults = nil
	r.pass(2 * backoffMax)
	for _, s := range r.m.Stats(r.now) {
		if s.Err != nil || s.BehindSegments > 0 {
			t.Errorf("%+v", s)
		}
	}
	r.check()
}

func TestFM48AStaleListSweepsNothingThatIsNamed(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(20)
	r.settle()
	r.crash(log.StopProcessCrash)
	r.faults = func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.List {
			return faultstore.Stale
		}
		return faultstore.None
	}
	r.lead(StartHere)
	r.produce(20)
	r.pass(3 * testGrace)
	r.faults = nil
	r.check()
}

// A bucket in which this broker may not delete any more keeps what should go, and takes what is new; somebody is told.
func TestFM54WithoutTheRightToDeleteUploadsGoOn(t *testing.T) {
	r := newRig(t)
	r.topic.RetentionBytes = 4 << 10
	r.lead(StartHere)
	r.produce(40)
	r.settle()
	orphan := manifest.Prefix("orders", testTopicID, 0) + "/" + manifest.Name{Epoch: 0, Nonce: "lost"}.Key(manifest.LogObject)
	if _, err := r.bucket.Put(t.Context(), orphan, strings.NewReader("lost"), object.Condition{}); err != nil {
		t.Fatal(err)
	}
	r.crash(log.StopProcessCrash)
	r.lead(StartHere)
	requests := 0
	denied := func(c faultstore.Call) faultstore.Fault {
		requests++
		if c.Op == faultstore.Delete {
			return faultstore.Refuse
		}
		return faultstore.None
	}
	r.faults = denied
	for range 5 {
		r.produce(20)
		r.pass(2 * testGrace)
		if s := r.stats("orders"); s.BehindSegments > 0 || s.Err == nil {
			t.Errorf("%d segments behind, %v", s.BehindSegments, s.Err)
		}
	}
	r.m.Close(r.now, r.now.Add(30*time.Second))
	r.pass(5 * time.Second)
	if over, whole := r.m.Closed(r.now); !over || !whole {
		t.Errorf("the stop: over %v, whole %v", over, whole)
	}
	r.crash(log.StopClean)
	r.lead(StartHere)
	r.pass(time.Minute)
	requests = 0
	if r.pass(time.Hour); requests > 1000 {
		t.Errorf("%d requests in an idle hour", requests)
	}
	r.check()
	r.faults = nil
	r.pass(4 * testGrace)
	if s := r.state("orders"); len(s.Dropped) > 0 || len(r.unnamed("orders")) > 0 || r.stats("orders").Err != nil {
		t.Errorf("left over: %v, %v", s.Dropped, r.unnamed("orders"))
	}
	r.check()
}
