package engine

import (
	"context"
	"time"
)

// upkeep schedules the periodic work on the logs: one timer for each kind, none for a partition.
type upkeep struct {
	engine *Engine
	jobs   []job
}

// job is one kind of work. A run that takes longer than its interval makes the next one fall out.
type job struct {
	lane  Lane
	every time.Duration
	due   time.Time
	out   bool // handed out and not yet back
	run   func(ctx context.Context, now time.Time)
}

// Intervals that are no setting.
const (
	retentionDelay  = 30 * time.Second // log.initial.task.delay.ms: first look after a start
	deleteInterval  = time.Second      // how late file.delete.delay.ms may be
	sealedInterval  = time.Second      // how long a sealed segment waits for its sync; Kafka begins at once
	scrubInterval   = 10 * time.Second
	scrubBytes      = 4 << 20          // a run: a gigabyte takes about 45 minutes
	expiryInterval  = 10 * time.Minute // producer.id.expiration.check.interval.ms
	minimumInterval = 100 * time.Millisecond
)

func newUpkeep(e *Engine, now time.Time) upkeep {
	c, r := e.config, e.replicas
	millis := func(ms int64) time.Duration { return max(time.Duration(ms)*time.Millisecond, minimumInterval) }
	u := upkeep{engine: e}
	add := func(lane Lane, delay, every time.Duration, run func(ctx context.Context, now time.Time)) {
		u.jobs = append(u.jobs, job{lane: lane, every: every, due: now.Add(delay), run: run})
	}
	retention := millis(c.RetentionCheckIntervalMs)
	add(LaneDisk, min(retentionDelay, retention), retention, r.Retain)
	add(LaneDisk, deleteInterval, deleteInterval, r.DeleteDue)
	checkpoint := millis(c.HighWatermarkCheckpointMs)
	add(LaneDisk, checkpoint, checkpoint, func(ctx context.Context, _ time.Time) { r.Checkpoint(ctx) })
	add(LaneDisk, sealedInterval, sealedInterval, r.FlushSealed)
	flush := max(millis(min(c.FlushSchedulerIntervalMs, int64(time.Hour/time.Millisecond))), time.Second)
	add(LaneDisk, flush, flush, r.Flush)
	add(LaneDisk, expiryInterval, expiryInterval, r.ExpireProducers)
	add(LaneScrub, scrubInterval, scrubInterval, func(ctx context.Context, _ time.Time) { r.Scrub(ctx, scrubBytes) })
	return u
}

func (u *upkeep) step(now time.Time) {
	for i := range u.jobs {
		j := &u.jobs[i]
		if now.Before(j.due) {
			continue
		}
		j.due = now.Add(j.every)
		if j.out {
			continue
		}
		j.out = true
		u.engine.lanes.add(j.lane, func(ctx context.Context) Completion {
			j.run(ctx, now)
			return func(time.Time) { j.out = false }
		})
	}
}

func (u *upkeep) nextWake() time.Time {
	var next time.Time
	for i := range u.jobs {
		next = earliest(next, u.jobs[i].due)
	}
	return next
}
