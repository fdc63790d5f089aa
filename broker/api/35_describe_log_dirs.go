package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/wire"
)

func handleDescribeLogDirs(s *Server, c *call, request *kmsg.DescribeLogDirsRequest) {
	wanted := map[wire.TopicPartition]bool{}
	for _, t := range request.Topics {
		for _, p := range t.Partitions {
			wanted[wire.TopicPartition{Topic: t.Topic, Partition: p}] = true
		}
	}
	response := kmsg.NewPtrDescribeLogDirsResponse()
	for _, d := range s.replicas.LogDirs(func(tp wire.TopicPartition) bool { return request.Topics == nil || wanted[tp] }) {
		dir := kmsg.NewDescribeLogDirsResponseDir()
		dir.Dir, dir.ErrorCode, dir.TotalBytes, dir.UsableBytes = d.Path, int16(d.Code), d.TotalBytes, d.UsableBytes
		for _, p := range d.Partitions {
			if n := len(dir.Topics); n == 0 || dir.Topics[n-1].Topic != p.Topic {
				topic := kmsg.NewDescribeLogDirsResponseDirTopic()
				topic.Topic = p.Topic
				dir.Topics = append(dir.Topics, topic)
			}
			row := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
			row.Partition, row.Size = p.Partition, p.Size
			topic := &dir.Topics[len(dir.Topics)-1]
			topic.Partitions = append(topic.Partitions, row)
		}
		response.Dirs = append(response.Dirs, dir)
	}
	c.answer(response)
}
