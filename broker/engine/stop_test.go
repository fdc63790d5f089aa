package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/membership/lease"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

// A controlled stop: no more clients, then the controller knows, then the lease goes, and at last the logs are closed.
func TestACleanStopGoesInOrder(t *testing.T) {
	r := serving(t)
	r.create("t")
	r.pass(time.Second)
	epoch := r.e.member.epoch
	r.puts = nil
	r.e.Stop()
	r.turn()
	if r.e.Serving() {
		t.Error("it serves though it was asked to stop")
	}
	r.until("it has stopped", func() bool { return isClosed(r.e.Stopped()) })
	if last := r.puts[len(r.puts)-1]; last != lease.Key || r.leaseRecord().State != lease.Released {
		t.Errorf("the last put was %s, the lease is %s", last, r.leaseRecord().State)
	}
	if !slices.ContainsFunc(r.puts, func(key string) bool { return key != lease.Key }) {
		t.Error("the departure was not committed")
	}
	if b := r.e.Image().Broker(1); !b.Fenced {
		t.Error("it left unfenced")
	}
	r.consistent()
	before := len(r.puts)
	r.pass(time.Minute)
	if len(r.puts) != before {
		t.Errorf("it writes on: %v", r.puts[before:])
	}
	if err := r.e.Close(r.now); err != nil {
		t.Fatal(err)
	}

	// The next start finds the marker, and waits for nothing.
	r.files = r.files.ProcessCrashClone()
	stopped := r.now
	r.open()
	r.until("it serves", r.e.Serving)
	if b := r.e.Image().Broker(1); b.CleanStopEpoch != epoch {
		t.Errorf("clean stop of epoch %d, registered as %d", epoch, b.CleanStopEpoch)
	}
	if took := r.now.Sub(stopped); took > 510*time.Millisecond {
		t.Errorf("it took %v", took)
	}
	if p := r.e.Image().Partition("t", 0); p.Leader != 1 {
		t.Errorf("leader is %d", p.Leader)
	}
}

// A stop before anything was committed has nothing to hand over.
func TestAStopBeforeTheRegistration(t *testing.T) {
	r := newRig(t)
	r.open()
	r.faults = func(faultstore.Call) faultstore.Fault { return faultstore.Refuse }
	r.pass(time.Second)
	r.stop()
}

// Without controlled.shutdown.enable a broker leaves without a word to the controller; it gives up the lease and closes its logs.
func TestAStopThatIsNotControlled(t *testing.T) {
	r := serving(t, "controlled.shutdown.enable=false")
	before := len(r.entries())
	r.stop()
	if n := len(r.entries()); n != before {
		t.Errorf("%d entries became %d", before, n)
	}
	if r.leaseRecord().State != lease.Released {
		t.Error("the lease is held still")
	}
}

// A machine that slept can't tell whether its lease is valid: it gives it up, and takes it anew.
func TestASleepEndsTheTerm(t *testing.T) {
	r := serving(t)
	epoch := r.controllerEpoch()
	r.closed[LaneChain] = true
	a := r.submit(topicNamed("t"))
	r.turn()
	r.e.Slept(r.now)
	if !a.done() || a.code() != wire.NotController {
		t.Error("what was in flight is not given up")
	}
	r.release(LaneChain)
	r.until("there is a new term", func() bool { return r.controllerEpoch() > epoch })
	r.consistent()
	if !r.e.Serving() {
		t.Error("it does not serve any more")
	}
}
