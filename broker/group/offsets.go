package group

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// committed is what a group has committed for a partition.
type committed struct {
	partition   int32
	leaderEpoch int32
	offset      int64
	committed   int64 // when, in ms
	expires     int64 // when, in ms, by the commit's own retention; noTime without one
	metadata    string
	topicID     wire.TopicID // zero where it is not known: records of old versions lack it
}

// outdated tells whether it was committed for another topic than that with the id: one of the same name that is deleted. Its
// tombstone may be lost, or a commit under way may have come after it.
func (c *committed) outdated(id wire.TopicID) bool {
	return c.topicID != id && c.topicID != wire.TopicID{} && id != wire.TopicID{}
}

// offsets are a group's committed offsets, topics and partitions in order. Slices, not maps: most groups have a topic or two.
type offsets []topicOffsets

type topicOffsets struct {
	topic      string
	partitions []committed
}

func (o offsets) find(topic string) (int, bool) {
	return slices.BinarySearchFunc(o, topic, func(t topicOffsets, name string) int { return strings.Compare(t.topic, name) })
}

func findPartition(list []committed, partition int32) (int, bool) {
	return slices.BinarySearchFunc(list, partition, func(c committed, n int32) int { return cmp.Compare(c.partition, n) })
}

// topic are the offsets of one topic.
func (o offsets) topic(name string) []committed {
	if at, ok := o.find(name); ok {
		return o[at].partitions
	}
	return nil
}

// get is the offset of a partition, or nil.
func (o offsets) get(topic string, partition int32) *committed {
	list := o.topic(topic)
	if at, ok := findPartition(list, partition); ok {
		return &list[at]
	}
	return nil
}

// put stores an offset; it copies the strings that it keeps.
func (o *offsets) put(topic string, c committed) {
	at, ok := o.find(topic)
	if !ok {
		*o = slices.Insert(*o, at, topicOffsets{topic: strings.Clone(topic)})
	}
	t := &(*o)[at]
	i, ok := findPartition(t.partitions, c.partition)
	if !ok {
		t.partitions = slices.Insert(t.partitions, i, committed{})
	}
	if old := t.partitions[i].metadata; old == c.metadata {
		c.metadata = old
	} else {
		c.metadata = strings.Clone(c.metadata)
	}
	t.partitions[i] = c
}

func (o *offsets) remove(topic string, partition int32) {
	at, ok := o.find(topic)
	if !ok {
		return
	}
	t := &(*o)[at]
	i, ok := findPartition(t.partitions, partition)
	if !ok {
		return
	}
	if t.partitions = slices.Delete(t.partitions, i, i+1); len(t.partitions) > 0 {
		return
	}
	if *o = slices.Delete(*o, at, at+1); len(*o) == 0 {
		*o = nil
	}
}
