package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func handleCreateTopics(s *Server, c *call, request *kmsg.CreateTopicsRequest) {
	change := &metadata.CreateTopics{ValidateOnly: request.ValidateOnly}
	for _, t := range request.Topics {
		topic := metadata.NewTopic{Name: t.Topic, Partitions: t.NumPartitions, ReplicationFactor: t.ReplicationFactor}
		for _, a := range t.ReplicaAssignment {
			topic.Assignments = append(topic.Assignments, metadata.Assignment{Partition: a.Partition, Replicas: fromBrokerIDs(a.Replicas)})
		}
		for _, entry := range t.Configs {
			topic.Configs = append(topic.Configs, metadata.ConfigEntry{Name: entry.Name, Value: entry.Value})
		}
		change.Topics = append(change.Topics, topic)
	}
	submit(s, c, change, request.TimeoutMillis, func(answer *metadata.CreateTopicsAnswer, code wire.Code) {
		response := kmsg.NewPtrCreateTopicsResponse()
		if code != wire.None {
			for _, t := range request.Topics {
				row := kmsg.NewCreateTopicsResponseTopic()
				row.Topic, row.ErrorCode = t.Topic, int16(code)
				row.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
				response.Topics = append(response.Topics, row)
			}
			c.answer(response)
			return
		}
		for _, t := range answer.Topics {
			row := kmsg.NewCreateTopicsResponseTopic()
			row.Topic, row.TopicID = t.Name, t.ID
			row.ErrorCode, row.ErrorMessage = int16(t.Result.Code), message(t.Result)
			row.NumPartitions, row.ReplicationFactor = t.Partitions, t.ReplicationFactor
			row.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
			if t.Result.Code == wire.None {
				row.Configs = createdConfigs(config.DescribeTopic(s.Config(), t.Configs))
			}
			response.Topics = append(response.Topics, row)
		}
		c.answer(response)
	})
}

func createdConfigs(entries []config.Entry) []kmsg.CreateTopicsResponseTopicConfig {
	rows := make([]kmsg.CreateTopicsResponseTopicConfig, 0, len(entries))
	for _, e := range entries {
		row := kmsg.NewCreateTopicsResponseTopicConfig()
		row.Name, row.Value, row.ReadOnly, row.Source, row.IsSensitive = e.Name, e.Value, e.ReadOnly, int8(e.Origin), e.Sensitive
		rows = append(rows, row)
	}
	return rows
}
