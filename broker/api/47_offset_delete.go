package api

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// handleOffsetDelete gives the coordinator the partitions that exist, and puts the others' errors between its answers.
func handleOffsetDelete(s *Server, c *call, request *kmsg.OffsetDeleteRequest) {
	image := s.Image()
	known := *request
	known.Topics = nil
	type missing struct{ topic, partition int }
	var unknown []missing
	for i, t := range request.Topics {
		part := kmsg.NewOffsetDeleteRequestTopic()
		part.Topic = t.Topic
		for j, p := range t.Partitions {
			if image.Partition(t.Topic, p.Partition) == nil {
				unknown = append(unknown, missing{i, j})
				continue
			}
			part.Partitions = append(part.Partitions, p)
		}
		if len(part.Partitions) > 0 {
			known.Topics = append(known.Topics, part)
		}
	}
	s.groups.OffsetDelete(c.now, &known, func(r *kmsg.OffsetDeleteResponse) {
		if r.ErrorCode == 0 {
			at := make(map[string]int, len(r.Topics)) // where each topic has its row
			for i := range slices.Backward(r.Topics) {
				at[r.Topics[i].Topic] = i // the first
			}
			for _, m := range unknown {
				t := request.Topics[m.topic]
				row := kmsg.NewOffsetDeleteResponseTopicPartition()
				row.Partition, row.ErrorCode = t.Partitions[m.partition].Partition, int16(wire.UnknownTopicOrPartition)
				if _, ok := at[t.Topic]; !ok {
					at[t.Topic] = len(r.Topics)
					r.Topics = append(r.Topics, kmsg.OffsetDeleteResponseTopic{Topic: t.Topic})
				}
				rows := &r.Topics[at[t.Topic]].Partitions
				*rows = append(*rows, row)
			}
		}
		c.answer(r)
	})
}
