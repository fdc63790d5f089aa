package log

import (
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Log is one partition's log. Its methods may be called by several goroutines at once.
type Log struct{}

// Open opens or creates a log, recovering it as o.Stop demands.
func Open(now time.Time, o Options) (*Log, error) { panic("rough") }

// AppendAsLeader appends whole, validated batches (record.Validate) with the next offsets. It patches base offset and
// leader epoch in batches, which it does not keep. A client's sequence and epoch errors are wire codes 45, 47 and 48 (and
// 87 for several batches of a producer at once); a full disk is ErrStorage, and the log goes on; after any other
// ErrStorage the log directory is offline.
func (l *Log) AppendAsLeader(now time.Time, batches []byte, epoch wire.LeaderEpoch, origin Origin) (AppendInfo, error) {
	panic("rough")
}

// AppendAsFollower appends a leader's batches verbatim; their offsets must not be below EndOffset.
func (l *Log) AppendAsFollower(now time.Time, batches []byte) (AppendInfo, error) { panic("rough") }

// Read finds the range that holds r.From, or the next batch where From lies in a gap. It ends before the batch that holds
// UpTo, lies in one segment, and is empty only if there is no batch between From and UpTo.
func (l *Log) Read(r ReadRequest) (ReadResult, error) { panic("rough") }

// ReadBatches reads whole batches into buf (grown when the first one needs it) and returns the bytes read; none at UpTo.
func (l *Log) ReadBatches(from, upTo wire.Offset, buf []byte) ([]byte, error) { panic("rough") }

// UpperOffset bounds the offsets in a range that Read returned: all are below it.
func (l *Log) UpperOffset(r ReadResult) wire.Offset { panic("rough") }

// TopicPartition names the log.
func (l *Log) TopicPartition() wire.TopicPartition { panic("rough") }

// TopicID is the id in partition.metadata.
func (l *Log) TopicID() wire.TopicID { panic("rough") }

// Dir is the partition's directory.
func (l *Log) Dir() string { panic("rough") }

// Config is the topic's effective configuration; UpdateConfig replaces it.
func (l *Log) Config() config.Topic { panic("rough") }

// UpdateConfig replaces the configuration from the next operation on.
func (l *Log) UpdateConfig(c config.Topic) { panic("rough") }

// StartOffset is the log start offset: the first offset that clients may read.
func (l *Log) StartOffset() wire.Offset { panic("rough") }

// EndOffset is the log end offset: the offset of the next record.
func (l *Log) EndOffset() wire.Offset { panic("rough") }

// HighWatermark is what UpdateHighWatermark said last.
func (l *Log) HighWatermark() wire.Offset { panic("rough") }

// UpdateHighWatermark tells the log how far it is replicated: bound of retention and of the last stable offset, and what
// the checkpoint holds. The replica decides it; the value is clamped into [StartOffset, EndOffset].
func (l *Log) UpdateHighWatermark(hw wire.Offset) { panic("rough") }

// LastStableOffset is the first offset of the oldest transaction that is open or whose end is not replicated, else the
// high watermark.
func (l *Log) LastStableOffset() wire.Offset { panic("rough") }

// FirstUnstable is the first offset of the oldest open or unreplicated transaction, or wire.NoOffset.
func (l *Log) FirstUnstable() wire.Offset { panic("rough") }

// RecoveryPoint is the offset below which everything is flushed.
func (l *Log) RecoveryPoint() wire.Offset { panic("rough") }

// Size is the size of all segments in bytes.
func (l *Log) Size() int64 { panic("rough") }

// Segments describes the segments, oldest first.
func (l *Log) Segments() []SegmentInfo { panic("rough") }

// LatestEpoch is the highest leader epoch of the log, or wire.NoLeaderEpoch.
func (l *Log) LatestEpoch() wire.LeaderEpoch { panic("rough") }

// Epochs lists the epochs with their start offsets.
func (l *Log) Epochs() []EpochEntry { panic("rough") }

// EndOffsetForEpoch is OffsetForLeaderEpoch (KIP-101, KIP-279): the largest known epoch not above epoch, and where it
// ends; (-1, -1) when epoch is above all, (epoch, first start) when it is below all.
func (l *Log) EndOffsetForEpoch(epoch wire.LeaderEpoch) (wire.LeaderEpoch, wire.Offset) { panic("rough") }

// AssignEpochStart says that a leader epoch begins at the log's end (become-leader).
func (l *Log) AssignEpochStart(epoch wire.LeaderEpoch) { panic("rough") }

// TruncateTo drops everything from offset on. It tells whether something was dropped.
func (l *Log) TruncateTo(now time.Time, offset wire.Offset) (bool, error) { panic("rough") }

// TruncateFullyAndStartAt drops everything and starts anew at offset.
func (l *Log) TruncateFullyAndStartAt(now time.Time, offset wire.Offset) error { panic("rough") }

// AdvanceStart raises the log start offset (DeleteRecords); ErrOffsetOutOfRange above the high watermark; no change below
// the start. It is durable after Manager.Checkpoint. Segments go by the next Retain.
func (l *Log) AdvanceStart(offset wire.Offset) error { panic("rough") }

// Retain deletes by log start, size and time. It tells how many segments went.
func (l *Log) Retain(now time.Time) (int, error) { panic("rough") }

// Roll begins a new segment if the active one holds something.
func (l *Log) Roll(now time.Time) error { panic("rough") }

// Flush makes everything appended so far durable and moves the recovery point.
func (l *Log) Flush() error { panic("rough") }

// FlushDue finishes sealed segments, and flushes if flush.ms has passed.
func (l *Log) FlushDue(now time.Time) error { panic("rough") }

// Producers lists the producers with state, by id.
func (l *Log) Producers() []Producer { panic("rough") }

// ExpireProducers forgets producers that were silent for too long.
func (l *Log) ExpireProducers(now time.Time) { panic("rough") }

// AbortedTransactions lists those with a record in [from, to).
func (l *Log) AbortedTransactions(from, to wire.Offset) ([]AbortedTransaction, error) { panic("rough") }

// OffsetForTimestamp is the first record, in offset order and below upTo, with a timestamp of ts or later.
func (l *Log) OffsetForTimestamp(ts int64, upTo wire.Offset) (TimestampOffset, error) { panic("rough") }

// OffsetOfMaxTimestamp is the first record below upTo with the largest timestamp.
func (l *Log) OffsetOfMaxTimestamp(upTo wire.Offset) (TimestampOffset, error) { panic("rough") }

// Scrub verifies the next budget bytes or so of sealed segments; done says that it has come round.
func (l *Log) Scrub(budget int) (checked int, done bool, err error) { panic("rough") }

// Close flushes, writes the producer snapshot and closes the files.
func (l *Log) Close(now time.Time) error { panic("rough") }

// ManagerOptions say where the log directories are and whose.
type ManagerOptions struct {
	FS        vfs.FS
	Dirs      []string // log.dirs
	ClusterID string
	// ClusterIncarnation counts recoveries of the cluster from its bucket (safety.md 30).
	ClusterIncarnation int64
	BrokerID           wire.BrokerID
	// BootID is the kernel's boot id. Unknown ("") or another than the last one: an unclean stop counts as a power loss.
	BootID string
	// DefaultConfig is the effective configuration of a topic found on disk.
	DefaultConfig func(topic string) config.Topic
	// Run calls work(0) .. work(n-1), beside each other if it likes, and returns when all are done. nil: one by one.
	Run func(n int, work func(i int))
	// NewUUID makes directory ids and names of directories to be deleted.
	NewUUID              func() [16]byte
	ProducerExpirationMs int64
}

// Manager holds the logs of a broker.
type Manager struct{}

// OpenManager locks and reads the log directories and opens every log. A directory that fails is Offline; it is an error
// if none is left, if one is locked, or if one belongs to another cluster or broker.
func OpenManager(now time.Time, o ManagerOptions) (*Manager, error) { panic("rough") }

// Get finds a log.
func (m *Manager) Get(tp wire.TopicPartition) (*Log, bool) { panic("rough") }

// Logs lists the logs by topic and partition.
func (m *Manager) Logs() []*Log { panic("rough") }

// Create makes the log of a new partition in the directory with the fewest; the existing one if it is there already.
func (m *Manager) Create(now time.Time, tp wire.TopicPartition, id wire.TopicID, cfg config.Topic) (*Log, error) {
	panic("rough")
}

// Delete takes a partition away; its files go by a later Sweep.
func (m *Manager) Delete(now time.Time, tp wire.TopicPartition) error { panic("rough") }

// MarkStray puts a partition that nobody can explain aside and keeps it.
func (m *Manager) MarkStray(now time.Time, tp wire.TopicPartition) error { panic("rough") }

// Checkpoint writes recovery points, high watermarks and log starts of the directories where they changed.
func (m *Manager) Checkpoint() error { panic("rough") }

// FlushDue finishes sealed segments and flushes what flush.ms asks for.
func (m *Manager) FlushDue(now time.Time) { panic("rough") }

// Retain applies retention to every log.
func (m *Manager) Retain(now time.Time) (segments int) { panic("rough") }

// ExpireProducers forgets silent producers in every log.
func (m *Manager) ExpireProducers(now time.Time) { panic("rough") }

// Scrub verifies the next budget bytes of sealed segments.
func (m *Manager) Scrub(budget int) { panic("rough") }

// Sweep removes files whose time has come and closes what was not used since the last Sweep.
func (m *Manager) Sweep(now time.Time) { panic("rough") }

// Offline lists the directories that failed.
func (m *Manager) Offline() []string { panic("rough") }

// DirInfo is a row of DescribeLogDirs.
type DirInfo struct {
	Path  string
	ID    wire.TopicID // directory.id
	Err   error        // why it is offline
	Usage vfs.Usage
	Logs  []*Log
}

// Dirs describes the log directories.
func (m *Manager) Dirs() []DirInfo { panic("rough") }

// CleanEpoch is the broker epoch of the last clean stop, or -1 if a directory was not stopped cleanly.
func (m *Manager) CleanEpoch() wire.BrokerEpoch { panic("rough") }

// Close flushes every log, writes snapshots and checkpoints, and leaves the clean-shutdown markers.
func (m *Manager) Close(now time.Time, epoch wire.BrokerEpoch) error { panic("rough") }

// Meta is meta.properties.
type Meta struct {
	ClusterID          string
	ClusterIncarnation int64
	BrokerID           wire.BrokerID
	DirectoryID        wire.TopicID
}

// ReadMeta reads meta.properties of a log directory; ok is false where there is none.
func ReadMeta(fsys vfs.FS, dir string) (meta Meta, ok bool, err error) { panic("rough") }
