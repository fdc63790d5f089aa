package api

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// handleDescribeTopicPartitions answers pages of partitions, topics in the order of their names (KIP-966). A page ends at the
// limit; the cursor then names the partition to go on with.
func handleDescribeTopicPartitions(s *Server, c *call, request *kmsg.DescribeTopicPartitionsRequest) {
	response := kmsg.NewPtrDescribeTopicPartitionsResponse()
	image := s.Image()
	names := make([]string, 0, len(request.Topics))
	for _, t := range request.Topics {
		names = append(names, t.Topic)
	}
	all := len(names) == 0
	if all {
		for t := range image.Topics("") {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)

	first := int32(0)
	if cursor := request.Cursor; cursor != nil {
		at, found := slices.BinarySearch(names, cursor.Topic)
		if cursor.Partition < 0 || !all && !found {
			for _, name := range names {
				response.Topics = append(response.Topics, refusedTopic(name, wire.InvalidRequest))
			}
			c.answer(response)
			return
		}
		names = names[at:]
		if found {
			first = cursor.Partition
		}
	}
	for _, name := range names {
		if !wire.ValidTopicName(name) {
			// Kafka fails the whole request for one bad name.
			response.Topics = nil
			for _, t := range names {
				response.Topics = append(response.Topics, refusedTopic(t, wire.UnknownServerError))
			}
			c.answer(response)
			return
		}
	}

	room := pageSize(request.ResponsePartitionLimit, s.Config().MaxRequestPartitions)
	for _, name := range names {
		if room == 0 {
			response.NextCursor = nextPartition(name, 0)
			break
		}
		topic := image.Topic(name)
		if topic == nil {
			response.Topics = append(response.Topics, refusedTopic(name, wire.UnknownTopicOrPartition))
			first = 0
			continue
		}
		first = min(first, int32(len(topic.Partitions))) // a cursor may be anywhere
		end := first + min(room, int32(len(topic.Partitions))-first)
		response.Topics = append(response.Topics, describedTopic(image, topic, first, end))
		room -= end - first
		if end < int32(len(topic.Partitions)) {
			response.NextCursor = nextPartition(name, end)
			break
		}
		first = 0
	}
	c.answer(response)
}

// pageSize is what a client may ask for, at least one and at most the broker's limit.
func pageSize(asked int32, limit int) int32 { return max(min(asked, int32(limit)), 1) }

func nextPartition(topic string, partition int32) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	next := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	next.Topic, next.Partition = topic, partition
	return &next
}

func refusedTopic(name string, code wire.Code) kmsg.DescribeTopicPartitionsResponseTopic {
	row := kmsg.NewDescribeTopicPartitionsResponseTopic()
	row.Topic, row.ErrorCode = text(name), int16(code)
	if code == wire.UnknownTopicOrPartition {
		row.IsInternal, row.AuthorizedOperations = wire.IsInternalTopic(name), topicOperations
	}
	return row
}

func describedTopic(image *metadata.Image, t *metadata.Topic, first, end int32) kmsg.DescribeTopicPartitionsResponseTopic {
	row := kmsg.NewDescribeTopicPartitionsResponseTopic()
	row.Topic, row.TopicID, row.IsInternal = &t.Name, t.ID, wire.IsInternalTopic(t.Name)
	row.AuthorizedOperations = topicOperations
	for index := first; index < end; index++ {
		p := t.Partitions[index]
		out := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		out.Partition, out.LeaderID, out.LeaderEpoch = index, int32(p.Leader), int32(p.LeaderEpoch)
		out.Replicas, out.ISR = brokerIDs(p.Replicas), brokerIDs(p.ISR)
		out.EligibleLeaderReplicas, out.LastKnownELR = brokerIDs(p.ELR), brokerIDs(p.LastKnownELR)
		out.OfflineReplicas = offlineReplicas(image, p)
		if p.Leader == wire.NoBroker {
			out.ErrorCode = int16(wire.LeaderNotAvailable)
		}
		row.Partitions = append(row.Partitions, out)
	}
	return row
}
