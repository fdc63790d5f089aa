package guard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
	"github.com/tidemark-io/tidemark/tier/object/guard"
)

// TestBO097TheBudgetBoundsRequestsWhileTheStoreIsDown: a hundred callers at it for two minutes.
func TestBO097TheBudgetBoundsRequestsWhileTheStoreIsDown(t *testing.T) {
	const rate, burst = 20, 40
	// With a clock that every sleep moves, callers with pauses of their own would come one after the other.
	g := newGuarded(t, always(faultstore.Throttle), func(o *guard.Options) { o.Tries, o.Rate, o.Burst = 1, rate, burst })
	begin := g.clock.Now()
	for g.clock.Now().Sub(begin) < 2*time.Minute {
		for range 100 {
			if _, err := g.Head(t.Context(), "k"); !errors.Is(err, object.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		g.clock.advance(10 * time.Millisecond)
	}
	sent := 0
	for _, o := range g.seen {
		sent += o.Requests
	}
	most := burst + rate*g.clock.Now().Sub(begin).Seconds() + 1
	if float64(sent) > most {
		t.Errorf("%d requests, the budget is %.0f", sent, most)
	}
	if sent < rate*60 {
		t.Errorf("%d requests in two minutes would not find a store that has come back", sent)
	}
}

// TestTheBudgetRefusesWhoWouldWaitForLong: callers that come side by side while nobody sleeps.
func TestTheBudgetRefusesWhoWouldWaitForLong(t *testing.T) {
	g := newGuarded(t, always(faultstore.Refuse), func(o *guard.Options) { o.Tries, o.Rate, o.Burst, o.MaxWait = 1, 1, 2, time.Millisecond })
	for range 10 {
		_, _ = g.Head(t.Context(), "k")
	}
	sent := 0
	for _, o := range g.seen {
		sent += o.Requests
	}
	if sent != 3 { // the first finds a store that is not known to fail
		t.Errorf("%d requests", sent)
	}
	urgent := object.WithCause(t.Context(), object.Cause{Kind: object.CauseLease})
	_, _ = g.Head(urgent, "lease")
	if last := g.seen[len(g.seen)-1]; last.Requests != 1 {
		t.Error("the lease waits behind the rest")
	}
}

// TestWhoGivesUpKeepsNobodyWaiting: a thousand callers who have no time to wait leave the budget as it was.
func TestWhoGivesUpKeepsNobodyWaiting(t *testing.T) {
	down := true
	g := newGuarded(t, func(faultstore.Call) faultstore.Fault {
		if down {
			return faultstore.Throttle
		}
		return faultstore.None
	}, func(o *guard.Options) { o.Tries, o.Rate, o.Burst, o.MaxWait = 1, 1, 1, 2*time.Second })
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Hour))
	defer cancel()
	g.clock.now = time.Now().Add(time.Hour - time.Millisecond)
	for range 1000 {
		_, _ = g.Head(ctx, "k")
	}
	down = false
	if _, err := g.Head(t.Context(), "k"); !errors.Is(err, object.ErrNotExist) {
		t.Errorf("the next one: %v", err)
	}
}

// TestOneAnswerOpensTheGate: once the store answers, nobody waits.
func TestOneAnswerOpensTheGate(t *testing.T) {
	down := true
	g := newGuarded(t, func(faultstore.Call) faultstore.Fault {
		if down {
			return faultstore.Throttle
		}
		return faultstore.None
	}, func(o *guard.Options) { o.Tries, o.Rate, o.Burst = 1, 1, 1 })
	_, _ = g.Head(t.Context(), "k")
	down = false
	for range 100 {
		if _, err := g.Head(t.Context(), "k"); !errors.Is(err, object.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if len(g.clock.slept) != 0 {
		t.Errorf("pauses of %v", g.clock.slept)
	}
}
