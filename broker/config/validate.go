package config

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// ValidateTopic judges the overrides that a topic shall have; existing are those that it has, nil (and not empty) for a new topic. Errors
// are INVALID_CONFIG with Kafka's texts.
func ValidateTopic(b *Broker, existing, next map[string]string) error {
	for _, name := range sortedKeys(next) {
		if _, known := Lookup(ResourceTopic, name); !known {
			return wire.NewError(wire.InvalidConfig, "Unknown topic config name: "+name)
		}
	}
	texts := make(topicTexts)
	for _, d := range Definitions(ResourceTopic) {
		text, err := b.topicText(d, next)
		if err != nil {
			return wire.NewError(wire.InvalidConfig, err.Error())
		}
		texts[d.Name] = text
	}
	t := texts.topic()
	if t.MinCompactionLagMs > t.MaxCompactionLagMs {
		return wire.NewError(wire.InvalidConfig, fmt.Sprintf("conflict topic config setting min.compaction.lag.ms (%d) > max.compaction.lag.ms (%d)",
			t.MinCompactionLagMs, t.MaxCompactionLagMs))
	}
	if t.RemoteStorageEnable {
		return b.validateTiered(t)
	}
	if existing != nil && b.tiered(existing) && !t.RemoteLogDeleteOnDisable {
		return wire.NewError(wire.InvalidConfig, "It is invalid to disable remote storage without deleting remote data. "+
			"If you want to keep the remote data and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. "+
			"If you want to disable remote storage and delete all remote data, please set `remote.storage.enable=false,remote.log.delete.on.disable=true`.")
	}
	return nil
}

// tiered tells whether a topic with these overrides is tiered: because they say so, or by default.
func (b *Broker) tiered(overrides map[string]string) bool {
	d, _ := Lookup(ResourceTopic, "remote.storage.enable")
	text, err := b.topicText(d, overrides)
	return err == nil && text == "true"
}

// validateTiered judges a topic with remote.storage.enable. Kafka tiers no compacted topics; Tidemark does.
func (b *Broker) validateTiered(t Topic) error {
	if !b.TierEnable && b.values["remote.log.storage.system.enable"] != "true" {
		return wire.NewError(wire.InvalidConfig, "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.")
	}
	for _, limit := range []struct {
		local, total, lag string
		localMax, max     int64
		lagMax            int64
	}{
		{"local.retention.bytes", "retention.bytes", "remote.copy.lag.bytes", t.LocalRetentionBytes, t.RetentionBytes, t.RemoteCopyLagBytes},
		{"local.retention.ms", "retention.ms", "remote.copy.lag.ms", t.LocalRetentionMs, t.RetentionMs, t.RemoteCopyLagMs},
	} {
		local := limit.localMax
		if local == -2 {
			local = limit.max
		} else if limit.max > -1 && local == -1 {
			return invalidTopic(limit.local, local, fmt.Sprintf("Value must not be -1 as %s value is set as %d.", limit.total, limit.max))
		} else if limit.max > -1 && local > limit.max {
			return invalidTopic(limit.local, local, fmt.Sprintf("Value must not be more than %s property value: %d", limit.total, limit.max))
		}
		if limit.lagMax > 0 && local >= 0 && limit.lagMax > local {
			return invalidTopic(limit.lag, limit.lagMax, fmt.Sprintf("Value must not exceed %s (effective value: %d)", limit.local, local))
		}
		if t.RemoteLogCopyDisable && limit.localMax != -2 && limit.localMax != limit.max {
			return wire.NewError(wire.InvalidConfig, fmt.Sprintf("When `remote.log.copy.disable` is set to true, the `%s` and `%s` "+
				"must be set to the identical value because there will be no more logs copied to the remote storage.", limit.local, limit.total))
		}
	}
	return nil
}

func invalidTopic(name string, value int64, why string) error {
	return wire.NewError(wire.InvalidConfig, invalid(name, strconv.FormatInt(value, 10), why).Error())
}

// ValidateBroker judges the dynamic overrides that one broker (perBroker) or all of them shall have, on the broker b that is
// asked. Unknown names pass, as in Kafka, where they may be meant for a plug-in. Errors are INVALID_REQUEST with Kafka's texts.
func ValidateBroker(b *Broker, next map[string]string, perBroker bool) error {
	var fixed, secret, single []string
	for _, name := range sortedKeys(next) {
		d, known := Lookup(ResourceBroker, name)
		switch {
		case !known:
		case d.Mode == ReadOnly:
			fixed = append(fixed, name)
		case perListenerOnly.MatchString(name):
			secret = append(secret, name)
		case d.Mode == PerBroker && !perBroker:
			single = append(single, name)
		}
	}
	if err := refuse(fixed, "Cannot update these configs dynamically"); err != nil {
		return err
	}
	if err := refuse(secret, "These security configs can be dynamically updated only per-listener using the listener prefix"); err != nil {
		return err
	}
	for _, name := range sortedKeys(next) {
		if d, known := brokerDefinition(name); known {
			if _, err := d.Normalize(next[name]); err != nil {
				return wire.NewError(wire.InvalidRequest, err.Error())
			}
		}
	}
	if err := refuse(single, "Cannot update these configs at default cluster level, broker id must be specified"); err != nil {
		return err
	}
	cluster, broker := b.cluster, b.broker
	if perBroker {
		broker = next
	} else {
		cluster = next
	}
	after, err := b.WithDynamic(cluster, broker)
	if err != nil {
		return wire.NewError(wire.InvalidRequest, "requirement failed: "+err.Error())
	}
	if err := validateConnections(after); err != nil {
		return err
	}
	return validateThreads(b, after)
}

// validateConnections keeps a broker from being shut against all clients, who then could not open it again.
func validateConnections(after *Broker) error {
	for _, name := range []string{"max.connections", "max.connection.creation.rate"} {
		if after.values[name] == "0" {
			return refuseChange("Invalid " + name + " 0")
		}
	}
	return nil
}

// refuseChange is how Kafka words what a part of the broker has against its new settings.
func refuseChange(why string) error {
	return wire.NewError(wire.InvalidRequest,
		"Invalid value org.apache.kafka.common.config.ConfigException: "+why+" for configuration Invalid dynamic configuration")
}

var perListenerOnly = regexp.MustCompile(`^ssl\.(?:keystore\.(?:type|location|password|key|certificate\.chain)|key\.password|truststore\.(?:type|location|password|certificates))$`)

func refuse(names []string, why string) error {
	if len(names) == 0 {
		return nil
	}
	return wire.NewError(wire.InvalidRequest, why+": ["+strings.Join(names, ", ")+"]")
}

// validateThreads holds a thread pool between half and double of what it was, as Kafka does at one step.
func validateThreads(before, after *Broker) error {
	for _, name := range []string{"num.io.threads", "num.network.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir", "background.threads"} {
		was, _ := strconv.Atoi(before.values[name])
		is, _ := strconv.Atoi(after.values[name])
		var why string
		switch {
		case is < was/2:
			why = fmt.Sprintf("value should be at least half the current value %d", was)
		case is > was*2:
			why = fmt.Sprintf("value should not be greater than double the current value %d", was)
		default:
			continue
		}
		return refuseChange(fmt.Sprintf("Dynamic thread count update validation failed for %s=%d, %s", name, is, why))
	}
	return nil
}

// ValidateGroup judges the overrides that a group shall have. Errors are INVALID_CONFIG with Kafka's texts.
func ValidateGroup(b *Broker, next map[string]string) error {
	for _, name := range sortedKeys(next) {
		d, known := Lookup(ResourceGroup, name)
		if !known {
			return wire.NewError(wire.InvalidConfig, "Unknown group config name: "+name)
		}
		if _, err := d.Normalize(next[name]); err != nil {
			return wire.NewError(wire.InvalidConfig, err.Error())
		}
	}
	for _, rule := range groupRanges {
		if _, set := next[rule.name]; set {
			if err := rule.check(b, b.groupNumber(rule.name, next)); err != nil {
				return wire.NewError(wire.InvalidConfig, err.Error())
			}
		}
	}
	if assignor, set := next["streams.assignor.name"]; set {
		if known := SplitList(b.values["group.streams.assignors"]); !slices.Contains(known, assignor) {
			return wire.NewError(wire.InvalidConfig, fmt.Sprintf("streams.assignor.name '%s' is not a registered task assignor. Registered assignors are: [%s].",
				assignor, strings.Join(known, ", ")))
		}
	}
	for _, kind := range []string{"consumer", "share", "streams"} {
		session, heartbeat := kind+".session.timeout.ms", kind+".heartbeat.interval.ms"
		if b.groupNumber(session, next) <= b.groupNumber(heartbeat, next) {
			return wire.NewError(wire.InvalidConfig, session+" must be greater than "+heartbeat)
		}
	}
	if strings.HasPrefix(next["errors.deadletterqueue.topic.name"], "__") {
		return wire.NewError(wire.InvalidConfig, "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'")
	}
	return nil
}

func (b *Broker) groupNumber(name string, overrides map[string]string) int64 {
	d, _ := Lookup(ResourceGroup, name)
	n, _ := strconv.ParseInt(b.groupText(d, overrides), 10, 64)
	return n
}

// groupRange holds a group setting between two broker settings; an empty low is no bound.
type groupRange struct{ name, low, high string }

func (g groupRange) check(b *Broker, value int64) error {
	high, _ := strconv.ParseInt(b.values[g.high], 10, 64)
	if g.low == "" {
		if value > high {
			return fmt.Errorf("%s must be less than or equal to %d", g.name, high)
		}
		return nil
	}
	low, _ := strconv.ParseInt(b.values[g.low], 10, 64)
	if value < low || value > high {
		return fmt.Errorf("%s must be in the range %d to %d inclusive.", g.name, low, high) //nolint:staticcheck,revive // Kafka's own text
	}
	return nil
}

var groupRanges = []groupRange{
	{"consumer.heartbeat.interval.ms", "group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"},
	{"consumer.session.timeout.ms", "group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"},
	{"consumer.assignment.interval.ms", "group.consumer.min.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"},
	{"share.heartbeat.interval.ms", "group.share.min.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"},
	{"share.session.timeout.ms", "group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"},
	{"share.record.lock.duration.ms", "group.share.min.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"},
	{"share.delivery.count.limit", "group.share.min.delivery.count.limit", "group.share.max.delivery.count.limit"},
	{"share.partition.max.record.locks", "group.share.min.partition.max.record.locks", "group.share.max.partition.max.record.locks"},
	{"share.assignment.interval.ms", "group.share.min.assignment.interval.ms", "group.share.max.assignment.interval.ms"},
	{"streams.heartbeat.interval.ms", "group.streams.min.heartbeat.interval.ms", "group.streams.max.heartbeat.interval.ms"},
	{"streams.session.timeout.ms", "group.streams.min.session.timeout.ms", "group.streams.max.session.timeout.ms"},
	{"streams.num.standby.replicas", "", "group.streams.max.standby.replicas"},
	{"streams.assignment.interval.ms", "group.streams.min.assignment.interval.ms", "group.streams.max.assignment.interval.ms"},
}

// The bounds of a client metrics subscription's interval.ms (KIP-714).
const (
	clientMetricsIntervalMin = 100
	clientMetricsIntervalMax = 3_600_000
)

// ValidateClientMetrics judges the overrides that a client metrics subscription shall have; texts and codes are Kafka's.
func ValidateClientMetrics(next map[string]string) error {
	for _, name := range sortedKeys(next) {
		d, known := Lookup(ResourceClientMetrics, name)
		if !known {
			return wire.NewError(wire.InvalidRequest, "Unknown client metrics configuration: "+name)
		}
		if _, err := d.Normalize(next[name]); err != nil {
			return wire.NewError(wire.InvalidConfig, err.Error())
		}
	}
	if text, set := next["interval.ms"]; set {
		if n, _ := strconv.Atoi(trim(text)); n < clientMetricsIntervalMin || n > clientMetricsIntervalMax {
			return wire.NewError(wire.InvalidRequest, fmt.Sprintf("Invalid value %s for interval.ms, interval must be between %d and %d (1 hour)",
				text, clientMetricsIntervalMin, clientMetricsIntervalMax))
		}
	}
	for _, pair := range SplitList(next["match"]) {
		key, pattern, ok := strings.Cut(pair, "=")
		_, err := syntax.Parse(strings.TrimSpace(pattern), syntax.Perl) // a{1000} of 7 bytes compiles to a thousand instructions
		if !ok || err != nil || !slices.Contains(matchKeys, strings.TrimSpace(key)) {
			return wire.NewError(wire.InvalidConfig, "Illegal client matching pattern: "+pair)
		}
	}
	return nil
}

var matchKeys = []string{"client_instance_id", "client_id", "client_software_name", "client_software_version", "client_source_address", "client_source_port"}
