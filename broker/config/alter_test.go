package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

func set(name, value string) Op { return Op{Type: Set, Name: name, Value: &value} }

// apply is Apply and the judgement of the outcome, as an AlterConfigs request goes.
func apply(b *Broker, resource Resource, current map[string]string, ops ...Op) (map[string]string, error) {
	next, err := Apply(resource, current, ops)
	if err != nil {
		return nil, err
	}
	switch resource {
	case ResourceTopic:
		err = ValidateTopic(b, current, next)
	case ResourceBroker:
		err = ValidateBroker(b, next, true)
	case ResourceGroup:
		err = ValidateGroup(b, next)
	case ResourceClientMetrics:
		err = ValidateClientMetrics(next)
	case ResourceBrokerLogger:
	}
	return next, err
}

// Codes and texts as measured on the reference.
func TestBadChangesGetKafkasCodeAndText(t *testing.T) {
	b := mustParse(t, flags("remote.log.storage.system.enable=true"))
	plain := mustParse(t, flags("tier.enable=false"))
	null := Op{Type: Set, Name: "retention.ms"}
	value := "5"
	for _, c := range []struct {
		name     string
		broker   *Broker
		resource Resource
		ops      []Op
		code     wire.Code
		text     string
	}{
		{"BO-043 bad enum", plain, ResourceTopic, []Op{set("compression.type", "foo")}, wire.InvalidConfig, "Invalid value foo for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"},
		{"BO-043 bad list member", plain, ResourceTopic, []Op{set("cleanup.policy", "Compact")}, wire.InvalidConfig, "Invalid value Compact for configuration cleanup.policy: String must be one of: compact, delete"},
		{"BO-043 bad number", plain, ResourceTopic, []Op{set("retention.ms", "abc")}, wire.InvalidConfig, "Invalid value abc for configuration retention.ms: Not a number of type LONG"},
		{"BO-044 unknown topic setting", plain, ResourceTopic, []Op{set("prefix", "x")}, wire.InvalidConfig, "Unknown topic config name: prefix"},
		{"segment floor", plain, ResourceTopic, []Op{set("segment.bytes", "3")}, wire.InvalidConfig, "Invalid value 3 for configuration segment.bytes: Value must be at least 1048576"},
		{"null", plain, ResourceTopic, []Op{null}, wire.InvalidRequest, "Null value not supported for : retention.ms"},
		{"unknown operation", plain, ResourceTopic, []Op{{Type: 9, Name: "retention.ms", Value: &value}}, wire.UnknownServerError, "Unknown operation 9"},
		{"twice", plain, ResourceTopic, []Op{set("retention.ms", "5"), set("retention.ms", "6")}, wire.InvalidRequest, "Error due to duplicate config keys"},
		{"BO-046 append to a number", plain, ResourceTopic, []Op{{Type: Append, Name: "retention.ms", Value: &value}}, wire.InvalidConfig, "Can't APPEND to key retention.ms because its type is not LIST."},
		{"subtract from a number", plain, ResourceTopic, []Op{{Type: Subtract, Name: "retention.ms", Value: &value}}, wire.InvalidConfig, "Can't SUBTRACT to key retention.ms because its type is not LIST."},
		{"lags", plain, ResourceTopic, []Op{set("min.compaction.lag.ms", "10"), set("max.compaction.lag.ms", "5")}, wire.InvalidConfig, "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"},
		{"tier off", plain, ResourceTopic, []Op{set("remote.storage.enable", "true")}, wire.InvalidConfig, "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."},
		{"local above total", b, ResourceTopic, []Op{set("remote.storage.enable", "true"), set("retention.ms", "5"), set("local.retention.ms", "6")}, wire.InvalidConfig, "Invalid value 6 for configuration local.retention.ms: Value must not be more than retention.ms property value: 5"},
		{"local unlimited", b, ResourceTopic, []Op{set("remote.storage.enable", "true"), set("retention.bytes", "5"), set("local.retention.bytes", "-1")}, wire.InvalidConfig, "Invalid value -1 for configuration local.retention.bytes: Value must not be -1 as retention.bytes value is set as 5."},
		{"lag above local", b, ResourceTopic, []Op{set("remote.storage.enable", "true"), set("local.retention.ms", "5"), set("remote.copy.lag.ms", "6")}, wire.InvalidConfig, "Invalid value 6 for configuration remote.copy.lag.ms: Value must not exceed local.retention.ms (effective value: 5)"},

		{"read-only", plain, ResourceBroker, []Op{set("log.dirs", "x"), set("broker.id", "5")}, wire.InvalidRequest, "Cannot update these configs dynamically: [broker.id, log.dirs]"},
		{"bad broker number", plain, ResourceBroker, []Op{set("num.io.threads", "x")}, wire.InvalidRequest, "Invalid value x for configuration num.io.threads: Not a number of type INT"},
		{"too many threads", plain, ResourceBroker, []Op{set("num.io.threads", "100")}, wire.InvalidRequest, "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation failed for num.io.threads=100, value should not be greater than double the current value 8 for configuration Invalid dynamic configuration"},
		{"too few threads", plain, ResourceBroker, []Op{set("num.io.threads", "1")}, wire.InvalidRequest, "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation failed for num.io.threads=1, value should be at least half the current value 8 for configuration Invalid dynamic configuration"},
		{"key store", plain, ResourceBroker, []Op{set("ssl.keystore.location", "x")}, wire.InvalidRequest, "These security configs can be dynamically updated only per-listener using the listener prefix: [ssl.keystore.location]"},
		{"roll time of zero", plain, ResourceBroker, []Op{set("log.roll.ms", "0")}, wire.InvalidRequest, "requirement failed: log.roll.ms must be greater than or equal to 1"},
		{"negative jitter", plain, ResourceBroker, []Op{set("log.roll.jitter.ms", "-9")}, wire.InvalidRequest, "requirement failed: log.roll.jitter.ms must be greater than or equal to 0"},
		{"retention of zero", plain, ResourceBroker, []Op{set("log.retention.ms", "0")}, wire.InvalidRequest, "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1"},
		{"append to a broker number", plain, ResourceBroker, []Op{{Type: Append, Name: "num.io.threads", Value: &value}}, wire.InvalidConfig, "Config value append is not allowed for config key: num.io.threads"},
		{"append to the unknown", plain, ResourceBroker, []Op{{Type: Append, Name: "no.such.thing", Value: &value}}, wire.InvalidConfig, "Unknown config name: no.such.thing"},

		{"unknown group setting", plain, ResourceGroup, []Op{set("no.such.config", "1")}, wire.InvalidConfig, "Unknown group config name: no.such.config"},
		{"group range", plain, ResourceGroup, []Op{set("consumer.session.timeout.ms", "1")}, wire.InvalidConfig, "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive."},
		{"group number", plain, ResourceGroup, []Op{set("consumer.session.timeout.ms", "x")}, wire.InvalidConfig, "Invalid value x for configuration consumer.session.timeout.ms: Not a number of type INT"},
		{"group maximum", plain, ResourceGroup, []Op{set("streams.num.standby.replicas", "3")}, wire.InvalidConfig, "streams.num.standby.replicas must be less than or equal to 2"},
		{"assignor", plain, ResourceGroup, []Op{set("streams.assignor.name", "nope")}, wire.InvalidConfig, "streams.assignor.name 'nope' is not a registered task assignor. Registered assignors are: [sticky]."},
		{"dead letters", plain, ResourceGroup, []Op{set("errors.deadletterqueue.topic.name", "__x")}, wire.InvalidConfig, "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'"},

		{"unknown metrics setting", plain, ResourceClientMetrics, []Op{set("no.such.config", "1")}, wire.InvalidRequest, "Unknown client metrics configuration: no.such.config"},
		{"metrics interval", plain, ResourceClientMetrics, []Op{set("interval.ms", "1")}, wire.InvalidRequest, "Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)"},
		{"metrics pattern", plain, ResourceClientMetrics, []Op{set("match", "client_id=[")}, wire.InvalidConfig, "Illegal client matching pattern: client_id=["},
		{"metrics key", plain, ResourceClientMetrics, []Op{set("match", "foo=bar")}, wire.InvalidConfig, "Illegal client matching pattern: foo=bar"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := apply(c.broker, c.resource, nil, c.ops...)
			var e *wire.Error
			if !errors.As(err, &e) || e.Code != c.code || e.Message != c.text {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestOddChangesThatKafkaTakes(t *testing.T) {
	b := mustParse(t)
	for _, c := range []struct {
		resource Resource
		op       Op
	}{
		{ResourceTopic, set("cleanup.policy", "")},
		{ResourceTopic, set("cleanup.policy", "delete,delete")},
		{ResourceTopic, set("preallocate", "TRUE")},
		{ResourceTopic, Op{Type: Delete, Name: "no.such.config"}},
		{ResourceBroker, set("no.such.config", "x")},
		{ResourceBroker, set("listener.name.x.ssl.keystore.location", "x")},
		{ResourceBroker, set("leader.replication.throttled.rate", "5000")},
		{ResourceBroker, set("num.io.threads", "16")},
		{ResourceClientMetrics, set("match", "client_id=a.*, client_software_name=b")},
	} {
		if _, err := apply(b, c.resource, nil, c.op); err != nil {
			t.Errorf("%s: %v", c.op.Name, err)
		}
	}
}

// A broker that takes no connections could not be told otherwise.
func TestABrokerIsNotShutAgainstAllClients(t *testing.T) {
	b := mustParse(t)
	for _, perBroker := range []bool{false, true} {
		for name, text := range map[string]string{
			"max.connections":              "Invalid value org.apache.kafka.common.config.ConfigException: Invalid max.connections 0 for configuration Invalid dynamic configuration",
			"max.connection.creation.rate": "Invalid value org.apache.kafka.common.config.ConfigException: Invalid max.connection.creation.rate 0 for configuration Invalid dynamic configuration",
			"max.connections.per.ip":       "requirement failed: max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
		} {
			err := ValidateBroker(b, map[string]string{name: "0"}, perBroker)
			if wire.CodeOf(err) != wire.InvalidRequest || *wire.MessageOf(err) != text {
				t.Errorf("got %v", err)
			}
			if err := ValidateBroker(b, map[string]string{name: "1"}, perBroker); err != nil {
				t.Errorf("got %v", err)
			}
		}
		own := map[string]string{"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:9"}
		if err := ValidateBroker(b, own, perBroker); err != nil {
			t.Errorf("got %v", err)
		}
	}
}

func TestPerBrokerSettingsAreRefusedForAll(t *testing.T) {
	err := ValidateBroker(mustParse(t), map[string]string{"ssl.protocol": "x"}, false)
	if wire.CodeOf(err) != wire.InvalidRequest || *wire.MessageOf(err) != "Cannot update these configs at default cluster level, broker id must be specified: [ssl.protocol]" {
		t.Errorf("got %v", err)
	}
}

func TestTieringIsNotSwitchedOffByAccident(t *testing.T) {
	b := mustParse(t, flags("tier.enable=false", "remote.log.storage.system.enable=true"))
	tiered := map[string]string{"remote.storage.enable": "true"}
	if err := ValidateTopic(b, tiered, map[string]string{"remote.storage.enable": "false"}); wire.CodeOf(err) != wire.InvalidConfig {
		t.Errorf("got %v", err)
	}
	if err := ValidateTopic(b, tiered, map[string]string{"remote.log.delete.on.disable": "true"}); err != nil {
		t.Errorf("got %v", err)
	}
}

// Kafka has no default that tiers topics; where there is one, a topic that says nothing of itself is tiered as one that says true.
func TestTieringByDefaultIsNotSwitchedOffByAccident(t *testing.T) {
	const off, deletes = "remote.storage.enable", "remote.log.delete.on.disable"
	byDefault, plain := mustParse(t, flags("tier.enable=true")), mustParse(t, flags("tier.enable=false"))
	for name, c := range map[string]struct {
		b              *Broker
		existing, next map[string]string
		refused        bool
	}{
		"a topic that says nothing":          {byDefault, map[string]string{}, map[string]string{off: "false"}, true},
		"it gives up what the bucket has":    {byDefault, map[string]string{}, map[string]string{off: "false", deletes: "true"}, false},
		"a new topic":                        {byDefault, nil, map[string]string{off: "false"}, false},
		"a topic that has never been":        {byDefault, map[string]string{off: "false"}, map[string]string{off: "false", "retention.ms": "1"}, false},
		"without the tier":                   {plain, map[string]string{}, map[string]string{off: "false"}, false},
		"something else is changed":          {byDefault, map[string]string{}, map[string]string{"retention.ms": "1"}, false},
		"it said false, and says no more so": {byDefault, map[string]string{off: "false"}, map[string]string{}, false},
	} {
		if err := ValidateTopic(c.b, c.existing, c.next); (wire.CodeOf(err) == wire.InvalidConfig) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A list does not grow past what an answer can hold, however often it is appended to.
func TestListsDoNotGrowWithoutEnd(t *testing.T) {
	long, more := strings.Repeat("0:1,", math.MaxInt16/4)+"0:2", "0:3"
	current := map[string]string{"leader.replication.throttled.replicas": long}
	_, err := Apply(ResourceTopic, current, []Op{{Type: Append, Name: "leader.replication.throttled.replicas", Value: &more}})
	if wire.CodeOf(err) != wire.InvalidConfig {
		t.Errorf("%d bytes and %d more: %v", len(long), len(more), err)
	}
}

// The controller judges nothing else meanwhile.
func TestLongListsAreLinear(t *testing.T) {
	const members = 60_000
	text := func(first int) string {
		var b strings.Builder
		for i := range members {
			fmt.Fprintf(&b, ",%06d", first+i)
		}
		return b.String()[1:]
	}
	current, more := text(0), text(members)
	policy, _ := Lookup(ResourceTopic, "cleanup.policy")
	began := time.Now()
	if got := changeList(current, Op{Type: Append, Value: &more}); len(got) != 2*len(current)+1 {
		t.Errorf("%d bytes appended to %d are %d", len(more), len(current), len(got))
	}
	if got := changeList(current, Op{Type: Subtract, Value: &current}); got != "" {
		t.Errorf("%d bytes are left", len(got))
	}
	if _, err := policy.Normalize(current); err == nil {
		t.Error("no policy is taken for one")
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("it took %s", took)
	}
}

// A pattern of a few bytes may stand for a large program.
func TestPatternsAreNotCompiledToBeJudged(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := ValidateClientMetrics(map[string]string{"match": "client_id=" + strings.Repeat("a{1000}", 2300)})
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; err != nil || n > 16<<20 {
		t.Errorf("%d bytes are allocated, %v", n, err)
	}
}

// BO-046: AlterConfigs replaces, IncrementalAlterConfigs touches what it names, APPEND and SUBTRACT change lists.
func TestBO046ChangesTouchWhatTheyName(t *testing.T) {
	current := map[string]string{"retention.ms": "5", "segment.bytes": "2000000", "cleanup.policy": "delete"}
	member := func(op OpType, name, value string) Op { return Op{Type: op, Name: name, Value: &value} }
	for _, c := range []struct {
		name    string
		current map[string]string
		ops     []Op
		want    map[string]string
	}{
		{"replace", nil, []Op{set("retention.ms", "7")}, map[string]string{"retention.ms": "7"}},
		{"set", current, []Op{set("retention.ms", "7")}, map[string]string{"retention.ms": "7", "segment.bytes": "2000000", "cleanup.policy": "delete"}},
		{"delete", current, []Op{{Type: Delete, Name: "retention.ms"}}, map[string]string{"segment.bytes": "2000000", "cleanup.policy": "delete"}},
		{"append", map[string]string{"cleanup.policy": "delete"}, []Op{member(Append, "cleanup.policy", "compact")}, map[string]string{"cleanup.policy": "delete,compact"}},
		{"append what is there", map[string]string{"cleanup.policy": "delete"}, []Op{member(Append, "cleanup.policy", "delete")}, map[string]string{"cleanup.policy": "delete"}},
		{"append to the default", nil, []Op{member(Append, "cleanup.policy", "compact")}, map[string]string{"cleanup.policy": "delete,compact"}},
		{"append to nothing", nil, []Op{member(Append, "leader.replication.throttled.replicas", "0:1,1:1")}, map[string]string{"leader.replication.throttled.replicas": "0:1,1:1"}},
		{"append with commas behind it", map[string]string{"cleanup.policy": "delete"}, []Op{member(Append, "cleanup.policy", "compact,,")}, map[string]string{"cleanup.policy": "delete,compact"}},
		{"append commas alone", map[string]string{"cleanup.policy": "delete"}, []Op{member(Append, "cleanup.policy", ",")}, map[string]string{"cleanup.policy": "delete"}},
		{"append to repetitions", map[string]string{"cleanup.policy": "delete,delete"}, []Op{member(Append, "cleanup.policy", "compact,compact")}, map[string]string{"cleanup.policy": "delete,delete,compact"}},
		{"subtract", map[string]string{"cleanup.policy": "delete,compact"}, []Op{member(Subtract, "cleanup.policy", "delete")}, map[string]string{"cleanup.policy": "compact"}},
		{"subtract one of two", map[string]string{"cleanup.policy": "delete,compact,delete"}, []Op{member(Subtract, "cleanup.policy", "delete")}, map[string]string{"cleanup.policy": "compact,delete"}},
		{"subtract two", map[string]string{"cleanup.policy": "delete,compact,delete"}, []Op{member(Subtract, "cleanup.policy", "delete,delete")}, map[string]string{"cleanup.policy": "compact"}},
		{"subtract what is not there", map[string]string{"cleanup.policy": "compact"}, []Op{member(Subtract, "cleanup.policy", "nonsense")}, map[string]string{"cleanup.policy": "compact"}},
	} {
		before := maps.Clone(c.current)
		got, err := Apply(ResourceTopic, c.current, c.ops)
		if err != nil || !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
		if !maps.Equal(before, c.current) {
			t.Errorf("%s: the current overrides changed", c.name)
		}
	}
}

// BO-044 and BO-045: every topic setting that is described can be sent back.
func TestBO045WhatIsDescribedCanBeSentBack(t *testing.T) {
	b := mustParse(t)
	var ops []Op
	for _, e := range DescribeTopic(b, map[string]string{"compressed.batch.validation": "full"}) {
		if e.ReadOnly || e.Value == nil {
			t.Errorf("%s cannot be sent back", e.Name)
			continue
		}
		ops = append(ops, set(e.Name, *e.Value))
	}
	if len(ops) != 38 {
		t.Errorf("%d settings are described", len(ops))
	}
	next, err := apply(b, ResourceTopic, nil, ops...)
	if err != nil {
		t.Fatal(err)
	}
	was, _ := ResolveTopic(b, map[string]string{"compressed.batch.validation": "full"})
	is, err := ResolveTopic(b, next)
	if err != nil || !equalTopics(was, is) {
		t.Errorf("sent back, the topic became %+v, %v", is, err)
	}
}
