package log

import (
	"log/slog"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Options say where a log is and how it starts.
type Options struct {
	FS             vfs.FS
	Dir            string // the partition's directory; made if missing
	TopicPartition wire.TopicPartition
	TopicID        wire.TopicID // of a new log; a different one on disk is an error; zero takes the one on disk
	Config         config.Topic

	RecoveryPoint wire.Offset // what was flushed, by the checkpoint
	LogStart      wire.Offset // by the checkpoint; NoOffset where it names none. Only of a tiered log it may be below the first segment
	HighWatermark wire.Offset // by the checkpoint; clamped into the log
	Stop          Stop

	Logger *slog.Logger // nil: silent
	// Yield is called between two reads of a verification that nobody waits for, before an upload or by the scrub: it lets those run who
	// have a request to answer. nil: nobody does.
	Yield func()

	env   *environment // of the manager's log directory; nil makes one for this log alone
	fresh bool         // there was none
	anew  bool         // and yet the partition is older: what it held may be in the object store
}

// Stop says how the process that wrote a log before has ended (safety.md 11).
type Stop int8

// The ways to end.
const (
	StopPowerLoss    Stop = iota // nothing but what was flushed can be relied on; also when nothing is known
	StopProcessCrash             // the page cache lived on: only the write in progress may be torn
	StopClean                    // everything was flushed and the indexes are whole
)

// Log is one partition's log. Its methods may be called by several goroutines at once.
type Log struct {
	tp      wire.TopicPartition
	id      wire.TopicID
	dir     string
	env     *environment
	mayLack atomic.Bool
	config  atomic.Pointer[config.Topic]

	// maintenance is held over slow work: flush, retention, truncation, scrub. Taken before mu.
	maintenance   sync.Mutex
	scrubAt       wire.Offset   // where the next Scrub begins
	epochsWritten epochCache    // what leader-epoch-checkpoint holds
	snapshotFiles []wire.Offset // of the producer snapshots on disk, rising
	remote        bool          // remoteFile is there

	// mu guards appends and every change of the published state. Rank: below maintenance and the partition's lock, above
	// segment.mu.
	mu            sync.Mutex
	producers     producerState
	snapshots     []pendingSnapshot // taken at rolls, not written yet
	unflushedFrom time.Time         // of the oldest append that is not flushed; zero when all is
	dirty         bool              // it is among env.dirty
	newFiles      bool              // a segment's file was made since the directory was synced
	newDir        bool              // its directory was made and is not durable
	closed        bool
	moved         bool // its directory has another name: no file of it may be written; also under maintenance

	// Published to readers without a lock. segments are sorted, never empty, and replaced as a whole; the last one is active.
	segments      atomic.Pointer[[]*segment]
	end           logEnd
	start         atomic.Int64
	watermark     atomic.Int64
	firstUnstable atomic.Int64
	recoveryPoint atomic.Int64
	tieredEnd     atomic.Int64
	startSaved    atomic.Int64 // what the checkpoint of log starts says; NoOffset where it does not name the log
	firstSynced   atomic.Int64 // base of the first segment, as the directory was synced; NoOffset while that is not known
	epochs        atomic.Pointer[epochCache]
}

// logEnd is the log's end offset and the size of the active segment at that offset, read together without a lock: the
// writer makes sequence odd while it changes them.
type logEnd struct {
	sequence atomic.Uint32
	offset   atomic.Int64
	base     atomic.Int64 // of the active segment
	size     atomic.Int64
}

func (e *logEnd) set(offset, base wire.Offset, size int64) {
	e.sequence.Add(1)
	e.offset.Store(int64(offset))
	e.base.Store(int64(base))
	e.size.Store(size)
	e.sequence.Add(1)
}

func (e *logEnd) get() (offset, base wire.Offset, size int64) {
	for {
		before := e.sequence.Load()
		offset, base, size = wire.Offset(e.offset.Load()), wire.Offset(e.base.Load()), e.size.Load()
		if before&1 == 0 && e.sequence.Load() == before {
			return offset, base, size
		}
	}
}

// TopicPartition names the log.
func (l *Log) TopicPartition() wire.TopicPartition { return l.tp }

// TopicID is the id in partition.metadata; zero when there is none.
func (l *Log) TopicID() wire.TopicID { return l.id }

// Dir is the partition's directory.
func (l *Log) Dir() string { return l.dir }

// Err is why the log's directory is offline, or nil.
func (l *Log) Err() error { return l.env.disk.check() }

// MayLackEnd tells whether the log's end may be missing: what was not flushed is gone after a power loss, and when nobody knows how
// the process before has ended (safety.md 11); and a start from the tier may have stopped half-way. It holds until Verified.
func (l *Log) MayLackEnd() bool { return l.mayLack.Load() }

// Config is the topic's effective configuration.
func (l *Log) Config() config.Topic { return *l.config.Load() }

// UpdateConfig replaces the configuration from the next operation on.
func (l *Log) UpdateConfig(c config.Topic) {
	l.config.Store(&c)
	l.startUnsaved()
}

// StartOffset is the log start offset: the first offset that clients may read.
func (l *Log) StartOffset() wire.Offset { return wire.Offset(l.start.Load()) }

// EndOffset is the log end offset: the offset of the next record.
func (l *Log) EndOffset() wire.Offset { return wire.Offset(l.end.offset.Load()) }

// RecoveryPoint is the offset below which everything is flushed.
func (l *Log) RecoveryPoint() wire.Offset { return wire.Offset(l.recoveryPoint.Load()) }

// HighWatermark is what UpdateHighWatermark said last.
func (l *Log) HighWatermark() wire.Offset { return wire.Offset(l.watermark.Load()) }

// UpdateHighWatermark tells the log how far it is replicated, which bounds retention and the last stable offset, and is
// what the checkpoint keeps. The replica decides it and calls one at a time; the value is clamped into [StartOffset, EndOffset].
func (l *Log) UpdateHighWatermark(hw wire.Offset) {
	hw = max(min(hw, l.EndOffset()), l.StartOffset())
	if wire.Offset(l.watermark.Swap(int64(hw))) == hw {
		return
	}
	markChanged(&l.env.disk.watermarkChanged)
	if wire.Offset(l.firstUnstable.Load()) == wire.NoOffset {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.producers.replicated(hw)
	l.publishUnstableLocked()
}

// markChanged spares the other cores a write to a flag that is set most of the time.
func markChanged(flag *atomic.Bool) {
	if !flag.Load() {
		flag.Store(true)
	}
}

func (l *Log) publishUnstableLocked() { l.firstUnstable.Store(int64(l.producers.firstUnstable())) }

// LastStableOffset is the first offset of the oldest transaction that is open or whose end is not replicated, else the
// high watermark.
func (l *Log) LastStableOffset() wire.Offset {
	hw := l.HighWatermark()
	if first := l.FirstUnstable(); first != wire.NoOffset && first < hw {
		return max(first, l.StartOffset())
	}
	return hw
}

// FirstUnstable is the first offset of the oldest transaction that is open or whose end is not replicated, or wire.NoOffset.
func (l *Log) FirstUnstable() wire.Offset { return wire.Offset(l.firstUnstable.Load()) }

// Size is the size of all segments in bytes.
func (l *Log) Size() int64 {
	var total int64
	for _, s := range *l.segments.Load() {
		total += s.size.Load()
	}
	return total
}

// SegmentInfo describes one segment.
type SegmentInfo struct {
	Base   wire.Offset
	Next   wire.Offset // the next segment's base, or the log's end
	Size   int64
	Sealed bool
}

// Segments describes the segments, oldest first.
func (l *Log) Segments() []SegmentInfo {
	segments := *l.segments.Load()
	infos := make([]SegmentInfo, len(segments))
	for i, s := range segments {
		infos[i] = SegmentInfo{Base: s.base, Next: l.nextBase(segments, i), Size: s.size.Load(), Sealed: i < len(segments)-1}
	}
	return infos
}

// nextBase is the first offset behind a segment.
func (l *Log) nextBase(segments []*segment, i int) wire.Offset {
	if i+1 < len(segments) {
		return segments[i+1].base
	}
	return l.EndOffset()
}

// LatestEpoch is the highest leader epoch of the log, or wire.NoLeaderEpoch.
func (l *Log) LatestEpoch() wire.LeaderEpoch { return l.epochs.Load().latest() }

// EpochEntry is a line of leader-epoch-checkpoint.
type EpochEntry struct {
	Epoch wire.LeaderEpoch
	Start wire.Offset
}

// Epochs lists the epochs with their start offsets.
func (l *Log) Epochs() []EpochEntry { return slices.Clone(*l.epochs.Load()) }

// EndOffsetForEpoch is OffsetForLeaderEpoch (KIP-101, KIP-279): the largest known epoch not above epoch, and where it
// ends; (-1, -1) when epoch is above all, (epoch, first start) when it is below all.
func (l *Log) EndOffsetForEpoch(epoch wire.LeaderEpoch) (wire.LeaderEpoch, wire.Offset) {
	// The end first: an epoch that begins meanwhile ends the former one at or behind it.
	end := l.EndOffset()
	return l.epochs.Load().endOffset(epoch, end)
}

// AssignEpochStart says that a leader epoch begins at the log's end (become-leader). It is on disk with the next flush; an
// epoch without records that a crash forgets is missed by nobody.
func (l *Log) AssignEpochStart(epoch wire.LeaderEpoch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.assignEpochLocked(epoch, l.EndOffset())
}

func (l *Log) assignEpochLocked(epoch wire.LeaderEpoch, start wire.Offset) {
	epochs := *l.epochs.Load()
	if epoch == epochs.latest() {
		return
	}
	l.setEpochsLocked(epochs.assign(epoch, start))
}

func (l *Log) setEpochsLocked(epochs epochCache) { l.epochs.Store(&epochs) }

// Producer is what DescribeProducers shows of one producer.
type Producer struct {
	ID               wire.ProducerID
	Epoch            wire.ProducerEpoch
	LastSequence     int32
	LastTimestamp    int64
	CoordinatorEpoch int32
	TxnStart         wire.Offset // first offset of the open transaction, or -1
}

// Producers lists the producers with state, by id.
func (l *Log) Producers() []Producer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.producers.list()
}

// ExpireProducers forgets producers that have not written for so many milliseconds (producer.id.expiration.ms), but for those with an
// open transaction.
func (l *Log) ExpireProducers(now time.Time, expirationMs int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.producers.expire(now.UnixMilli(), expirationMs)
}

// active is the segment that is appended to.
func (l *Log) active() *segment {
	segments := *l.segments.Load()
	return segments[len(segments)-1]
}

// floorSegment is the number of the segment that an offset belongs to, the first one if it lies before all.
func floorSegment(segments []*segment, offset wire.Offset) int {
	return max(0, sort.Search(len(segments), func(i int) bool { return segments[i].base > offset })-1)
}
