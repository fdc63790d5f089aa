package coordinator

import (
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// waiting holds a partition's replies until their records are committed, and when the partition next wants attention. Its
// lock is a leaf: the high watermark may move while the partition itself is locked, even on the same goroutine, inside
// Append.
type waiting struct {
	mu        sync.Mutex
	high      wire.Offset // the high watermark
	busy      bool        // the partition is locked by somebody who calls release when he is done
	queue     []waiter    // end offsets and deadlines rise
	timer     time.Time   // the shard's NextWake
	announced time.Time   // the next wake that the shell knows of
}

type waiter struct {
	end      wire.Offset
	deadline time.Time
	replies  []func(error)
}

// advance moves the high watermark and returns the replies that it lets go.
func (w *waiting) advance(high wire.Offset) []func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.high = max(w.high, high)
	if w.busy {
		return nil
	}
	return w.committed()
}

// hold makes advance leave the replies to release.
func (w *waiting) hold() {
	w.mu.Lock()
	w.busy = true
	w.mu.Unlock()
}

// add queues replies behind those that wait already.
func (w *waiting) add(end wire.Offset, deadline time.Time, replies []func(error)) {
	if len(replies) == 0 {
		return
	}
	w.mu.Lock()
	w.queue = append(w.queue, waiter{end, deadline, replies})
	w.mu.Unlock()
}

// release ends what hold began and returns the replies that are committed by now.
func (w *waiting) release(timer time.Time) []func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = false
	w.timer = timer
	return w.committed()
}

// committed takes the replies out whose records the high watermark has passed.
func (w *waiting) committed() []func() {
	n := 0
	for n < len(w.queue) && w.queue[n].end <= w.high {
		n++
	}
	return w.take(n, nil)
}

// expire takes the replies out that have waited until their deadline.
func (w *waiting) expire(now time.Time) []func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for n < len(w.queue) && !w.queue[n].deadline.After(now) {
		n++
	}
	return w.take(n, CodeOf(wire.RequestTimedOut))
}

// abandon takes all replies out: nobody will know their fate.
func (w *waiting) abandon() []func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.Time{}
	return w.take(len(w.queue), wire.NotCoordinator)
}

func (w *waiting) take(n int, outcome error) []func() {
	var ready []func()
	for i := range n {
		ready = bind(ready, w.queue[i].replies, outcome)
		w.queue[i] = waiter{}
	}
	if w.queue = w.queue[n:]; len(w.queue) == 0 {
		w.queue = nil
	}
	return ready
}

// next is when the partition wants attention, or the zero time.
func (w *waiting) next() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nextLocked()
}

func (w *waiting) nextLocked() time.Time {
	if len(w.queue) > 0 {
		return earlier(w.timer, w.queue[0].deadline)
	}
	return w.timer
}

// announce is next for the shell, which from now on knows of it.
func (w *waiting) announce() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.announced = w.nextLocked()
	return w.announced
}

// hastened tells, once, that the next wake has become earlier than the shell knows.
func (w *waiting) hastened() (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := w.nextLocked()
	if next.IsZero() || !w.announced.IsZero() && !next.Before(w.announced) {
		return time.Time{}, false
	}
	w.announced = next
	return next, true
}

// bind appends replies to ready, each with its outcome.
func bind(ready []func(), replies []func(error), outcome error) []func() {
	for _, reply := range replies {
		ready = append(ready, func() { reply(outcome) })
	}
	return ready
}
