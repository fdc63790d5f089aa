package api

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// specialSince is the version of ListOffsets from which a special timestamp is understood.
var specialSince = map[int64]int16{
	replica.LatestTimestamp:                1,
	replica.EarliestTimestamp:              1,
	replica.MaxTimestamp:                   7,
	replica.EarliestLocalTimestamp:         8,
	replica.LatestTieredTimestamp:          9,
	replica.EarliestPendingUploadTimestamp: 11,
}

// listOffsetsTimeout is the version of ListOffsets from which the client says how long the object store may take.
const listOffsetsTimeout = 10

func handleListOffsets(s *Server, c *call, request *kmsg.ListOffsetsRequest) {
	asked := map[wire.TopicPartition]int{}
	for _, t := range request.Topics {
		for _, p := range t.Partitions {
			asked[wire.TopicPartition{Topic: t.Topic, Partition: p.Partition}]++
		}
	}
	look := &replica.ListOffsetsRequest{
		ReplicaID: wire.BrokerID(request.ReplicaID), Isolation: replica.Isolation(request.IsolationLevel),
	}
	if request.Version >= listOffsetsTimeout {
		look.Timeout = time.Duration(request.TimeoutMillis) * time.Millisecond
	}
	var rows [][2]int // topic and partition in the response of each of look.Partitions
	response := kmsg.NewPtrListOffsetsResponse()
	for _, t := range request.Topics {
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			tp := wire.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			row := kmsg.NewListOffsetsResponseTopicPartition()
			row.Partition = p.Partition
			n := asked[tp]
			if n == 0 { // answered already
				continue
			}
			if n > 1 { // one row for all of a partition that was named more than once
				asked[tp] = 0
				row.ErrorCode = int16(wire.InvalidRequest)
			} else if row.ErrorCode = int16(checkTimestamp(request, p.Timestamp)); row.ErrorCode == 0 {
				rows = append(rows, [2]int{len(response.Topics), len(topic.Partitions)})
				look.Partitions = append(look.Partitions, replica.ListOffsetsPartition{
					Topic: t.Topic, Partition: p.Partition,
					CurrentLeaderEpoch: wire.LeaderEpoch(p.CurrentLeaderEpoch), Timestamp: p.Timestamp,
				})
			}
			topic.Partitions = append(topic.Partitions, row)
		}
		if len(topic.Partitions) > 0 || len(t.Partitions) == 0 {
			response.Topics = append(response.Topics, topic)
		}
	}
	s.replicas.ListOffsets(c.now, look, func(results []replica.ListOffsetsResult) {
		for i, r := range results {
			row := &response.Topics[rows[i][0]].Partitions[rows[i][1]]
			row.ErrorCode = int16(r.Code)
			row.Timestamp, row.Offset, row.LeaderEpoch = r.Timestamp, int64(r.Offset), int32(r.LeaderEpoch)
		}
		c.answer(response)
	})
}

// checkTimestamp tells whether a timestamp can be asked for in the request's version.
func checkTimestamp(request *kmsg.ListOffsetsRequest, timestamp int64) wire.Code {
	switch since, special := specialSince[timestamp]; {
	case timestamp < 0 && (!special || request.Version < since):
		return wire.UnsupportedVersion
	case request.IsolationLevel < 0 || request.IsolationLevel > 1:
		return wire.UnknownServerError
	default:
		return wire.None
	}
}
