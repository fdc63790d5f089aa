package engine

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/cache"
	"github.com/tidemark-io/tidemark/tier"
	"github.com/tidemark-io/tidemark/tier/cold"
)

// tiering ties the tier to the broker. It tells the worker which partitions are led, hands its jobs to LaneTier, and has reads of
// what is in the object store alone run in LaneCold. It is the replica manager's Tier.
type tiering struct {
	engine *Engine
	worker *tier.Manager
	reader *cold.Reader
	timed  bool // time passes while tasks run

	// registered: the image that is being applied has this incarnation's registration. The leaderships of a former one end with it.
	registered bool
	closing    bool                       // a clean stop has begun
	deadline   time.Time                  // of it
	whole      bool                       // everything is in the bucket, and every manifest is closed
	closed     bool                       // everything is in the bucket, or the time for that is over
	empty      []metadata.TopicPartitions // that never had a record, when it was closed

	reads         coldReads
	batchBytesMax int64 // larger batches can't be read from the bucket
}

// tierJobs is how many jobs of the worker may be out beside its uploads: what partitions commit, delete and read of their manifests.
const tierJobs = 16

func (t *tiering) init(e *Engine, o Options) (err error) {
	t.engine, t.timed = e, o.Clock != nil
	t.reads.tier = t
	e.lanes.width[LaneTier] = e.config.TierUploadParallel + tierJobs
	t.worker = tier.New(tier.Options{
		Store: o.Store, Broker: e.self, Incarnation: o.Incarnation,
		Nonce: e.random.Nonce, Random: e.random.Uint64,
		Config:     func() tier.Config { return tierConfig(e.settings.Load()) },
		Confirmed:  func(now time.Time) bool { return e.member.confirmed(now) },
		CloseEmpty: !e.config.ControlledShutdownEnable, // then nobody is told
		Released:   t.released, Wake: e.wake, Logger: o.Logger.With("component", "tier"),
	})
	c := e.settings.Load()
	blocks := cache.Options{MemoryBytes: cacheMemory(c), RangeBytes: int64(c.TierChunkBytes), Plain: o.Go == nil}
	if c.TierCacheDir != "" {
		blocks.FS, blocks.Dir, blocks.DiskBytes = o.FS, c.TierCacheDir, c.TierCacheBytes
	}
	t.batchBytesMax = blocks.MemoryBytes/2 - batchMargin(c)
	run, clock := o.Go, o.Clock
	if run == nil {
		run = func(f func()) { f() }
	}
	if clock == nil {
		clock = func() time.Time { return e.stepped }
	}
	t.reader, err = cold.Open(cold.Options{
		Store: o.Store, Cache: blocks, Go: run, Now: clock, Sleep: o.Sleep, Logger: o.Logger.With("component", "cold"),
		Config: func() cold.Config {
			c := e.settings.Load()
			return cold.Config{
				ReadAheadBytes: c.TierReadAheadBytes, BytesPerSecond: c.TierFetchBytesPerSecond,
				MaxDecompressedBytes: c.MaxDecompressedBytes,
			}
		},
	})
	return err
}

// cacheMemoryBytes is how much of the cache lies in memory where there is a disk for it.
const cacheMemoryBytes = 64 << 20

// cacheMemory is how much of the cache lies in memory, and at least twice what the largest batch needs: one that doesn't fit into half of it can
// never be read.
func cacheMemory(c *config.Broker) int64 {
	most := c.TierCacheBytes
	if c.TierCacheDir != "" {
		most = min(most, cacheMemoryBytes)
	}
	defaults, _ := config.ResolveTopic(c, nil) // without overrides there is no error
	return max(most, cold.MemoryBytesMin, 2*(int64(defaults.MaxMessageBytes)+batchMargin(c)))
}

// batchMargin is what a batch has beside it in its first and last block.
func batchMargin(c *config.Broker) int64 {
	return 2 * min(cache.DefaultBlockBytes, int64(c.TierChunkBytes))
}

// warnOfLarge tells of settings that allow batches for which the cache has had no room since its start.
func (t *tiering) warnOfLarge(image *metadata.Image, delta metadata.Delta) {
	settings := t.engine.settings.Load()
	for _, r := range delta.Configs {
		overrides := image.Configs(r)
		_, limited := overrides["max.message.bytes"]
		switch {
		case r.Type == metadata.BrokerResource:
			overrides = nil // what topics have that set none of their own
		case r.Type != metadata.TopicResource || !limited:
			continue
		}
		topic, _ := config.ResolveTopic(settings, overrides) // what is not usable is named where topics take it over
		if topic.RemoteStorageEnable && int64(topic.MaxMessageBytes) > t.batchBytesMax {
			t.engine.logger.Warn("the largest batches can't be read from the bucket: the cache of remote data has no room for them",
				"type", r.Type, "name", r.Name, "bytes", topic.MaxMessageBytes, "most", t.batchBytesMax)
		}
	}
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
	t.reads.step(now)
}

// Lead tells the worker of a leadership, and whether its log may have to begin anew from the bucket.
func (t *tiering) Lead(now time.Time, l replica.Leadership) (held bool) {
	if !t.registered {
		return false // the registration's own commit brings the next epoch
	}
	start := tier.StartHere
	if l.Recovering {
		start = tier.StartRecovered
	}
	return t.worker.Lead(now, tier.Leadership{
		TopicPartition: l.TopicPartition, TopicID: l.TopicID, Epoch: l.Epoch, Log: l.Log, Internal: l.Internal, Start: start,
		RecoverySince: l.RecoverySince,
	})
}

// Resign tells the worker of the end of a leadership.
func (t *tiering) Resign(tp wire.TopicPartition) { t.worker.Resign(tp) }

// Changed tells the worker of a new config.
func (t *tiering) Changed(tp wire.TopicPartition) { t.worker.Changed(tp) }

// SkipLost asks the manifest.
func (t *tiering) SkipLost(tp wire.TopicPartition, offset wire.Offset) wire.Offset {
	if m := t.worker.Manifest(tp); m != nil {
		return m.State().SkipLost(offset)
	}
	return offset
}

// released lets a partition serve that was held, unless the metadata has to hear of it first.
func (t *tiering) released(now time.Time, r tier.Release) {
	if !t.engine.recovering.hold(now, r) {
		t.release(now, r)
	}
}

// release lets a partition serve that was held, and its groups, too.
func (t *tiering) release(now time.Time, r tier.Release) {
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
	t.worker.ReportLogStart(now, tp, offset, deadline, done)
}

// Fetch reads as a task. Where all tasks are taken, as by a store that hangs, what is in memory is read at once: for whoever does not wait
// anyway, without a place among those who wait if the first partition has something, so that each gets its turn, and in place of a refusal
// in any case.
func (t *tiering) Fetch(now time.Time, r *replica.RemoteFetch, done func([]replica.RemoteResult)) {
	if t.reads.crowded() {
		if !r.Deadline.After(now) {
			done(t.read(context.Background(), now, r)) // begins to bring in the rest
			return
		}
		results := t.readCached(now, r)
		if results[0].Records.Length > 0 {
			done(results)
			return
		}
		releaseAll(results)
	}
	refused := func() {
		results := t.readCached(now, r)
		for i := range results {
			if results[i].Records.Length == 0 {
				results[i].Code = wire.KafkaStorageError // retriable, and the client waits before it tries again
			}
		}
		done(results)
	}
	needs := make([]wire.TopicPartition, len(r.Partitions))
	for i := range needs {
		needs[i] = r.Partitions[i].TopicPartition
	}
	late := func() { done(make([]replica.RemoteResult, len(r.Partitions))) }
	t.reads.submit(needs, r.Deadline, refused, late, func(ctx context.Context) { done(t.read(ctx, now, r)) })
}

// OffsetForTimestamp looks a time up as a task.
func (t *tiering) OffsetForTimestamp(now time.Time, r replica.RemoteTime, done func(log.TimestampOffset, error)) {
	refused := func() { done(log.NoTimestampOffset, wire.RequestTimedOut) }
	t.reads.submit([]wire.TopicPartition{r.TopicPartition}, r.Deadline, refused, refused, func(ctx context.Context) { done(t.lookUp(ctx, now, r)) })
}

// close has everything uploaded and the manifests closed, within tier.shutdown.upload.ms. It tells whether that is over.
func (t *tiering) close(now time.Time) bool {
	if !t.closing {
		t.closing, t.deadline = true, now.Add(time.Duration(t.engine.config.TierShutdownUploadMs)*time.Millisecond)
		t.engine.replicas.EndAppends()
		t.worker.Close(now, t.deadline)
	}
	if !t.closed {
		over, whole := t.worker.Closed(now)
		t.closed, t.whole = over, whole && t.worker.Led() == t.assigned()
		if over {
			t.empty = t.neverUsed()
		}
		switch {
		case !over || whole:
		case now.Before(t.deadline):
			t.engine.logger.Info("the bucket does not have all that is here: not everything is to be uploaded, or could be")
		default:
			t.engine.logger.Warn("the bucket does not have all: tier.shutdown.upload.ms is over")
		}
	}
	return t.closed
}

// neverUsed are the partitions that are led here and never had a record. The metadata is to say so, in place of thousands of manifests.
func (t *tiering) neverUsed() []metadata.TopicPartitions {
	byTopic := t.worker.Empty()
	list := make([]metadata.TopicPartitions, 0, len(byTopic))
	for id, partitions := range byTopic {
		list = append(list, metadata.TopicPartitions{TopicID: id, Partitions: partitions})
	}
	slices.SortFunc(list, func(a, b metadata.TopicPartitions) int { return bytes.Compare(a.TopicID[:], b.TopicID[:]) })
	return list
}

// until bounds the time of a read that was asked for at now: what it waited for its turn counts. Where no time passes while tasks run,
// only what was over already ends.
func (t *tiering) until(ctx context.Context, now, deadline time.Time) (context.Context, context.CancelFunc) {
	switch {
	case t.timed:
		return context.WithDeadline(ctx, deadline)
	case !deadline.After(now):
		return context.WithTimeout(ctx, 0)
	}
	return context.WithCancel(ctx)
}

// assigned is how many partitions have a replica here. Of one that is not led, as its log directory has failed, nobody says what the
// bucket has.
func (t *tiering) assigned() int {
	n := 0
	for topic := range t.engine.Image().Topics("") {
		for i := range topic.Partitions {
			if slices.Contains(topic.Partitions[i].Replicas, t.engine.self) {
				n++
			}
		}
	}
	return n
}

// read answers a fetch from the bucket.
func (t *tiering) read(ctx context.Context, now time.Time, r *replica.RemoteFetch) []replica.RemoteResult {
	ctx, cancel := t.until(ctx, now, r.Deadline)
	defer cancel()
	return t.readWith(r, func(q *cold.Request) []cold.Result { return t.reader.Read(ctx, now, q) })
}

// readCached answers a fetch from memory.
func (t *tiering) readCached(now time.Time, r *replica.RemoteFetch) []replica.RemoteResult {
	return t.readWith(r, func(q *cold.Request) []cold.Result { return t.reader.Cached(now, q) })
}

func (t *tiering) readWith(r *replica.RemoteFetch, read func(*cold.Request) []cold.Result) []replica.RemoteResult {
	results := make([]replica.RemoteResult, len(r.Partitions))
	request := &cold.Request{MaxBytes: r.MaxBytes, MinOneBatch: r.MinOneBatch, Committed: r.Committed}
	rows := make([]int, 0, len(r.Partitions))
	for i := range r.Partitions {
		p := &r.Partitions[i]
		from, ok := t.cold(p.TopicPartition, p.TopicID)
		if !ok {
			results[i].Code = wire.KafkaStorageError
			continue
		}
		rows = append(rows, i)
		request.Partitions = append(request.Partitions, cold.Fetch{
			Partition: from, Offset: p.Offset, UpTo: p.UpTo, MaxBytes: p.MaxBytes, LocalAborted: p.LocalAborted,
		})
	}
	for i, got := range read(request) {
		result := &results[rows[i]]
		result.Code, result.Records = got.Code, got.Records
		for _, a := range got.Aborted {
			result.Aborted = append(result.Aborted, replica.AbortedTransaction{ProducerID: a.ProducerID, FirstOffset: a.First})
		}
	}
	return results
}

// releaseAll lets go of records that nobody is to get.
func releaseAll(results []replica.RemoteResult) {
	for i := range results {
		if results[i].Records.Release != nil {
			results[i].Records.Release()
		}
	}
}

// cold is a partition as the reader sees it. Its manifest is not known in the first moments of a leadership.
func (t *tiering) cold(tp wire.TopicPartition, id wire.TopicID) (cold.Partition, bool) {
	m := t.worker.Manifest(tp)
	if m == nil {
		t.worker.Changed(tp)
		return cold.Partition{}, false
	}
	return cold.Partition{TopicPartition: tp, TopicID: id, Manifest: m}, true
}

// lookUp answers a look-up by time from the bucket.
func (t *tiering) lookUp(ctx context.Context, now time.Time, r replica.RemoteTime) (log.TimestampOffset, error) {
	ctx, cancel := t.until(ctx, now, r.Deadline)
	defer cancel()
	from, ok := t.cold(r.TopicPartition, r.TopicID)
	if !ok {
		return log.NoTimestampOffset, wire.KafkaStorageError
	}
	if r.Timestamp == replica.MaxTimestamp {
		return t.reader.MaxTimestamp(ctx, from, r.From, r.UpTo)
	}
	return t.reader.OffsetForTime(ctx, from, r.Timestamp, r.From, r.UpTo)
}

// end lets go of what reads hold.
func (t *tiering) end() error {
	if t.reader == nil {
		return nil
	}
	return t.reader.Close()
}
