package engine

import (
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

// next asks for producer ids; those that were not given at once come into got later.
func (r *rig) nextIDs(n int, got map[wire.ProducerID]bool) (refused *int) {
	refused = new(int)
	for range n {
		r.e.producers.Next(r.now, func(id wire.ProducerID, err error) {
			switch {
			case err != nil:
				*refused++
			case got[id]:
				r.t.Errorf("id %d was given twice", id)
			default:
				got[id] = true
			}
		})
	}
	return refused
}

// A producer that starts while the store is away has its id, also the first one since the broker has started.
func TestTheFirstBlockOfProducerIDsIsFetchedBeforeAnybodyAsks(t *testing.T) {
	r := serving(t)
	r.pass(time.Second)
	r.faults = func(faultstore.Call) faultstore.Fault { return faultstore.Refuse }
	r.pass(time.Minute)
	got := map[wire.ProducerID]bool{}
	if r.nextIDs(1, got); len(got) != 1 {
		t.Error("no id")
	}
}

// Safety rule 15: the next block is fetched when half of one is used, so that a store that is away for a while stops nobody.
func TestSafety15TheNextBlockIsFetchedAtHalfUse(t *testing.T) {
	r := serving(t)
	got := map[wire.ProducerID]bool{}
	r.nextIDs(1, got)
	r.until("the first id is there", func() bool { return len(got) == 1 })
	blocks := func() wire.ProducerID { return r.committed().NextProducerID() }
	first := blocks()
	size := int(first)

	r.nextIDs(size/2-2, got)
	r.pass(time.Second)
	if blocks() != first {
		t.Error("the next block was fetched too early")
	}
	r.nextIDs(2, got)
	r.pass(time.Second)
	if blocks() != 2*first {
		t.Error("half of the block is used, and no other was fetched")
	}

	// The store goes away: what was fetched lasts for one and a half blocks.
	r.faults = func(faultstore.Call) faultstore.Fault { return faultstore.Refuse }
	r.pass(time.Minute)
	if refused := r.nextIDs(size+size/2-1, got); *refused != 0 || len(got) != 2*size {
		t.Errorf("%d refused, %d given", *refused, len(got))
	}
	refused := r.nextIDs(10, got)
	r.pass(time.Minute)
	if *refused != 10 {
		t.Errorf("%d of 10 refused with an empty block", *refused)
	}
	r.faults = nil
	r.until("it is the controller again", func() bool { return r.e.role.state == active })
	r.nextIDs(10, got)
	r.until("there are ids again", func() bool { return len(got) == 2*size+10 })
}

// Whatever dies, no id is given twice.
func TestProducerIDsAreNeverGivenTwice(t *testing.T) {
	r := serving(t)
	got := map[wire.ProducerID]bool{}
	for round := range 6 {
		r.nextIDs(1700, got)
		if round%2 == 0 {
			want := len(got) + 1
			r.until("some are given", func() bool { return len(got) >= want })
		}
		r.kill()
		r.open()
		r.until("it serves", r.e.Serving)
	}
	if len(got) < 1000 {
		t.Errorf("only %d were given: the test shows little", len(got))
	}
}

func TestRequestsForProducerIDsAreBounded(t *testing.T) {
	r := serving(t)
	r.until("there is a block", func() bool { return r.committed().NextProducerID() > 0 })
	r.closed[LaneChain] = true
	got := map[wire.ProducerID]bool{}
	refused := r.nextIDs(int(r.committed().NextProducerID())+producerIDWaiters+5, got)
	if *refused != 5 {
		t.Errorf("%d refused", *refused)
	}
}

// More may wait than a block serves: they wait for the next ones, not for somebody else to ask.
func TestABlockOfProducerIDsThatIsTooSmallIsFollowedByTheNext(t *testing.T) {
	r := serving(t)
	got := map[wire.ProducerID]bool{}
	const n = 3500
	r.nextIDs(n, got)
	r.until("all are given", func() bool { return len(got) == n })
}
