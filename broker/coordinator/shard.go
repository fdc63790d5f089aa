package coordinator

import (
	"math"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Record is a record of the internal topic. A nil Value is a tombstone.
type Record struct {
	Key, Value []byte
}

// Shard is the state machine over one partition. Its methods and the functions given to Handle and View run one at a time.
type Shard interface {
	// Replay applies a record: of the log while the partition loads, or one that was just appended. It is the only place
	// where state changes that a reload must find again. The record's bytes are valid during the call only. An error is
	// logged and the record left out.
	Replay(Record) error
	// Loaded says that the log was replayed to its end: timers start now.
	Loaded(now time.Time)
	// Advance does the first thing that is due at now and tells whether there was one. It is called until there is none.
	Advance(now time.Time) (Result, bool)
	// NextWake is when Advance will have something to do, or the zero time.
	NextWake() time.Time
	// Unload returns the replies that the shard still holds. They run with NOT_COORDINATOR; the shard is not used again.
	Unload() []func(error)
}

// Result is what a function given to Handle, or Shard.Advance, wants done.
type Result struct {
	// Records are appended as one batch, all or none, and replayed in order.
	Records []Record
	// Replies run in order, without locks: with nil, when Records is empty at once, else when they are committed; with
	// a wire.Code when they could not be appended (then nothing has changed) or when their fate is not known.
	Replies []func(error)
	// Divisible allows several batches in place of one: a part of the records does no harm, the rest is stated again later.
	Divisible bool
	// Barrier makes the replies wait, even without records, until everything is committed that the shard has seen.
	Barrier bool
	// Rejected runs inside the shard when the records could not be appended, for state that is not in the log.
	Rejected func() Result
}

// Appender writes to the partitions of the runtime's internal topic.
type Appender interface {
	// Append writes a batch as the leader under epoch and returns the log end offset after it. It fails without effect.
	// It is called with the shard's lock held and must not wait. It may report the high watermark through
	// Runtime.HighWatermark before it returns.
	Append(now time.Time, partition int32, epoch wire.LeaderEpoch, batch record.Batch) (wire.Offset, error)
	// MaxBatchBytes is how large a batch Append takes (max.message.bytes of the topic). It is called with the shard's lock held,
	// for large batches only.
	MaxBatchBytes() int
}

// Room is what a batch has left for records. Who makes records of a request asks it after each one: a short request can ask for
// gigabytes of them, as every key names the group.
type Room struct {
	appender Appender
	used     int
	limit    int
}

// NewRoom is the room of an empty batch.
func NewRoom(appender Appender) Room { return Room{appender: appender, limit: divisibleBytes} }

// Take takes the room of a record. It tells whether there was as much; without it Append would refuse the batch.
func (r *Room) Take(rec Record) bool {
	if r.used += len(rec.Key) + len(rec.Value); r.used > r.limit {
		r.limit = r.appender.MaxBatchBytes()
	}
	return r.used <= r.limit
}

// PartitionFor is the partition, of n, that holds the state of key (a group or transactional id): by the absolute value of Java's
// string hash, as in Kafka, so that both look for a group in the same place. The hash without one counts as 0 there.
func PartitionFor(key string, n int32) int32 {
	hash := StringHash(key)
	if hash == math.MinInt32 {
		return 0
	}
	return max(hash, -hash) % n
}

// StringHash is Java's String.hashCode.
func StringHash(s string) int32 {
	var h int32
	for _, r := range s {
		if r >= 0x10000 { // Java hashes the two UTF-16 surrogates
			r -= 0x10000
			h = 31*h + (0xd800 + r>>10)
			r = 0xdc00 + r&0x3ff
		}
		h = 31*h + r
	}
	return h
}

// CodeOf is the code that a client of a coordinator gets for an error of the log below, as Kafka maps them: one that makes
// it look for the coordinator again, wherever trying again may help.
func CodeOf(err error) wire.Code {
	switch code := wire.CodeOf(err); code {
	case wire.UnknownTopicOrPartition, wire.NotEnoughReplicas, wire.NotEnoughReplicasAfterAppend, wire.RequestTimedOut:
		return wire.CoordinatorNotAvailable
	case wire.NotLeaderOrFollower, wire.FencedLeaderEpoch, wire.KafkaStorageError:
		return wire.NotCoordinator
	case wire.MessageTooLarge, wire.RecordListTooLarge, wire.InvalidFetchSize:
		return wire.UnknownServerError
	default:
		return code
	}
}
