package replica

import (
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Tier keeps the older part of tiered partitions in the object store, and reads what is no longer here. Its calls return at once.
type Tier interface {
	// Lead says that this broker leads a partition from now on, Resign that it does not any more. Where Lead answers held, the
	// partition serves nobody before Release. Changed says that the topic's config is another. Called by Apply and SetConfig,
	// with locks held.
	Lead(now time.Time, l Leadership) (held bool)
	Resign(tp wire.TopicPartition)
	Changed(tp wire.TopicPartition)
	// SkipLost is where a read at an offset goes on: at the end of the range that is lost where it lies in one (safety.md 19), else at the
	// offset itself, and also while nothing is known yet.
	SkipLost(tp wire.TopicPartition, offset wire.Offset) wire.Offset

	// The following call done exactly once, before or after they return, on any goroutine, with no locks held.

	// RecordStart has a log start that DeleteRecords moved written to the bucket.
	RecordStart(now time.Time, tp wire.TopicPartition, offset wire.Offset, deadline time.Time, done func(now time.Time, err error))

	// Fetch calls done with a result for each of r.Partitions in their order, at the latest at r.Deadline with what has come
	// until then. What is still under way comes to the next fetch of that range.
	Fetch(now time.Time, r *RemoteFetch, done func(results []RemoteResult))
	// OffsetForTimestamp finds the first record of a range of offsets with a timestamp of r.Timestamp or later, or with
	// MaxTimestamp the first one with the largest; log.NoTimestampOffset where there is none.
	OffsetForTimestamp(now time.Time, r RemoteTime, done func(log.TimestampOffset, error))
}

// Leadership is a partition that this broker begins to lead.
type Leadership struct {
	wire.TopicPartition
	TopicID  wire.TopicID
	Epoch    wire.LeaderEpoch
	Log      *log.Log
	Internal bool
	// Recovering: every replica was lost, and the metadata does not say yet that the log begins above all that may have been
	// acknowledged (safety.md 19).
	Recovering bool
	// RecoverySince is the leader epoch with which that began.
	RecoverySince wire.LeaderEpoch
}

// RemoteFetch is the part of a fetch that only the object store can answer.
type RemoteFetch struct {
	Deadline    time.Time
	MaxBytes    int  // of all partitions together
	MinOneBatch bool // the first batch of all is let through even if it is larger than the limits
	Committed   bool // the aborted transactions are wanted
	Partitions  []RemotePartition
}

// RemotePartition is what is asked of one partition: [Offset, UpTo), in which Offset lies below the local start.
type RemotePartition struct {
	wire.TopicPartition
	TopicID  wire.TopicID
	Offset   wire.Offset
	UpTo     wire.Offset
	MaxBytes int
	// LocalAborted lists the aborted transactions with records in [from, to) whose end is in the local log.
	LocalAborted func(from, to wire.Offset) ([]log.AbortedTransaction, error)
}

// RemoteResult is the answer for one partition. Records is empty where nothing has come in time.
type RemoteResult struct {
	Code    wire.Code
	Records vfs.Range // the receiver releases it
	Aborted []AbortedTransaction
}

// RemoteTime asks for a time within the part of a partition that is not here: [From, UpTo).
type RemoteTime struct {
	wire.TopicPartition
	TopicID   wire.TopicID
	Timestamp int64
	From      wire.Offset
	UpTo      wire.Offset
	Deadline  time.Time
}

// remoteRow is a partition of a fetch whose records are not here.
type remoteRow struct {
	row       int
	partition *partition
	role      *role
	upTo      wire.Offset
	limit     int
}

// fetchRemote completes a fetch with what the object store has. Where there is enough to say already, it does not wait for it:
// a consumer that follows the end of one partition must not feel that another is read from its beginning. What it asks for
// here is on its way to its next fetch.
func (m *Manager) fetchRemote(now time.Time, r *FetchRequest, read *fetched, done func([]FetchResult)) {
	request := &RemoteFetch{
		Deadline: now, MaxBytes: min(int(r.MaxBytes), m.config.Load().FetchMaxBytes) - int(read.bytes),
		MinOneBatch: read.bytes == 0, Committed: r.readsCommitted(),
		Partitions: make([]RemotePartition, len(read.remote)),
	}
	if !read.urgent && (read.bytes == 0 || read.bytes < int64(r.MinBytes)) {
		request.Deadline = now.Add(time.Duration(m.config.Load().RemoteFetchMaxWaitMs) * time.Millisecond)
	}
	for i, row := range read.remote {
		request.Partitions[i] = RemotePartition{
			TopicPartition: row.partition.tp, TopicID: row.partition.topicID,
			Offset: r.Partitions[row.row].FetchOffset, UpTo: row.upTo, MaxBytes: row.limit,
			LocalAborted: row.role.log.AbortedTransactions,
		}
	}
	m.tier.Fetch(now, request, func(results []RemoteResult) {
		for i, row := range read.remote {
			read.fill(row, results[i])
		}
		done(read.results)
	})
}

// fill puts what came of a partition into the answer. Another leader may have another history.
func (f *fetched) fill(row remoteRow, got RemoteResult) {
	code := got.Code
	if r := row.partition.role.Load(); r != row.role {
		if code = r.checkLeader(); code == wire.None && r.leaderEpoch != row.role.leaderEpoch {
			code = wire.NotLeaderOrFollower
		}
	}
	if code != wire.None {
		if got.Records.Release != nil {
			got.Records.Release()
		}
		f.fail(row.row, code)
		return
	}
	result := &f.results[row.row]
	result.Records = got.Records
	result.Aborted = append(result.Aborted, got.Aborted...)
	f.bytes += got.Records.Length
}

// untiered is the Tier of a Manager without one.
type untiered struct{}

func (untiered) Lead(time.Time, Leadership) bool { return false }

func (untiered) Resign(wire.TopicPartition) {}

func (untiered) Changed(wire.TopicPartition) {}

func (untiered) SkipLost(_ wire.TopicPartition, offset wire.Offset) wire.Offset { return offset }

func (untiered) RecordStart(now time.Time, _ wire.TopicPartition, _ wire.Offset, _ time.Time, done func(time.Time, error)) {
	done(now, nil)
}

func (untiered) Fetch(_ time.Time, r *RemoteFetch, done func([]RemoteResult)) {
	results := make([]RemoteResult, len(r.Partitions))
	for i := range results {
		results[i].Code = wire.KafkaStorageError
	}
	done(results)
}

func (untiered) OffsetForTimestamp(_ time.Time, _ RemoteTime, done func(log.TimestampOffset, error)) {
	done(log.NoTimestampOffset, wire.KafkaStorageError)
}
