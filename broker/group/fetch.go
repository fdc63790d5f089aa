package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/coordinator"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Versions of OffsetFetch from which on something holds.
const (
	fetchesGroups    = 8 // it asks for several groups (KIP-709)
	fetchHasTopError = 2 // errors of the group need no partition
)

// OffsetFetch reads offsets: up to version 7 of one group, from version 8 of several. What is named over and over
// gets INVALID_REQUEST. With null topics (nil; an empty list
// asks for none) the answer has all topics of the group by name; the caller leaves out those that it may not show and fills
// in topic ids. There are no open transactions yet that RequireStable could wait for.
func (c *Coordinator) OffsetFetch(now time.Time, req *kmsg.OffsetFetchRequest, done func(*kmsg.OffsetFetchResponse)) {
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	if req.Version < fetchesGroups {
		c.fetch(now, askedGroup(req), func(g kmsg.OffsetFetchResponseGroup) {
			c.answerOne(resp, req, g)
			done(resp)
		})
		return
	}
	resp.Groups = make([]kmsg.OffsetFetchResponseGroup, len(req.Groups))
	var names config.Names[string]
	each(len(req.Groups), func(i int, finish func()) {
		if name := req.Groups[i].Group; names.Repeated(name) {
			resp.Groups[i] = kmsg.NewOffsetFetchResponseGroup()
			resp.Groups[i].Group, resp.Groups[i].ErrorCode = name, int16(wire.InvalidRequest)
			finish()
			return
		}
		c.fetch(now, &req.Groups[i], func(g kmsg.OffsetFetchResponseGroup) {
			resp.Groups[i] = g
			finish()
		})
	}, func() { done(resp) })
}

// askedGroup is the request of an old version as one group of a new one.
func askedGroup(req *kmsg.OffsetFetchRequest) *kmsg.OffsetFetchRequestGroup {
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = req.Group
	if req.Topics == nil {
		return &group
	}
	group.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, len(req.Topics))
	for i, t := range req.Topics {
		group.Topics[i] = kmsg.NewOffsetFetchRequestGroupTopic()
		group.Topics[i].Topic, group.Topics[i].Partitions = t.Topic, t.Partitions
	}
	return &group
}

// answerOne puts the answer for one group into the fields of an old version.
func (c *Coordinator) answerOne(resp *kmsg.OffsetFetchResponse, req *kmsg.OffsetFetchRequest, g kmsg.OffsetFetchResponseGroup) {
	if g.ErrorCode != 0 && req.Version < fetchHasTopError {
		g.Topics = c.offsetsOf(askedGroup(req), nil)
		for t := range g.Topics {
			for p := range g.Topics[t].Partitions {
				g.Topics[t].Partitions[p].ErrorCode = g.ErrorCode
			}
		}
	}
	resp.ErrorCode = g.ErrorCode
	for _, t := range g.Topics {
		rt := kmsg.NewOffsetFetchResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rt.Partitions = append(rt.Partitions, kmsg.OffsetFetchResponseTopicPartition(p))
		}
		resp.Topics = append(resp.Topics, rt)
	}
}

// fetch reads the offsets of one group. They are answered when they are committed.
func (c *Coordinator) fetch(now time.Time, group *kmsg.OffsetFetchRequestGroup, done func(kmsg.OffsetFetchResponseGroup)) {
	resp := kmsg.NewOffsetFetchResponseGroup()
	resp.Group = group.Group
	refuse := func(code wire.Code) {
		resp.ErrorCode, resp.Topics = int16(code), nil
		done(resp)
	}
	c.handle(now, group.Group, func(s *shard) (out coordinator.Result) {
		var have offsets
		if g := s.groups[group.Group]; g != nil {
			have = g.offsets
		}
		resp.Topics = c.offsetsOf(group, have)
		out.Barrier = true
		out.Replies = append(out.Replies, orRefuse(refuse, func() { done(resp) }))
		return out
	}, refuse)
}

// offsetsOf picks what a request asks for, but for what is outdated.
func (c *Coordinator) offsetsOf(group *kmsg.OffsetFetchRequestGroup, have offsets) []kmsg.OffsetFetchResponseGroupTopic {
	var topics []kmsg.OffsetFetchResponseGroupTopic
	if group.Topics == nil {
		for _, t := range have {
			rt := kmsg.NewOffsetFetchResponseGroupTopic()
			rt.Topic = t.topic
			id := c.cfg.topicID(t.topic)
			for i := range t.partitions {
				if offset := &t.partitions[i]; !offset.outdated(id) {
					rt.Partitions = append(rt.Partitions, fetched(offset.partition, offset))
				}
			}
			if len(rt.Partitions) > 0 {
				topics = append(topics, rt)
			}
		}
		return topics
	}
	var names config.Names[wire.TopicPartition]
	for _, t := range group.Topics {
		rt := kmsg.NewOffsetFetchResponseGroupTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		id := t.TopicID
		if (id == wire.TopicID{}) { // of a version that names topics
			id = c.cfg.topicID(t.Topic)
		}
		for _, partition := range t.Partitions {
			if names.Repeated(wire.TopicPartition{Topic: t.Topic, Partition: partition}) {
				again := fetched(partition, nil)
				again.ErrorCode = int16(wire.InvalidRequest)
				rt.Partitions = append(rt.Partitions, again)
				continue
			}
			offset := have.get(t.Topic, partition)
			if offset != nil && offset.outdated(id) {
				offset = nil
			}
			rt.Partitions = append(rt.Partitions, fetched(partition, offset))
		}
		topics = append(topics, rt)
	}
	return topics
}

func fetched(partition int32, c *committed) kmsg.OffsetFetchResponseGroupTopicPartition {
	p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	metadata := ""
	p.Partition, p.Offset, p.LeaderEpoch = partition, -1, -1
	if c != nil {
		p.Offset, p.LeaderEpoch, metadata = c.offset, c.leaderEpoch, c.metadata
	}
	p.Metadata = &metadata
	return p
}
