package engine

import (
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// producerIDs hands out producer ids from the block that the controller has allocated to this broker. The first block is fetched before anybody
// asks, and the next one when half of one is used (safety.md 15), so that a store that is away for a while stops nobody.
type producerIDs struct {
	engine *Engine

	mu       sync.Mutex
	current  idBlock
	next     idBlock
	fetching bool
	waiting  []func(wire.ProducerID, error)
}

// idBlock is a range of unused ids.
type idBlock struct {
	first wire.ProducerID
	left  int32
	size  int32
}

// producerIDWaiters bounds the requests that wait for a block.
const producerIDWaiters = 10_000

// prepare fetches a block unless there is one.
func (p *producerIDs) prepare(now time.Time) {
	p.mu.Lock()
	fetch := p.wantsBlockLocked()
	p.mu.Unlock()
	if fetch {
		p.fetch(now)
	}
}

// Next implements api.ProducerIDs.
func (p *producerIDs) Next(now time.Time, done func(wire.ProducerID, error)) {
	p.mu.Lock()
	id, ok := p.takeLocked()
	refused := !ok && len(p.waiting) >= producerIDWaiters
	if !ok && !refused {
		p.waiting = append(p.waiting, done)
	}
	fetch := p.wantsBlockLocked()
	p.mu.Unlock()

	if fetch {
		p.fetch(now)
	}
	switch {
	case ok:
		done(id, nil)
	case refused:
		done(wire.NoProducerID, wire.CoordinatorLoadInProgress)
	}
}

func (p *producerIDs) takeLocked() (wire.ProducerID, bool) {
	if p.current.left == 0 {
		p.current, p.next = p.next, idBlock{}
	}
	if p.current.left == 0 {
		return wire.NoProducerID, false
	}
	id := p.current.first
	p.current.first++
	p.current.left--
	return id, true
}

// wantsBlockLocked tells whether to ask for a block, and notes that somebody does.
func (p *producerIDs) wantsBlockLocked() bool {
	if p.fetching || p.next.left > 0 || p.current.left > p.current.size/2 {
		return false
	}
	p.fetching = true
	return true
}

func (p *producerIDs) fetch(now time.Time) {
	e := p.engine
	change := &metadata.AllocateProducerIDs{BrokerID: e.self, BrokerEpoch: e.member.brokerEpoch()}
	e.Submit(now, change, now.Add(e.requestTimeout()), func(answer metadata.Answer, err error) {
		block, ok := answer.(*metadata.AllocateProducerIDsAnswer)
		if err == nil && ok && block.Result.Code != wire.None {
			err = block.Result.Code
		}
		if p.received(block, err) {
			p.fetch(now)
		}
	})
}

// received hands out what came, and tells whether some still wait for the next block.
func (p *producerIDs) received(block *metadata.AllocateProducerIDsAnswer, err error) (more bool) {
	type delivery struct {
		done func(wire.ProducerID, error)
		id   wire.ProducerID
	}
	var deliveries []delivery
	p.mu.Lock()
	if err == nil {
		p.next = idBlock{first: block.First, left: block.Length, size: block.Length}
	}
	for len(p.waiting) > 0 {
		id, ok := p.takeLocked()
		if !ok && err == nil {
			break
		}
		deliveries = append(deliveries, delivery{p.waiting[0], id})
		p.waiting = p.waiting[1:]
	}
	more = len(p.waiting) > 0
	p.fetching = more
	p.mu.Unlock()
	for _, d := range deliveries {
		if d.id == wire.NoProducerID {
			// Kafka's word for "no block yet": clients try again.
			d.done(d.id, wire.CoordinatorLoadInProgress)
			continue
		}
		d.done(d.id, nil)
	}
	return more
}
