package api

import "github.com/twmb/franz-go/pkg/kmsg"

func handleDescribeGroups(s *Server, c *call, request *kmsg.DescribeGroupsRequest) {
	response := s.groups.DescribeGroups(request)
	if request.IncludeAuthorizedOperations {
		for i := range response.Groups {
			if g := &response.Groups[i]; g.ErrorCode == 0 {
				g.AuthorizedOperations = groupOperations
			}
		}
	}
	c.answer(response)
}
