package metadata

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// Delta is what Apply changed, net: a topic that was created and removed by the same records is not in it.
type Delta struct {
	Topics     []TopicDelta     // removed ones first, each part in order of names
	Configs    []ConfigResource // sorted; without those of removed topics
	Brokers    []BrokerDelta    // in order of ids
	Features   bool
	Controller bool
}

// TopicDelta is a created (Before is nil), removed (After is nil) or changed topic. A topic that was removed and created again
// is two of them.
type TopicDelta struct {
	Before, After *Topic
	Partitions    []PartitionDelta // in order of their indexes
}

// PartitionDelta is a created (Before is nil), removed (After is nil) or changed partition.
type PartitionDelta struct {
	Index         int32
	Before, After *Partition
}

// BrokerDelta is a registered (Before is nil), unregistered (After is nil) or changed broker.
type BrokerDelta struct {
	ID            wire.BrokerID
	Before, After *Broker
}

// delta compares the images before and after b for what b touched.
func (b *builder) delta() Delta {
	d := Delta{
		Features:   b.next.features.Epoch != b.from.features.Epoch,
		Controller: b.next.controller != b.from.controller,
	}
	for id := range b.topics {
		before, after := b.from.TopicByID(id), b.next.TopicByID(id)
		if partitions := partitionDeltas(before, after); before == nil != (after == nil) || len(partitions) > 0 {
			d.Topics = append(d.Topics, TopicDelta{before, after, partitions})
		}
	}
	slices.SortFunc(d.Topics, func(x, y TopicDelta) int {
		switch {
		case x.After == nil && y.After == nil:
			return strings.Compare(x.Before.Name, y.Before.Name)
		case x.After == nil:
			return -1
		case y.After == nil:
			return 1
		default:
			return strings.Compare(x.After.Name, y.After.Name)
		}
	})
	for r := range b.configs {
		removed := r.Type == TopicResource && b.next.Topic(r.Name) == nil
		if !removed && !maps.Equal(b.from.Configs(r), b.next.Configs(r)) {
			d.Configs = append(d.Configs, r)
		}
	}
	slices.SortFunc(d.Configs, ConfigResource.compare)
	for id := range b.brokers {
		if before, after := b.from.Broker(id), b.next.Broker(id); before != after {
			d.Brokers = append(d.Brokers, BrokerDelta{id, before, after})
		}
	}
	slices.SortFunc(d.Brokers, func(x, y BrokerDelta) int { return cmp.Compare(x.ID, y.ID) })
	return d
}

func partitionDeltas(before, after *Topic) []PartitionDelta {
	var old, now []*Partition
	if before != nil {
		old = before.Partitions
	}
	if after != nil {
		now = after.Partitions
	}
	var deltas []PartitionDelta
	for i := range max(len(old), len(now)) {
		d := PartitionDelta{Index: int32(i)}
		if i < len(old) {
			d.Before = old[i]
		}
		if i < len(now) {
			d.After = now[i]
		}
		if d.Before != d.After {
			deltas = append(deltas, d)
		}
	}
	return deltas
}
