package api

import "github.com/twmb/franz-go/pkg/kmsg"

func handleSyncGroup(s *Server, c *call, request *kmsg.SyncGroupRequest) {
	s.groups.SyncGroup(c.now, request, func(r *kmsg.SyncGroupResponse) { c.answer(r) })
}
