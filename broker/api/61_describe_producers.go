package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func handleDescribeProducers(s *Server, c *call, request *kmsg.DescribeProducersRequest) {
	response := kmsg.NewPtrDescribeProducersResponse()
	image := s.Image()
	var names config.Names[wire.TopicPartition]
	for _, t := range request.Topics {
		topic := kmsg.NewDescribeProducersResponseTopic()
		topic.Topic = t.Topic
		for _, partition := range t.Partitions {
			row := kmsg.NewDescribeProducersResponseTopicPartition()
			row.Partition = partition
			tp := wire.TopicPartition{Topic: t.Topic, Partition: partition}
			switch {
			case names.Repeated(tp):
				row.ErrorCode, row.ErrorMessage = int16(wire.InvalidRequest), text("The partition is named too often.")
			case t.Topic == "":
				row.ErrorCode = int16(wire.InvalidTopic)
				row.ErrorMessage = text("Topic name is invalid: the empty string is not allowed")
			case image.Topic(t.Topic) == nil:
				row.ErrorCode = int16(wire.UnknownTopicOrPartition)
				row.ErrorMessage = text("This server does not host this topic-partition.")
			default:
				producers, code := s.replicas.DescribeProducers(tp)
				row.ErrorCode = int16(code)
				for _, p := range producers {
					row.ActiveProducers = append(row.ActiveProducers, kmsg.DescribeProducersResponseTopicPartitionActiveProducer{
						ProducerID: int64(p.ID), ProducerEpoch: int32(p.Epoch), LastSequence: p.LastSequence,
						LastTimestamp: p.LastTimestamp, CoordinatorEpoch: p.CoordinatorEpoch,
						CurrentTxnStartOffset: int64(p.CurrentTxnStartOffset),
					})
				}
			}
			topic.Partitions = append(topic.Partitions, row)
		}
		response.Topics = append(response.Topics, topic)
	}
	c.answer(response)
}
