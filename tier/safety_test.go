package tier

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

// away is a store that answers nobody.
func away(faultstore.Call) faultstore.Fault { return faultstore.Refuse }

func TestSafety20OnlyWhatIsBelowTheLastStableOffsetIsUploaded(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(10)
	w := record.Builder{Transactional: true, Producer: &record.Producer{ID: 7}}
	w.Append(r.now.UnixMilli(), nil, []byte("open"))
	b, err := w.Build()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.log("orders").AppendAsLeader(r.now, b, r.epoch, log.Client); err != nil {
		t.Fatal(err)
	}
	r.ledger["orders"] = append(r.ledger["orders"], "open")
	r.produce(30)
	r.pass(5 * testUnsealed)
	if end, lso := r.state("orders").End, r.log("orders").LastStableOffset(); lso != 10 || end > lso || end == 0 {
		t.Errorf("tiered end %d, last stable offset %d", end, lso)
	}
	// The high watermark bounds it, too: what is not replicated may be cut.
	r = newRig(t)
	r.lead(StartHere)
	r.produce(10)
	held := r.log("orders").HighWatermark()
	r.unreplicated = true
	r.produce(20)
	r.pass(5 * testUnsealed)
	if end := r.state("orders").End; end > held || end == 0 {
		t.Errorf("tiered end %d, high watermark %d", end, held)
	}
}

func TestSafety20ASegmentIsDurableBeforeItsUpload(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	seen := 0
	r.hook = func(point string) {
		if point != pointPutData {
			return
		}
		seen++
		end := r.m.partitions[tpOf("orders")].m.State().End
		lost := newRig(t)
		lost.disk, lost.bucket, lost.stop = r.disk.CrashClone(rand.New(rand.NewPCG(1, uint64(seen)))), r.bucket, log.StopPowerLoss
		lost.incarnation = 100
		lost.start()
		if got := lost.log("orders").EndOffset(); got <= end {
			t.Errorf("upload %d of [%d, ..): a power loss leaves a log that ends at %d", seen, end, got)
		}
	}
	r.produce(40)
	r.settle()
	if seen < 5 {
		t.Errorf("%d uploads", seen)
	}
}

func TestSafety22EntriesAddObjectsOfTheirOwnEpoch(t *testing.T) {
	r := newRig(t)
	for range 4 {
		r.lead(StartHere)
		r.produce(11)
		r.settle()
		r.crash(log.StopProcessCrash)
	}
	added := 0
	for e, err := range chain.Read(t.Context(), r.bucket, manifest.Prefix("orders", testTopicID, 0)+"/manifest", 1) {
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range e.Records {
			if strings.Contains(string(raw), `"type":"add"`) {
				added++
				if !strings.Contains(string(raw), fmt.Sprintf(`"epoch":%d`, e.Epoch-1)) {
					t.Errorf("entry of epoch %d: %s", e.Epoch-1, raw)
				}
			}
		}
	}
	if added < 4 {
		t.Errorf("%d segments added", added)
	}
}

func TestSafety22TheSweepTakesOnlyWhatNobodyCanEverName(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.epoch = 5
	r.produce(20)
	r.lead(StartHere) // epoch 6
	r.settle()
	prefix := manifest.Prefix("orders", testTopicID, 0) + "/"
	put := func(epoch int) string {
		key := prefix + manifest.Name{Base: 3, Epoch: wire.LeaderEpoch(epoch), Nonce: fmt.Sprint("stray", epoch)}.Key(manifest.LogObject)
		if _, err := r.bucket.Put(t.Context(), key, strings.NewReader("stray"), object.Condition{}); err != nil {
			t.Fatal(err)
		}
		return key
	}
	there := func(key string) bool {
		_, err := r.bucket.Head(t.Context(), key)
		return err == nil
	}
	old, own, later := put(5), put(6), put(9)
	r.crash(log.StopProcessCrash)
	r.lead(StartHere) // epoch 7
	r.produce(11)
	r.pass(testGrace / 2)
	if !there(old) || !there(own) || !there(later) {
		t.Error("swept before the grace was over")
	}
	r.pass(testGrace)
	if there(old) || there(own) || !there(later) {
		t.Errorf("of epochs 5, 6 and 9 under epoch 7 there are %v, %v, %v", there(old), there(own), there(later))
	}
	r.check()
}

func TestSafety23DeleteRecordsIsAnsweredAfterItsEntry(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(40)
	r.settle()
	var answers []error
	report := func(offset wire.Offset) {
		if err := r.log("orders").AdvanceStart(offset); err != nil {
			t.Fatal(err)
		}
		r.m.ReportLogStart(r.now, tpOf("orders"), offset, r.now.Add(30*time.Second), func(_ time.Time, err error) { answers = append(answers, err) })
	}
	r.hook = func(point string) {
		if point == pointStart+pointCommit && r.state("orders").LogStart < 9 && len(answers) > 0 {
			t.Error("answered before the entry")
		}
	}
	report(9)
	if len(answers) != 0 || r.wakes == 0 {
		t.Fatalf("answers %v, woken %d times", answers, r.wakes)
	}
	r.settle()
	if len(answers) != 1 || answers[0] != nil || r.state("orders").LogStart != 9 {
		t.Fatalf("answers %v, log start %d", answers, r.state("orders").LogStart)
	}
	report(8)
	if len(answers) != 2 || answers[1] != nil {
		t.Errorf("below the log start: %v", answers)
	}
	r.faults = away
	report(20)
	r.pass(time.Minute)
	if len(answers) != 3 || !errors.Is(answers[2], wire.RequestTimedOut) || r.state("orders").LogStart != 9 {
		t.Errorf("with the store away: %v, log start %d", answers, r.state("orders").LogStart)
	}
	report(21)
	r.m.Resign(tpOf("orders"))
	if len(answers) != 3 {
		t.Error("answered by Resign, whose caller may hold locks")
	}
	r.step()
	if len(answers) != 4 || !errors.Is(answers[3], wire.NotLeaderOrFollower) {
		t.Errorf("after the leadership: %v", answers)
	}
}

func TestSafety23NothingIsDroppedWithoutTheControllerOrATrustedClock(t *testing.T) {
	for name, c := range map[string]struct {
		confirmed bool
		skew      time.Duration
		gone      bool
	}{
		"confirmed":                   {true, 4 * time.Minute, true},
		"not confirmed":               {false, 0, false},
		"a clock that runs ahead":     {true, -6 * time.Minute, false},
		"a clock that stays behind":   {true, 6 * time.Minute, false},
		"not confirmed, and no clock": {false, 6 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.store = datedStore{r.bucket, c.skew}
			r.topic.RetentionMs, r.topic.LocalRetentionMs = time.Hour.Milliseconds(), time.Minute.Milliseconds()
			r.crash(log.StopProcessCrash)
			r.lead(StartHere)
			r.produce(40)
			r.settle()
			objects := r.objects()
			r.confirmed = c.confirmed
			r.pass(3 * time.Hour)
			if gone := r.objects() < objects; gone != c.gone {
				t.Errorf("%d objects, %d before; log start %d", r.objects(), objects, r.state("orders").LogStart)
			}
		})
	}
}

// datedStore has a clock of its own.
type datedStore struct {
	object.Store
	ahead time.Duration
}

func (s datedStore) Skew() (object.Skew, bool) { return object.Skew{Ahead: s.ahead}, true }

// objects counts the segments in the bucket, dropped or not.
func (r *rig) objects() int {
	count := 0
	for info, err := range r.bucket.List(r.t.Context(), "topics/", "") {
		if err != nil {
			r.t.Fatal(err)
		}
		if strings.HasSuffix(info.Key, ".log") {
			count++
		}
	}
	return count
}

func TestSafety25InternalTopicsKeepAllHereAndComeBackWhole(t *testing.T) {
	const topic = wire.ConsumerOffsetsTopic
	for start, goesOnAt := range map[Start]wire.Offset{StartVerified: 40, StartRecovered: 1040} {
		r := newRig(t, topic)
		r.topic.LocalRetentionBytes, r.topic.LocalRetentionMs = 1, 1
		r.topic.CleanupDelete, r.topic.CleanupCompact = false, true
		r.lead(StartHere)
		r.produce(40)
		r.pass(5 * testUnsealed)
		if end, l := r.state(topic).End, r.log(topic); end != 40 || l.LocalStartOffset() != 0 {
			t.Fatalf("tiered end %d, local start %d", end, l.LocalStartOffset())
		}
		r.loseDisk()
		r.crash(log.StopPowerLoss)
		r.lead(start)
		r.settle()
		got := r.local(topic)
		for offset, want := range r.ledger[topic] {
			if got[wire.Offset(offset)] != want {
				t.Fatalf("start %d: offset %d is %q", start, offset, got[wire.Offset(offset)])
			}
		}
		if l := r.log(topic); l.EndOffset() != goesOnAt || l.LocalStartOffset() != 0 {
			t.Fatalf("start %d: the log has [%d, %d)", start, l.LocalStartOffset(), l.EndOffset())
		}
		r.produce(5)
		r.pass(5 * testUnsealed)
		r.check()
		if end := r.state(topic).End; end != goesOnAt+5 {
			t.Errorf("start %d: tiered end %d", start, end)
		}
	}
}

// The log start may lie inside the first segment that comes back.
func TestSafety25AnInternalTopicComesBackWithItsLogStart(t *testing.T) {
	const topic = wire.ConsumerOffsetsTopic
	r := newRig(t, topic)
	r.lead(StartHere)
	r.produce(40)
	if err := r.log(topic).AdvanceStart(9); err != nil {
		t.Fatal(err)
	}
	r.pass(5 * testUnsealed)
	r.loseDisk()
	r.crash(log.StopPowerLoss)
	r.lead(StartVerified)
	r.settle()
	if l := r.log(topic); l.StartOffset() != 9 || l.EndOffset() != 40 {
		t.Errorf("the log has [%d, %d)", l.StartOffset(), l.EndOffset())
	}
	r.check()
}

func TestSafety28ADeletedTopicLeavesNothing(t *testing.T) {
	r := newRig(t, "orders", "orders2")
	r.lead(StartHere)
	r.produce(40)
	r.settle()
	for i := range 2500 {
		key := fmt.Sprintf("%s/%d/%020d-0-n.log", manifest.TopicPrefix("orders", testTopicID), i%7, i)
		if _, err := r.bucket.Put(t.Context(), key, strings.NewReader("x"), object.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	remove := func() (calls int) {
		for more := true; more; calls++ {
			var err error
			if more, err = r.m.DeleteTopic(t.Context(), "orders", testTopicID); err != nil {
				t.Fatal(err)
			}
		}
		return calls
	}
	r.faults = away
	if _, err := r.m.DeleteTopic(t.Context(), "orders", testTopicID); err == nil {
		t.Error("no error with the store away")
	}
	r.faults = nil
	crashes := 0
	r.hook = func(point string) {
		if crashes++; point == pointDeleteTopic && crashes == 500 {
			panic(errCrash)
		}
	}
	func() {
		defer func() { _ = recover() }()
		remove()
	}()
	if calls := remove(); crashes < 500 || calls != 3 {
		t.Errorf("%d calls for the 2,000 objects and some that a crash has left", calls)
	}
	left := 0
	for info := range r.bucket.List(t.Context(), "topics/orders.", "") {
		t.Error(info.Key)
	}
	for range r.bucket.List(t.Context(), "topics/orders2.", "") {
		left++
	}
	if left == 0 || remove() != 1 {
		t.Error("another topic's objects are gone, or there is always more")
	}
}

func TestSafety29ACleanStopClosesAllWhole(t *testing.T) {
	r := newRig(t, "orders", "payments", wire.ConsumerOffsetsTopic)
	r.lead(StartHere)
	r.produce(9)
	r.step()
	if over, _ := r.m.Closed(r.now); over {
		t.Error("over before it began")
	}
	r.m.Close(r.now, r.now.Add(30*time.Second))
	r.pass(5 * time.Second)
	if over, whole := r.m.Closed(r.now); !over || !whole {
		t.Fatalf("over %v, whole %v", over, whole)
	}
	for _, topic := range r.names {
		if s := r.state(topic); !s.Closed || s.End != 9 {
			t.Errorf("%s: closed %v at %d", topic, s.Closed, s.End)
		}
	}
	r.disk = vfs.NewMem()
	r.crash(log.StopPowerLoss)
	r.lead(StartVerified)
	r.settle()
	for _, topic := range r.names {
		if end := r.log(topic).EndOffset(); end != 9 {
			t.Errorf("%s goes on at %d: a gap after a clean stop", topic, end)
		}
	}
	for _, release := range r.released {
		if release.LostFirst != release.LostNext {
			t.Errorf("lost: %+v", release)
		}
	}
	r.produce(9)
	r.settle()
	r.check()
	// An idle partition is still closed, and costs the next stop nothing.
	r.m.Close(r.now, r.now.Add(30*time.Second))
	r.pass(5 * time.Second)
	puts := 0
	r.faults = func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.Put {
			puts++
		}
		return faultstore.None
	}
	r.crash(log.StopClean)
	r.lead(StartHere)
	r.settle()
	r.m.Close(r.now, r.now.Add(30*time.Second))
	r.pass(5 * time.Second)
	if over, whole := r.m.Closed(r.now); !over || !whole || puts != 0 {
		t.Errorf("over %v, whole %v with %d puts", over, whole, puts)
	}
}

// uploadsDeniedStore lets nobody list or end unfinished uploads.
type uploadsDeniedStore struct{ object.Store }

func (uploadsDeniedStore) SweepUploads(context.Context, string, time.Time) (int, error) {
	return 0, object.ErrDenied
}

func TestSafety28ATopicGoesWithoutTheRightToEndUploads(t *testing.T) {
	r := newRig(t)
	r.store = uploadsDeniedStore{r.store}
	r.crash(log.StopProcessCrash)
	r.lead(StartHere)
	r.produce(20)
	r.settle()
	for range 2 {
		if more, err := r.m.DeleteTopic(t.Context(), "orders", testTopicID); more || err != nil {
			t.Errorf("more %v, %v", more, err)
		}
	}
	if left := r.objects(); left > 0 || r.stats("orders").Err != nil {
		t.Errorf("%d objects are left, %v", left, r.stats("orders").Err)
	}
}

// What the last stop has closed says nothing of a record that was appended after somebody looked.
func TestSafety29ALookFromBeforeTheStopClosesNothing(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(9)
	r.m.Close(r.now, r.now.Add(30*time.Second))
	r.pass(5 * time.Second)
	r.crash(log.StopClean)
	r.lead(StartHere)
	var looks []Completion
	for _, job := range r.m.Due(r.now) {
		looks = append(looks, job.Run(t.Context()))
	}
	r.produce(1)
	r.m.Close(r.now, r.now.Add(30*time.Second))
	for _, completion := range looks {
		completion(r.now)
	}
	if over, whole := r.m.Closed(r.now); len(looks) != 1 || over || whole {
		t.Errorf("over %v, whole %v after %d looks, with a record that is not in the bucket", over, whole, len(looks))
	}
	r.pass(5 * time.Second)
	if over, whole := r.m.Closed(r.now); !over || !whole || r.state("orders").End != 10 {
		t.Errorf("over %v, whole %v, the bucket ends at %d", over, whole, r.state("orders").End)
	}
}

func TestSafety29ACleanStopEndsWithItsTime(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(9)
	r.faults = away
	r.m.Close(r.now, r.now.Add(30*time.Second))
	r.pass(20 * time.Second)
	if over, _ := r.m.Closed(r.now); over {
		t.Error("over before its time")
	}
	r.pass(11 * time.Second)
	if over, whole := r.m.Closed(r.now); !over || whole {
		t.Errorf("over %v, whole %v", over, whole)
	}
	if r.now = r.now.Add(2 * backoffMax); len(r.m.Due(r.now)) != 0 {
		t.Error("there are still jobs")
	}
}

func TestSafety19ARecoveredPartitionUsesNoOffsetTwice(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(40)
	r.settle()
	end := r.state("orders").End
	acknowledged := wire.Offset(len(r.ledger["orders"]))
	r.loseDisk()
	r.crash(log.StopPowerLoss)
	r.lead(StartRecovered)
	r.settle()
	if len(r.released) != 1 || r.released[0].LostFirst != end || r.released[0].LostNext != end+1000 {
		t.Fatalf("released %+v", r.released)
	}
	if s := r.stats("orders"); s.Lost != 1000 {
		t.Errorf("%d offsets lost by the numbers", s.Lost)
	}
	if l := r.log("orders"); l.EndOffset() != end+1000 || l.EndOffset() < acknowledged || l.StartOffset() != 0 {
		t.Fatalf("the log goes on at %d from %d", l.EndOffset(), l.StartOffset())
	}
	r.produce(20)
	r.settle()
	r.check()
}

// A recovery that is killed before the partition serves, and begun again, has moved the end already. It moves it once more wherever that is
// in doubt.
func TestSafety19ARecoveryThatIsBegunAgainLosesNoMore(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(*rig)
		gaps      wire.Offset
	}{
		"the same one":            {func(*rig) {}, 1},
		"the next one":            {func(r *rig) { r.since = r.epoch + 1 }, 2},
		"one of unknown age":      {func(r *rig) { r.since = 0 }, 2},
		"the manifest is rebuilt": {func(r *rig) { r.rebuild("orders") }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.lead(StartHere)
			r.produce(40)
			r.settle()
			end := r.state("orders").End
			r.loseDisk()
			r.crash(log.StopPowerLoss)
			r.since = r.epoch + 1
			r.lead(StartRecovered)
			r.settle()
			c.meanwhile(r)
			r.crash(log.StopPowerLoss)
			r.lead(StartRecovered)
			r.settle()
			if got, want := r.log("orders").EndOffset(), end+c.gaps*1000; got != want {
				t.Errorf("the log goes on at %d, not %d", got, want)
			}
			if s := r.state("orders"); s.LeaderEpoch() != r.epoch {
				t.Errorf("former leaders are not fenced off: the manifest is of epoch %d, not %d", s.LeaderEpoch(), r.epoch)
			}
		})
	}
}

// rebuild makes a manifest anew as it is, as the tool does.
func (r *rig) rebuild(topic string) {
	r.t.Helper()
	s := r.state(topic)
	if _, err := manifest.Rebuild(r.t.Context(), r.now, r.bucket, manifest.Prefix(topic, testTopicID, 0), manifest.Options{
		Writer: chain.Writer{Broker: int32(wire.NoBroker), Incarnation: "rebuild"}, Nonce: func() string { return "rebuild" },
	}, r.epoch, manifest.Rebuilt{LogStart: s.LogStart, End: s.End, Segments: s.Tail}); err != nil {
		r.t.Fatal(err)
	}
}

func TestSafety29WhatIsNotInTheBucketIsNotClosed(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.unreplicated = true
	r.produce(9)
	r.m.Close(r.now, r.now.Add(30*time.Second))
	r.pass(20 * time.Second)
	if over, _ := r.m.Closed(r.now); over {
		t.Error("over, though it is not stable yet")
	}
	r.pass(11 * time.Second)
	if over, whole := r.m.Closed(r.now); !over || whole || r.state("orders").Closed {
		t.Errorf("over %v, whole %v, closed %v", over, whole, r.state("orders").Closed)
	}
}

// What is not copied at all is nothing that a stop could wait for, and is not taken for whole.
func TestSafety29AStopDoesNotWaitForWhatIsNotCopied(t *testing.T) {
	for name, edit := range map[string]func(*rig){
		"remote.log.copy.disable":     func(r *rig) { r.topic.RemoteLogCopyDisable = true },
		"remote.storage.enable=false": func(r *rig) { r.topic.RemoteStorageEnable = false },
		"remote.storage.enable=false, and nothing is left there": func(r *rig) {
			r.topic.RemoteStorageEnable, r.topic.RemoteLogDeleteOnDisable = false, true
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "orders", "payments")
			stop := func(stop log.Stop) (over, whole bool) {
				r.m.Close(r.now, r.now.Add(30*time.Second))
				r.pass(5 * time.Second)
				over, whole = r.m.Closed(r.now)
				r.crash(stop)
				r.lead(StartHere)
				return over, whole
			}
			r.lead(StartHere)
			r.produce(9)
			if over, whole := stop(log.StopClean); !over || !whole {
				t.Fatalf("over %v, whole %v", over, whole)
			}
			epoch := r.epoch
			tiered := r.topic
			edit(r)
			r.log("orders").UpdateConfig(r.topic)
			r.topic = tiered
			r.append("orders", "here alone")
			if over, whole := stop(log.StopClean); !over || whole {
				t.Errorf("over %v, whole %v, with a record that is not in the bucket", over, whole)
			}
			// Of the other partition the manifest itself has to say that nobody has led it since.
			if s := r.state("payments"); !s.Closed || s.LeaderEpoch() != epoch {
				t.Errorf("closed %v under epoch %d, not %d", s.Closed, s.LeaderEpoch(), epoch)
			}
		})
	}
}
