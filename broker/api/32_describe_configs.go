package api

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func handleDescribeConfigs(s *Server, c *call, request *kmsg.DescribeConfigsRequest) {
	response := kmsg.NewPtrDescribeConfigsResponse()
	image := s.Image()
	var names config.Names[metadata.ConfigResource]
	for _, r := range request.Resources {
		row := kmsg.NewDescribeConfigsResponseResource()
		row.ResourceType, row.ResourceName, row.ErrorMessage = r.ResourceType, r.ResourceName, text("")
		if names.Repeated(metadata.ConfigResource{Type: metadata.ResourceType(r.ResourceType), Name: r.ResourceName}) {
			row.ErrorCode, row.ErrorMessage = int16(wire.InvalidRequest), text("The resource is named too often.")
			response.Resources = append(response.Resources, row)
			continue
		}
		entries, err := s.describeConfigs(image, metadata.ResourceType(r.ResourceType), r.ResourceName)
		if err != nil {
			row.ErrorCode, row.ErrorMessage = int16(err.Code), text(err.Message)
			response.Resources = append(response.Resources, row)
			continue
		}
		entries = wantedEntries(entries, r)
		for i := range entries {
			row.Configs = append(row.Configs, describedConfig(request, &entries[i]))
		}
		response.Resources = append(response.Resources, row)
	}
	c.answer(response)
}

// describeConfigs lists all configs of a resource.
func (s *Server) describeConfigs(image *metadata.Image, kind metadata.ResourceType, name string) ([]config.Entry, *wire.Error) {
	overrides := image.Configs(metadata.ConfigResource{Type: kind, Name: name})
	switch kind {
	case metadata.TopicResource:
		if why := wire.TopicNameFault(name); why != "" {
			return nil, wire.NewError(wire.InvalidTopic, "Topic name is invalid: "+why)
		}
		if image.Topic(name) == nil {
			return nil, wire.NewError(wire.UnknownTopicOrPartition, "")
		}
		return config.DescribeTopic(s.Config(), overrides), nil
	case metadata.BrokerResource:
		if name == "" {
			return config.DescribeCluster(s.Config()), nil
		}
		if err := s.checkSelf(name, "expected %d or empty string, but received %d"); err != nil {
			return nil, err
		}
		return config.DescribeBroker(s.Config()), nil
	case metadata.BrokerLoggerResource:
		if name == "" {
			return nil, wire.NewError(wire.InvalidRequest, "Broker id must not be empty")
		}
		if err := s.checkSelf(name, "expected %d but received %d"); err != nil {
			return nil, err
		}
		return nil, nil // no logger has a level of its own
	case metadata.ClientMetricsResource:
		if name == "" {
			return nil, wire.NewError(wire.InvalidRequest, "Client metrics subscription name must not be empty")
		}
		return config.DescribeClientMetrics(overrides), nil
	case metadata.GroupResource:
		if name == "" {
			return nil, wire.NewError(wire.InvalidRequest, "Group name must not be empty")
		}
		return config.DescribeGroup(s.Config(), overrides), nil
	default:
		return nil, wire.NewError(wire.InvalidRequest, malformedText)
	}
}

// checkSelf refuses a broker resource that is not this broker.
func (s *Server) checkSelf(name, format string) *wire.Error {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return wire.NewError(wire.InvalidRequest, "Broker id must be an integer, but it is: "+name)
	}
	if wire.BrokerID(id) != s.self {
		return wire.NewError(wire.InvalidRequest, fmt.Sprintf("Unexpected broker id, "+format, s.self, id))
	}
	return nil
}

// wantedEntries picks the names that were asked for, in that order; null and none mean all.
func wantedEntries(entries []config.Entry, r kmsg.DescribeConfigsRequestResource) []config.Entry {
	if len(r.ConfigNames) == 0 {
		return entries
	}
	var wanted []config.Entry
	taken := make([]bool, len(entries))
	for _, name := range r.ConfigNames {
		at := slices.IndexFunc(entries, func(e config.Entry) bool { return e.Name == name })
		if at >= 0 && !taken[at] {
			taken[at] = true
			wanted = append(wanted, entries[at])
		}
	}
	return wanted
}

func describedConfig(request *kmsg.DescribeConfigsRequest, e *config.Entry) kmsg.DescribeConfigsResponseResourceConfig {
	row := kmsg.NewDescribeConfigsResponseResourceConfig()
	row.Name, row.Value, row.ReadOnly, row.IsSensitive = e.Name, e.Value, e.ReadOnly, e.Sensitive
	row.Source, row.ConfigType = kmsg.ConfigSource(e.Origin), kmsg.ConfigType(e.Type)
	if request.IncludeDocumentation {
		row.Documentation = nullable(e.Doc)
	}
	if request.IncludeSynonyms {
		for _, synonym := range e.Synonyms {
			row.ConfigSynonyms = append(row.ConfigSynonyms, kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{
				Name: synonym.Name, Value: synonym.Value, Source: kmsg.ConfigSource(synonym.Origin),
			})
		}
	}
	return row
}
