package coordinator

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
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
	cfg Config[S]
}

// NewRuntime returns a Runtime without partitions.
func NewRuntime[S Shard](cfg Config[S]) *Runtime[S] { return &Runtime[S]{cfg: cfg} }

// SetPartitionCount says how many partitions the internal topic has; 0 while it does not exist.
func (r *Runtime[S]) SetPartitionCount(n int32) {}

// PartitionFor is the partition of key, or COORDINATOR_NOT_AVAILABLE while the topic does not exist.
func (r *Runtime[S]) PartitionFor(key string) (int32, error) { return 0, nil }

// Load is a partition on its way from the log into memory.
type Load struct{}

// StartLoad says that this broker has become leader of partition under epoch. From now on its requests get
// COORDINATOR_LOAD_IN_PROGRESS. The engine runs Load.Replay as a task and then calls FinishLoad. A former epoch is
// unloaded. It returns nil when the partition is led under this or a later epoch already.
func (r *Runtime[S]) StartLoad(partition int32, epoch wire.LeaderEpoch) *Load { return nil }

// Partition is the partition that is loaded.
func (l *Load) Partition() int32 { return 0 }

// Replay reads the partition's batches from the log start offset to the log end offset into memory. It takes no locks and may
// run beside everything else. The bytes of a batch need to be valid only until the next one is asked for.
func (l *Load) Replay(ctx context.Context, batches iter.Seq2[record.Batch, error]) error { return nil }

// FinishLoad makes the partition answer, or, when err is not nil, refuse with NOT_COORDINATOR until the next StartLoad.
// highWatermark is the partition's at this moment. A load that was overtaken by another epoch has no effect.
func (r *Runtime[S]) FinishLoad(now time.Time, load *Load, highWatermark wire.Offset, err error) {}

// Unload says that this broker leads partition no more as of epoch. Whoever waits gets NOT_COORDINATOR.
func (r *Runtime[S]) Unload(partition int32, epoch wire.LeaderEpoch) {}

// HighWatermark says that the high watermark of partition has moved to offset. Replies that waited for it run before
// it returns, unless an Append is under way: then that one's caller runs them.
func (r *Runtime[S]) HighWatermark(partition int32, offset wire.Offset) {}

// Handle runs fn inside the shard of partition and does what its Result says. Replies may run before Handle returns. It
// fails, without having called fn, with COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR.
func (r *Runtime[S]) Handle(now time.Time, partition int32, fn func(S) Result) error { return nil }

// View runs fn, which changes nothing, inside the shard. What it sees may not be committed yet. It fails like Handle.
func (r *Runtime[S]) View(partition int32, fn func(S)) error { return nil }

// Partitions are the partitions that are led, in order, loading ones too.
func (r *Runtime[S]) Partitions() []int32 { return nil }

// Advance runs what is due at now: the shards' timers, and replies that waited too long.
func (r *Runtime[S]) Advance(now time.Time) {}

// NextWake is when Advance will have something to do, or the zero time.
func (r *Runtime[S]) NextWake() time.Time { return time.Time{} }
