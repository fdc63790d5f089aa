package readonly

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// The keys that are served.
const (
	keyProduce                 wire.APIKey = 0
	keyFetch                   wire.APIKey = 1
	keyListOffsets             wire.APIKey = 2
	keyMetadata                wire.APIKey = 3
	keyAPIVersions             wire.APIKey = 18
	keyOffsetForLeaderEpoch    wire.APIKey = 23
	keyDescribeConfigs         wire.APIKey = 32
	keyDescribeCluster         wire.APIKey = 60
	keyDescribeTopicPartitions wire.APIKey = 75
)

// served are the keys that are announced. Groups are not among them, since a commit would have to be written: a consumer that assigns
// partitions itself needs none. Produce is, because librdkafka takes a broker without it for one of the oldest.
var served = []wire.APIKey{
	keyProduce, keyFetch, keyListOffsets, keyMetadata, keyAPIVersions, keyOffsetForLeaderEpoch, keyDescribeConfigs,
	keyDescribeCluster, keyDescribeTopicPartitions,
}

// Handle answers a request, or parks it.
func (s *Server) Handle(now time.Time, request *api.Request) api.Reply {
	if request.Key == keyProduce {
		return refuseProduce(request)
	}
	return s.api.Handle(now, request)
}

// produceMin and produceMax are the versions of Produce that are understood, to refuse them.
const produceMin, produceMax = 3, 13

// refuseProduce answers that the client may not write: an error that no client tries to get over.
func refuseProduce(r *api.Request) api.Reply {
	bad := func(err error) api.Reply {
		return api.Reply{Outcome: api.Close, Reason: fmt.Errorf("produce: %w", err)}
	}
	if r.Version < produceMin || r.Version > produceMax {
		return bad(fmt.Errorf("version %d is not served", r.Version))
	}
	if err := api.CheckBody(r.Key, r.Version, r.Body); err != nil {
		return bad(err)
	}
	request := kmsg.NewPtrProduceRequest()
	request.SetVersion(r.Version)
	if err := request.ReadFrom(r.Body); err != nil {
		return bad(err)
	}
	if request.Acks == 0 {
		return bad(errReadOnly) // nothing else tells such a producer
	}
	message := errReadOnly.Error()
	response := kmsg.NewPtrProduceResponse()
	for _, t := range request.Topics {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			row := kmsg.NewProduceResponseTopicPartition()
			row.Partition, row.ErrorCode, row.BaseOffset = p.Partition, int16(wire.TopicAuthorizationFailed), -1
			row.ErrorMessage = &message
			topic.Partitions = append(topic.Partitions, row)
		}
		response.Topics = append(response.Topics, topic)
	}
	response.SetVersion(r.Version)
	frame := wire.AppendResponseHeader(make([]byte, 0, 256), r.CorrelationID, response.IsFlexible())
	frame = response.AppendTo(frame)
	wire.FinishFrame(frame, 0)
	return api.Reply{Outcome: api.Respond, Parts: []api.Part{{Bytes: frame}}}
}
