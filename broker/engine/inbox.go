package engine

import (
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// submission is a change on its way to the controller.
type submission struct {
	change   metadata.Change
	deadline time.Time
	done     func(metadata.Answer, error)
}

// inbox holds what connections, and the engine's own parts, want of the controller until the next Step. A change that finds it
// full is refused with a retriable code.
type inbox struct {
	mu      sync.Mutex
	waiting []submission
}

func (b *inbox) add(s submission) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) >= config.MetadataQueueMax {
		return false
	}
	b.waiting = append(b.waiting, s)
	return true
}

func (b *inbox) take() []submission {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := b.waiting
	b.waiting = nil
	return taken
}

// Submit asks the controller for a change; see api.Controller.
func (e *Engine) Submit(_ time.Time, change metadata.Change, deadline time.Time, done func(metadata.Answer, error)) {
	if !e.inbox.add(submission{change: change, deadline: deadline, done: done}) {
		done(nil, wire.RequestTimedOut)
		return
	}
	e.wake()
}
