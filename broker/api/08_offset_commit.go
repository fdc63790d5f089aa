package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// commitTopicID is the version of OffsetCommit, and of OffsetFetch, from which topics go by id (KIP-848).
const commitTopicID = 10

// handleOffsetCommit gives the coordinator the partitions that exist, by name, and puts the others' errors between its
// answers.
func handleOffsetCommit(s *Server, c *call, request *kmsg.OffsetCommitRequest) {
	image := s.Image()
	response := kmsg.NewPtrOffsetCommitResponse()
	known := *request
	known.Topics = nil
	for _, t := range request.Topics {
		row := kmsg.NewOffsetCommitResponseTopic()
		row.Topic, row.TopicID = t.Topic, t.TopicID
		topic, missing := commitTopic(image, request.Version, t.Topic, t.TopicID)
		part := kmsg.NewOffsetCommitRequestTopic()
		for _, p := range t.Partitions {
			code := missing
			if topic != nil {
				code = wire.UnknownTopicOrPartition
				if p.Partition >= 0 && int(p.Partition) < len(topic.Partitions) {
					code = wire.None
					part.Topic, part.TopicID = topic.Name, topic.ID
					part.Partitions = append(part.Partitions, p)
				}
			}
			row.Partitions = append(row.Partitions, kmsg.OffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: int16(code)})
		}
		if len(part.Partitions) > 0 {
			known.Topics = append(known.Topics, part)
		}
		if len(row.Partitions) > 0 {
			response.Topics = append(response.Topics, row)
		}
	}
	if len(known.Topics) == 0 && len(request.Topics) > 0 {
		c.answer(response)
		return
	}
	s.groups.OffsetCommit(c.now, &known, func(committed *kmsg.OffsetCommitResponse) {
		// The rows without an error so far are those that the coordinator saw, in the same order.
		var codes []int16
		for _, t := range committed.Topics {
			for _, p := range t.Partitions {
				codes = append(codes, p.ErrorCode)
			}
		}
		for i := range response.Topics {
			for j := range response.Topics[i].Partitions {
				if p := &response.Topics[i].Partitions[j]; p.ErrorCode == 0 {
					p.ErrorCode, codes = codes[0], codes[1:]
				}
			}
		}
		c.answer(response)
	})
}

// commitTopic finds a topic by what the version names it by, or tells the error of one that does not exist.
func commitTopic(image *metadata.Image, version int16, name string, id wire.TopicID) (*metadata.Topic, wire.Code) {
	if version < commitTopicID {
		return image.Topic(name), wire.UnknownTopicOrPartition
	}
	return image.TopicByID(id), wire.UnknownTopicID
}
