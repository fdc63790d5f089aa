package guard_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
	"github.com/tidemark-io/tidemark/tier/object/guard"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
	"github.com/tidemark-io/tidemark/tier/object/objecttest"
)

func TestStoreConforms(t *testing.T) {
	objecttest.Run(t, guard.New(memstore.New(nil), guard.Options{}))
}

// TestBO097WhatMayBeTriedAgainIs: each call gets through a store that fails four times in a row.
func TestBO097WhatMayBeTriedAgainIs(t *testing.T) {
	const down = 4
	for name, call := range map[string]func(ctx context.Context, g *guarded) error{
		"get": func(ctx context.Context, g *guarded) error {
			b, _, err := object.Read(ctx, g, "k", 100)
			if err == nil && string(b) != "body" {
				err = errors.New("another body")
			}
			return err
		},
		"head":   func(ctx context.Context, g *guarded) error { _, err := g.Head(ctx, "k"); return err },
		"delete": func(ctx context.Context, g *guarded) error { return g.Delete(ctx, "k") },
		"put": func(ctx context.Context, g *guarded) error {
			_, err := g.Put(ctx, "k", strings.NewReader("new"), object.Condition{})
			return err
		},
		"list": func(ctx context.Context, g *guarded) error {
			n := 0
			for _, err := range g.List(ctx, "", "") {
				if err != nil {
					return err
				}
				n++
			}
			if n != 1 {
				return errors.New("another list")
			}
			return nil
		},
	} {
		g := newGuarded(t, func(c faultstore.Call) faultstore.Fault {
			if c.Seq <= down {
				return faultstore.Throttle
			}
			return faultstore.None
		}, nil)
		g.put(t, "k", "body")
		if err := call(t.Context(), g); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(g.seen) != down+1 {
			t.Errorf("%s: %d requests", name, len(g.seen))
		}
		const ms = time.Millisecond
		want := []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms} // half of the bounds
		if !slices.Equal(g.clock.slept, want) {
			t.Errorf("%s: pauses of %v", name, g.clock.slept)
		}
	}
}

// TestFM04ConditionalPutsGoThroughOnceAndAtOnce: a second try would report our own success as a failure.
func TestFM04ConditionalPutsGoThroughOnceAndAtOnce(t *testing.T) {
	for _, cond := range []object.Condition{object.IfAbsent(), object.IfMatch("t")} {
		g := newGuarded(t, always(faultstore.LoseAnswer), nil)
		for range 100 {
			if _, err := g.Put(t.Context(), "k", strings.NewReader("x"), cond); !errors.Is(err, object.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		if len(g.seen) != 100 || len(g.clock.slept) != 0 {
			t.Errorf("100 puts are %d requests and %d pauses", len(g.seen), len(g.clock.slept))
		}
	}
}

// TestWhatIsDecidedIsNotTriedAgain: the store has answered.
func TestWhatIsDecidedIsNotTriedAgain(t *testing.T) {
	g := newGuarded(t, nil, nil)
	g.put(t, "k", "body")
	_, missing := g.Get(t.Context(), "none", object.Range{})
	_, beyond := g.Get(t.Context(), "k", object.Range{Offset: 9})
	_, invalid := g.Head(t.Context(), "../k")
	if !errors.Is(missing, object.ErrNotExist) || !errors.Is(beyond, object.ErrRange) || !errors.Is(invalid, object.ErrKey) {
		t.Errorf("%v; %v; %v", missing, beyond, invalid)
	}
	if len(g.seen) != 3 {
		t.Errorf("%d requests", len(g.seen))
	}
}

func TestBackOffEndsWithItsContext(t *testing.T) {
	g := newGuarded(t, always(faultstore.Throttle), func(o *guard.Options) { o.BackOff = time.Minute })
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Hour))
	defer cancel()
	g.clock.now = time.Now().Add(time.Hour - time.Second) // a second is left, the pause is half a minute
	_, err := g.Head(ctx, "k")
	if !errors.Is(err, object.ErrUnavailable) || len(g.seen) != 1 || len(g.clock.slept) != 0 {
		t.Errorf("%v after %d requests and pauses of %v", err, len(g.seen), g.clock.slept)
	}

	ctx, cancel = context.WithCancel(t.Context())
	g = newGuarded(t, func(faultstore.Call) faultstore.Fault { cancel(); return faultstore.Throttle }, nil)
	if _, err := g.Head(ctx, "k"); !errors.Is(err, object.ErrUnavailable) || len(g.seen) != 1 {
		t.Errorf("cancelled: %v after %d requests", err, len(g.seen))
	}
}

// breaking is a store whose lists break off after two keys.
type breaking struct{ object.Store }

func (b breaking) List(ctx context.Context, prefix, after string) iter.Seq2[object.Info, error] {
	return func(yield func(object.Info, error) bool) {
		n := 0
		for info, err := range b.Store.List(ctx, prefix, after) {
			if n++; n > 2 {
				yield(object.Info{}, object.ErrUnavailable)
				return
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

func TestAListGoesOnBehindTheLastKey(t *testing.T) {
	inner := memstore.New(nil)
	var want []string
	for key := range strings.SplitSeq("a b c d e f g h i j k l m n", " ") {
		want = append(want, key)
		if _, err := inner.Put(t.Context(), key, strings.NewReader("x"), object.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	g := guard.New(breaking{inner}, guard.Options{Clock: newClock(), Random: half, Tries: 2})
	var got []string
	for info, err := range g.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, info.Key)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

func TestTheObserverHearsOfCauseBytesAndTries(t *testing.T) {
	g := newGuarded(t, faultstore.Script(faultstore.None, faultstore.Refuse), nil)
	ctx := object.WithCause(t.Context(), object.Cause{Kind: object.CauseFetch, Topic: "orders"})
	if _, err := g.Put(ctx, "k", strings.NewReader("12345"), object.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := object.Read(ctx, g, "k", 100); err != nil {
		t.Fatal(err)
	}
	want := []guard.Observation{
		{Op: guard.Put, Bytes: 5},
		{Op: guard.Get, Err: object.ErrUnavailable},
		{Op: guard.Get, Bytes: 5, Again: true},
	}
	if len(g.seen) != len(want) {
		t.Fatalf("seen %+v", g.seen)
	}
	for i, w := range want {
		got := g.seen[i]
		if got.Op != w.Op || got.Bytes != w.Bytes || got.Again != w.Again || !errors.Is(got.Err, w.Err) || got.Requests != 1 ||
			got.Cause != (object.Cause{Kind: object.CauseFetch, Topic: "orders"}) {
			t.Errorf("observation %d is %+v", i, got)
		}
	}
}
