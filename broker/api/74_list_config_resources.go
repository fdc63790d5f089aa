package api

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// listedResources are the kinds of resources that ListConfigResources knows, in the order of its answers.
var listedResources = []metadata.ResourceType{
	metadata.TopicResource, metadata.BrokerResource, metadata.BrokerLoggerResource,
	metadata.ClientMetricsResource, metadata.GroupResource,
}

func handleListConfigResources(s *Server, c *call, request *kmsg.ListConfigResourcesRequest) {
	response := kmsg.NewPtrListConfigResourcesResponse()
	wanted := make([]metadata.ResourceType, 0, len(request.ResourceTypes))
	for _, t := range request.ResourceTypes {
		wanted = append(wanted, metadata.ResourceType(t))
	}
	switch {
	case request.Version == 0:
		wanted = []metadata.ResourceType{metadata.ClientMetricsResource}
	case len(wanted) == 0:
		wanted = listedResources
	}
	for _, t := range wanted {
		if !slices.Contains(listedResources, t) {
			response.ErrorCode = int16(wire.UnsupportedVersion)
			c.answer(response)
			return
		}
	}
	image := s.Image()
	for _, t := range listedResources {
		if !slices.Contains(wanted, t) {
			continue
		}
		for _, name := range configResources(image, t) {
			row := kmsg.NewListConfigResourcesResponseConfigResource()
			row.Name, row.Type = name, int8(t)
			response.ConfigResources = append(response.ConfigResources, row)
		}
	}
	c.answer(response)
}

// configResources names the resources of a kind: all topics and brokers, and what has configs of the others.
func configResources(image *metadata.Image, t metadata.ResourceType) []string {
	var names []string
	switch t {
	case metadata.TopicResource:
		for topic := range image.Topics("") {
			names = append(names, topic.Name)
		}
	case metadata.BrokerResource, metadata.BrokerLoggerResource:
		for b := range image.Brokers() {
			names = append(names, b.ID.String())
		}
	default:
		names = slices.Collect(image.ConfigResources(t))
	}
	return names
}
