package api

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func handleMetadata(s *Server, c *call, request *kmsg.MetadataRequest) {
	response := kmsg.NewPtrMetadataResponse()
	if code := checkTopicRefs(request); code != wire.None {
		for _, t := range request.Topics {
			row := kmsg.NewMetadataResponseTopic()
			row.ErrorCode, row.Topic, row.TopicID = int16(code), text(deref(t.Topic)), t.TopicID
			response.Topics = append(response.Topics, row)
		}
		if code == wire.UnknownServerError && request.Version >= 13 {
			response.ErrorCode = int16(code)
		}
		c.answer(response)
		return
	}
	image := s.Image()
	response.ClusterID = &s.clusterID
	response.ControllerID = int32(s.controllerFor(image))
	for _, e := range c.liveEndpoints(image) {
		row := kmsg.NewMetadataResponseBroker()
		row.NodeID, row.Host, row.Port, row.Rack = int32(e.id), e.host, e.port, e.rack
		response.Brokers = append(response.Brokers, row)
	}
	if request.IncludeClusterAuthorizedOperations {
		response.AuthorizedOperations = clusterOperations
	}

	view := metadataView{image: image, version: request.Version, operations: request.IncludeTopicAuthorizedOperations}
	if request.Topics == nil || request.Version == 0 && len(request.Topics) == 0 {
		for topic := range image.Topics("") {
			response.Topics = append(response.Topics, view.topic(topic))
		}
		c.answer(response)
		return
	}
	var missing []string
	seen := make(map[topicRef]bool, len(request.Topics))
	for _, ref := range request.Topics {
		key := topicRef{name: deref(ref.Topic)}
		if !wire.TopicID(ref.TopicID).IsZero() {
			key = topicRef{id: ref.TopicID} // a name beside it says nothing
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		topic := lookupTopic(image, ref)
		if topic != nil {
			response.Topics = append(response.Topics, view.topic(topic))
			continue
		}
		row := kmsg.NewMetadataResponseTopic()
		row.TopicID, row.Topic = ref.TopicID, ref.Topic
		switch {
		case !wire.TopicID(ref.TopicID).IsZero():
			row.ErrorCode, row.Topic = int16(wire.UnknownTopicID), nil
		case !wire.ValidTopicName(*ref.Topic):
			row.ErrorCode = int16(wire.InvalidTopic)
		default:
			row.ErrorCode, row.IsInternal = int16(wire.UnknownTopicOrPartition), wire.IsInternalTopic(*ref.Topic)
			missing = append(missing, *ref.Topic)
		}
		response.Topics = append(response.Topics, row)
	}
	if request.Version < 4 || request.AllowAutoTopicCreation {
		s.autoCreate(c, missing)
	}
	c.answer(response)
}

// checkTopicRefs refuses what a version does not allow: ids before 12 (they are on the wire from 10 on, for answers), null
// names without an id.
func checkTopicRefs(request *kmsg.MetadataRequest) wire.Code {
	for _, t := range request.Topics {
		hasID := !wire.TopicID(t.TopicID).IsZero()
		switch {
		case request.Version < 12 && (t.Topic == nil || hasID):
			return wire.InvalidRequest
		case t.Topic == nil && !hasID:
			return wire.UnknownServerError
		}
	}
	return wire.None
}

// lookupTopic finds a topic by its id where there is one, else by its name.
func lookupTopic(image *metadata.Image, ref kmsg.MetadataRequestTopic) *metadata.Topic {
	if id := wire.TopicID(ref.TopicID); !id.IsZero() {
		return image.TopicByID(id)
	}
	return image.Topic(*ref.Topic)
}

// autoCreate asks for topics that a client wants to use. The client asks for their metadata again; whatever goes wrong
// here it learns then.
func (s *Server) autoCreate(c *call, names []string) {
	if !s.Config().AutoCreateTopics {
		return
	}
	slices.Sort(names)
	change := &metadata.CreateTopics{}
	for _, name := range slices.Compact(names) {
		switch {
		case name == wire.ConsumerOffsetsTopic:
			change.Topics = append(change.Topics, s.offsetsTopic())
		case !wire.IsInternalTopic(name): // the others are for coordinators that are not built yet
			change.Topics = append(change.Topics, metadata.NewTopic{Name: name, Partitions: -1, ReplicationFactor: -1})
		}
	}
	if len(change.Topics) > 0 {
		s.controller.Submit(c.now, change, c.now.Add(s.requestTimeout()), func(metadata.Answer, error) {})
	}
}

// controllerFor is the id that clients take for the controller: any live broker, since each one passes changes on. Kafka
// names a random one; the lowest does as well.
func (s *Server) controllerFor(image *metadata.Image) wire.BrokerID {
	for b := range image.Brokers() {
		if !b.Fenced {
			return b.ID
		}
	}
	return wire.NoBroker
}

// metadataView writes topics in the form of the Metadata answer.
type metadataView struct {
	image      *metadata.Image
	version    int16
	operations bool
}

func (v metadataView) topic(t *metadata.Topic) kmsg.MetadataResponseTopic {
	row := kmsg.NewMetadataResponseTopic()
	row.Topic, row.TopicID, row.IsInternal = &t.Name, t.ID, wire.IsInternalTopic(t.Name)
	if v.operations {
		row.AuthorizedOperations = topicOperations
	}
	row.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, len(t.Partitions))
	for index, p := range t.Partitions {
		out := kmsg.NewMetadataResponseTopicPartition()
		out.Partition, out.Leader, out.LeaderEpoch = int32(index), int32(p.Leader), int32(p.LeaderEpoch)
		out.Replicas, out.ISR = brokerIDs(p.Replicas), brokerIDs(p.ISR)
		out.OfflineReplicas = offlineReplicas(v.image, p)
		if p.Leader == wire.NoBroker {
			out.ErrorCode = int16(wire.LeaderNotAvailable)
		}
		row.Partitions = append(row.Partitions, out)
	}
	return row
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
