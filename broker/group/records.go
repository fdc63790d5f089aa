package group

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/coordinator"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// The record types of __consumer_offsets that are read here: the first two bytes of a key. Types of the newer group
// protocols are passed over.
const (
	offsetCommitV0Key int16 = 0
	offsetCommitKey   int16 = 1
	groupMetadataKey  int16 = 2
)

// Versions of the values that are written, as Kafka 4.4 chooses them.
const (
	offsetValueExpiring int16 = 1 // the only one with an expire timestamp
	offsetValue         int16 = 4
	groupValue          int16 = 3
)

// noTime stands for a timestamp that is not there.
const noTime int64 = -1

func offsetKey(group, topic string, partition int32) []byte {
	key := kmsg.OffsetCommitKey{Version: offsetCommitKey, Group: group, Topic: topic, Partition: partition}
	return key.AppendTo(nil)
}

func offsetRecord(group, topic string, c committed) coordinator.Record {
	value := kmsg.OffsetCommitValue{
		Version:         offsetValue,
		Offset:          c.offset,
		LeaderEpoch:     c.leaderEpoch,
		Metadata:        c.metadata,
		CommitTimestamp: c.committed,
		ExpireTimestamp: c.expires,
		TopicID:         c.topicID,
	}
	if c.expires != noTime {
		value.Version = offsetValueExpiring
	}
	return coordinator.Record{Key: offsetKey(group, topic, c.partition), Value: value.AppendTo(nil)}
}

func offsetTombstone(group, topic string, partition int32) coordinator.Record {
	return coordinator.Record{Key: offsetKey(group, topic, partition)}
}

func groupKey(group string) []byte {
	key := kmsg.GroupMetadataKey{Version: groupMetadataKey, Group: group}
	return key.AppendTo(nil)
}

func groupRecord(group string, value *kmsg.GroupMetadataValue) coordinator.Record {
	value.Version = groupValue
	return coordinator.Record{Key: groupKey(group), Value: value.AppendTo(nil)}
}

func groupTombstone(group string) coordinator.Record {
	return coordinator.Record{Key: groupKey(group)}
}

var errShortKey = errors.New("record key is cut short")

// Replay implements coordinator.Shard.
func (s *shard) Replay(r coordinator.Record) error {
	if len(r.Key) < 2 {
		return errShortKey
	}
	switch kind := int16(binary.BigEndian.Uint16(r.Key)); kind {
	case offsetCommitV0Key, offsetCommitKey:
		return s.replayOffset(r)
	case groupMetadataKey:
		return s.replayGroup(r)
	default:
		return nil
	}
}

func (s *shard) replayOffset(r coordinator.Record) error {
	// The strings alias the record: the shard copies those that it keeps.
	var key kmsg.OffsetCommitKey
	if err := key.UnsafeReadFrom(r.Key); err != nil {
		return fmt.Errorf("offset commit key: %w", err)
	}
	if r.Value == nil {
		if g := s.groups[key.Group]; g != nil {
			g.offsets.remove(key.Topic, key.Partition)
		}
		return nil
	}
	var value kmsg.OffsetCommitValue
	if err := value.UnsafeReadFrom(r.Value); err != nil {
		return fmt.Errorf("offset commit value: %w", err)
	}
	c := committed{
		partition:   key.Partition,
		leaderEpoch: int32(wire.NoLeaderEpoch),
		offset:      value.Offset,
		committed:   value.CommitTimestamp,
		expires:     noTime,
		metadata:    value.Metadata,
		topicID:     value.TopicID,
	}
	if value.Version >= 3 {
		c.leaderEpoch = value.LeaderEpoch
	}
	if value.Version == offsetValueExpiring {
		c.expires = value.ExpireTimestamp
	}
	s.groupFor(key.Group).offsets.put(key.Topic, c)
	return nil
}

func (s *shard) replayGroup(r coordinator.Record) error {
	var key kmsg.GroupMetadataKey
	if err := key.UnsafeReadFrom(r.Key); err != nil {
		return fmt.Errorf("group metadata key: %w", err)
	}
	if r.Value == nil {
		if g := s.groups[key.Group]; g != nil {
			g.reset()
			s.settle(g)
		}
		return nil
	}
	var value kmsg.GroupMetadataValue
	if err := value.ReadFrom(r.Value); err != nil {
		return fmt.Errorf("group metadata value: %w", err)
	}
	if repeats(value.Members) {
		return errMemberTwice
	}
	g := s.groupFor(key.Group)
	g.adopt(&value)
	s.settle(g)
	return nil
}

var errMemberTwice = errors.New("group metadata names a member twice")

// repeats tells whether a member or an instance occurs twice, which no coordinator writes.
func repeats(members []kmsg.GroupMetadataValueMember) bool {
	ids, instances := make(map[string]bool, len(members)), make(map[string]bool)
	for i := range members {
		m := &members[i]
		if ids[m.MemberID] || m.InstanceID != nil && instances[*m.InstanceID] {
			return true
		}
		ids[m.MemberID] = true
		if m.InstanceID != nil {
			instances[*m.InstanceID] = true
		}
	}
	return false
}

// groupFor returns the group, which it creates when there is none. The name is copied.
func (s *shard) groupFor(name string) *group {
	g := s.groups[name]
	if g == nil {
		g = newGroup(string([]byte(name)))
		s.groups[g.id] = g
	}
	return g
}

var errSubscription = errors.New("consumer subscription cannot be read")

// subscribedTopics reads the topics out of a member's metadata of the consumer protocol. All versions begin as version 0
// does. It calls topic with strings of their own.
func subscribedTopics(metadata []byte, topic func(string)) error {
	const prefix = 2 + 4 // version and number of topics
	if len(metadata) < prefix {
		return errSubscription
	}
	version, count := int16(binary.BigEndian.Uint16(metadata)), int32(binary.BigEndian.Uint32(metadata[2:]))
	if version < 0 || count < 0 {
		return errSubscription
	}
	rest := metadata[prefix:]
	for range count {
		if len(rest) < 2 {
			return errSubscription
		}
		n := int(int16(binary.BigEndian.Uint16(rest)))
		if n < 0 || n > len(rest)-2 {
			return errSubscription
		}
		topic(string(rest[2 : 2+n]))
		rest = rest[2+n:]
	}
	return nil
}
