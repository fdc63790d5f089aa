package sim

import (
	"container/heap"
	"time"
)

// clock is virtual time and what is to happen in it.
type clock struct {
	now   time.Time
	drawn int64 // events so far, which orders those of one moment
	heap  eventHeap
}

// epoch is when every run begins.
var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// event is something that happens at a moment.
type event struct {
	at    time.Time
	order int64
	run   func()
}

// after makes f happen d from now.
func (c *clock) after(d time.Duration, f func()) { c.at(c.now.Add(d), f) }

// at makes f happen at a moment, which may be now but not earlier.
func (c *clock) at(at time.Time, f func()) {
	if at.Before(c.now) {
		at = c.now
	}
	c.drawn++
	heap.Push(&c.heap, event{at, c.drawn, f})
}

// step lets the next event happen; false if there is none.
func (c *clock) step() bool {
	if len(c.heap) == 0 {
		return false
	}
	e := heap.Pop(&c.heap).(event)
	c.now = e.at
	e.run()
	return true
}

// eventHeap implements heap.Interface.
type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].order < h[j].order
	}
	return h[i].at.Before(h[j].at)
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return last
}
