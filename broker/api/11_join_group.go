package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/group"
)

func handleJoinGroup(s *Server, c *call, request *kmsg.JoinGroupRequest) {
	s.groups.JoinGroup(c.now, request, c.groupClient(), func(r *kmsg.JoinGroupResponse) { c.answer(r) })
}

// groupClient is how DescribeGroups shows the sender: the address in Java's form.
func (c *call) groupClient() group.Client {
	return group.Client{ID: c.clientID(), Host: "/" + c.Session.Client.Unmap().String()}
}
