package cold

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/cache"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
)

// Options are what a Reader is made of. All are required unless they say otherwise.
type Options struct {
	Store object.Store
	Cache cache.Options // Get and Go are filled in by Open; RangeBytes is the size of a get
	// Go runs a function beside the caller (the shell), or before it returns (the simulator).
	Go func(func())
	// Now is a monotonic time, to measure what gets take and to keep to the byte rate.
	Now func() time.Time
	// Sleep waits for the byte rate; nil: there is no limit.
	Sleep  func(ctx context.Context, d time.Duration) error
	Config func() Config // the settings in force; cheap
	Logger *slog.Logger  // nil: silent
}

// Config are the settings that may change.
type Config struct {
	ReadAheadBytes       int64 // tier.read.ahead.bytes: most bytes ahead of one reader
	BytesPerSecond       int64 // tier.fetch.bytes.per.second
	MaxDecompressedBytes int   // of one record of a compressed batch, in look-ups by time
}

// Manifest is what a Reader asks of a partition's manifest; *manifest.Manifest has it.
type Manifest interface {
	State() *manifest.State
	Prefix() string
	Find(ctx context.Context, offset wire.Offset) (manifest.Segment, bool, error)
	After(ctx context.Context, s manifest.Segment) (manifest.Segment, bool, error)
	FindTime(ctx context.Context, ts int64) iter.Seq2[manifest.Segment, error]
	Load(ctx context.Context, p manifest.Page) ([]manifest.Segment, error)
	Refresh(ctx context.Context) (*manifest.State, error)
}

// Partition is a partition that is read.
type Partition struct {
	wire.TopicPartition
	TopicID  wire.TopicID
	Manifest Manifest
}

// Request is the part of a fetch that only the object store can answer.
type Request struct {
	MaxBytes    int  // of all partitions together
	MinOneBatch bool // the first partition's first batch is let through even if it is larger than the limits
	Committed   bool // the aborted transactions are wanted
	Partitions  []Fetch
}

// Fetch is what is asked of one partition: [Offset, UpTo).
type Fetch struct {
	Partition
	Offset   wire.Offset
	UpTo     wire.Offset
	MaxBytes int
	// LocalAborted lists the aborted transactions with records in [from, to) whose markers lie in the local log: what begins in
	// the bucket may end there. It is asked for with Committed, and only where a transaction is open at the tier's end. nil:
	// there is no local log.
	LocalAborted func(from, to wire.Offset) ([]log.AbortedTransaction, error)
}

// Result is the answer for one partition. Records is empty where nothing has come in time, or there was no room for it: the next
// fetch of that offset finds what is under way.
type Result struct {
	// Code is NONE, OFFSET_OUT_OF_RANGE below the log start, or KAFKA_STORAGE_ERROR where the store is away or has lost or
	// damaged an object.
	Code    wire.Code
	Records vfs.Range // whole batches of one segment, all verified; the receiver releases it
	Next    wire.Offset
	Aborted []log.AbortedTransaction
}

// The reasons why a segment can't be read, the first two although the store answers.
var (
	errDamaged = errors.New("object is damaged")
	errLarge   = errors.New("batch does not fit into tier.cache.bytes")
	errDown    = errors.New("object store did not answer of late")
	errBusy    = errors.New("too many reads wait for the object store")
)

// Reader reads the cold part of all partitions of a broker. It is safe for use by several goroutines at once.
type Reader struct {
	o        Options
	cache    *cache.Cache
	store    *meter
	sidecars *sidecars
	streams  *streams
	rate     *rate
	alarms   *alarms
	tasks    chan struct{} // a token for each partition that is being read
	ctx      context.Context
	cancel   context.CancelFunc
}

// MemoryBytesMin is what a Reader's cache has in memory whatever its options say, so that batches of up to half of it can be read.
const MemoryBytesMin = 32 << 20

// Open makes a Reader and its cache.
func Open(o Options) (*Reader, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Reader{
		o: o, store: newMeter(o.Store, o.Now), streams: newStreams(), rate: &rate{now: o.Now},
		alarms: &alarms{logger: o.Logger, now: o.Now}, tasks: make(chan struct{}, tasksMax),
	}
	o.Cache.Get, o.Cache.Go = r.get, o.Go
	if o.Cache.BlockBytes == 0 {
		o.Cache.MemoryBytes = max(o.Cache.MemoryBytes, MemoryBytesMin)
	}
	c, err := cache.Open(o.Cache)
	if err != nil {
		return nil, err
	}
	r.cache = c
	r.o.Cache.RangeBytes = c.RangeBytes()
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.sidecars = &sidecars{ctx: r.ctx, store: r.store, run: o.Go, bytesMax: sidecarBytesMax, at: map[string]*sidecarEntry{}}
	return r, nil
}

// Close ends what is under way. Records that were handed out stay readable until they are released.
func (r *Reader) Close() error {
	r.cancel()
	return r.cache.Close()
}

// EpochEnd is the largest leader epoch of at most epoch that the tier knows, and the offset at which it ends; NoLeaderEpoch and
// NoOffset where it knows none. The end of the newest one is the tier's end.
func (r *Reader) EpochEnd(p Partition, epoch wire.LeaderEpoch) (wire.LeaderEpoch, wire.Offset) {
	return p.Manifest.State().EndOffsetForEpoch(epoch)
}

// segmentOf names the object of a segment.
func (p Partition) segmentOf(s manifest.Segment) cache.Object {
	return cache.Object{Key: p.Manifest.Prefix() + "/" + s.Key(manifest.LogObject), Size: s.Size, Topic: p.Topic}
}
