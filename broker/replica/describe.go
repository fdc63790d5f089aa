package replica

import (
	"iter"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// Positions are the five positions of a partition, from one look: LogStartOffset <= LocalLogStartOffset,
// TieredEndOffset <= LastStableOffset <= HighWatermark <= LogEndOffset.
type Positions struct {
	LogStartOffset      wire.Offset
	LocalLogStartOffset wire.Offset
	TieredEndOffset     wire.Offset // first offset that is not in the bucket; LogStartOffset while nothing is
	LastStableOffset    wire.Offset
	HighWatermark       wire.Offset
	LogEndOffset        wire.Offset
}

// PartitionInfo describes a partition of this broker.
type PartitionInfo struct {
	wire.TopicPartition
	TopicID        wire.TopicID
	LeaderEpoch    wire.LeaderEpoch
	Leads          bool
	Offline        bool // its log directory failed
	Replicas       int
	InSyncReplicas int // as its leader sees it; 0 on a follower
	UnderMinISR    bool
	Directory      string // log directory
	Size           int64  // bytes of the local log
	Positions
}

// UnderReplicated tells whether the leader misses replicas in the ISR.
func (p *PartitionInfo) UnderReplicated() bool { return p.Leads && p.InSyncReplicas < p.Replicas }

// Partitions describes all partitions of this broker, by topic name and index.
func (m *Manager) Partitions() iter.Seq[PartitionInfo] { panic("soon") }

// Partition describes one partition; false when it is not on this broker.
func (m *Manager) Partition(tp wire.TopicPartition) (PartitionInfo, bool) { panic("soon") }

// ProducerInfo is the state of a producer in a partition (DescribeProducers).
type ProducerInfo struct {
	ID                    wire.ProducerID
	Epoch                 wire.ProducerEpoch
	LastSequence          int32
	LastTimestamp         int64
	CoordinatorEpoch      int32
	CurrentTxnStartOffset wire.Offset // NoOffset: no open transaction
}

// DescribeProducers lists the producers that a partition knows, by id.
func (m *Manager) DescribeProducers(tp wire.TopicPartition) ([]ProducerInfo, wire.Code) { panic("soon") }

// LogDir describes a log directory (DescribeLogDirs).
type LogDir struct {
	Path        string
	Code        wire.Code // KAFKA_STORAGE_ERROR when offline
	TotalBytes  int64
	UsableBytes int64
	Partitions  []LogDirPartition // by topic name and index
}

// LogDirPartition is a log in a directory.
type LogDirPartition struct {
	wire.TopicPartition
	Size int64
}

// LogDirs describes every log directory, with the partitions for which want is true. It asks the file system.
func (m *Manager) LogDirs(want func(wire.TopicPartition) bool) []LogDir { panic("soon") }
