package api

import "github.com/twmb/franz-go/pkg/kmsg"

func handleHeartbeat(s *Server, c *call, request *kmsg.HeartbeatRequest) {
	c.answer(s.groups.Heartbeat(c.now, request))
}
