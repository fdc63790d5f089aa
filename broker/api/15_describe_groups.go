package api

import "github.com/twmb/franz-go/pkg/kmsg"

func handleDescribeGroups(s *Server, c *call, request *kmsg.DescribeGroupsRequest) {
	response := s.groups.DescribeGroups(request)
	if request.IncludeAuthorizedOperations {
		for i := range response.Groups {
			response.Groups[i].AuthorizedOperations = groupOperations
		}
	}
	c.answer(response)
}
