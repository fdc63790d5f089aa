package sim

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/wire"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// describe is what the broker says of a topic, nil if there is none.
func (c *cluster) describe(name string) *described {
	request := kmsg.NewPtrMetadataRequest()
	request.SetVersion(12)
	request.AllowAutoTopicCreation = false
	row := kmsg.NewMetadataRequestTopic()
	row.Topic = &name
	request.Topics = append(request.Topics, row)
	response, ok := c.node.ask(request).(*kmsg.MetadataResponse)
	if !ok {
		return nil
	}
	switch got := &response.Topics[0]; code(got.ErrorCode) {
	case wire.UnknownTopicOrPartition:
		return nil
	case wire.None:
		d := &described{id: got.TopicID, partitions: len(got.Partitions), configs: c.describeConfigs(name), epochs: map[int32]int32{}}
		for _, p := range got.Partitions {
			d.epochs[p.Partition] = p.LeaderEpoch
		}
		return d
	default:
		c.fail("metadata of %s: %s", name, code(got.ErrorCode))
		return nil
	}
}

// describeConfigs gives the settings of a topic that were set on it.
func (c *cluster) describeConfigs(name string) map[string]string {
	request := kmsg.NewPtrDescribeConfigsRequest()
	request.SetVersion(4)
	row := kmsg.NewDescribeConfigsRequestResource()
	row.ResourceType, row.ResourceName = kmsg.ConfigResourceTypeTopic, name
	request.Resources = append(request.Resources, row)
	response, ok := c.node.ask(request).(*kmsg.DescribeConfigsResponse)
	if !ok || response.Resources[0].ErrorCode != 0 {
		c.fail("settings of %s can't be described", name)
		return nil
	}
	configs := map[string]string{}
	for _, config := range response.Resources[0].Configs {
		if config.Source == kmsg.ConfigSourceDynamicTopicConfig && config.Value != nil {
			configs[config.Name] = *config.Value
		}
	}
	return configs
}
