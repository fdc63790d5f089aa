package log

import (
	"log/slog"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Errors that callers tell apart. They carry the protocol's codes, so wire.CodeOf works on whatever wraps them.
var (
	// ErrStorage says that the disk failed or is full, that the log directory is offline, or that the range is damaged.
	ErrStorage error = wire.KafkaStorageError
	// ErrOffsetOutOfRange says that an offset is outside [StartOffset, EndOffset].
	ErrOffsetOutOfRange error = wire.OffsetOutOfRange
	// ErrRecordListTooLarge says that what is to be appended does not fit into one segment.
	ErrRecordListTooLarge error = wire.RecordListTooLarge
)

// Stop says how the process that wrote a log before has ended (safety.md 11).
type Stop int8

// The ways to end.
const (
	StopPowerLoss    Stop = iota // nothing but what was flushed can be relied on; also when nothing is known
	StopProcessCrash             // the page cache lived on: only the write in progress may be torn
	StopClean                    // everything was flushed and the indexes are whole
)

// Options say where a log is and how it starts.
type Options struct {
	FS             vfs.FS
	Dir            string // the partition's directory; made if missing
	TopicPartition wire.TopicPartition
	TopicID        wire.TopicID // written to partition.metadata of a new log; a different one on disk is an error
	Config         config.Topic

	RecoveryPoint wire.Offset // what was flushed, by the checkpoint
	LogStart      wire.Offset // by the checkpoint; the first segment's base offset where that is higher
	HighWatermark wire.Offset // by the checkpoint; clamped into the log
	Stop          Stop

	// ProducerExpirationMs is producer.id.expiration.ms; 0 means Kafka's default of a day.
	ProducerExpirationMs int64
	Logger               *slog.Logger // nil: silent
}

// Origin says who appends, and so what is checked.
type Origin int8

// The origins of an append.
const (
	Client      Origin = iota // producer epochs and sequences are checked, duplicates recognised
	Coordinator               // group and transaction coordinators: epochs are checked, control batches allowed
	Replication               // the leader's own bytes: nothing is checked, producer state follows
)

// AppendInfo is what an append did.
type AppendInfo struct {
	First         wire.Offset // offset of the first record
	Last          wire.Offset // offset of the last record
	MaxTimestamp  int64       // largest timestamp, milliseconds; -1 when none
	LogAppendTime int64       // what the answer carries: the append time with LogAppendTime, else -1
	LogStart      wire.Offset
	Bytes         int  // appended; 0 for a duplicate
	Duplicate     bool // the batch was there already: First and Last are those of the first time
	Rolled        bool // a new segment was begun: Manager.FlushDue has work
}

// ReadRequest asks for a range of the log.
type ReadRequest struct {
	From     wire.Offset
	UpTo     wire.Offset // exclusive: high watermark, last stable offset or, for replicas, EndOffset
	MaxBytes int
	// MinOneBatch lets the first batch through whole even if it is larger than MaxBytes.
	MinOneBatch bool
}

// ReadResult is a piece of one segment. Range.Release must be called once if Range.Length is positive.
type ReadResult struct {
	Range       vfs.Range
	First       wire.Offset // base offset of the first batch of the range; From when it is empty
	SegmentBase wire.Offset // of the segment that the range lies in
	FirstBatch  int         // size of the first batch; larger than Range.Length when it is cut
}

// Producer is what DescribeProducers shows of one producer.
type Producer struct {
	ID               wire.ProducerID
	Epoch            wire.ProducerEpoch
	LastSequence     int32
	LastTimestamp    int64
	CoordinatorEpoch int32
	TxnStart         wire.Offset // first offset of the open transaction, or -1
}

// AbortedTransaction is an entry of the transaction index.
type AbortedTransaction struct {
	ProducerID       wire.ProducerID
	First            wire.Offset // first offset of the transaction
	Last             wire.Offset // offset of its abort marker
	LastStableOffset wire.Offset // at the time of the marker
}

// TimestampOffset is the answer of a look-up by time.
type TimestampOffset struct {
	Timestamp   int64
	Offset      wire.Offset
	LeaderEpoch wire.LeaderEpoch
}

// NoTimestampOffset says that nothing was found.
var NoTimestampOffset = TimestampOffset{Timestamp: -1, Offset: wire.NoOffset, LeaderEpoch: wire.NoLeaderEpoch}

// EpochEntry is a line of leader-epoch-checkpoint.
type EpochEntry struct {
	Epoch wire.LeaderEpoch
	Start wire.Offset
}

// SegmentInfo describes one segment.
type SegmentInfo struct {
	Base   wire.Offset
	Next   wire.Offset // the next segment's base, or the log's end
	Size   int64
	Sealed bool
}

