package api

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// The endpoint types of DescribeCluster.
const (
	brokerEndpoints     = 1
	controllerEndpoints = 2
)

func handleDescribeCluster(s *Server, c *call, request *kmsg.DescribeClusterRequest) {
	response := kmsg.NewPtrDescribeClusterResponse()
	if request.Version >= 1 && request.EndpointType != brokerEndpoints {
		if request.EndpointType == controllerEndpoints {
			response.ErrorCode = int16(wire.MismatchedEndpointType)
			response.ErrorMessage = text("The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER")
		} else {
			response.ErrorCode = int16(wire.UnsupportedEndpointType)
			response.ErrorMessage = text(fmt.Sprintf("Unsupported endpoint type %d", request.EndpointType))
		}
		c.answer(response)
		return
	}
	image := s.Image()
	response.ClusterID = s.clusterID
	response.ControllerID = int32(s.controllerFor(image))
	if request.IncludeClusterAuthorizedOperations {
		response.ClusterAuthorizedOperations = clusterOperations
	}
	for b := range image.Brokers() {
		e, ok := c.endpointOf(b)
		if !ok || b.Fenced && !request.IncludeFencedBrokers {
			continue
		}
		row := kmsg.NewDescribeClusterResponseBroker()
		row.NodeID, row.Host, row.Port, row.Rack, row.IsFenced = int32(e.id), e.host, e.port, e.rack, b.Fenced
		response.Brokers = append(response.Brokers, row)
	}
	c.answer(response)
}
