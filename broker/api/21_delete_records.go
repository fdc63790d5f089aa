package api

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func handleDeleteRecords(s *Server, c *call, request *kmsg.DeleteRecordsRequest) {
	trim := &replica.DeleteRecordsRequest{Timeout: time.Duration(request.TimeoutMillis) * time.Millisecond}
	for _, t := range request.Topics {
		for _, p := range t.Partitions {
			trim.Partitions = append(trim.Partitions,
				replica.DeleteRecordsPartition{Topic: t.Topic, Partition: p.Partition, Offset: wire.Offset(p.Offset)})
		}
	}
	s.replicas.DeleteRecords(c.now, trim, func(results []replica.DeleteRecordsResult) {
		response := kmsg.NewPtrDeleteRecordsResponse()
		for _, t := range request.Topics {
			topic := kmsg.NewDeleteRecordsResponseTopic()
			topic.Topic = t.Topic
			for i, p := range t.Partitions {
				row := kmsg.NewDeleteRecordsResponseTopicPartition()
				row.Partition, row.ErrorCode, row.LowWatermark = p.Partition, int16(results[i].Code), int64(results[i].LowWatermark)
				topic.Partitions = append(topic.Partitions, row)
			}
			results = results[len(t.Partitions):]
			response.Topics = append(response.Topics, topic)
		}
		c.answer(response)
	})
}
