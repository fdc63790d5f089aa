package tier

import (
	"slices"
	"time"
)

// A partition whose tries fail waits up to a minute for the next one, so that a store in trouble is left alone. Once somebody has reached
// the store again, those that failed for want of it are tried soon. Whether that was it shows in the failures: between two of
// a partition that fails for a reason of its own, somebody else succeeds. So one is hastened once after each time in which nobody
// reached the store, and a store that answers now and then is not stormed.

// resumeEach is what each of the partitions that are hastened adds to the time over which they are spread.
const resumeEach = 50 * time.Millisecond

// StoreReached says that a request to the store has succeeded, of whomever, as that of the lease does each second.
func (m *Manager) StoreReached(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.storeReachedLocked(now)
}

func (m *Manager) storeReachedLocked(now time.Time) {
	m.reached = now
	if !m.cutOff {
		return
	}
	m.cutOff = false
	var waiting []*partition
	for _, p := range m.queue {
		if p.cutOff {
			waiting = append(waiting, p)
		}
	}
	// As they lie in the heap they depend on how they came there, and that on maps.
	slices.SortFunc(waiting, func(a, b *partition) int { return comparePartitions(a.TopicPartition, b.TopicPartition) })
	window := uint64(len(waiting)) * uint64(resumeEach)
	for _, p := range waiting {
		p.cutOff = false
		m.queue.hasten(p, now.Add(time.Duration(m.o.Random()%window)))
	}
}

// failedLocked notes whether anybody has reached the store since a partition's try before this one failed, too.
func (m *Manager) failedLocked(now time.Time, p *partition) {
	p.cutOff = p.failures == 0 || !m.reached.After(p.failed)
	m.cutOff = m.cutOff || p.cutOff
	p.failed = now
}
