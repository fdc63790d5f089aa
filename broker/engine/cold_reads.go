package engine

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// coldReads are the reads of what is in the object store alone, on their way to LaneCold. In the first moments of a leadership a partition's
// manifest is not known: reads wait for it, and have it read before others.
type coldReads struct {
	tier *tiering
	wake time.Time // the first deadline of those that wait; zero: there are none. It belongs to whoever calls Step

	mu      sync.Mutex // guards what follows; a leaf
	waiting []coldRead // for the next Step, for manifests, or for a place in LaneCold
	out     int        // not answered yet
}

type coldRead struct {
	needs    []wire.TopicPartition // whose manifests are to be known
	deadline time.Time             // when it goes on without, or is late
	late     func()                // answers when there was no place until the deadline; cheap
	run      func(ctx context.Context) Completion
}

// submit has a read run as a task of LaneCold, or refuses it where too many wait already.
func (c *coldReads) submit(needs []wire.TopicPartition, deadline time.Time, refused, late func(), read func(ctx context.Context)) {
	if !c.enter() {
		refused()
		return
	}
	c.mu.Lock()
	c.waiting = append(c.waiting, coldRead{needs: needs, deadline: deadline, late: late, run: func(ctx context.Context) Completion {
		read(ctx)
		c.leave()
		return nil
	}})
	c.mu.Unlock()
	c.tier.engine.wake()
}

// step hands out the reads that may begin.
func (c *coldReads) step(now time.Time) {
	c.mu.Lock()
	reads := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	var left []coldRead
	c.wake = time.Time{}
	lanes := &c.tier.engine.lanes
	for _, read := range reads {
		inTime := now.Before(read.deadline)
		switch {
		case inTime && (c.reading(read.needs) || !lanes.room(LaneCold)):
			left = append(left, read)
			c.wake = earliest(c.wake, read.deadline)
		case lanes.room(LaneCold):
			lanes.add(LaneCold, read.run)
		default:
			read.late()
			c.leave()
		}
	}
	if len(left) > 0 {
		c.mu.Lock()
		c.waiting = append(left, c.waiting...)
		c.mu.Unlock()
	}
}

// reading tells whether any of the manifests is about to be known, and has all of them read soon.
func (c *coldReads) reading(needs []wire.TopicPartition) bool {
	reading := false
	for _, tp := range needs {
		if c.tier.worker.Reading(tp) {
			reading = true
		}
	}
	return reading
}

// crowded tells whether a read would have to wait for a task.
func (c *coldReads) crowded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out >= c.tier.engine.settings.Load().RemoteReaderThreads
}

func (c *coldReads) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if settings := c.tier.engine.settings.Load(); c.out >= settings.RemoteReaderThreads+settings.RemoteReaderMaxPending {
		return false
	}
	c.out++
	return true
}

func (c *coldReads) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out--
}
