package api

import "github.com/twmb/franz-go/pkg/kmsg"

func handleDeleteGroups(s *Server, c *call, request *kmsg.DeleteGroupsRequest) {
	s.groups.DeleteGroups(c.now, request, func(r *kmsg.DeleteGroupsResponse) { c.answer(r) })
}
