package tier

import (
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// Stats are the numbers of one led tiered partition.
type Stats struct {
	TopicPartition wire.TopicPartition
	Epoch          wire.LeaderEpoch
	Open           bool        // the manifest was read; without it what concerns the bucket is zero
	Held           bool        // it waits for its manifest, and serves nothing
	TieredEnd      wire.Offset // the first offset that is not in the bucket
	LogStart       wire.Offset
	RemoteSegments int
	RemoteBytes    int64
	BehindBytes    int64         // on disk and not in the bucket
	BehindSegments int           // of them, the sealed segments
	BehindAge      time.Duration // of the oldest record that is not in the bucket; 0 if there is none
	Lost           int64         // offsets that the manifest records as lost
	Err            error         // why the last try failed; nil after a success
	ErrSince       time.Time
	Fenced         bool // another leader has taken over: nothing more is done under this epoch
}

// Stats are the numbers of the led tiered partitions, by topic and partition.
func (m *Manager) Stats(now time.Time) []Stats { return nil }

// Partition are those of one partition; false if this broker does not lead it, or it is not tiered.
func (m *Manager) Partition(now time.Time, tp wire.TopicPartition) (Stats, bool) {
	return Stats{}, false
}
