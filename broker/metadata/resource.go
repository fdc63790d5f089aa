package metadata

import (
	"cmp"
	"fmt"
	"strings"
)

// ResourceType is the kind of thing that has configs, with its number in the protocol (ConfigResource.Type).
type ResourceType int8

// The resource types.
const (
	TopicResource         ResourceType = 2
	BrokerResource        ResourceType = 4
	BrokerLoggerResource  ResourceType = 8
	ClientMetricsResource ResourceType = 16
	GroupResource         ResourceType = 32
)

var resourceTypeNames = map[ResourceType]string{
	TopicResource:         "topic",
	BrokerResource:        "broker",
	BrokerLoggerResource:  "broker-logger",
	ClientMetricsResource: "client-metrics",
	GroupResource:         "group",
}

// ConfigResource has configs. The broker resource with the empty name is the default of all brokers.
type ConfigResource struct {
	Type ResourceType `json:"type"`
	Name string       `json:"name"`
}

func (r ConfigResource) compare(o ConfigResource) int {
	return cmp.Or(cmp.Compare(r.Type, o.Type), strings.Compare(r.Name, o.Name))
}

// MarshalText writes the name of the type.
func (t ResourceType) MarshalText() ([]byte, error) {
	name, ok := resourceTypeNames[t]
	if !ok {
		return nil, fmt.Errorf("unknown config resource type %d", t)
	}
	return []byte(name), nil
}

// UnmarshalText reads the name of a type.
func (t *ResourceType) UnmarshalText(text []byte) error {
	for candidate, name := range resourceTypeNames {
		if name == string(text) {
			*t = candidate
			return nil
		}
	}
	return fmt.Errorf("unknown config resource type %q", text)
}
