package metadata

import (
	"cmp"
	"fmt"
	"strconv"
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

// MarshalText writes the name of the type, or its number if it has none: a request may name any.
func (t ResourceType) MarshalText() ([]byte, error) {
	if name, ok := resourceTypeNames[t]; ok {
		return []byte(name), nil
	}
	return strconv.AppendInt(nil, int64(t), 10), nil
}

// UnmarshalText reads what MarshalText wrote.
func (t *ResourceType) UnmarshalText(text []byte) error {
	for candidate, name := range resourceTypeNames {
		if name == string(text) {
			*t = candidate
			return nil
		}
	}
	number, err := strconv.ParseInt(string(text), 10, 8)
	if err != nil {
		return fmt.Errorf("unknown config resource type %q", text)
	}
	*t = ResourceType(number)
	return nil
}
