package replica

import (
	"iter"
	"path"
	"slices"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Positions are the positions of a partition, from one look: LogStartOffset <= LocalLogStartOffset, and
// TieredEndOffset <= LastStableOffset <= HighWatermark <= LogEndOffset. Who needs more than one of them takes them from here.
type Positions struct {
	LogStartOffset      wire.Offset
	LocalLogStartOffset wire.Offset
	TieredEndOffset     wire.Offset // first offset that is not in the bucket; LogStartOffset while nothing is
	LastStableOffset    wire.Offset
	HighWatermark       wire.Offset
	LogEndOffset        wire.Offset
}

// positions gives a log's positions. Each only grows, so they are read from the lowest up: what is read later can only be
// higher.
func positions(l *log.Log) Positions {
	var p Positions
	p.LogStartOffset = l.StartOffset()
	p.LocalLogStartOffset = max(l.LocalStartOffset(), p.LogStartOffset)
	p.TieredEndOffset = max(l.TieredEndOffset(), p.LogStartOffset)
	p.LastStableOffset = l.LastStableOffset()
	p.HighWatermark = l.HighWatermark()
	p.LogEndOffset = l.EndOffset()
	return p
}

// PartitionInfo describes a partition of this broker.
type PartitionInfo struct {
	wire.TopicPartition
	TopicID        wire.TopicID
	LeaderEpoch    wire.LeaderEpoch
	Leads          bool
	Held           bool // it leads, and serves nobody yet: the tier compares its log with the bucket
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
func (m *Manager) Partitions() iter.Seq[PartitionInfo] {
	return func(yield func(PartitionInfo) bool) {
		for _, p := range m.state.Load().sorted() {
			if !yield(p.info()) {
				return
			}
		}
	}
}

// Partition describes one partition; false when it is not on this broker.
func (m *Manager) Partition(tp wire.TopicPartition) (PartitionInfo, bool) {
	p, code := m.state.Load().find(tp.Topic, tp.Partition)
	if code != wire.None {
		return PartitionInfo{}, false
	}
	return p.info(), true
}

func (p *partition) info() PartitionInfo {
	r := p.role.Load()
	info := PartitionInfo{
		TopicPartition: p.tp, TopicID: p.topicID, LeaderEpoch: r.leaderEpoch, Leads: r.leads, Held: r.held,
		Offline: r.log == nil || r.log.Err() != nil, Replicas: len(r.metadata.Replicas),
	}
	if r.log != nil {
		info.Directory, info.Size, info.Positions = path.Dir(r.log.Dir()), r.log.Size(), positions(r.log)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isr != nil {
		info.InSyncReplicas, info.UnderMinISR = len(p.isr.ISR()), !p.isr.EnoughInSync()
	}
	return info
}

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
func (m *Manager) DescribeProducers(tp wire.TopicPartition) ([]ProducerInfo, wire.Code) {
	p, code := m.state.Load().find(tp.Topic, tp.Partition)
	if code != wire.None {
		return nil, code
	}
	l := p.role.Load().log
	if l == nil {
		return nil, wire.KafkaStorageError
	}
	known := l.Producers()
	infos := make([]ProducerInfo, len(known))
	for i, k := range known {
		infos[i] = ProducerInfo{
			ID: k.ID, Epoch: k.Epoch, LastSequence: k.LastSequence, LastTimestamp: k.LastTimestamp,
			CoordinatorEpoch: k.CoordinatorEpoch, CurrentTxnStartOffset: k.TxnStart,
		}
	}
	return infos, wire.None
}

// LogDir describes a log directory (DescribeLogDirs).
type LogDir struct {
	Path        string
	Code        wire.Code // KAFKA_STORAGE_ERROR when offline; then sizes are -1 and there are no partitions
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
func (m *Manager) LogDirs(want func(wire.TopicPartition) bool) []LogDir {
	dirs := m.logs.Dirs()
	described := make([]LogDir, len(dirs))
	for i, d := range dirs {
		if d.Err != nil {
			described[i] = LogDir{Path: d.Path, Code: wire.KafkaStorageError, TotalBytes: -1, UsableBytes: -1}
			continue
		}
		described[i] = LogDir{Path: d.Path, TotalBytes: d.Usage.Total, UsableBytes: d.Usage.Free}
		for _, l := range d.Logs {
			if want(l.TopicPartition()) {
				described[i].Partitions = append(described[i].Partitions, LogDirPartition{l.TopicPartition(), l.Size()})
			}
		}
		slices.SortFunc(described[i].Partitions, func(a, b LogDirPartition) int {
			return compareTopicPartitions(a.TopicPartition, b.TopicPartition)
		})
	}
	return described
}
