package replica

import (
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

// ListOffsetsRequest asks for the offset of a time, or of a special timestamp.
type ListOffsetsRequest struct {
	ReplicaID          wire.BrokerID
	Isolation          Isolation
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

// ListOffsets answers for one partition. A look-up by time reads the log and may block on the disk. While a new leader does not
// know yet what is committed, the answer is OFFSET_NOT_AVAILABLE (KIP-207).
func (m *Manager) ListOffsets(r ListOffsetsRequest) ListOffsetsResult {
	p, code := m.state.Load().find(r.Topic, r.Partition)
	if code != wire.None {
		return noOffset(code)
	}
	current := p.role.Load()
	if code := current.checkOffsets(r.CurrentLeaderEpoch, r.ReplicaID != DebuggingConsumerID); code != wire.None {
		return noOffset(code)
	}
	found, err := current.listOffset(&r)
	if err != nil {
		return noOffset(wire.CodeOf(err))
	}
	return ListOffsetsResult{Timestamp: found.Timestamp, Offset: found.Offset, LeaderEpoch: found.LeaderEpoch}
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

func (r *role) listOffset(q *ListOffsetsRequest) (log.TimestampOffset, error) {
	at := positions(r.log)
	upTo := at.LogEndOffset
	uncertain := false
	if q.ReplicaID == ConsumerID {
		upTo = at.HighWatermark
		if q.Isolation == ReadCommitted {
			upTo = at.LastStableOffset
		}
		uncertain = r.epochStart > at.HighWatermark
	}
	edge := func(offset wire.Offset, epoch wire.LeaderEpoch) (log.TimestampOffset, error) {
		return log.TimestampOffset{Timestamp: -1, Offset: offset, LeaderEpoch: epoch}, nil
	}
	switch q.Timestamp {
	case LatestTimestamp:
		if uncertain {
			return log.NoTimestampOffset, wire.OffsetNotAvailable
		}
		return edge(upTo, r.leaderEpoch)
	case EarliestTimestamp:
		return edge(at.LogStartOffset, r.epochAt(at.LogStartOffset))
	case EarliestLocalTimestamp:
		return edge(at.LocalLogStartOffset, r.epochAt(at.LocalLogStartOffset))
	case LatestTieredTimestamp, EarliestPendingUploadTimestamp:
		return log.NoTimestampOffset, nil // nothing is tiered
	}
	find := func(upTo wire.Offset) (log.TimestampOffset, error) {
		if q.Timestamp == MaxTimestamp {
			return r.log.OffsetOfMaxTimestamp(upTo)
		}
		return r.log.OffsetForTimestamp(q.Timestamp, upTo)
	}
	found, err := find(upTo)
	if err == nil && uncertain && found.Offset == wire.NoOffset {
		if beyond, err := find(at.LogEndOffset); err != nil || beyond.Offset != wire.NoOffset {
			return log.NoTimestampOffset, wire.OffsetNotAvailable
		}
	}
	return found, err
}

// epochAt is the leader epoch that the log's first epoch entry has, if it begins at or before offset.
func (r *role) epochAt(offset wire.Offset) wire.LeaderEpoch {
	if epochs := r.log.Epochs(); len(epochs) > 0 && epochs[0].Start <= offset {
		return epochs[0].Epoch
	}
	return wire.NoLeaderEpoch
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
