// Package chaintest has a few clients of one store act on one goroutine, each behind faults of its own: while one of them waits for the
// store, others may act. One seed is one history. What the clients do, and what must hold, is the test's.
package chaintest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

// Crowd is the clients, and what they share.
type Crowd struct {
	T    *testing.T
	Rand *rand.Rand
	Now  time.Time
	Saw  map[string]int // what has happened, for the test to be sure of itself

	members []*Member
	depth   int // of steps within requests of other steps
}

// Member is a client. It acts again when it has slept, and never while it waits for its store.
type Member struct {
	Store *faultstore.Store

	act    func()
	busy   bool
	asleep int // steps
	storm  int // requests until its store is itself again
}

// In a storm most requests fail, else few.
var (
	calm = faultstore.Rates{
		faultstore.Refuse: 0.02, faultstore.Throttle: 0.02, faultstore.Conflict: 0.02, faultstore.LoseAnswer: 0.04,
		faultstore.Late: 0.04, faultstore.Twice: 0.02, faultstore.FalseFailure: 0.02,
	}
	storm = faultstore.Rates{faultstore.Refuse: 0.2, faultstore.LoseAnswer: 0.2, faultstore.Late: 0.4}
)

// New is a crowd without members.
func New(t *testing.T, rng *rand.Rand) *Crowd {
	return &Crowd{T: t, Rand: rng, Now: time.UnixMilli(1_800_000_000_000), Saw: map[string]int{}}
}

// Clock is for the store.
func (c *Crowd) Clock() time.Time { return c.Now }

// Join adds a client that does one thing at each call of act.
func (c *Crowd) Join(inner object.Store, act func()) *Member {
	m := &Member{act: act}
	inCalm, inStorm := faultstore.Seeded(c.Rand, calm), faultstore.Seeded(c.Rand, storm)
	m.Store = faultstore.New(inner, func(call faultstore.Call) faultstore.Fault {
		for c.depth < 3 && c.Rand.IntN(12) == 0 {
			c.Step()
		}
		if c.Rand.IntN(60) == 0 {
			m.storm = c.Rand.IntN(12)
		}
		if m.storm > 0 {
			m.storm--
			return inStorm(call)
		}
		return inCalm(call)
	})
	c.members = append(c.members, m)
	return m
}

// Step lets somebody who is not waiting for the store do something.
func (c *Crowd) Step() {
	m := c.members[c.Rand.IntN(len(c.members))]
	if m.asleep > 0 {
		m.asleep--
		return
	}
	if m.busy {
		return
	}
	m.busy = true
	c.depth++
	defer func() { m.busy, c.depth = false, c.depth-1 }()
	m.act()
}

// Sleep has a client miss some of its turns.
func (c *Crowd) Sleep(m *Member) { m.asleep = c.Rand.IntN(60) }

// Wait lets hours pass.
func (c *Crowd) Wait() { c.Now = c.Now.Add(time.Duration(c.Rand.IntN(60)) * time.Hour) }

// Land has one of a client's late puts arrive.
func (c *Crowd) Land(m *Member) {
	if late := len(m.Store.Late()); late > 0 && m.Store.Release(c.T.Context(), c.Rand.IntN(late)) == nil {
		c.Saw["late put lands"]++
	}
}

// LandAll has all that is under way arrive.
func (c *Crowd) LandAll() {
	for _, m := range c.members {
		for len(m.Store.Late()) > 0 {
			_ = m.Store.Release(c.T.Context(), 0) // what the store says, nobody hears
		}
	}
}

// Seeds has a crowd of each seed take some steps, after which finish says what must hold. Each of wants has to have happened to one of them.
func Seeds(t *testing.T, seeds uint64, steps int, start func(seed uint64) (c *Crowd, finish func()), wants ...string) {
	t.Helper()
	total := map[string]int{}
	for seed := range seeds {
		c, finish := start(seed)
		for range steps {
			c.Step()
		}
		finish()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		for what, n := range c.Saw {
			total[what] += n
		}
	}
	for _, what := range wants {
		if total[what] == 0 {
			t.Errorf("%q never happened: the test shows nothing of it", what)
		}
	}
	t.Log(total)
}
