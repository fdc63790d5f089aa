package api

import "github.com/twmb/franz-go/pkg/kmsg"

func handleLeaveGroup(s *Server, c *call, request *kmsg.LeaveGroupRequest) {
	s.groups.LeaveGroup(c.now, request, func(r *kmsg.LeaveGroupResponse) { c.answer(r) })
}
