package guard_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/guard"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
)

// slow is a store that takes its time by a test's clock, and hears when it is called off.
type slow struct {
	object.Store
	clock *clock
	takes time.Duration
}

func (s *slow) work(ctx context.Context) error {
	s.clock.advance(s.takes)
	if ctx.Err() != nil {
		return errors.Join(object.ErrUnavailable, ctx.Err())
	}
	return nil
}

func (s *slow) Head(ctx context.Context, key string) (object.Info, error) {
	if err := s.work(ctx); err != nil {
		return object.Info{}, err
	}
	return s.Store.Head(ctx, key)
}

func (s *slow) Put(ctx context.Context, key string, b object.Body, cond object.Condition) (object.Token, error) {
	if err := s.work(ctx); err != nil {
		return "", err
	}
	return s.Store.Put(ctx, key, b, cond)
}

func (s *slow) Get(ctx context.Context, key string, r object.Range) (*object.Object, error) {
	o, err := s.Store.Get(ctx, key, r)
	if err == nil {
		o.Body = &slowBody{o.Body, ctx, s}
	}
	return o, err
}

type slowBody struct {
	io.ReadCloser
	ctx  context.Context
	slow *slow
}

func (b *slowBody) Read(p []byte) (int, error) {
	if err := b.slow.work(b.ctx); err != nil {
		return 0, err
	}
	return b.ReadCloser.Read(p[:1])
}

func (s *slow) List(ctx context.Context, prefix, after string) iter.Seq2[object.Info, error] {
	return func(yield func(object.Info, error) bool) {
		for info, err := range s.Store.List(ctx, prefix, after) {
			if e := s.work(ctx); e != nil {
				yield(object.Info{}, e)
				return
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

func newSlow(takes time.Duration, o guard.Options) (*guard.Store, *slow) {
	c := newClock()
	inner := &slow{memstore.New(nil), c, takes}
	o.Clock, o.Random = c, half
	return guard.New(inner, o), inner
}

func TestEveryCallHasADeadlineThatGrowsWithItsBody(t *testing.T) {
	o := guard.Options{Deadline: time.Second, Slowest: 1000, Tries: 1}
	body := bytes.NewReader(make([]byte, 5000)) // five seconds more
	for _, c := range []struct {
		takes time.Duration
		ok    bool
	}{{5500 * time.Millisecond, true}, {6500 * time.Millisecond, false}} {
		g, _ := newSlow(c.takes, o)
		_, err := g.Put(t.Context(), "k", body, object.IfAbsent())
		if (err == nil) != c.ok || err != nil && (!errors.Is(err, object.ErrUnavailable) || !strings.Contains(err.Error(), "no answer within 6s")) {
			t.Errorf("a put that takes %s: %v", c.takes, err)
		}
	}
	g, _ := newSlow(1500*time.Millisecond, o)
	if _, err := g.Head(t.Context(), "k"); !errors.Is(err, object.ErrUnavailable) {
		t.Errorf("a head that takes longer than its second: %v", err)
	}

	// A get learns the size from the answer: 5 bytes at 1.5 s each, with 1 s and 10 bytes a second.
	o.Slowest = 1
	g, inner := newSlow(0, o)
	if _, err := g.Put(t.Context(), "k", strings.NewReader("12345"), object.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		takes time.Duration
		ok    bool
	}{{900 * time.Millisecond, true}, {1500 * time.Millisecond, false}} {
		inner.takes = c.takes
		_, _, err := object.Read(t.Context(), g, "k", 10)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, object.ErrUnavailable) {
			t.Errorf("a get whose bytes take %s: %v", c.takes, err)
		}
	}
}

// TestTheLeaseWaitsForNothingLong: it lapses within 5 s, and one connection that hangs must not cost it.
func TestTheLeaseWaitsForNothingLong(t *testing.T) {
	g, inner := newSlow(0, guard.Options{Tries: 1})
	lease := object.WithCause(t.Context(), object.Cause{Kind: object.CauseLease})
	if _, err := g.Put(lease, "k", strings.NewReader("x"), object.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	inner.takes = 3 * time.Second
	_, err := g.Put(lease, "k", strings.NewReader("y"), object.IfAbsent())
	_, _, readErr := object.Read(lease, g, "k", 10)
	if !errors.Is(err, object.ErrUnavailable) || !errors.Is(readErr, object.ErrUnavailable) {
		t.Errorf("a put of 3 s: %v; a get of 3 s: %v", err, readErr)
	}
	if _, _, err := object.Read(t.Context(), g, "k", 10); err != nil {
		t.Errorf("another get of 3 s: %v", err)
	}

	longer, slow := newSlow(3*time.Second, guard.Options{Tries: 1, LeaseDeadline: time.Minute}) // of a long lease.ttl.ms
	if _, err := longer.Put(lease, "k", strings.NewReader("x"), object.IfAbsent()); err != nil {
		t.Errorf("a put of 3 s for a lease that has a minute: %v", err)
	}
	slow.takes = 16 * time.Second
	if _, err := longer.Put(lease, "l", strings.NewReader("x"), object.IfAbsent()); !errors.Is(err, object.ErrUnavailable) {
		t.Errorf("a put that takes longer than any may: %v", err)
	}
}

// hangingSweep is a store whose list of uploads does not come, for an hour.
type hangingSweep struct {
	object.Store
	clock *clock
}

func (s hangingSweep) SweepUploads(ctx context.Context, _ string, _ time.Time) (int, error) {
	for range 3600 {
		if ctx.Err() != nil {
			return 0, object.ErrUnavailable
		}
		s.clock.advance(time.Second)
	}
	return 0, nil
}

func TestASweepOfUploadsThatHangsIsLetGo(t *testing.T) {
	c := newClock()
	g := guard.New(hangingSweep{memstore.New(nil), c}, guard.Options{Clock: c})
	if _, err := g.SweepUploads(t.Context(), "k/", time.Time{}); !errors.Is(err, object.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// TestADeadlineOfAListIsForTheStoreAlone: a caller may take an hour for each key.
func TestADeadlineOfAListIsForTheStoreAlone(t *testing.T) {
	var seen []guard.Observation
	g, inner := newSlow(0, guard.Options{Deadline: time.Second, Observe: func(o guard.Observation) { seen = append(seen, o) }})
	for _, key := range []string{"a", "b", "c"} {
		if _, err := g.Put(t.Context(), key, strings.NewReader("x"), object.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	inner.takes = 900 * time.Millisecond
	n := 0
	for _, err := range g.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
		inner.clock.advance(time.Hour)
	}
	if last := seen[len(seen)-1]; n != 3 || last.Duration != 2700*time.Millisecond {
		t.Errorf("%d keys in %s", n, last.Duration)
	}
}
