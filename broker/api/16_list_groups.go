package api

import "github.com/twmb/franz-go/pkg/kmsg"

func handleListGroups(s *Server, c *call, request *kmsg.ListGroupsRequest) {
	c.answer(s.groups.ListGroups(request))
}
