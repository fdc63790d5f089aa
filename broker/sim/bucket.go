package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tidemark-io/tidemark/tier/object/faultstore"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
)

// bucket is the object store of the cluster, with its faults. It keeps every promise of object.Store, but for those about
// answers: they get lost, they come late, they lie about failures; and so do puts.
type bucket struct {
	c      *cluster
	random *rand.Rand
	inner  *memstore.Store   // what is really there
	view   *faultstore.Store // what brokers see
	rates  faultstore.Rates  // of the faults, as the seed has them
	draw   func(faultstore.Call) faultstore.Fault
	calm   bool // no faults, whatever the rates
	away   bool // nothing gets through
	quiet  bool // calls of a moment in which nothing goes wrong
	ghost  bool // a call of a broker that is dead already: its puts may yet arrive

	crashIn   int  // calls from now on until the broker crashes; 0: never
	crashPuts bool // of them, puts alone count
	crashKind crash
}

func newBucket(c *cluster, rates faultstore.Rates) *bucket {
	b := &bucket{c: c, random: c.stream("bucket"), rates: rates}
	b.inner = memstore.New(func() time.Time { return c.clock.now })
	b.draw = faultstore.Seeded(b.random, rates)
	b.view = faultstore.New(b.inner, b.decide)
	return b
}

// decide says what becomes of a call.
func (b *bucket) decide(call faultstore.Call) faultstore.Fault {
	var fault faultstore.Fault
	if b.lastCall(call.Op) {
		if call.Op != faultstore.Put || b.random.IntN(2) == 0 {
			panic(b.crashKind)
		}
		fault, b.crashIn, b.crashPuts = faultstore.Late, 1, false // sent, and the broker is dead before the next one
	} else {
		fault = b.fault(call)
	}
	b.c.trace.add("store", "%s %s: %s", call.Op, call.Key, faultNames[fault])
	switch {
	case call.Op != faultstore.Put:
	case fault == faultstore.Late:
		b.c.clock.after(b.lateness(), func() { b.land(call) })
	default:
		b.overtake(call)
	}
	return fault
}

// lastCall counts the calls until the broker crashes, and tells whether it does in this one.
func (b *bucket) lastCall(op faultstore.Op) bool {
	if b.quiet || b.ghost || b.crashIn == 0 || b.crashPuts && op != faultstore.Put {
		return false
	}
	b.crashIn--
	return b.crashIn == 0
}

// overtake lets a put that is late arrive right before the next one of its key, now and then: the worst moment that there is.
func (b *bucket) overtake(call faultstore.Call) {
	for _, late := range b.view.Late() {
		if late.Key == call.Key && b.random.IntN(2) == 0 {
			b.land(late)
			return
		}
	}
}

// triesAgain is how often a call that is no put is tried again at once. Brokers have tier/object/guard for that, which tries more often
// and with pauses.
const triesAgain = 2

func (b *bucket) fault(call faultstore.Call) faultstore.Fault {
	switch {
	case b.quiet:
		return faultstore.None
	case b.ghost && call.Op == faultstore.Put:
		return faultstore.Late
	case b.ghost, b.away:
		return faultstore.Refuse
	case b.calm, !b.c.node.joined:
		return faultstore.None
	case b.c.node.engine == nil && b.c.node.ended == wiped:
		return faultstore.None // a broker without a disk tries the store
	case b.c.node.engine == nil && b.random.IntN(10) > 0:
		return faultstore.None // a start makes many calls, and does not go on after any that fails
	}
	fault := b.draw(call)
	for range triesAgain {
		if fault != faultstore.None && call.Op != faultstore.Put {
			fault = b.draw(call)
		}
	}
	return fault
}

// lateness is how long a put is on its way that its sender has given up: often just so long that it meets the next try.
func (b *bucket) lateness() time.Duration {
	if b.random.IntN(3) > 0 {
		return time.Duration(b.random.IntN(500)) * time.Millisecond
	}
	return time.Duration(b.random.IntN(20_000)) * time.Millisecond
}

// land lets a late put arrive.
func (b *bucket) land(call faultstore.Call) {
	for i, late := range b.view.Late() {
		if late.Seq == call.Seq {
			err := b.view.Release(context.Background(), i)
			b.c.trace.add("store", "late put of %s: %s", call.Key, outcome(err))
			b.c.stats.LatePuts++
			return
		}
	}
}

func outcome(err error) string {
	if err != nil {
		return err.Error()
	}
	return "done"
}

// faultNames are for the trace.
var faultNames = map[faultstore.Fault]string{
	faultstore.None: "ok", faultstore.Refuse: "no answer", faultstore.Throttle: "503", faultstore.Conflict: "409",
	faultstore.LoseAnswer: "answer lost", faultstore.Late: "late", faultstore.Twice: "twice",
	faultstore.FalseFailure: "412, falsely",
}
