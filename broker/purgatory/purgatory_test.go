package purgatory_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/broker/purgatory"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// probe is an operation that can complete while ready says so, and counts its ends.
type probe struct {
	ready               func() bool
	tries               int
	completed, expired  int
	onComplete, onTried func()
}

func (o *probe) TryComplete(time.Time) bool {
	o.tries++
	ready := o.ready()
	if o.onTried != nil {
		o.onTried()
	}
	return ready
}

func (o *probe) Complete(time.Time) {
	o.completed++
	if o.onComplete != nil {
		o.onComplete()
	}
}

func (o *probe) Expire(time.Time) { o.expired++ }

func never() bool { return false }

func TestParkCompletesAtOnceWhatCanComplete(t *testing.T) {
	var p purgatory.Purgatory[string]
	op := &probe{ready: func() bool { return true }}
	p.Park(start, op, []string{"a"}, start.Add(time.Second))
	if op.completed != 1 || p.Len() != 0 {
		t.Fatalf("completed %d times, %d parked", op.completed, p.Len())
	}
}

func TestParkNeverWaitsWithoutTime(t *testing.T) {
	var p purgatory.Purgatory[string]
	op := &probe{ready: never}
	p.Park(start, op, []string{"a"}, start)
	if op.expired != 1 || p.Len() != 0 {
		t.Fatalf("expired %d times, %d parked", op.expired, p.Len())
	}
}

func TestParkSeesAnEventBetweenItsFirstLookAndItsRegistration(t *testing.T) {
	var p purgatory.Purgatory[string]
	happened := false
	op := &probe{ready: func() bool { return happened }}
	op.onTried = func() {
		if !happened {
			happened = true
			p.Fire(start, "a") // finds nobody: the operation is not registered yet
		}
	}
	p.Park(start, op, []string{"a"}, start.Add(time.Second))
	if op.completed != 1 || p.Len() != 0 {
		t.Fatalf("completed %d times, %d parked: the wake-up was lost", op.completed, p.Len())
	}
}

func TestFireTriesOnlyItsKeyInOrderOfArrival(t *testing.T) {
	var p purgatory.Purgatory[string]
	open := false
	var order []int
	for i, keys := range [][]string{{"a"}, {"b"}, {"b", "a"}, {"a", "a"}} {
		op := &probe{ready: func() bool { return open }}
		op.onComplete = func() { order = append(order, i) }
		p.Park(start, op, keys, start.Add(time.Second))
	}
	open = true
	if n := p.Fire(start, "a"); n != 3 || !slices.Equal(order, []int{0, 2, 3}) {
		t.Fatalf("completed %d: %v", n, order)
	}
	if n := p.Fire(start, "b"); n != 1 || p.Len() != 0 {
		t.Fatalf("completed %d, %d left", n, p.Len())
	}
}

func TestAdvanceExpiresInOrderOfDeadlines(t *testing.T) {
	var p purgatory.Purgatory[int]
	if _, ok := p.NextWake(); ok {
		t.Fatal("an empty purgatory wants to be woken")
	}
	late, early := &probe{ready: never}, &probe{ready: never}
	for i, parked := range []struct {
		op     *probe
		wait   time.Duration
		sooner bool
	}{{late, 2 * time.Second, true}, {early, time.Second, true}, {&probe{ready: never}, 3 * time.Second, false}} {
		if sooner := p.Park(start, parked.op, []int{1}, start.Add(parked.wait)); sooner != parked.sooner {
			t.Fatalf("operation %d: next wake became earlier: %v", i, sooner)
		}
	}
	if wake, ok := p.NextWake(); !ok || !wake.Equal(start.Add(time.Second)) {
		t.Fatalf("next wake %v", wake)
	}
	if n := p.Advance(start.Add(time.Second - 1)); n != 0 {
		t.Fatalf("expired %d too early", n)
	}
	if n := p.Advance(start.Add(time.Second)); n != 1 || early.expired != 1 || late.expired != 0 {
		t.Fatalf("expired %d: early %d, late %d", n, early.expired, late.expired)
	}
	if n := p.Advance(start.Add(time.Hour)); n != 2 || late.expired != 1 || p.Len() != 0 {
		t.Fatalf("expired %d, %d left", n, p.Len())
	}
}

func TestCompleteMayCallBack(t *testing.T) {
	var p purgatory.Purgatory[string]
	open := false
	second := &probe{ready: func() bool { return open }}
	first := &probe{ready: func() bool { return open }}
	first.onComplete = func() {
		p.Park(start, second, []string{"a"}, start.Add(time.Second))
		p.Fire(start, "a")
	}
	p.Park(start, first, []string{"a"}, start.Add(time.Second))
	open = true
	p.Fire(start, "a")
	if first.completed != 1 || second.completed != 1 || p.Len() != 0 {
		t.Fatalf("first %d, second %d, %d left", first.completed, second.completed, p.Len())
	}
}

// An operation that is tried right when its deadline passes ends once, whoever wins.
func TestDeadlineDuringTryEndsOnce(t *testing.T) {
	for _, ready := range []bool{false, true} {
		var p purgatory.Purgatory[string]
		looks := 0
		op := &probe{ready: func() bool { looks++; return looks > 2 && ready }}
		op.onTried = func() {
			if looks == 3 {
				p.Advance(start.Add(time.Hour))
			}
		}
		p.Park(start, op, []string{"a"}, start.Add(time.Second))
		p.Fire(start, "a")
		if op.completed+op.expired != 1 || (op.completed == 1) != ready || p.Len() != 0 {
			t.Fatalf("ready %v: completed %d, expired %d, %d left", ready, op.completed, op.expired, p.Len())
		}
	}
}

// Against a model: an operation completes at the first event of one of its keys at which the counter has reached its need,
// else expires at its deadline; it never does both and never neither.
func TestEveryOperationEndsExactlyOnceAsTheModelSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type parked struct {
			*probe
			keys     []int
			need     int
			deadline time.Time
			want     string
		}
		var p purgatory.Purgatory[int]
		now, counter := start, 0
		var ops []*parked
		check := func() {
			waiting := 0
			for i, op := range ops {
				got := ""
				switch {
				case op.completed == 1 && op.expired == 0:
					got = "completed"
				case op.completed == 0 && op.expired == 1:
					got = "expired"
				case op.completed+op.expired > 1:
					got = "several ends"
				default:
					waiting++
				}
				if got != op.want {
					t.Fatalf("operation %d: %q, want %q", i, got, op.want)
				}
			}
			if p.Len() != waiting {
				t.Fatalf("%d parked, want %d", p.Len(), waiting)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"park": func(t *rapid.T) {
				op := &parked{
					keys:     rapid.SliceOfN(rapid.IntRange(0, 4), 0, 4).Draw(t, "keys"),
					need:     counter + rapid.IntRange(0, 3).Draw(t, "need"),
					deadline: now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "wait")) * time.Second),
				}
				op.probe = &probe{ready: func() bool { return counter >= op.need }}
				switch {
				case counter >= op.need:
					op.want = "completed"
				case !op.deadline.After(now):
					op.want = "expired"
				}
				ops = append(ops, op)
				p.Park(now, op, op.keys, op.deadline)
				check()
			},
			"fire": func(t *rapid.T) {
				key := rapid.IntRange(0, 4).Draw(t, "key")
				counter++
				for _, op := range ops {
					if op.want == "" && counter >= op.need && slices.Contains(op.keys, key) {
						op.want = "completed"
					}
				}
				p.Fire(now, key)
				check()
			},
			"advance": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "seconds")) * time.Second)
				for _, op := range ops {
					if op.want == "" && !op.deadline.After(now) {
						op.want = "expired"
					}
				}
				p.Advance(now)
				check()
			},
		})
		p.Advance(now.Add(time.Hour))
		if _, ok := p.NextWake(); ok || p.Len() != 0 {
			t.Fatal("something is left after all deadlines")
		}
	})
}

// counted is an operation for many goroutines.
type counted struct {
	need    int64
	counter *atomic.Int64
	running atomic.Int32
	ends    atomic.Int32
	done    *sync.WaitGroup
}

func (o *counted) TryComplete(time.Time) bool {
	if o.running.Add(1) != 1 {
		panic("TryComplete ran beside itself")
	}
	ready := o.counter.Load() >= o.need
	o.running.Add(-1)
	return ready
}

func (o *counted) Complete(time.Time) { o.ends.Add(1); o.done.Done() }
func (o *counted) Expire(time.Time)   { o.ends.Add(1); o.done.Done() }

// No wake-up is lost between parkers and firers: without any deadline passing, every operation completes.
func TestConcurrentParkAndFireLoseNoWakeUp(t *testing.T) {
	const parkers, each, keys = 4, 2000, 8
	var p purgatory.Purgatory[int]
	var counters [keys]atomic.Int64
	var done, workers sync.WaitGroup
	done.Add(parkers * each)
	ops := make([][]*counted, parkers)
	for i := range parkers {
		workers.Go(func() {
			for n := range each {
				key := (i + n) % keys
				op := &counted{need: counters[key].Load() + int64(n%3), counter: &counters[key], done: &done}
				ops[i] = append(ops[i], op)
				p.Park(start, op, []int{key, (key + 1) % keys}, start.Add(time.Hour))
			}
		})
		workers.Go(func() {
			for n := range each * keys / parkers {
				counters[n%keys].Add(1)
				p.Fire(start, n%keys)
				if n%64 == 0 {
					p.Advance(start.Add(time.Minute))
				}
			}
		})
	}
	workers.Wait()
	for key := range keys { // needs of the last parked ones may lie above where the counters stopped
		counters[key].Add(3)
		p.Fire(start, key)
	}
	done.Wait()
	for _, list := range ops {
		for _, op := range list {
			if n := op.ends.Load(); n != 1 {
				t.Fatalf("an operation ended %d times", n)
			}
		}
	}
	if p.Len() != 0 {
		t.Fatalf("%d left", p.Len())
	}
}

func TestConcurrentFireAndAdvanceEndEachOperationOnce(t *testing.T) {
	const each = 5000
	var p purgatory.Purgatory[int]
	var counter atomic.Int64
	var done, workers sync.WaitGroup
	done.Add(each)
	ops := make([]*counted, each)
	for i := range ops {
		ops[i] = &counted{need: int64(i + 1), counter: &counter, done: &done}
		p.Park(start, ops[i], []int{0}, start.Add(time.Duration(i+1)))
	}
	workers.Go(func() {
		for counter.Add(7) < each {
			p.Fire(start, 0)
		}
	})
	workers.Go(func() {
		for i := range each + 1 {
			p.Advance(start.Add(time.Duration(i)))
		}
	})
	workers.Wait()
	done.Wait()
	for i, op := range ops {
		if n := op.ends.Load(); n != 1 {
			t.Fatalf("operation %d ended %d times", i, n)
		}
	}
}

// Ten thousand fetches wait on partitions of their own: an event elsewhere costs none of them anything.
func BenchmarkFireBesideTenThousandParked(b *testing.B) {
	var p purgatory.Purgatory[int]
	for i := range 10_000 {
		p.Park(start, &probe{ready: never}, []int{i, i + 1}, start.Add(time.Hour))
	}
	b.ReportAllocs()
	for b.Loop() {
		p.Fire(start, -1)
	}
}

func BenchmarkParkAndComplete(b *testing.B) {
	var p purgatory.Purgatory[int]
	for i := range 10_000 {
		p.Park(start, &probe{ready: never}, []int{i, i + 1}, start.Add(time.Hour))
	}
	keys := []int{20_000, 20_001}
	b.ReportAllocs()
	for b.Loop() {
		tries := 0
		p.Park(start, &probe{ready: func() bool { tries++; return tries > 2 }}, keys, start.Add(time.Minute))
		p.Fire(start, 20_000)
	}
}
