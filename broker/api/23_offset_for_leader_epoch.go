package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func handleOffsetForLeaderEpoch(s *Server, c *call, request *kmsg.OffsetForLeaderEpochRequest) {
	response := kmsg.NewPtrOffsetForLeaderEpochResponse()
	for _, t := range request.Topics {
		topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			end, code := s.replicas.OffsetForLeaderEpoch(replica.EpochRequest{
				Topic: t.Topic, Partition: p.Partition,
				CurrentLeaderEpoch: wire.LeaderEpoch(p.CurrentLeaderEpoch), LeaderEpoch: wire.LeaderEpoch(p.LeaderEpoch),
			})
			row := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			row.Partition, row.ErrorCode = p.Partition, int16(code)
			row.LeaderEpoch, row.EndOffset = int32(end.Epoch), int64(end.Offset)
			topic.Partitions = append(topic.Partitions, row)
		}
		response.Topics = append(response.Topics, topic)
	}
	c.answer(response)
}
