package replica

import (
	"context"
	"time"
)

// The periodic work on logs. Each is one bounded piece of disk work for a task; the engine says when, by the settings
// named. Errors take the log directory offline where they must, are logged, and are not returned.

// Retain drops segments that no longer have to be kept (log.retention.check.interval.ms): by time, size and log start
// offset, never above the high watermark, never of topics that are compacted only.
func (m *Manager) Retain(_ context.Context, now time.Time) { m.logs.Retain(now) }

// FlushSealed finishes and syncs the segments that were sealed since the last call.
func (m *Manager) FlushSealed(context.Context, time.Time) { m.logs.FlushSealed() }

// Flush syncs logs that flush.ms or flush.messages want synced, and what FlushSealed could not
// (log.flush.scheduler.interval.ms).
func (m *Manager) Flush(_ context.Context, now time.Time) { m.logs.FlushDue(now) }

// Checkpoint writes recovery points, log start offsets and high watermarks that changed
// (replica.high.watermark.checkpoint.interval.ms).
func (m *Manager) Checkpoint(context.Context) {
	if err := m.logs.Checkpoint(); err != nil {
		m.logger.Error("checkpoint can't be written", "err", err)
	}
}

// DeleteDue removes files of segments and logs that were deleted at least file.delete.delay.ms ago, and tries again to make
// logs that could not be made: there may be room now.
func (m *Manager) DeleteDue(_ context.Context, now time.Time) {
	m.logs.Sweep(now)
	m.reopen(now)
}

// ExpireProducers forgets producers that have not written for producer.id.expiration.ms.
func (m *Manager) ExpireProducers(_ context.Context, now time.Time) {
	m.logs.ExpireProducers(now, int64(m.config.Load().ProducerIDExpirationMs))
}

// Scrub verifies sealed segments, about budget bytes of them, and goes on where it stopped the last time. A batch that
// does not verify makes its range answer KAFKA_STORAGE_ERROR.
func (m *Manager) Scrub(_ context.Context, budget int64) { m.logs.Scrub(int(budget)) }
