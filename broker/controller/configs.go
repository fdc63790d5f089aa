package controller

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

const (
	minInSyncReplicas = "min.insync.replicas"
	configValueMax    = 1<<15 - 1 // bytes, as in Kafka
)

func (s *step) incrementalAlterConfigs(change *metadata.IncrementalAlterConfigs) *metadata.AlterConfigsAnswer {
	edits := make([]edit, len(change.Resources))
	for i, r := range change.Resources {
		edits[i] = edit{resource: r.Resource, current: s.image.Configs(canonicalResource(r.Resource))}
		for _, op := range r.Ops {
			edits[i].ops = append(edits[i].ops, config.Op{Type: config.OpType(op.Op), Name: validText(op.Name), Value: validValue(op.Value)})
		}
	}
	return s.alter(edits)
}

// alterConfigs replaces: what is not named goes.
func (s *step) alterConfigs(change *metadata.AlterConfigs) *metadata.AlterConfigsAnswer {
	edits := make([]edit, len(change.Resources))
	for i, r := range change.Resources {
		edits[i] = edit{resource: r.Resource, legacy: true}
		for _, entry := range r.Configs {
			edits[i].ops = append(edits[i].ops, config.Op{Type: config.Set, Name: validText(entry.Name), Value: validValue(entry.Value)})
		}
	}
	return s.alter(edits)
}

// edit changes the configs of one resource.
type edit struct {
	resource metadata.ConfigResource
	current  map[string]string // what the operations start from
	ops      []config.Op
	legacy   bool // AlterConfigs, which knows fewer resources
}

func (s *step) alter(edits []edit) *metadata.AlterConfigsAnswer {
	count, operations, text := map[metadata.ConfigResource]int{}, 0, 0
	for _, e := range edits {
		count[canonicalResource(e.resource)]++
		operations += len(e.ops)
		for _, op := range e.ops {
			text += textOf(op.Name, op.Value)
		}
	}
	excess := excessive(max(len(edits), operations), text)
	before := *s
	answer := &metadata.AlterConfigsAnswer{}
	for _, e := range edits {
		var err error
		switch {
		case excess:
			err = errLargeBatch
		case count[canonicalResource(e.resource)] > 1:
			err = refusal(wire.InvalidRequest, "Each resource must appear at most once.")
		default:
			err = s.edit(e)
		}
		answer.Resources = append(answer.Resources, metadata.ResourceResult{Resource: e.resource, Result: metadata.ResultOf(err)})
	}
	if tooLarge(s.records) {
		*s = before
		for i := range answer.Resources {
			answer.Resources[i].Result = metadata.ResultOf(errLargeBatch)
		}
	}
	return answer
}

func (s *step) edit(e edit) error {
	resource, err := s.checkResource(e)
	if err != nil {
		return err
	}
	next, err := config.Apply(config.Resource(resource.Type), e.current, e.ops)
	if err != nil {
		return err
	}
	if err := s.checkConfigs(resource, next); err != nil {
		return err
	}
	if err := s.checkMinISR(resource, e.ops, next); err != nil {
		return err
	}
	if records := configRecords(resource, s.image.Configs(resource), next); len(records) > 0 {
		s.add(records...)
	}
	return nil
}

// textOf is how long a config is.
func textOf(name string, value *string) int {
	if value == nil {
		return len(name)
	}
	return len(name) + len(*value)
}

// checkResource refuses resources that can have no configs whatever they are, and gives the one to change.
func (s *step) checkResource(e edit) (metadata.ConfigResource, error) {
	r := canonicalResource(e.resource)
	switch {
	case r.Type == metadata.TopicResource && r.Name == "":
		return r, refusal(wire.InvalidRequest, "Default topic resources are not allowed.")
	case r.Type == metadata.GroupResource && r.Name == "":
		return r, refusal(wire.InvalidRequest, "Default group resources are not allowed.")
	case r.Type == metadata.ClientMetricsResource && r.Name == "":
		return r, refusal(wire.InvalidRequest, "Subscription name can't be empty")
	case r.Type == metadata.BrokerResource && r.Name != "":
		id, err := strconv.ParseInt(r.Name, 10, 32)
		if err != nil {
			return r, refusal(wire.InvalidRequest, "Node id must be an integer, but it is: %s", r.Name)
		}
		if s.image.Broker(wire.BrokerID(id)) == nil {
			return r, refusal(wire.InvalidRequest, "Unexpected broker id, expected %d, but received %s", s.self, r.Name)
		}
	case r.Type == metadata.BrokerLoggerResource && !e.legacy:
		return r, s.checkLoggers(e)
	case r.Type == metadata.BrokerLoggerResource || !known(r.Type):
		return r, refusal(wire.InvalidRequest, "Unknown resource type %d", r.Type)
	}
	return r, nil
}

func known(t metadata.ResourceType) bool {
	switch t {
	case metadata.TopicResource, metadata.BrokerResource, metadata.ClientMetricsResource, metadata.GroupResource:
		return true
	}
	return false
}

// checkLoggers refuses: Kafka's loggers don't exist here.
func (s *step) checkLoggers(e edit) error {
	if e.resource.Name != strconv.Itoa(int(s.self)) {
		return refusal(wire.InvalidRequest, "Unexpected node id. Expected %d, but received %s", s.self, e.resource.Name)
	}
	for _, op := range e.ops {
		return refusal(wire.InvalidConfig, "Logger %s does not exist!", op.Name)
	}
	return nil
}

// checkConfigs judges the configs that a resource shall have.
func (s *step) checkConfigs(r metadata.ConfigResource, next map[string]string) error {
	if err := checkLengths(next); err != nil {
		return err
	}
	switch r.Type {
	case metadata.TopicResource:
		if err := checkName(r.Name); err != nil {
			return err
		}
		existing, exists := s.image.Configs(r), s.image.Topic(r.Name) != nil
		if exists && existing == nil {
			existing = map[string]string{}
		}
		if err := config.ValidateTopic(s.effectiveConfig(), existing, next); err != nil {
			return err
		}
		if !exists {
			return refusal(wire.UnknownTopicOrPartition, "The topic '%s' does not exist.", r.Name)
		}
		return nil
	case metadata.BrokerResource:
		return config.ValidateBroker(s.effectiveConfig(), next, r.Name != "")
	case metadata.GroupResource:
		return config.ValidateGroup(s.effectiveConfig(), next)
	case metadata.ClientMetricsResource:
		return config.ValidateClientMetrics(next)
	}
	return nil
}

// checkMinISR keeps one minimum for the whole cluster.
func (s *step) checkMinISR(r metadata.ConfigResource, ops []config.Op, next map[string]string) error {
	if r.Type != metadata.BrokerResource {
		return nil
	}
	_, had := s.image.Configs(r)[minInSyncReplicas]
	_, has := next[minInSyncReplicas]
	switch {
	case r.Name != "" && slices.ContainsFunc(ops, func(op config.Op) bool { return op.Name == minInSyncReplicas }):
		return refusal(wire.InvalidConfig, "Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
	case r.Name == "" && had && !has:
		return refusal(wire.InvalidConfig, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")
	}
	return nil
}

func checkLengths(configs map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		if len(configs[name]) > configValueMax {
			return refusal(wire.InvalidConfig, "The configuration value cannot be added because it exceeds the maximum value size of %d bytes.", configValueMax)
		}
	}
	return nil
}

// newTopicConfigs are the configs of a topic to create. As in Kafka, of a name that comes twice the last value counts.
func (s *step) newTopicConfigs(t metadata.NewTopic) (map[string]string, error) {
	configs := make(map[string]string, len(t.Configs))
	var null []string
	for _, entry := range t.Configs {
		if entry.Value == nil {
			null = append(null, entry.Name)
			continue
		}
		configs[validText(entry.Name)] = validText(*entry.Value)
	}
	if len(null) > 0 {
		return nil, refusal(wire.InvalidConfig, "Null value not supported for topic configs: %s", strings.Join(null, ","))
	}
	if err := checkLengths(configs); err != nil {
		return nil, err
	}
	return configs, config.ValidateTopic(s.effectiveConfig(), nil, configs)
}

// configRecords take a resource from some configs to others, by name.
func configRecords(r metadata.ConfigResource, from, to map[string]string) []metadata.Record {
	names := maps.Clone(from)
	if names == nil {
		names = make(map[string]string, len(to))
	}
	maps.Copy(names, to)
	var records []metadata.Record
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, had := from[name]
		is, has := to[name]
		if had == has && was == is {
			continue
		}
		record := &metadata.ConfigRecord{ResourceType: r.Type, ResourceName: r.Name, Name: name}
		if has {
			record.Value = &is
		}
		records = append(records, record)
	}
	return records
}

// effectiveConfig is the broker's under the dynamic configs of the speculative image.
func (s *step) effectiveConfig() *config.Broker {
	cluster := s.image.Configs(metadata.ConfigResource{Type: metadata.BrokerResource})
	own := s.image.Configs(metadata.ConfigResource{Type: metadata.BrokerResource, Name: strconv.Itoa(int(s.self))})
	if s.effective.config == nil || !maps.Equal(s.effective.cluster, cluster) || !maps.Equal(s.effective.own, own) {
		// What doesn't pass was written by another version, and is named where the broker applies it.
		applied, _ := s.config.WithDynamic(cluster, own)
		s.effective = effective{config: applied, cluster: cluster, own: own}
	}
	return s.effective.config
}

// effective is the last outcome of effectiveConfig and what it was made of.
type effective struct {
	config       *config.Broker
	cluster, own map[string]string
}

// canonicalResource writes a broker's id in one way: Kafka takes "01" and never uses it.
func canonicalResource(r metadata.ConfigResource) metadata.ConfigResource {
	r.Name = validText(r.Name)
	if id, err := strconv.ParseInt(r.Name, 10, 32); err == nil && r.Type == metadata.BrokerResource {
		r.Name = strconv.FormatInt(id, 10)
	}
	return r
}

// validText is what the text is in the metadata log, which is JSON: UTF-8.
func validText(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

func validValue(value *string) *string {
	if value == nil {
		return nil
	}
	text := validText(*value)
	return &text
}
