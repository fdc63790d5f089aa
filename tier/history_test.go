package tier

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

func TestALeaderThatComesTooLateDoesNothing(t *testing.T) {
	r := newRig(t)
	r.topic.LocalRetentionBytes = 1
	r.lead(StartHere)
	r.produce(20)
	r.settle()
	local := r.log("orders").LocalStartOffset()
	m, err := manifest.Open(t.Context(), r.bucket, manifest.Prefix("orders", testTopicID, 0), manifest.Options{
		Writer: chain.Writer{Broker: 2, Incarnation: "other"}, Nonce: func() string { return "other" },
	})
	if err != nil {
		t.Fatal(err)
	}
	if outcome, err := m.Commit(t.Context(), r.now, 5); outcome != object.Done {
		t.Fatal(err)
	}
	r.crash(log.StopProcessCrash)
	r.lead(StartHere)
	r.produce(20)
	puts := r.objects()
	r.pass(5 * time.Minute)
	if s := r.stats("orders"); !s.Stopped || s.Open || r.objects() != puts || r.log("orders").LocalStartOffset() != local {
		t.Errorf("%+v, %d objects, %d before, local start %d", s, r.objects(), puts, r.log("orders").LocalStartOffset())
	}
}

func TestTwoWritersOneHistory(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(20)
	// The leader is paused in the midst of its third upload, and another one takes over.
	uploads := 0
	other := &rig{}
	r.hook = func(point string) {
		if point != pointUpload+pointCommit {
			return
		}
		if uploads++; uploads != 3 {
			return
		}
		r.hook = nil
		*other = *r
		other.disk = r.disk.ProcessCrashClone()
		other.incarnation, other.nonces, other.stop, other.released = 50, 1000, log.StopProcessCrash, nil
		other.ledger = map[string][]string{"orders": slices.Clone(r.ledger["orders"])}
		other.start()
		other.lead(StartHere)
		other.produce(20)
		other.settle()
	}
	r.produce(20) // of which the other one knows nothing
	r.settle()
	if s := r.stats("orders"); !s.Stopped || !errors.Is(s.Err, errFenced) {
		t.Fatalf("the former leader: %+v", s)
	}
	before := r.state("orders").Position
	r.produce(20)
	r.pass(5 * time.Minute)
	if r.state("orders").Position != before {
		t.Error("the former leader has written on")
	}
	other.now = r.now
	other.produce(11)
	other.pass(2 * testGrace)
	other.check()
	if left := other.unnamed("orders"); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// An entry whose answer got lost may come late: the objects that it names are never deleted, and the range is not added twice.
func TestALateEntryIsNotTakenForALostOne(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	store := r.store.(*faultstore.Store)
	late := 0
	r.faults = func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.Put && strings.Contains(c.Key, "/manifest/") && late < 3 {
			late++
			return faultstore.Late
		}
		return faultstore.None
	}
	r.produce(8)
	r.step()
	if r.stats("orders").Err == nil || len(store.Late()) != 3 {
		t.Fatalf("%d puts are under way, error %v", len(store.Late()), r.stats("orders").Err)
	}
	nonces := r.nonces
	if err := store.Release(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	r.produce(20)
	r.pass(time.Minute)
	for len(store.Late()) > 0 {
		_ = store.Release(t.Context(), 0)
	}
	r.pass(2 * testGrace)
	r.check()
	if left := r.unnamed("orders"); len(left) > 0 || r.nonces == nonces {
		t.Errorf("left over: %v", left)
	}
}

func TestFaultsOfEveryKindEndInOneHistory(t *testing.T) {
	for seed := range uint64(30) {
		r := newRig(t)
		rng := rand.New(rand.NewPCG(seed, 1))
		rates := faultstore.Rates{
			faultstore.Refuse: 0.05, faultstore.Throttle: 0.05, faultstore.Conflict: 0.02, faultstore.LoseAnswer: 0.05, faultstore.Late: 0.03,
			faultstore.Twice: 0.03, faultstore.FalseFailure: 0.02,
		}
		decide := faultstore.Seeded(rng, rates)
		r.faults = decide
		busyConfig(r)
		r.crash(log.StopProcessCrash)
		r.lead(StartHere)
		store := r.store.(*faultstore.Store)
		for range 10 {
			r.produce(11)
			r.pass(time.Minute)
			if late := store.Late(); len(late) > 0 && rng.IntN(2) == 0 {
				_ = store.Release(context.Background(), rng.IntN(len(late)))
			}
			if rng.IntN(4) == 0 {
				r.crash(log.StopProcessCrash)
				r.lead(StartHere)
			}
			if s := r.stats("orders"); s.Stopped {
				t.Fatalf("seed %d: %v", seed, s.Err)
			}
		}
		for len(store.Late()) > 0 {
			_ = store.Release(context.Background(), 0)
		}
		r.faults = nil
		r.pass(5 * time.Minute)
		r.crash(log.StopProcessCrash)
		r.lead(StartHere)
		r.produce(11)
		r.pass(2 * testGrace)
		r.check()
		if left := r.unnamed("orders"); len(left) > 0 || r.stats("orders").BehindSegments > 0 {
			t.Errorf("seed %d: left over %v, behind %+v", seed, left, r.stats("orders"))
		}
		if t.Failed() {
			return
		}
	}
}

// A process that dies before the manifest was read does not make the next one forget that the log may lack its end.
func TestSafety21AKillWhileTheManifestIsWaitedForIsNoWayAround(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(40)
	r.settle()
	r.loseFrom("orders", 12)
	if err := r.log("orders").Flush(); err != nil {
		t.Fatal(err)
	}
	r.disk = r.disk.ProcessCrashClone()
	r.crash(log.StopPowerLoss)
	r.faults = away
	for range 3 {
		r.lead(StartHere)
		r.pass(time.Second)
		if !r.stats("orders").Held {
			t.Fatal("it serves")
		}
		r.crash(log.StopProcessCrash)
	}
	r.faults = nil
	r.lead(StartHere)
	r.settle()
	r.check()
}
