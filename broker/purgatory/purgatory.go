package purgatory

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"
)

// Operation is what waits. Its methods run on whichever goroutine parks, fires or advances.
type Operation interface {
	// TryComplete tells whether the operation can end now. It never runs beside itself, nor after it returned true.
	TryComplete(now time.Time) bool
	// Complete ends an operation whose TryComplete returned true.
	Complete(now time.Time)
	// Expire ends an operation whose deadline has passed.
	Expire(now time.Time)
}

// Purgatory keeps operations that watch keys of type K. The zero value is ready for use.
type Purgatory[K comparable] struct {
	mu      sync.Mutex // guards all below; a leaf lock
	watched watchRings[K]
	expiry  expiryHeap[K]
	parked  uint64 // operations ever registered: orders equal deadlines

	count atomic.Int64 // len(expiry), readable without mu
}

// Park completes op at once if it can, and else keeps it until one of keys fires to its satisfaction or now reaches deadline.
// It tries once before it registers op and once after, so that an event between the two is not lost. An operation whose
// deadline is not after now never waits. Keys may repeat; the slice is not kept. Park tells whether NextWake became earlier.
func (p *Purgatory[K]) Park(now time.Time, op Operation, keys []K, deadline time.Time) (sooner bool) {
	if op.TryComplete(now) {
		op.Complete(now)
		return false
	}
	if !deadline.After(now) {
		op.Expire(now)
		return false
	}
	e := &entry[K]{op: op, deadline: deadline, watches: make([]watch[K], len(keys))}
	sooner = p.register(e, keys)
	p.try(now, e)
	return sooner
}

// Fire tries every operation that watches key, in the order in which they were parked, and returns how many it completed.
func (p *Purgatory[K]) Fire(now time.Time, key K) int {
	if p.count.Load() == 0 {
		return 0
	}
	var buffer [16]*entry[K]
	completed := 0
	for _, e := range p.watchers(key, buffer[:0]) {
		if p.try(now, e) {
			completed++
		}
	}
	return completed
}

// Advance expires every operation whose deadline is not after now, earliest first, and returns how many.
func (p *Purgatory[K]) Advance(now time.Time) int {
	expired := 0
	for {
		e := p.takeDue(now)
		if e == nil {
			return expired
		}
		if e.expire() {
			e.op.Expire(now)
			expired++
		}
	}
}

// NextWake is the earliest deadline of a parked operation; false when nothing is parked.
func (p *Purgatory[K]) NextWake() (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.expiry) == 0 {
		return time.Time{}, false
	}
	return p.expiry[0].deadline, true
}

// Len is the number of parked operations.
func (p *Purgatory[K]) Len() int { return int(p.count.Load()) }

// try runs TryComplete unless it is running elsewhere, in which case that run is told to look once more: the event that
// brought us here must not be missed by a look that began before it.
func (p *Purgatory[K]) try(now time.Time, e *entry[K]) bool {
	if !e.beginTry() {
		return false
	}
	for {
		if e.op.TryComplete(now) {
			e.state.Store(ended)
			p.unregister(e)
			e.op.Complete(now)
			return true
		}
		switch e.endTry() {
		case idle:
			return false
		case trying: // an event came meanwhile
		case expiring: // the deadline passed meanwhile, and Advance left the end to us
			e.op.Expire(now)
			return false
		}
	}
}

func (p *Purgatory[K]) register(e *entry[K], keys []K) (earliest bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watched == nil {
		p.watched = watchRings[K]{}
	}
	for i, key := range keys {
		w := &e.watches[i]
		w.entry, w.key = e, key
		p.watched.add(w)
	}
	p.parked++
	e.order = p.parked
	heap.Push(&p.expiry, e)
	p.count.Store(int64(len(p.expiry)))
	return e.position == 0
}

func (p *Purgatory[K]) unregister(e *entry[K]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.position >= 0 {
		heap.Remove(&p.expiry, e.position)
	}
	p.unwatchLocked(e)
}

func (p *Purgatory[K]) unwatchLocked(e *entry[K]) {
	for i := range e.watches {
		p.watched.remove(&e.watches[i])
	}
	p.count.Store(int64(len(p.expiry)))
}

func (p *Purgatory[K]) watchers(key K, into []*entry[K]) []*entry[K] {
	p.mu.Lock()
	defer p.mu.Unlock()
	oldest := p.watched[key]
	for w := oldest; w != nil; {
		into = append(into, w.entry)
		if w = w.next; w == oldest {
			break
		}
	}
	return into
}

// takeDue takes the earliest operation whose deadline has passed out of the purgatory.
func (p *Purgatory[K]) takeDue(now time.Time) *entry[K] {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.expiry) == 0 || p.expiry[0].deadline.After(now) {
		return nil
	}
	e := heap.Pop(&p.expiry).(*entry[K])
	p.unwatchLocked(e)
	return e
}
