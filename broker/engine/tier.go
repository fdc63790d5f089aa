package engine

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier"
)

// tiering ties the tier to the broker. It tells the worker which partitions are led, hands its jobs to LaneTier, and has reads of
// what is in the object store alone run in LaneCold. It is the replica manager's Tier.
type tiering struct {
	engine *Engine
	worker *tier.Manager

	closing bool // a clean stop has begun
	closed  bool // everything is in the bucket, or the time for that is over

	mu    sync.Mutex
	reads []func(ctx context.Context) Completion // that wait for the next Step
	out   int                                    // reads that are not answered yet
}

// tierJobs is how many jobs of the worker may be out beside its uploads: what partitions commit, delete and read of their manifests.
const tierJobs = 16

func (t *tiering) init(e *Engine, o Options) {
	t.engine = e
	e.lanes.width[LaneTier] = e.config.TierUploadParallel + tierJobs
	e.lanes.width[LaneCold] = e.config.RemoteReaderThreads
	t.worker = tier.New(tier.Options{
		Store: o.Store, Broker: e.self, Incarnation: o.Incarnation,
		Nonce: e.random.Nonce, Random: e.random.Uint64,
		Config:    func() tier.Config { return tierConfig(e.settings.Load()) },
		Confirmed: func(now time.Time) bool { return e.member.confirmed(now) },
		Released:  t.released, Wake: e.wake, Logger: o.Logger.With("component", "tier"),
	})
}

func tierConfig(c *config.Broker) tier.Config {
	ms := func(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
	return tier.Config{
		Parallel: c.TierUploadParallel, BytesPerSecond: c.TierUploadBytesPerSecond,
		MaxUnsealed: ms(c.TierMaxUnsealedMs), DeleteGrace: ms(c.TierDeleteGraceMs),
		ManifestRetention: ms(c.MetadataLogRetentionMs), RecoveryGap: c.TierRecoveryOffsetGap,
	}
}

// step hands out what the worker and cold reads have to do.
func (t *tiering) step(now time.Time) {
	for _, tp := range t.engine.logs.TakeSealed() {
		t.worker.Changed(tp)
	}
	for _, job := range t.worker.Due(now) {
		t.engine.lanes.add(LaneTier, func(ctx context.Context) Completion { return Completion(job.Run(ctx)) })
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, read := range t.reads {
		t.engine.lanes.add(LaneCold, read)
	}
	t.reads = nil
}

// Lead tells the worker of a leadership, and whether its log may have to begin anew from the bucket.
func (t *tiering) Lead(now time.Time, l replica.Leadership) (held bool) {
	start := tier.StartHere
	if l.Log.MayLackEnd() || l.Log.Fresh() && l.Epoch > 0 {
		start = tier.StartVerified
	}
	return t.worker.Lead(now, tier.Leadership{
		TopicPartition: l.TopicPartition, TopicID: l.TopicID, Epoch: l.Epoch, Log: l.Log, Internal: l.Internal, Start: start,
	})
}

// Resign tells the worker of the end of a leadership.
func (t *tiering) Resign(tp wire.TopicPartition) { t.worker.Resign(tp) }

// Changed tells the worker of a new config.
func (t *tiering) Changed(tp wire.TopicPartition) { t.worker.Changed(tp) }

// released lets a partition serve that was held, and its groups, too.
func (t *tiering) released(now time.Time, r tier.Release) {
	if r.Restarted {
		t.engine.logger.Warn("the log begins anew from the bucket, which had more of it",
			"topic", r.TopicPartition.Topic, "partition", r.TopicPartition.Partition)
	}
	t.engine.replicas.Release(now, r.TopicPartition, r.Epoch)
	if r.TopicPartition.Topic == wire.ConsumerOffsetsTopic {
		t.engine.loadGroups(r.TopicPartition.Partition, r.Epoch)
	}
}

// RecordStart has a log start written to the manifest.
func (t *tiering) RecordStart(
	now time.Time, tp wire.TopicPartition, offset wire.Offset, deadline time.Time, done func(now time.Time, err error),
) {
	t.worker.ReportLogStart(now, tp, offset, deadline, func(err error) { done(t.engine.stepped, err) })
}

// Fetch reads as a task.
func (t *tiering) Fetch(now time.Time, r *replica.RemoteFetch, done func([]replica.RemoteResult)) {
	refused := func() {
		results := make([]replica.RemoteResult, len(r.Partitions))
		for i := range results {
			results[i].Code = wire.KafkaStorageError // retriable, and the client waits before it tries again
		}
		done(results)
	}
	t.submit(refused, func(ctx context.Context) { done(t.read(ctx, r)) })
}

// OffsetForTimestamp looks a time up as a task.
func (t *tiering) OffsetForTimestamp(now time.Time, r replica.RemoteTime, done func(log.TimestampOffset, error)) {
	refused := func() { done(log.NoTimestampOffset, wire.RequestTimedOut) }
	t.submit(refused, func(ctx context.Context) { done(t.lookUp(ctx, r)) })
}

// submit has a read run as a task of LaneCold, or refuses it where too many wait already.
func (t *tiering) submit(refused func(), read func(ctx context.Context)) {
	if !t.enter() {
		refused()
		return
	}
	t.mu.Lock()
	t.reads = append(t.reads, func(ctx context.Context) Completion {
		read(ctx)
		t.leave()
		return nil
	})
	t.mu.Unlock()
	t.engine.wake()
}

func (t *tiering) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.out >= t.engine.config.RemoteReaderThreads+t.engine.config.RemoteReaderMaxPending {
		return false
	}
	t.out++
	return true
}

func (t *tiering) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out--
}

// close has everything uploaded and the manifests closed, within tier.shutdown.upload.ms. It tells whether that is over.
func (t *tiering) close(now time.Time) bool {
	if !t.closing {
		t.closing = true
		t.worker.Close(now, now.Add(time.Duration(t.engine.config.TierShutdownUploadMs)*time.Millisecond))
	}
	if !t.closed {
		over, whole := t.worker.Closed(now)
		t.closed = over
		if over && !whole {
			t.engine.logger.Warn("the bucket does not have all: tier.shutdown.upload.ms is over")
		}
	}
	return t.closed
}

// read answers a fetch from the bucket.
func (t *tiering) read(ctx context.Context, r *replica.RemoteFetch) []replica.RemoteResult {
	return make([]replica.RemoteResult, len(r.Partitions))
}

// lookUp answers a look-up by time from the bucket.
func (t *tiering) lookUp(ctx context.Context, r replica.RemoteTime) (log.TimestampOffset, error) {
	return log.NoTimestampOffset, nil
}
