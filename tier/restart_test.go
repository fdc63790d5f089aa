package tier

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func TestSafety21ALogThatLacksItsEndBeginsAnewFromTheBucket(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(40)
	r.settle()
	r.loseFrom("orders", 12)
	r.crash(log.StopPowerLoss)
	r.faults = away
	r.lead(StartHere) // the log knows better
	r.pass(time.Minute)
	if s := r.stats("orders"); !s.Held || s.Err == nil || len(r.released) != 0 {
		t.Fatalf("without the manifest: %+v, released %v", s, r.released)
	}
	r.faults = nil
	r.pass(backoffHeld)
	end := r.state("orders").End
	if len(r.released) != 1 || !r.released[0].Restarted || r.released[0].Epoch != r.epoch {
		t.Fatalf("released %+v", r.released)
	}
	if l := r.log("orders"); l.EndOffset() != end || l.StartOffset() != 0 || l.LocalStartOffset() != end || l.MayLackEnd() {
		t.Fatalf("the log has [%d, %d) from %d, the bucket ends at %d", l.LocalStartOffset(), l.EndOffset(), l.StartOffset(), end)
	}
	r.produce(20)
	r.settle()
	r.check()
}

// What the bucket knows of producers is as of the end of its last segment. Where records behind that were removed before they were
// uploaded, a producer whose records they were must be able to go on.
func TestSafety21ProducersGoOnBehindRecordsThatWereRemoved(t *testing.T) {
	for _, removed := range []bool{false, true} {
		r := newRig(t)
		r.lead(StartHere)
		sequence := int32(0)
		write := func(n int) (err error) {
			for range n {
				w := record.Builder{Producer: &record.Producer{ID: 7, Sequence: sequence}}
				w.Append(r.now.UnixMilli(), nil, make([]byte, 100))
				b, failed := w.Build()
				if failed != nil {
					t.Fatal(failed)
				}
				l := r.log("orders")
				if _, err = l.AppendAsLeader(r.now, b, r.epoch, log.Client); err != nil {
					return err
				}
				l.UpdateHighWatermark(l.EndOffset())
				r.m.Changed(tpOf("orders"))
				sequence++
			}
			return nil
		}
		if err := write(40); err != nil {
			t.Fatal(err)
		}
		r.settle()
		uploaded := r.state("orders").End
		if removed {
			if err := write(1); err != nil {
				t.Fatal(err)
			}
			l := r.log("orders")
			if err := l.AdvanceStart(l.EndOffset()); err != nil {
				t.Fatal(err)
			}
			r.m.Changed(tpOf("orders"))
			r.hook = func(point string) {
				if point == pointStart+pointCommitted { // the segments are still listed
					panic(errCrash)
				}
			}
			if r.pass(time.Minute) {
				t.Fatal("the log start does not get to the manifest")
			}
			r.hook = nil
		} else {
			sequence = int32(uploaded) // the producer has what is lost still to send
		}
		r.disk = vfs.NewMem()
		r.crash(log.StopPowerLoss)
		r.config.RecoveryGap = 0
		r.lead(StartRecovered)
		r.settle()
		if s := r.state("orders"); removed != (s.LogStart > uploaded) {
			t.Fatalf("the log start is at %d, uploaded was up to %d", s.LogStart, uploaded)
		}
		if !removed {
			sequence++
			if err := write(1); wire.CodeOf(err) != wire.OutOfOrderSequenceNumber {
				t.Errorf("a gap behind the last segment: %v", err)
			}
			sequence--
		}
		if err := write(3); err != nil {
			t.Errorf("removed %v: %v", removed, err)
		}
	}
}

// Another history under the same offsets is not the bucket's, also where the log is longer.
func TestSafety21LineageDecidesNotTheOffset(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(20)
	r.settle()
	end := r.state("orders").End
	kept := slices.Clone(r.ledger["orders"][:end])
	r.loseFrom("orders", 0)
	r.epoch = 7 // records of another leader, under the same offsets
	r.log("orders").AssignEpochStart(7)
	r.ledger["orders"] = nil
	r.produce(40)
	if err := r.log("orders").Flush(); err != nil {
		t.Fatal(err)
	}
	r.ledger["orders"] = kept
	r.crash(log.StopPowerLoss)
	r.lead(StartHere)
	r.settle()
	if l := r.log("orders"); l.EndOffset() != end || l.LocalStartOffset() != end {
		t.Fatalf("the log has [%d, %d), the bucket ends at %d", l.LocalStartOffset(), l.EndOffset(), end)
	}
	r.check()
}

// Without a reason to restart, another history in the manifest stops the tier and takes nothing away.
func TestSafety21AnotherHistoryIsLeftAlone(t *testing.T) {
	r := newRig(t)
	r.topic.LocalRetentionBytes = 1 << 10
	r.lead(StartHere)
	r.produce(20)
	r.settle()
	if err := r.log("orders").TruncateFullyAndStartAt(r.now, 0); err != nil {
		t.Fatal(err)
	}
	r.epoch = 7
	r.log("orders").AssignEpochStart(7)
	r.ledger["orders"] = nil
	r.produce(40)
	r.crash(log.StopProcessCrash)
	before := r.state("orders").Position
	r.lead(StartHere)
	r.pass(time.Minute)
	if s := r.stats("orders"); !s.Stopped || !errors.Is(s.Err, errHistory) || s.Open {
		t.Errorf("%+v", s)
	}
	if got := r.local("orders"); len(got) != 40 || r.state("orders").Position != before {
		t.Errorf("%d records are left here; the manifest is at %+v, was at %+v", len(got), r.state("orders").Position, before)
	}
}

// A topic may be deleted before its first look after a start, which does what there is to do here also when it was cancelled, as one is
// that a store holds up.
func TestATopicThatIsDeletedBeforeItsFirstLook(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(3)
	r.crash(log.StopProcessCrash)
	r.lead(StartHere)
	jobs := r.m.Due(r.now)
	if len(jobs) != 1 {
		t.Fatalf("%d jobs", len(jobs))
	}
	r.m.Resign(tpOf("orders"))
	if err := r.logs.Delete(r.now, tpOf("orders")); err != nil {
		t.Fatal(err)
	}
	jobs[0].Run(t.Context())(r.now)
	if offline := r.logs.Offline(); len(offline) > 0 {
		t.Errorf("offline: %v", offline)
	}
}
