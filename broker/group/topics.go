package group

import (
	"maps"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/coordinator"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// TopicsDeleted removes the offsets of deleted topics from all groups, so that a topic made anew under the name does not
// inherit them. Partitions that are loading do so once they are loaded. One goroutine calls it and what loads and unloads.
func (c *Coordinator) TopicsDeleted(now time.Time, topics []string) {
	for _, partition := range c.Partitions() {
		c.deleted[partition] = append(c.deleted[partition], topics...)
		c.forgetDeleted(now, partition)
	}
}

// StartLoad is that of the Runtime.
func (c *Coordinator) StartLoad(partition int32, epoch wire.LeaderEpoch) *coordinator.Load {
	load := c.Runtime.StartLoad(partition, epoch)
	if load != nil {
		delete(c.deleted, partition)
	}
	return load
}

// FinishLoad is that of the Runtime; then the partition forgets the topics that were deleted meanwhile, and those that were made anew.
func (c *Coordinator) FinishLoad(now time.Time, load *coordinator.Load, highWatermark wire.Offset, err error) {
	c.Runtime.FinishLoad(now, load, highWatermark, err)
	c.forgetDeleted(now, load.Partition())
	// Of a load that failed or was overtaken there is nothing to forget.
	_ = c.Handle(now, load.Partition(), func(s *shard) coordinator.Result { return s.forgetOutdated() })
}

func (c *Coordinator) forgetDeleted(now time.Time, partition int32) {
	topics := c.deleted[partition]
	if len(topics) == 0 {
		return
	}
	err := c.Handle(now, partition, func(s *shard) coordinator.Result { return s.forgetTopics(topics) })
	if wire.CodeOf(err) != wire.CoordinatorLoadInProgress {
		delete(c.deleted, partition)
	}
}

func (s *shard) forgetTopics(topics []string) (out coordinator.Result) {
	var names []string
	for name, g := range s.groups {
		if slices.ContainsFunc(topics, func(t string) bool { return g.offsets.topic(t) != nil }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, topic := range topics {
			for _, c := range s.groups[name].offsets.topic(topic) {
				out.Records = append(out.Records, offsetTombstone(name, topic, c.partition))
			}
		}
	}
	out.Divisible = true
	return out
}

// forgetOutdated removes the offsets of topics that have another id by now. Whoever committed them saw metadata that is not newer
// than this broker's, or it would not have led the partition any more.
func (s *shard) forgetOutdated() (out coordinator.Result) {
	tombstones := make(map[string][]coordinator.Record)
	for name, g := range s.groups {
		for _, t := range g.offsets {
			id := s.cfg.topicID(t.topic)
			for i := range t.partitions {
				if c := &t.partitions[i]; c.outdated(id) {
					tombstones[name] = append(tombstones[name], offsetTombstone(name, t.topic, c.partition))
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tombstones)) {
		out.Records = append(out.Records, tombstones[name]...)
	}
	out.Divisible = true
	return out
}
