package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func handleDeleteTopics(s *Server, c *call, request *kmsg.DeleteTopicsRequest) {
	change := &metadata.DeleteTopics{}
	for _, name := range request.TopicNames {
		change.Topics = append(change.Topics, metadata.TopicRef{Name: text(name)})
	}
	for _, t := range request.Topics {
		change.Topics = append(change.Topics, metadata.TopicRef{Name: t.Topic, ID: t.TopicID})
	}
	refuse := func(code wire.Code) {
		response := kmsg.NewPtrDeleteTopicsResponse()
		for _, t := range change.Topics {
			row := kmsg.NewDeleteTopicsResponseTopic()
			row.Topic, row.TopicID, row.ErrorCode = t.Name, t.ID, int16(code)
			response.Topics = append(response.Topics, row)
		}
		c.answer(response)
	}
	if !s.Config().DeleteTopicEnable {
		code := wire.TopicDeletionDisabled
		if request.Version < 3 {
			code = wire.InvalidRequest
		}
		refuse(code)
		return
	}
	submit(s, c, change, request.TimeoutMillis, func(answer *metadata.DeleteTopicsAnswer, code wire.Code) {
		if code != wire.None {
			refuse(code)
			return
		}
		response := kmsg.NewPtrDeleteTopicsResponse()
		for _, t := range answer.Topics {
			row := kmsg.NewDeleteTopicsResponseTopic()
			row.Topic, row.TopicID = t.Name, t.ID
			row.ErrorCode, row.ErrorMessage = int16(t.Result.Code), message(t.Result)
			response.Topics = append(response.Topics, row)
		}
		c.answer(response)
	})
}
