package guard_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
	"github.com/tidemark-io/tidemark/tier/object/guard"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
)

// clock is a clock that moves when somebody sleeps.
type clock struct {
	mu     sync.Mutex
	now    time.Time
	slept  []time.Duration
	timers []*timer
}

func newClock() *clock { return &clock{now: time.UnixMilli(1_000_000)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Sleep(ctx context.Context, d time.Duration) {
	c.mu.Lock()
	c.slept = append(c.slept, d)
	c.mu.Unlock()
	c.advance(d)
}

// advance moves the clock and fires what is due.
func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	c.now = c.now.Add(d)
	var due []func()
	for _, t := range c.timers {
		if t.on && !t.at.After(c.now) {
			t.on = false
			due = append(due, t.f)
		}
	}
	c.mu.Unlock()
	for _, f := range due {
		f()
	}
}

func (c *clock) AfterFunc(d time.Duration, f func()) guard.Timer {
	t := &timer{clock: c, f: f}
	t.Reset(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timers = append(c.timers, t)
	return t
}

type timer struct {
	clock *clock
	at    time.Time
	on    bool
	f     func()
}

func (t *timer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	was := t.on
	t.on = false
	return was
}

func (t *timer) Reset(d time.Duration) bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	was := t.on
	t.on, t.at = true, t.clock.now.Add(d)
	return was
}

// half is a source of random numbers that is in the middle.
func half() float64 { return 0.5 }

// guarded is a guarded store in memory with faults, and what it depends on.
type guarded struct {
	*guard.Store
	clock *clock
	inner *memstore.Store
	seen  []guard.Observation
}

func newGuarded(t *testing.T, decide func(faultstore.Call) faultstore.Fault, change func(*guard.Options)) *guarded {
	t.Helper()
	g := &guarded{clock: newClock(), inner: memstore.New(nil)}
	o := guard.Options{Clock: g.clock, Random: half, Observe: func(o guard.Observation) { g.seen = append(g.seen, o) }}
	if change != nil {
		change(&o)
	}
	g.Store = guard.New(faultstore.New(g.inner, decide), o)
	return g
}

func (g *guarded) put(t *testing.T, key, body string) {
	t.Helper()
	if _, err := g.inner.Put(t.Context(), key, strings.NewReader(body), object.Condition{}); err != nil {
		t.Fatal(err)
	}
}

// always makes the same fault of every request.
func always(f faultstore.Fault) func(faultstore.Call) faultstore.Fault {
	return func(faultstore.Call) faultstore.Fault { return f }
}
