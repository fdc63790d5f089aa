package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func handleOffsetFetch(s *Server, c *call, request *kmsg.OffsetFetchRequest) {
	if request.Version < commitTopicID {
		s.groups.OffsetFetch(c.now, request, func(r *kmsg.OffsetFetchResponse) { c.answer(r) })
		return
	}
	// The coordinator keeps offsets by name: ids become names on the way in, and names ids on the way out. Topics that are
	// not known stay out of what it sees and get their error here.
	image := s.Image()
	named := *request
	named.Groups = make([]kmsg.OffsetFetchRequestGroup, len(request.Groups))
	for i, g := range request.Groups {
		named.Groups[i] = g
		if g.Topics == nil {
			continue
		}
		named.Groups[i].Topics = []kmsg.OffsetFetchRequestGroupTopic{}
		for _, t := range g.Topics {
			if topic := image.TopicByID(t.TopicID); topic != nil {
				t.Topic = topic.Name
				named.Groups[i].Topics = append(named.Groups[i].Topics, t)
			}
		}
	}
	s.groups.OffsetFetch(c.now, &named, func(r *kmsg.OffsetFetchResponse) {
		for i := range r.Groups {
			withTopicIDs(image, &r.Groups[i], request.Groups[i])
		}
		c.answer(r)
	})
}

// withTopicIDs puts ids to the topics of a group's answer, drops those that no longer exist, and adds the unknown ones that
// were asked for.
func withTopicIDs(image *metadata.Image, answer *kmsg.OffsetFetchResponseGroup, asked kmsg.OffsetFetchRequestGroup) {
	kept := answer.Topics[:0]
	for _, t := range answer.Topics {
		if topic := image.Topic(t.Topic); topic != nil {
			t.TopicID = topic.ID
			kept = append(kept, t)
		}
	}
	answer.Topics = kept
	if answer.ErrorCode != 0 {
		return
	}
	for _, t := range asked.Topics {
		if image.TopicByID(t.TopicID) != nil {
			continue
		}
		row := kmsg.NewOffsetFetchResponseGroupTopic()
		row.TopicID = t.TopicID
		for _, p := range t.Partitions {
			part := kmsg.NewOffsetFetchResponseGroupTopicPartition()
			part.Partition, part.Offset, part.LeaderEpoch = p, -1, -1
			part.Metadata, part.ErrorCode = text(""), int16(wire.UnknownTopicID)
			row.Partitions = append(row.Partitions, part)
		}
		answer.Topics = append(answer.Topics, row)
	}
}
