package api

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/coordinator"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// The coordinator types of FindCoordinator.
const (
	groupCoordinator       = 0
	transactionCoordinator = 1
)

func handleFindCoordinator(s *Server, c *call, request *kmsg.FindCoordinatorRequest) {
	response := kmsg.NewPtrFindCoordinatorResponse()
	if request.Version < 4 {
		e, code := s.findCoordinator(c, request.CoordinatorType, request.CoordinatorKey)
		response.ErrorCode, response.ErrorMessage = int16(code), coordinatorMessage(code, "NONE")
		response.NodeID, response.Host, response.Port = int32(e.id), e.host, e.port
		c.answer(response)
		return
	}
	for _, key := range request.CoordinatorKeys {
		e, code := s.findCoordinator(c, request.CoordinatorType, key)
		row := kmsg.NewFindCoordinatorResponseCoordinator()
		row.Key, row.ErrorCode, row.ErrorMessage = key, int16(code), coordinatorMessage(code, "")
		row.NodeID, row.Host, row.Port = int32(e.id), e.host, e.port
		response.Coordinators = append(response.Coordinators, row)
	}
	c.answer(response)
}

func (s *Server) findCoordinator(c *call, kind int8, key string) (endpoint, wire.Code) {
	image := s.Image()
	switch kind {
	case groupCoordinator:
	case transactionCoordinator:
		// Until transactions are served every broker is as good: InitProducerId refuses there.
		if e, ok := c.endpointOf(image.Broker(s.self)); ok {
			return e, wire.None
		}
		return noEndpoint, wire.CoordinatorNotAvailable
	default:
		return noEndpoint, wire.InvalidRequest
	}
	topic := image.Topic(wire.ConsumerOffsetsTopic)
	if topic == nil {
		s.createOffsetsTopic(c)
		return noEndpoint, wire.CoordinatorNotAvailable
	}
	p := topic.Partitions[coordinator.PartitionFor(key, int32(len(topic.Partitions)))]
	leader := image.Broker(p.Leader)
	if leader == nil || leader.Fenced {
		return noEndpoint, wire.CoordinatorNotAvailable
	}
	e, ok := c.endpointOf(leader)
	if !ok {
		return noEndpoint, wire.CoordinatorNotAvailable
	}
	return e, wire.None
}

// malformedText is Kafka's text for INVALID_REQUEST where it has no better one.
const malformedText = "This most likely occurs because of a request being malformed by the client library or the message was " +
	"sent to an incompatible broker. See the broker logs for more details."

// coordinatorMessage is Kafka's text: that of the error, and for success whatever the version says there.
func coordinatorMessage(code wire.Code, success string) *string {
	switch code {
	case wire.None:
		return &success
	case wire.InvalidRequest:
		return text(malformedText)
	default:
		return text("The coordinator is not available.")
	}
}

// createOffsetsTopic asks for __consumer_offsets, unless that is under way: a request may name thousands of groups.
func (s *Server) createOffsetsTopic(c *call) {
	if !s.creatingOffsets.CompareAndSwap(false, true) {
		return
	}
	change := &metadata.CreateTopics{Topics: []metadata.NewTopic{s.offsetsTopic()}}
	s.controller.Submit(c.now, change, c.now.Add(s.requestTimeout()), func(metadata.Answer, error) { s.creatingOffsets.Store(false) })
}

// offsetsTopic is __consumer_offsets as it is created at first need.
func (s *Server) offsetsTopic() metadata.NewTopic {
	return metadata.NewTopic{
		Name:              wire.ConsumerOffsetsTopic,
		Partitions:        int32(s.Config().OffsetsTopicPartitions),
		ReplicationFactor: int16(s.Config().OffsetsTopicReplicationFactor),
		Configs: []metadata.ConfigEntry{
			{Name: "cleanup.policy", Value: text("compact")},
			{Name: "compression.type", Value: text("producer")},
			{Name: "segment.bytes", Value: text(strconv.Itoa(s.Config().OffsetsTopicSegmentBytes))},
		},
	}
}
