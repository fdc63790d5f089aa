package group

import (
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/coordinator"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Versions of OffsetCommit from which on something holds.
const (
	commitDropsRetention = 5 // the retention time is gone (KIP-211)
	commitKnowsNoGroup   = 9 // an unknown group has a code of its own
)

// OffsetCommit stores offsets. The caller has left out partitions that do not exist and has filled in topic ids in all
// versions, where it knows them: they are stored.
func (c *Coordinator) OffsetCommit(now time.Time, req *kmsg.OffsetCommitRequest, done func(*kmsg.OffsetCommitResponse)) {
	refuse := func(code wire.Code) { done(commitResponse(req, func(int, int) wire.Code { return code })) }
	c.handle(now, req.Group, func(s *shard) (out coordinator.Result) {
		if code := s.committing(now, req); code != wire.None {
			out.Replies = append(out.Replies, func(error) { refuse(code) })
			return out
		}
		records, code := s.commit(now, req)
		if code != wire.None {
			out.Replies = append(out.Replies, func(error) { refuse(code) })
			return out
		}
		out.Records = records
		out.Replies = append(out.Replies, orRefuse(refuse, func() {
			done(commitResponse(req, func(t, p int) wire.Code { return s.storable(&req.Topics[t].Partitions[p]) }))
		}))
		return out
	}, refuse)
}

func commitResponse(req *kmsg.OffsetCommitRequest, code func(topic, partition int) wire.Code) *kmsg.OffsetCommitResponse {
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	for t, topic := range req.Topics {
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = topic.Topic, topic.TopicID
		for p, partition := range topic.Partitions {
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition, rp.ErrorCode = partition.Partition, int16(code(t, p))
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// committing tells whether the sender may commit for the group: as a member of the generation, or, while nobody is a member,
// without being one.
func (s *shard) committing(now time.Time, req *kmsg.OffsetCommitRequest) wire.Code {
	g := s.groups[req.Group]
	outsider := req.Generation < 0
	switch {
	case g == nil && outsider, g != nil && g.state == empty && outsider:
		return wire.None
	case g == nil && req.Version >= commitKnowsNoGroup:
		return wire.GroupIDNotFound
	case g == nil:
		return wire.IllegalGeneration
	}
	m, code := g.validateIn(req.Generation, req.MemberID, req.InstanceID)
	if code != wire.None {
		return code
	}
	m.alive(now)
	if g.state == completingRebalance {
		return wire.RebalanceInProgress // its assignment is about to change
	}
	return wire.None
}

// commit states the offsets of a request. Of a partition that comes twice the last one counts.
func (s *shard) commit(now time.Time, req *kmsg.OffsetCommitRequest) ([]coordinator.Record, wire.Code) {
	var records []coordinator.Record
	room := coordinator.NewRoom(s.cfg.Appender)
	c := committed{committed: now.UnixMilli(), expires: noTime}
	if req.Version < commitDropsRetention && req.RetentionTimeMillis >= 0 {
		c.expires = c.committed + req.RetentionTimeMillis
	}
	for t := range req.Topics {
		topic := &req.Topics[t]
		c.topicID = topic.TopicID
		for p := range topic.Partitions {
			partition := &topic.Partitions[p]
			if s.storable(partition) != wire.None {
				continue
			}
			c.partition, c.offset, c.leaderEpoch, c.metadata = partition.Partition, partition.Offset, partition.LeaderEpoch, ""
			if partition.Metadata != nil {
				c.metadata = *partition.Metadata
			}
			records = append(records, offsetRecord(req.Group, topic.Topic, c))
			if !room.Take(records[len(records)-1]) {
				return nil, coordinator.CodeOf(wire.MessageTooLarge)
			}
		}
	}
	return records, wire.None
}

// storable tells whether the offset's metadata is short enough, counted as Java counts characters.
func (s *shard) storable(p *kmsg.OffsetCommitRequestTopicPartition) wire.Code {
	limit := s.cfg.OffsetMetadataMaxBytes
	if p.Metadata == nil || len(*p.Metadata) <= limit {
		return wire.None
	}
	units := 0
	for _, r := range *p.Metadata {
		units += utf16.RuneLen(r)
	}
	if units > limit {
		return wire.OffsetMetadataTooLarge
	}
	return wire.None
}

// OffsetDelete removes offsets of topics that no live member subscribes to.
func (c *Coordinator) OffsetDelete(now time.Time, req *kmsg.OffsetDeleteRequest, done func(*kmsg.OffsetDeleteResponse)) {
	refuse := func(code wire.Code) {
		resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
		resp.ErrorCode = int16(code)
		done(resp)
	}
	if req.Group == "" {
		refuse(wire.InvalidGroupID)
		return
	}
	c.handle(now, req.Group, func(s *shard) (out coordinator.Result) {
		g := s.groups[req.Group]
		code := wire.None
		switch {
		case g == nil:
			code = wire.GroupIDNotFound
		case g.state != empty && g.protocolType != consumerProtocol:
			code = wire.NonEmptyGroup
		}
		if code != wire.None {
			out.Replies = append(out.Replies, func(error) { refuse(code) })
			return out
		}
		resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
		room := coordinator.NewRoom(s.cfg.Appender)
		for _, topic := range req.Topics {
			rt := kmsg.NewOffsetDeleteResponseTopic()
			rt.Topic = topic.Topic
			subscribed := g.subscribes(topic.Topic)
			for _, partition := range topic.Partitions {
				rp := kmsg.NewOffsetDeleteResponseTopicPartition()
				rp.Partition = partition.Partition
				if subscribed {
					rp.ErrorCode = int16(wire.GroupSubscribedToTopic)
				} else if g.offsets.get(topic.Topic, partition.Partition) != nil {
					tombstone := offsetTombstone(g.id, topic.Topic, partition.Partition)
					if !room.Take(tombstone) {
						return coordinator.Result{Replies: []func(error){func(error) { refuse(coordinator.CodeOf(wire.MessageTooLarge)) }}}
					}
					out.Records = append(out.Records, tombstone)
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		out.Replies = append(out.Replies, orRefuse(refuse, func() { done(resp) }))
		return out
	}, refuse)
}
