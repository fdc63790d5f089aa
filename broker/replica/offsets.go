package replica

import (
	"time"

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
	CurrentLeaderEpoch wire.LeaderEpoch
	Timestamp          int64
}

// ListOffsetsResult has -1 in all fields where nothing was found.
type ListOffsetsResult struct {
	Code        wire.Code
	Timestamp   int64
	Offset      wire.Offset
	LeaderEpoch wire.LeaderEpoch
}

// ListOffsets answers for one partition. A look-up by time reads the log and may block on the disk.
func (m *Manager) ListOffsets(r ListOffsetsRequest) ListOffsetsResult { panic("soon") }

// EpochRequest asks where a leader epoch ends.
type EpochRequest struct {
	Topic              string
	Partition          int32
	CurrentLeaderEpoch wire.LeaderEpoch
	LeaderEpoch        wire.LeaderEpoch
}

// OffsetForLeaderEpoch gives the largest known epoch that is not above the one asked for, and its end; -1 and -1 for an
// epoch that is not known.
func (m *Manager) OffsetForLeaderEpoch(r EpochRequest) (EpochEnd, wire.Code) { panic("soon") }

// DeleteRecordsRequest wants the log to start at offsets not below those given.
type DeleteRecordsRequest struct {
	Timeout    time.Duration
	Partitions []DeleteRecordsPartition
}

// DeleteRecordsPartition is one partition's new log start offset; -1 is the high watermark.
type DeleteRecordsPartition struct {
	Topic     string
	Partition int32
	Offset    wire.Offset
}

// DeleteRecordsResult has the low watermark: the lowest log start offset of the live replicas; -1 with an error.
type DeleteRecordsResult struct {
	Code         wire.Code
	LowWatermark wire.Offset
}

// DeleteRecords moves log start offsets, and calls done with a result for each partition in their order when all live
// replicas have followed, or r.Timeout is over. done runs once, before or after DeleteRecords returns.
func (m *Manager) DeleteRecords(now time.Time, r *DeleteRecordsRequest, done func([]DeleteRecordsResult)) {
	panic("soon")
}
