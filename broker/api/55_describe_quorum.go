package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// handleDescribeQuorum shows the controller's lease in the shape of a Raft quorum of one: the holder is the leader, its
// lease epoch the leader epoch, the metadata log's end the high watermark.
func handleDescribeQuorum(s *Server, c *call, request *kmsg.DescribeQuorumRequest) {
	response := kmsg.NewPtrDescribeQuorumResponse()
	response.ErrorMessage = text("")
	quorum := s.controller.Quorum()
	single := len(request.Topics) == 1 && len(request.Topics[0].Partitions) == 1
	for _, t := range request.Topics {
		topic := kmsg.NewDescribeQuorumResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			row := kmsg.NewDescribeQuorumResponseTopicPartition()
			row.Partition = p.Partition
			if !single || t.Topic != wire.ClusterMetadataTopic || p.Partition != 0 {
				row.ErrorCode = int16(wire.UnknownTopicOrPartition)
				row.ErrorMessage = text("This server does not host this topic-partition.")
				topic.Partitions = append(topic.Partitions, row)
				continue
			}
			row.ErrorMessage = text("")
			row.LeaderID, row.LeaderEpoch = int32(quorum.Leader), int32(quorum.Epoch)
			row.HighWatermark = int64(quorum.HighWatermark)
			voter := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
			voter.ReplicaID, voter.LogEndOffset = int32(quorum.Leader), int64(quorum.HighWatermark)
			voter.ReplicaDirectoryID = quorum.DirectoryID
			voter.LastFetchTimestamp, voter.LastCaughtUpTimestamp = c.now.UnixMilli(), c.now.UnixMilli()
			row.CurrentVoters = append(row.CurrentVoters, voter)
			topic.Partitions = append(topic.Partitions, row)
		}
		response.Topics = append(response.Topics, topic)
	}
	if holder := s.Image().Broker(quorum.Leader); holder != nil {
		node := kmsg.NewDescribeQuorumResponseNode()
		node.NodeID = int32(holder.ID)
		for _, l := range holder.Listeners {
			listener := kmsg.NewDescribeQuorumResponseNodeListener()
			listener.Name, listener.Host, listener.Port = l.Name, l.Host, l.Port
			node.Listeners = append(node.Listeners, listener)
		}
		response.Nodes = append(response.Nodes, node)
	}
	c.answer(response)
}
