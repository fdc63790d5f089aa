package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// specialSince is the version of ListOffsets from which a special timestamp is understood.
var specialSince = map[int64]int16{
	replica.LatestTimestamp:                1,
	replica.EarliestTimestamp:              1,
	replica.MaxTimestamp:                   7,
	replica.EarliestLocalTimestamp:         8,
	replica.LatestTieredTimestamp:          9,
	replica.EarliestPendingUploadTimestamp: 11,
}

func handleListOffsets(s *Server, c *call, request *kmsg.ListOffsetsRequest) {
	asked := map[wire.TopicPartition]int{}
	for _, t := range request.Topics {
		for _, p := range t.Partitions {
			asked[wire.TopicPartition{Topic: t.Topic, Partition: p.Partition}]++
		}
	}
	response := kmsg.NewPtrListOffsetsResponse()
	for _, t := range request.Topics {
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			tp := wire.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			row := kmsg.NewListOffsetsResponseTopicPartition()
			row.Partition = p.Partition
			switch n := asked[tp]; {
			case n == 0: // answered already
				continue
			case n > 1: // one row for all of a partition that was named more than once
				asked[tp] = 0
				row.ErrorCode = int16(wire.InvalidRequest)
			default:
				s.listOffset(request, t.Topic, p, &row)
			}
			topic.Partitions = append(topic.Partitions, row)
		}
		if len(topic.Partitions) > 0 || len(t.Partitions) == 0 {
			response.Topics = append(response.Topics, topic)
		}
	}
	c.answer(response)
}

func (s *Server) listOffset(
	request *kmsg.ListOffsetsRequest, topic string, p kmsg.ListOffsetsRequestTopicPartition,
	row *kmsg.ListOffsetsResponseTopicPartition,
) {
	if since, special := specialSince[p.Timestamp]; p.Timestamp < 0 && (!special || request.Version < since) {
		row.ErrorCode = int16(wire.UnsupportedVersion)
		return
	}
	if request.IsolationLevel < 0 || request.IsolationLevel > 1 {
		row.ErrorCode = int16(wire.UnknownServerError)
		return
	}
	r := s.replicas.ListOffsets(replica.ListOffsetsRequest{
		ReplicaID: wire.BrokerID(request.ReplicaID), Isolation: replica.Isolation(request.IsolationLevel),
		Topic: topic, Partition: p.Partition,
		CurrentLeaderEpoch: wire.LeaderEpoch(p.CurrentLeaderEpoch), Timestamp: p.Timestamp,
	})
	row.ErrorCode = int16(r.Code)
	row.Timestamp, row.Offset, row.LeaderEpoch = r.Timestamp, int64(r.Offset), int32(r.LeaderEpoch)
}
