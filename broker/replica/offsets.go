package replica

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// The special timestamps of ListOffsets. Package api refuses each below the version that brought it.
const (
	LatestTimestamp                int64 = -1
	EarliestTimestamp              int64 = -2
	MaxTimestamp                   int64 = -3
	EarliestLocalTimestamp         int64 = -4
	LatestTieredTimestamp          int64 = -5
	EarliestPendingUploadTimestamp int64 = -6
)

// ListOffsetsRequest asks for the offsets of times, or of special timestamps.
type ListOffsetsRequest struct {
	ReplicaID  wire.BrokerID
	Isolation  Isolation
	Timeout    time.Duration // for what only the object store knows; 0 is remote.list.offsets.request.timeout.ms
	Partitions []ListOffsetsPartition
}

// ListOffsetsPartition is what is asked of one partition.
type ListOffsetsPartition struct {
	Topic              string
	Partition          int32
	CurrentLeaderEpoch wire.LeaderEpoch // NoLeaderEpoch: not checked
	Timestamp          int64
}

// ListOffsetsResult has -1 in all fields where nothing was found.
type ListOffsetsResult struct {
	Code        wire.Code
	Timestamp   int64
	Offset      wire.Offset
	LeaderEpoch wire.LeaderEpoch
}

// ListOffsets calls done with a result for each of r.Partitions in their order: before it returns, unless a look-up by time has
// to ask the object store. Such a look-up reads the log and may block on the disk. While a new leader does not know yet what is
// committed, the answer is OFFSET_NOT_AVAILABLE (KIP-207).
func (m *Manager) ListOffsets(now time.Time, r *ListOffsetsRequest, done func([]ListOffsetsResult)) {
	s := m.state.Load()
	results := make([]ListOffsetsResult, len(r.Partitions))
	var left atomic.Int64
	left.Store(int64(len(results)) + 1)
	finish := func() {
		if left.Add(-1) == 0 {
			done(results)
		}
	}
	for i := range r.Partitions {
		asked := &r.Partitions[i]
		answer := func(found log.TimestampOffset, err error) {
			results[i] = ListOffsetsResult{Timestamp: found.Timestamp, Offset: found.Offset, LeaderEpoch: found.LeaderEpoch}
			if err != nil {
				results[i] = noOffset(wire.CodeOf(err))
			}
			finish()
		}
		p, code := s.find(asked.Topic, asked.Partition)
		var current *role
		if code == wire.None {
			current = p.role.Load()
			code = current.checkOffsets(asked.CurrentLeaderEpoch, r.ReplicaID != DebuggingConsumerID)
		}
		if code != wire.None {
			answer(log.NoTimestampOffset, code)
			continue
		}
		m.listOffset(now, r, offsetLookup{partition: p, role: current, timestamp: asked.Timestamp, at: positions(current.log)}, answer)
	}
	finish()
}

func noOffset(code wire.Code) ListOffsetsResult {
	return ListOffsetsResult{Code: code, Timestamp: -1, Offset: wire.NoOffset, LeaderEpoch: wire.NoLeaderEpoch}
}

// checkOffsets tells whether offsets and epochs may be asked for: by a client that knows the leader epoch, of the leader.
func (r *role) checkOffsets(current wire.LeaderEpoch, leaderOnly bool) wire.Code {
	if r.log == nil && !r.gone {
		return wire.KafkaStorageError
	}
	if current != wire.NoLeaderEpoch {
		if code := r.checkEpoch(current); code != wire.None {
			return code
		}
	}
	if leaderOnly || r.gone {
		return r.checkLeader()
	}
	return wire.None
}

// offsetLookup is the question for one partition, with its positions when it was asked.
type offsetLookup struct {
	partition *partition
	role      *role
	timestamp int64
	at        Positions
	again     int // how often it was asked anew
}

// lookUpsMax bounds how often a look-up is begun anew since local retention has taken what it was about to look through.
const lookUpsMax = 5

// errOvertaken: what lay here when a look-up began is in the object store alone by now, or gone.
var errOvertaken = errors.New("local retention was faster")

func (m *Manager) listOffset(now time.Time, r *ListOffsetsRequest, q offsetLookup, answer func(log.TimestampOffset, error)) {
	upTo := q.at.LogEndOffset
	uncertain := false
	if r.ReplicaID == ConsumerID {
		upTo = q.at.HighWatermark
		if r.Isolation == ReadCommitted {
			upTo = q.at.LastStableOffset
		}
		uncertain = q.role.epochStart > q.at.HighWatermark
	}
	if q.timestamp < 0 && q.timestamp != MaxTimestamp {
		answer(q.edge(upTo, uncertain))
		return
	}
	local := func() (log.TimestampOffset, error) {
		found, err := q.search(upTo)
		if err == nil && q.role.log.LocalStartOffset() > q.at.LocalLogStartOffset {
			return log.NoTimestampOffset, errOvertaken
		}
		if err == nil && uncertain && found.Offset == wire.NoOffset {
			if beyond, err := q.search(q.at.LogEndOffset); err != nil || beyond.Offset != wire.NoOffset {
				return log.NoTimestampOffset, wire.OffsetNotAvailable
			}
		}
		return found, err
	}
	anew := answer
	answer = func(found log.TimestampOffset, err error) {
		if errors.Is(err, errOvertaken) {
			if q.again++; q.again > lookUpsMax {
				anew(log.NoTimestampOffset, wire.RequestTimedOut)
				return
			}
			q.at = positions(q.role.log)
			m.listOffset(now, r, q, anew)
			return
		}
		anew(found, err)
	}
	if q.at.LogStartOffset == q.at.LocalLogStartOffset {
		answer(local())
		return
	}
	timeout := r.Timeout
	if timeout <= 0 {
		timeout = time.Duration(m.config.Load().RemoteListOffsetsTimeoutMs) * time.Millisecond
	}
	m.tier.OffsetForTimestamp(now, RemoteTime{
		TopicPartition: q.partition.tp, TopicID: q.partition.topicID, Timestamp: q.timestamp,
		From: q.at.LogStartOffset, UpTo: min(upTo, q.at.LocalLogStartOffset), Deadline: now.Add(timeout),
	}, func(older log.TimestampOffset, err error) {
		if err != nil || older.Offset != wire.NoOffset && q.timestamp != MaxTimestamp {
			answer(older, err)
			return
		}
		found, err := local()
		if err == nil && older.Timestamp >= found.Timestamp && older.Offset != wire.NoOffset {
			found = older
		}
		answer(found, err)
	})
}

// search looks the time up in the local log.
func (q *offsetLookup) search(upTo wire.Offset) (log.TimestampOffset, error) {
	if q.timestamp == MaxTimestamp {
		return q.role.log.OffsetOfMaxTimestamp(upTo)
	}
	return q.role.log.OffsetForTimestamp(q.timestamp, upTo)
}

// edge answers the special timestamps that name one of the partition's positions; they have no time.
func (q *offsetLookup) edge(upTo wire.Offset, uncertain bool) (log.TimestampOffset, error) {
	at := func(offset wire.Offset, epoch wire.LeaderEpoch) (log.TimestampOffset, error) {
		return log.TimestampOffset{Timestamp: -1, Offset: offset, LeaderEpoch: epoch}, nil
	}
	tiered := q.role.settings.topic.RemoteStorageEnable
	nothingTiered := q.at.TieredEndOffset == q.at.LogStartOffset
	switch q.timestamp {
	case LatestTimestamp:
		if uncertain {
			return log.NoTimestampOffset, wire.OffsetNotAvailable
		}
		return at(upTo, q.role.leaderEpoch)
	case EarliestTimestamp:
		return at(q.at.LogStartOffset, q.role.epochAt(q.at.LogStartOffset))
	case EarliestLocalTimestamp:
		return at(q.at.LocalLogStartOffset, q.role.epochAt(q.at.LocalLogStartOffset))
	case LatestTieredTimestamp:
		if tiered && !nothingTiered {
			last := q.at.TieredEndOffset - 1
			return at(last, q.role.epochAt(last))
		}
	case EarliestPendingUploadTimestamp:
		if tiered {
			return at(q.at.TieredEndOffset, q.role.epochAt(q.at.TieredEndOffset))
		}
	}
	return log.NoTimestampOffset, nil
}

// epochAt is the leader epoch of an offset.
func (r *role) epochAt(offset wire.Offset) wire.LeaderEpoch {
	epoch := wire.NoLeaderEpoch
	for _, e := range r.log.Epochs() {
		if e.Start > offset {
			break
		}
		epoch = e.Epoch
	}
	return epoch
}

// EpochRequest asks where a leader epoch ends.
type EpochRequest struct {
	Topic              string
	Partition          int32
	CurrentLeaderEpoch wire.LeaderEpoch // NoLeaderEpoch: not checked
	LeaderEpoch        wire.LeaderEpoch
}

// OffsetForLeaderEpoch gives the largest known epoch that is not above the one asked for, and its end; -1 and -1 for an
// epoch that is not known.
func (m *Manager) OffsetForLeaderEpoch(r EpochRequest) (EpochEnd, wire.Code) {
	p, code := m.state.Load().find(r.Topic, r.Partition)
	if code != wire.None {
		return noEpochEnd, code
	}
	current := p.role.Load()
	if code := current.checkOffsets(r.CurrentLeaderEpoch, true); code != wire.None {
		return noEpochEnd, code
	}
	if r.LeaderEpoch == wire.NoLeaderEpoch {
		return noEpochEnd, wire.None
	}
	epoch, end := current.log.EndOffsetForEpoch(r.LeaderEpoch)
	return EpochEnd{Epoch: epoch, Offset: end}, wire.None
}
