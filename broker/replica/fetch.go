package replica

import (
	"time"

	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Isolation says up to where a consumer reads.
type Isolation int8

// The isolation levels of the protocol.
const (
	ReadUncommitted Isolation = 0
	ReadCommitted   Isolation = 1
)

// The replica ids of those who are no replica.
const (
	ConsumerID          wire.BrokerID = -1
	DebuggingConsumerID wire.BrokerID = -2 // reads up to the log end, from leaders and followers
)

// FetchRequest is what a consumer or a follower wants to read. Partitions are served in their order.
type FetchRequest struct {
	ReplicaID    wire.BrokerID // ConsumerID for clients; package api lets other ids in on the cluster listener alone
	ReplicaEpoch wire.BrokerEpoch
	MaxWait      time.Duration
	MinBytes     int32
	MaxBytes     int32 // capped by fetch.max.bytes
	Isolation    Isolation
	// ZstdAllowed is false below Fetch v10, where topics with compression.type=zstd are UNSUPPORTED_COMPRESSION_TYPE.
	ZstdAllowed bool
	Partitions  []FetchPartition
}

// FetchPartition is what is asked of one partition, named by topic or, where Topic is empty, by topic id.
type FetchPartition struct {
	Topic              string
	TopicID            wire.TopicID
	Partition          int32
	CurrentLeaderEpoch wire.LeaderEpoch // NoLeaderEpoch: not checked
	LastFetchedEpoch   wire.LeaderEpoch // NoLeaderEpoch: not checked
	FetchOffset        wire.Offset
	LogStartOffset     wire.Offset // the follower's; NoOffset from consumers
	MaxBytes           int32
}

// FetchResult is the answer for one partition. With an error all offsets are -1 and there are no records.
type FetchResult struct {
	Code                 wire.Code
	HighWatermark        wire.Offset
	LastStableOffset     wire.Offset
	LogStartOffset       wire.Offset
	Diverging            EpochEnd      // where the follower's log departs from ours; Epoch is NoLeaderEpoch if it doesn't
	PreferredReadReplica wire.BrokerID // NoBroker: stay here
	Leader               LeaderHint    // set with NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH
	// Aborted lists the aborted transactions within Records for ReadCommitted: empty and not nil where there are none, nil
	// (null on the wire) for ReadUncommitted and with an error.
	Aborted []AbortedTransaction
	Records vfs.Range // batches as they lie in the log; the receiver releases it
}

// EpochEnd is the end of a leader epoch: the first offset that is not of it.
type EpochEnd struct {
	Epoch  wire.LeaderEpoch
	Offset wire.Offset
}

// AbortedTransaction says from which offset on the batches of a producer were aborted, up to its next abort marker.
type AbortedTransaction struct {
	ProducerID  wire.ProducerID
	FirstOffset wire.Offset
}

// Fetch reads, and calls done with a result for each of r.Partitions in their order: at once when there is enough to say
// (r.MinBytes are there, an error, a diverging epoch, no time to wait), else when an append or a high watermark makes it so,
// at the latest after r.MaxWait. done runs once, before or after Fetch returns. r must not change until then; results and
// the ranges in them are done's to release.
func (m *Manager) Fetch(now time.Time, r *FetchRequest, done func([]FetchResult)) {
	panic("soon")
}
