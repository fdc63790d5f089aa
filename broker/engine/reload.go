package engine

import (
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// reloads are partitions of __consumer_offsets that could not be read into memory. They are tried again: the reason may be a full
// disk, and nobody else can serve their groups.
type reloads struct {
	waiting []reload
	due     time.Time // zero: nothing waits
}

// reload is a partition, and the leader epoch under which it is wanted.
type reload struct {
	partition int32
	epoch     wire.LeaderEpoch
}

// reloadInterval is between two tries: a partition is read from its beginning each time.
const reloadInterval = 5 * time.Second

// loadFailed puts a partition down for another try.
func (e *Engine) loadFailed(now time.Time, partition int32, epoch wire.LeaderEpoch) {
	r := &e.reloads
	r.waiting = append(r.waiting, reload{partition, epoch})
	if r.due.IsZero() {
		r.due = now.Add(reloadInterval)
	}
}

// stepReloads begins the loads that are due, as far as this broker leads the partitions as it did.
func (e *Engine) stepReloads(now time.Time) {
	r := &e.reloads
	if r.due.IsZero() || now.Before(r.due) {
		return
	}
	waiting := r.waiting
	*r = reloads{}
	for _, w := range waiting {
		p := e.Image().Partition(wire.ConsumerOffsetsTopic, w.partition)
		if p != nil && p.Leader == e.self && p.LeaderEpoch == w.epoch {
			e.loadGroups(w.partition, w.epoch)
		}
	}
	e.forgetGone(now)
}
