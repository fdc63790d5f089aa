package guard_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
	"github.com/tidemark-io/tidemark/tier/object/guard"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
	"github.com/tidemark-io/tidemark/tier/object/objecttest"
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

// parted is a store that takes bodies above 10 bytes in parts of 4, and fails some of the requests.
type parted struct {
	object.Store
	fail    func(op string) bool
	uploads map[string][]string
	aborted int
}

func (p *parted) PartBytes(size int64) int64 {
	if size <= 10 {
		return 0
	}
	return 4
}

func (p *parted) failed(op string) error {
	if p.fail != nil && p.fail(op) {
		return object.ErrUnavailable
	}
	return nil
}

func (p *parted) BeginUpload(context.Context, string) (string, error) {
	p.uploads["1"] = nil
	return "1", p.failed("begin")
}

func (p *parted) PutPart(_ context.Context, _, upload string, number int, b object.Body) (object.Part, error) {
	text, err := io.ReadAll(io.NewSectionReader(b, 0, b.Size()))
	if err == nil {
		err = p.failed("part")
	}
	if err != nil {
		return object.Part{}, err
	}
	p.uploads[upload] = append(p.uploads[upload][:number-1], string(text))
	return object.Part{Number: number}, nil
}

func (p *parted) CompleteUpload(ctx context.Context, key, upload string, parts []object.Part, cond object.Condition) (object.Token, error) {
	if err := p.failed("complete"); err != nil {
		return "", err
	}
	return p.Put(ctx, key, strings.NewReader(strings.Join(p.uploads[upload], "")), cond)
}

func (p *parted) AbortUpload(context.Context, string, string) error {
	p.aborted++
	return nil
}

// TestBO097EachPartIsTriedAgainByItself: with every second request failing, an upload of many parts would never end
// if it began anew each time.
func TestBO097EachPartIsTriedAgainByItself(t *testing.T) {
	n := 0
	p := &parted{Store: memstore.New(nil), uploads: map[string][]string{}, fail: func(string) bool { n++; return n%2 == 1 }}
	g := guard.New(p, guard.Options{Clock: newClock(), Random: half})
	body := strings.Repeat("0123456789", 20)
	if _, err := g.Put(t.Context(), "k", strings.NewReader(body), object.Condition{}); err != nil {
		t.Fatal(err)
	}
	if b, _, err := object.Read(t.Context(), g, "k", 1000); string(b) != body {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if p.aborted != 0 {
		t.Error("given up")
	}
}

// TestFM39AFailedUploadIsGivenUp: also when the context of the put is gone.
func TestFM39AFailedUploadIsGivenUp(t *testing.T) {
	for _, op := range []string{"part", "complete"} {
		ctx, cancel := context.WithCancel(t.Context())
		p := &parted{Store: memstore.New(nil), uploads: map[string][]string{}, fail: func(o string) bool {
			if o == op {
				cancel()
			}
			return o == op
		}}
		g := guard.New(p, guard.Options{Clock: newClock(), Random: half})
		_, err := g.Put(ctx, "k", strings.NewReader("more than ten bytes"), object.IfAbsent())
		if !errors.Is(err, object.ErrUnavailable) || p.aborted != 1 {
			t.Errorf("%s: %v, given up %d times", op, err, p.aborted)
		}
	}
}
