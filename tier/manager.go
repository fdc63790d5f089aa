package tier

import (
	"context"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// Manager does the tier's work for the partitions that this broker leads. Its methods may be called by several goroutines
// at once, but for Due and the completions, which belong to one loop.
type Manager struct {
	o Options
}

// New returns a Manager of no partitions.
func New(o Options) *Manager { return &Manager{o: o} }

// Lead says that this broker leads a partition under a new epoch. It does no I/O. held tells that the partition must not
// serve before Options.Released was called with this epoch. A topic that is not tiered by its configuration is looked at
// again when Changed is called for it.
func (m *Manager) Lead(now time.Time, l Leadership) (held bool) { return false }

// Resign says that this broker does not lead the partition any more. A job that is out goes on to its end and changes
// nothing afterwards.
func (m *Manager) Resign(tp wire.TopicPartition) {}

// Changed says that something of a partition has changed that may make work: a segment was sealed, the high watermark or
// the last stable offset moved, the configuration is another. It is cheap enough for every such move.
func (m *Manager) Changed(tp wire.TopicPartition) {}

// ReportLogStart waits for no one: it says that DeleteRecords has moved a log start, which is to be in the manifest before
// the request is answered (safety rule 23). done is called once, by a Completion: with nil when the entry is there.
func (m *Manager) ReportLogStart(now time.Time, tp wire.TopicPartition, offset wire.Offset, deadline time.Time, done func(error)) {
}

// Due hands out the jobs that may start now, and lets go of uploads that make no progress.
func (m *Manager) Due(now time.Time) []Job { return nil }

// NextWake is when Due has something by itself; zero if there is nothing to wait for.
func (m *Manager) NextWake() time.Time { return time.Time{} }

// Close begins a clean stop: every led tiered partition is sealed, uploaded whole and closed, until deadline. Nothing may be
// appended any more.
func (m *Manager) Close(now, deadline time.Time) {}

// Closed tells whether the clean stop is over: every partition is closed whole, or the deadline has passed, after which
// Due gives no more jobs. whole tells which of the two.
func (m *Manager) Closed(now time.Time) (over, whole bool) { return false, false }

// DeleteTopic removes what the bucket holds of a deleted topic, at most a bounded number of objects a call; more says that
// there is more to do. It may be called again at any time and by anybody, also beside a Manager that still leads a
// partition of the topic; what such a straggler adds is found by another call after the grace (safety rule 28).
func (m *Manager) DeleteTopic(ctx context.Context, topic string, id wire.TopicID) (more bool, err error) {
	return false, nil
}
