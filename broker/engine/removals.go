package engine

import (
	"context"
	"time"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// removals is the controller's work on topics that were removed: what the object store holds of them goes, in small steps, until
// nothing is left, and once more after tier.delete.grace.ms, for what a leader added that had not heard of it (safety.md 28). The
// image remembers each topic until that is committed to be done, so neither a crash nor another controller loses one. What is known
// besides is only which topics were found empty.
type removals struct {
	engine  *Engine
	deleter topicDeleter

	emptied  map[wire.TopicID]bool // since this broker is the controller
	last     wire.TopicID          // of the last step: the topics take turns
	out      bool                  // a step, or the commit that ends a removal
	failures int                   // in a row

	image *metadata.Image // that due was worked out from
	due   time.Time       // of the next step; zero: there is none
}

// topicDeleter deletes what the object store holds of a topic, a bounded number of objects a call; see tier.Manager.
type topicDeleter interface {
	DeleteTopic(ctx context.Context, topic string, id wire.TopicID) (more bool, err error)
}

const (
	removalRetry    = time.Second
	removalRetryMax = time.Minute
	// removalsMax bounds the image: with more topics waiting for their second look, it is not waited for. What a straggler leaves
	// then is an orphan for `tidemark tier fsck`.
	removalsMax = 10_000
)

func (r *removals) init(e *Engine, deleter topicDeleter) { r.engine, r.deleter = e, deleter }

// begin starts anew as the controller.
func (r *removals) begin() {
	r.emptied, r.failures, r.image = map[wire.TopicID]bool{}, 0, nil
}

// step hands out the next step that is due.
func (r *removals) step(now time.Time) {
	if r.out || r.engine.role.state != active {
		return
	}
	image := r.engine.Image()
	if image != r.image || !r.due.IsZero() && !now.Before(r.due) {
		r.next(now, image)
	}
}

// next finds the removal whose turn it is, or else when there is one.
func (r *removals) next(now time.Time, image *metadata.Image) {
	r.image = image
	if r.failures > 0 && now.Before(r.due) {
		return
	}
	r.due = time.Time{}
	var first, turn *metadata.Removal
	for removal := range image.Removals() {
		if at := r.dueAt(image, removal); now.Before(at) {
			r.due = earliest(r.due, at)
			continue
		}
		if first == nil {
			first = &removal
		}
		if turn == nil && string(removal.TopicID[:]) > string(r.last[:]) {
			turn = &removal
		}
	}
	if turn == nil {
		turn = first
	}
	if turn != nil {
		r.delete(now, *turn, !now.Before(r.graceEnd(image, *turn)))
	}
}

// graceEnd is when a look that finds nothing is the last one.
func (r *removals) graceEnd(image *metadata.Image, removal metadata.Removal) time.Time {
	removed := time.UnixMilli(removal.RemovedMs)
	if image.RemovalCount() > removalsMax {
		return removed
	}
	return removed.Add(time.Duration(r.engine.settings.Load().TierDeleteGraceMs) * time.Millisecond)
}

func (r *removals) dueAt(image *metadata.Image, removal metadata.Removal) time.Time {
	if r.emptied[removal.TopicID] {
		return r.graceEnd(image, removal)
	}
	return time.Time{}
}

func (r *removals) delete(now time.Time, removal metadata.Removal, last bool) {
	r.out, r.last = true, removal.TopicID
	term := r.engine.role.lease.term
	r.engine.lanes.add(LaneTier, func(ctx context.Context) Completion {
		more, err := r.deleter.DeleteTopic(ctx, removal.Topic, removal.TopicID)
		return func(now time.Time) {
			r.out = false
			if term == r.engine.role.lease.term {
				r.deleted(now, removal, last, more, err)
			}
		}
	})
}

// deleted takes a step's outcome.
func (r *removals) deleted(now time.Time, removal metadata.Removal, last, more bool, err error) {
	r.image = nil
	switch {
	case err != nil:
		if r.failures == 0 {
			r.engine.logger.Warn("what the store holds of a removed topic is not deleted yet", "topic", removal.Topic, "err", err)
		}
		r.due = now.Add(min(removalRetry<<min(r.failures, 10), removalRetryMax))
		r.failures++
		return
	case more:
	case last:
		r.finish(now, removal)
	default:
		r.emptied[removal.TopicID] = true
	}
	r.failures, r.due = 0, now
}

// finish commits that nothing is left. What becomes of that the image says: without it the topic is looked at again.
func (r *removals) finish(now time.Time, removal metadata.Removal) {
	r.out = true
	e := r.engine
	done := &metadata.RemovalDone{TopicID: removal.TopicID}
	e.Submit(now, done, now.Add(e.requestTimeout()), func(metadata.Answer, error) {
		r.out = false
		delete(r.emptied, removal.TopicID)
	})
}

// nextWake is when a step is due; zero if none is.
func (r *removals) nextWake() time.Time {
	if r.out || r.engine.role.state != active {
		return time.Time{}
	}
	return r.due
}
