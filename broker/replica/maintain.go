package replica

import (
	"context"
	"time"
)

// The periodic work on logs. Each is one bounded piece of disk work for a task; the engine says when, by the settings
// named. Errors take the log directory offline where they must, are logged, and are not returned.

// Retain drops segments that no longer have to be kept (log.retention.check.interval.ms): by time, size and log start
// offset, never above the high watermark, never of topics that are compacted only.
func (m *Manager) Retain(ctx context.Context, now time.Time) { panic("soon") }

// Flush syncs logs that flush.ms or flush.messages want synced (log.flush.scheduler.interval.ms).
func (m *Manager) Flush(ctx context.Context, now time.Time) { panic("soon") }

// Checkpoint writes recovery points, log start offsets and high watermarks that changed
// (replica.high.watermark.checkpoint.interval.ms).
func (m *Manager) Checkpoint(ctx context.Context) { panic("soon") }

// DeleteDue removes files of segments and logs that were deleted at least file.delete.delay.ms ago.
func (m *Manager) DeleteDue(ctx context.Context, now time.Time) { panic("soon") }

// ExpireProducers forgets producers that have not written for producer.id.expiration.ms.
func (m *Manager) ExpireProducers(ctx context.Context, now time.Time) { panic("soon") }

// Scrub verifies sealed segments, about budget bytes of them, and goes on where it stopped the last time. A batch that
// does not verify makes its range answer KAFKA_STORAGE_ERROR.
func (m *Manager) Scrub(ctx context.Context, budget int64) { panic("soon") }
