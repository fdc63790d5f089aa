package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func handleCreatePartitions(s *Server, c *call, request *kmsg.CreatePartitionsRequest) {
	change := &metadata.CreatePartitions{ValidateOnly: request.ValidateOnly}
	for _, t := range request.Topics {
		more := metadata.MorePartitions{Name: t.Topic, Count: t.Count}
		if t.Assignment != nil {
			more.Assignments = make([][]wire.BrokerID, 0, len(t.Assignment))
		}
		for _, a := range t.Assignment {
			more.Assignments = append(more.Assignments, fromBrokerIDs(a.Replicas))
		}
		change.Topics = append(change.Topics, more)
	}
	submit(s, c, change, request.TimeoutMillis, func(answer *metadata.CreatePartitionsAnswer, code wire.Code) {
		response := kmsg.NewPtrCreatePartitionsResponse()
		if code != wire.None {
			for _, t := range request.Topics {
				row := kmsg.NewCreatePartitionsResponseTopic()
				row.Topic, row.ErrorCode = t.Topic, int16(code)
				response.Topics = append(response.Topics, row)
			}
			c.answer(response)
			return
		}
		for _, t := range answer.Topics {
			row := kmsg.NewCreatePartitionsResponseTopic()
			row.Topic, row.ErrorCode, row.ErrorMessage = t.Name, int16(t.Result.Code), message(t.Result)
			response.Topics = append(response.Topics, row)
		}
		c.answer(response)
	})
}
