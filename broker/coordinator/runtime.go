package coordinator

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// Config is what a Runtime needs to know.
type Config[S Shard] struct {
	NewShard      func(partition int32) S
	Appender      Appender
	CommitTimeout time.Duration      // how long replies wait for the high watermark (offsets.commit.timeout.ms)
	Wake          func(at time.Time) // told when NextWake has become earlier; no locks held; may be nil
	Logger        *slog.Logger
}

// Runtime holds the shards of the partitions that this broker leads. All methods may be called by several goroutines.
type Runtime[S Shard] struct {
	cfg   Config[S]
	count atomic.Int32 // partitions of the internal topic

	changes    sync.Mutex                      // held while partitions is replaced; ranks before a partition's mu
	partitions atomic.Pointer[[]*partition[S]] // in order; a slice is never changed
}

// NewRuntime returns a Runtime without partitions.
func NewRuntime[S Shard](cfg Config[S]) *Runtime[S] {
	r := &Runtime[S]{cfg: cfg}
	r.partitions.Store(new([]*partition[S]))
	return r
}

// SetPartitionCount says how many partitions the internal topic has; 0 while it does not exist.
func (r *Runtime[S]) SetPartitionCount(n int32) { r.count.Store(n) }

// PartitionFor is the partition of key, or COORDINATOR_NOT_AVAILABLE while the topic does not exist.
func (r *Runtime[S]) PartitionFor(key string) (int32, error) {
	n := r.count.Load()
	if n <= 0 {
		return 0, wire.CoordinatorNotAvailable
	}
	return PartitionFor(key, n), nil
}

// StartLoad says that this broker has become leader of partition under epoch. From now on its requests get
// COORDINATOR_LOAD_IN_PROGRESS. The engine runs Load.Replay as a task and then calls FinishLoad. There is nothing to load,
// and the answer is nil, when the partition is led under this or a later epoch already, or was led under the epoch just
// before: then nobody else can have written.
func (r *Runtime[S]) StartLoad(partition int32, epoch wire.LeaderEpoch) *Load {
	r.changes.Lock()
	old, at := r.find(partition)
	if old != nil && old.continues(epoch) {
		r.changes.Unlock()
		return nil
	}
	load := &Load{partition: partition, shard: r.cfg.NewShard(partition)}
	list := slices.Clone(*r.partitions.Load())
	if old != nil {
		list[at] = newPartition[S](partition, epoch, load)
	} else {
		list = slices.Insert(list, at, newPartition[S](partition, epoch, load))
	}
	r.partitions.Store(&list)
	r.changes.Unlock()
	if old != nil {
		run(old.close())
	}
	return load
}

// FinishLoad makes the partition answer, or, when err is not nil, refuse with NOT_COORDINATOR until the next StartLoad.
// highWatermark is the partition's at this moment. A load that was overtaken has no effect.
func (r *Runtime[S]) FinishLoad(now time.Time, load *Load, highWatermark wire.Offset, err error) {
	p, _ := r.find(load.partition)
	if p == nil || !p.finish(now, load, highWatermark, err) {
		return
	}
	if err != nil {
		r.cfg.Logger.Error("coordinator partition not loaded", "partition", load.partition, "err", err)
		return
	}
	if load.skipped > 0 {
		r.cfg.Logger.Warn("records left out while loading", "partition", load.partition, "records", load.skipped, "err", load.reason)
	}
	r.wake(p)
}

// Unload says that this broker does not lead partition as of epoch. Whoever waits gets NOT_COORDINATOR. It has no effect on a
// partition that was loaded under this or a later epoch.
func (r *Runtime[S]) Unload(partition int32, epoch wire.LeaderEpoch) {
	r.changes.Lock()
	old, at := r.find(partition)
	if old == nil || old.leads(epoch) {
		r.changes.Unlock()
		return
	}
	list := slices.Delete(slices.Clone(*r.partitions.Load()), at, at+1)
	r.partitions.Store(&list)
	r.changes.Unlock()
	run(old.close())
}

// HighWatermark says that the high watermark of partition has moved to offset. Replies that waited for it run before
// it returns, so the caller holds no locks; while the partition is at work, in an Append too, whoever is at work runs them.
func (r *Runtime[S]) HighWatermark(partition int32, offset wire.Offset) {
	if p, _ := r.find(partition); p != nil {
		run(p.waiting.advance(offset))
	}
}

// Handle runs fn inside the shard of partition and does what its Result says. Replies may run before Handle returns. It
// fails, without having called fn, with COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR.
func (r *Runtime[S]) Handle(now time.Time, partition int32, fn func(S) Result) error {
	p, _ := r.find(partition)
	if p == nil {
		return wire.NotCoordinator
	}
	replies, err := p.handle(now, &r.cfg, fn)
	if err != nil {
		return err
	}
	run(replies)
	r.wake(p)
	return nil
}

// View runs fn, which states no records, inside the shard. What it sees may not be committed yet. It fails like Handle.
func (r *Runtime[S]) View(partition int32, fn func(S)) error {
	p, _ := r.find(partition)
	if p == nil {
		return wire.NotCoordinator
	}
	return p.view(fn)
}

// Partitions are the partitions that are led, in order, loading ones too.
func (r *Runtime[S]) Partitions() []int32 {
	list := *r.partitions.Load()
	ids := make([]int32, len(list))
	for i, p := range list {
		ids[i] = p.id
	}
	return ids
}

// Advance runs what is due at now: the shards' timers, and replies that waited too long.
func (r *Runtime[S]) Advance(now time.Time) {
	for _, p := range *r.partitions.Load() {
		if due := p.waiting.next(); !due.IsZero() && !due.After(now) {
			run(p.advance(now, &r.cfg))
		}
	}
}

// NextWake is when Advance will have something to do, or the zero time. The shell asks after each Advance; Config.Wake tells
// it what has become earlier since.
func (r *Runtime[S]) NextWake() time.Time {
	var first time.Time
	for _, p := range *r.partitions.Load() {
		first = earlier(first, p.waiting.announce())
	}
	return first
}

// find returns the partition and its place in the list, or nil and where it would be.
func (r *Runtime[S]) find(id int32) (*partition[S], int) {
	list := *r.partitions.Load()
	at, ok := slices.BinarySearchFunc(list, id, func(p *partition[S], id int32) int { return cmp.Compare(p.id, id) })
	if !ok {
		return nil, at
	}
	return list[at], at
}

// wake tells the shell that the partition's next wake has become earlier.
func (r *Runtime[S]) wake(p *partition[S]) {
	if at, ok := p.waiting.hastened(); ok && r.cfg.Wake != nil {
		r.cfg.Wake(at)
	}
}

func run(replies []func()) {
	for _, reply := range replies {
		reply()
	}
}

// earlier is the first of two times, where the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
