package purgatory

import (
	"sync/atomic"
	"time"
)

// The states of a parked operation. Only the goroutine that moved it from idle to trying calls TryComplete; others leave word.
const (
	idle     int32 = iota
	trying         // TryComplete is running
	retrying       // it is running, and an event asks for another look
	expiring       // it is running, and the deadline has passed
	ended          // completed or expired
)

// entry is a parked operation.
type entry[K comparable] struct {
	op       Operation
	deadline time.Time
	order    uint64
	position int // in the expiry heap; -1 once out of it. Guarded by Purgatory.mu, as are the watches
	watches  []watch[K]
	state    atomic.Int32
}

// beginTry claims the right to call TryComplete.
func (e *entry[K]) beginTry() bool {
	for {
		switch e.state.Load() {
		case idle:
			if e.state.CompareAndSwap(idle, trying) {
				return true
			}
		case trying:
			if e.state.CompareAndSwap(trying, retrying) {
				return false
			}
		default:
			return false
		}
	}
}

// endTry gives the right back after a TryComplete in vain. It returns idle, or trying when another look was asked for, or
// expiring when the caller has to expire the operation.
func (e *entry[K]) endTry() int32 {
	for {
		switch e.state.Load() {
		case trying:
			if e.state.CompareAndSwap(trying, idle) {
				return idle
			}
		case retrying:
			if e.state.CompareAndSwap(retrying, trying) {
				return trying
			}
		default:
			e.state.Store(ended)
			return expiring
		}
	}
}

// expire claims the end of an operation whose deadline has passed. It returns false when the operation has ended, or when a
// running TryComplete will end it either way.
func (e *entry[K]) expire() bool {
	for {
		switch state := e.state.Load(); state {
		case idle:
			if e.state.CompareAndSwap(idle, ended) {
				return true
			}
		case trying, retrying:
			if e.state.CompareAndSwap(state, expiring) {
				return false
			}
		default:
			return false
		}
	}
}

// watch is an operation's place among those that watch one key: a ring, in which the oldest comes after the newest.
type watch[K comparable] struct {
	entry      *entry[K]
	key        K
	prev, next *watch[K] // nil when it is in no ring
}

// watchRings hold the oldest watch of each key that is watched.
type watchRings[K comparable] map[K]*watch[K]

func (r watchRings[K]) add(w *watch[K]) {
	oldest := r[w.key]
	if oldest == nil {
		r[w.key], w.prev, w.next = w, w, w
		return
	}
	w.prev, w.next = oldest.prev, oldest
	w.prev.next, w.next.prev = w, w
}

func (r watchRings[K]) remove(w *watch[K]) {
	if w.next == nil {
		return
	}
	if r[w.key] == w {
		r[w.key] = w.next
	}
	if w.next == w {
		delete(r, w.key)
	}
	w.prev.next, w.next.prev = w.next, w.prev
	w.prev, w.next = nil, nil
}

// expiryHeap orders operations by deadline, then by arrival.
type expiryHeap[K comparable] []*entry[K]

func (h expiryHeap[K]) Len() int { return len(h) }

func (h expiryHeap[K]) Less(i, j int) bool {
	if h[i].deadline.Equal(h[j].deadline) {
		return h[i].order < h[j].order
	}
	return h[i].deadline.Before(h[j].deadline)
}

func (h expiryHeap[K]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].position, h[j].position = i, j
}

// Push is heap.Interface's.
func (h *expiryHeap[K]) Push(x any) {
	e := x.(*entry[K])
	e.position = len(*h)
	*h = append(*h, e)
}

// Pop is heap.Interface's.
func (h *expiryHeap[K]) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.position = -1
	return e
}
