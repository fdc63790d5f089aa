package api

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// The versions of Produce from which things differ.
const (
	produceZstd    = 7  // zstd batches are allowed
	produceLeaders = 10 // answers may name the current leader
	produceTopicID = 13 // topics go by id
)

func handleProduce(s *Server, c *call, request *kmsg.ProduceRequest) {
	produce := &replica.ProduceRequest{
		Acks:        request.Acks,
		Timeout:     time.Duration(request.TimeoutMillis) * time.Millisecond,
		ZstdAllowed: request.Version >= produceZstd, HasTransactionalID: request.TransactionID != nil,
		SeenCodecs: &c.Session.SeenCodecs,
		ByID:       request.Version >= produceTopicID,
		Partitions: make([]replica.ProducePartition, 0, len(request.Topics)),
	}
	for i := range request.Topics {
		t := &request.Topics[i]
		for _, p := range t.Partitions {
			produce.Partitions = append(produce.Partitions,
				replica.ProducePartition{Topic: t.Topic, TopicID: t.TopicID, Partition: p.Partition, Records: p.Records})
		}
	}
	c.pipelineOn = true
	s.replicas.Produce(c.now, produce, func(results []replica.ProduceResult) {
		if request.Acks == 0 {
			c.endUnacknowledged(results)
			return
		}
		c.answer(produceResponse(s, c, request, results))
	})
}

// endUnacknowledged ends a request with acks=0. The client hears of an error, and that it should look for new leaders, only by
// losing its connection.
func (c *call) endUnacknowledged(results []replica.ProduceResult) {
	for i := range results {
		if code := results[i].Code; code != wire.None {
			c.close(code)
			return
		}
	}
	c.noReply()
}

func produceResponse(s *Server, c *call, request *kmsg.ProduceRequest, results []replica.ProduceResult) *kmsg.ProduceResponse {
	response := kmsg.NewPtrProduceResponse()
	response.Topics = make([]kmsg.ProduceResponseTopic, 0, len(request.Topics))
	var leaders leaderHints
	rows := make(map[topicRef]int, len(request.Topics)) // a request may name a topic several times; its row is one
	for i := range request.Topics {
		t := &request.Topics[i]
		if len(t.Partitions) == 0 {
			continue
		}
		at, ok := rows[topicRef{t.Topic, t.TopicID}]
		if !ok {
			at = len(response.Topics)
			rows[topicRef{t.Topic, t.TopicID}] = at
			response.Topics = append(response.Topics, kmsg.ProduceResponseTopic{
				Topic: t.Topic, TopicID: t.TopicID,
				Partitions: make([]kmsg.ProduceResponseTopicPartition, 0, len(t.Partitions)),
			})
		}
		topic := &response.Topics[at]
		for j := range t.Partitions {
			r := &results[j]
			row := kmsg.NewProduceResponseTopicPartition()
			row.Partition, row.ErrorCode, row.ErrorMessage = t.Partitions[j].Partition, int16(r.Code), nullable(r.Message)
			row.BaseOffset, row.LogAppendTime, row.LogStartOffset = int64(r.BaseOffset), r.LogAppendTime, int64(r.LogStartOffset)
			for _, e := range r.RecordErrors {
				row.ErrorRecords = append(row.ErrorRecords, kmsg.ProduceResponseTopicPartitionErrorRecord{
					RelativeOffset: e.Index, ErrorMessage: nullable(e.Message),
				})
			}
			if r.Leader.Known && request.Version >= produceLeaders {
				row.CurrentLeader.LeaderID, row.CurrentLeader.LeaderEpoch = int32(r.Leader.ID), int32(r.Leader.Epoch)
				leaders.add(r.Leader.ID)
			}
			topic.Partitions = append(topic.Partitions, row)
		}
		results = results[len(t.Partitions):]
	}
	for _, e := range leaders.endpoints(s, c) {
		row := kmsg.NewProduceResponseBroker()
		row.NodeID, row.Host, row.Port, row.Rack = int32(e.id), e.host, e.port, e.rack
		response.Brokers = append(response.Brokers, row)
	}
	return response
}

// topicRef names a topic as a request does: by name or by id.
type topicRef struct {
	name string
	id   wire.TopicID
}

// leaderHints collects the brokers that an answer names as leaders (KIP-951).
type leaderHints []wire.BrokerID

func (h *leaderHints) add(id wire.BrokerID) {
	if !slices.Contains(*h, id) {
		*h = append(*h, id)
	}
}

// endpoints are the addresses of the brokers that were added and are known.
func (h leaderHints) endpoints(s *Server, c *call) []endpoint {
	var found []endpoint
	for _, id := range h {
		if b := s.Image().Broker(id); b != nil {
			if e, ok := c.endpointOf(b); ok {
				found = append(found, e)
			}
		}
	}
	return found
}
