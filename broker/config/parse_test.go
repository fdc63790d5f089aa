package config

import (
	"slices"
	"strings"
	"testing"
)

// minimal is what every broker must say.
var minimal = Source{Format: Properties, Name: "minimal", Text: "node.id=1\nlog.dirs=/data\n"}

func flags(pairs ...string) Source { return Source{Format: Flags, Name: "--set", Pairs: pairs} }

func mustParse(t *testing.T, sources ...Source) *Broker {
	t.Helper()
	b, _, err := Parse(append([]Source{minimal}, sources...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestLaterSourcesOverrideEarlierOnes(t *testing.T) {
	properties := Source{Format: Properties, Name: "file", Text: "num.partitions=2\nlog.segment.bytes=2000000\nlog.roll.hours=1\nnum.io.threads=4"}
	yaml := Source{Format: YAML, Name: "yaml", Text: "num.partitions: 3\nlog:\n  segment.bytes: 3000000\n  roll: {hours: 2}\n"}
	environment := Source{Format: Environment, Name: "environment", Pairs: []string{"TIDEMARK_NUM_PARTITIONS=4", "TIDEMARK_LOG_SEGMENT_BYTES=4000000", "HOME=/root"}}
	set := flags("num.partitions=5", "num.partitions=6")

	b := mustParse(t, set, environment, yaml, properties)
	for name, want := range map[string]Setting{
		"num.partitions":      {"num.partitions", "6", "--set"},
		"log.segment.bytes":   {"log.segment.bytes", "4000000", "environment"},
		"log.roll.hours":      {"log.roll.hours", "2", "yaml"},
		"num.io.threads":      {"num.io.threads", "4", "file"},
		"num.network.threads": {"num.network.threads", "3", "default"},
	} {
		i := slices.IndexFunc(b.Settings(), func(s Setting) bool { return s.Name == name })
		if got := b.Settings()[i]; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if b.NumPartitions != 6 {
		t.Errorf("NumPartitions %d", b.NumPartitions)
	}
}

// One setting's name may begin another's.
func TestNamesThatContainEachOtherAreKept(t *testing.T) {
	for _, source := range []Source{
		{Format: Properties, Text: "max.connections=7\nmax.connections.per.ip=5\nmax.connections.per.ip.overrides=10.0.0.1:3,[::1]:4\n"},
		{Format: YAML, Text: "max:\n  connections: 7\n  connections.per.ip: 5\nmax.connections.per.ip.overrides: ['10.0.0.1:3', '[::1]:4']\n"},
		flags("max.connections=7", "max.connections.per.ip=5", "max.connections.per.ip.overrides=10.0.0.1:3,[::1]:4"),
	} {
		b := mustParse(t, source)
		if b.MaxConnections != 7 || b.MaxConnectionsPerIP != 5 || b.MaxConnectionsPerIPOverrides["10.0.0.1"] != 3 || b.MaxConnectionsPerIPOverrides["[::1]"] != 4 {
			t.Errorf("format %d: %d, %d, %v", source.Format, b.MaxConnections, b.MaxConnectionsPerIP, b.MaxConnectionsPerIPOverrides)
		}
	}
}

func TestWrongSettingsAreNamed(t *testing.T) {
	for _, c := range []struct {
		name   string
		source Source
		want   string
	}{
		{"unknown", flags("log.segment.byte=1"), "log.segment.byte is not a known setting; did you mean log.segment.bytes?"},
		{"transposed", flags("nmu.partitions=1"), "did you mean num.partitions?"},
		{"zookeeper", flags("zookeeper.connect=x"), "there is no ZooKeeper"},
		{"roles", flags("process.roles=broker"), "leave it out"},
		{"quorum", flags("controller.quorum.voters=1@x:1"), "there is no controller quorum"},
		{"dynamic only", flags("leader.replication.throttled.rate=5"), "it can only be set while the broker runs"},
		{"value", flags("num.partitions=0"), "Invalid value 0 for configuration num.partitions: Value must be at least 1"},
		{"two ids", flags("broker.id=2"), "node.id is 1 (minimal) but broker.id, its other name, is 2 (--set)"},
		{"no equals sign", flags("num.partitions"), `"num.partitions" is not key=value`},
		{"listener prefix of nothing", flags("listener.name.x.no.such=1"), "is not a known setting"},
		{"listener without protocol", flags("listeners=FOO://:1"), "listener.security.protocol.map has no protocol for FOO"},
		{"listener form", flags("listeners=localhost:9092"), `"localhost:9092" is not NAME://host:port`},
		{"listener port", flags("listeners=PLAINTEXT://:99999"), `"99999" is not a port`},
		{"listener twice", flags("listeners=PLAINTEXT://:1,PLAINTEXT://:2"), "PLAINTEXT is there twice"},
		{"port twice", flags("listeners=PLAINTEXT://:1,SSL://:1"), "PLAINTEXT and SSL have one port"},
		{"advertised to nobody", flags("listeners=PLAINTEXT://0.0.0.0:9092"), "clients cannot connect to 0.0.0.0"},
		{"advertised unknown", flags("advertised.listeners=SSL://h:1"), "SSL is not in listeners"},
		{"lease", flags("lease.ttl.ms=3000", "lease.renew.ms=1500"), "lease.renew.ms must fit twice into lease.ttl.ms less its guard of 1000 ms"},
		{"heartbeat", flags("broker.heartbeat.interval.ms=6000"), "must fit twice"},
		{"retention", flags("log.retention.hours=0"), "log.retention.hours must be unlimited (-1)"},
		{"overrides", flags("max.connections.per.ip.overrides=h:x"), `"x" of h is not a count`},
		{"yaml", Source{Format: YAML, Name: "b.yaml", Text: "a: [b"}, "b.yaml: "},
		{"yaml scalar", Source{Format: YAML, Name: "b.yaml", Text: "hello"}, "expected names and values"},
		{"yaml twice", Source{Format: YAML, Name: "b.yaml", Text: "num.partitions: 1\nnum:\n  partitions: 2\n"}, "num.partitions is set twice"},
		{"price", flags("tier.price.put=-1"), "Value must be at least 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := Parse([]Source{minimal, c.source})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v does not say %q", err, c.want)
			}
		})
	}
}

func TestAllErrorsAreReportedAtOnce(t *testing.T) {
	_, _, err := Parse([]Source{flags("nope=1", "num.partitions=x")})
	for _, want := range []string{"nope", "num.partitions", "node.id is not set"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
}

func TestDataDirectoryMustBeNamed(t *testing.T) {
	_, _, err := Parse([]Source{flags("node.id=1")})
	if err == nil || !strings.Contains(err.Error(), "log.dirs is not set") {
		t.Errorf("error %v", err)
	}
	b, _, err := Parse([]Source{flags("broker.id=7", "log.dir=/one")})
	if err != nil || b.NodeID != 7 || !slices.Equal(b.LogDirs, []string{"/one"}) {
		t.Errorf("node %d, directories %v, error %v", b.NodeID, b.LogDirs, err)
	}
}

// What is known and changes nothing is said once; what an orchestrator puts into the environment does not stop the broker.
func TestSettingsWithoutEffectAreWarnedOf(t *testing.T) {
	_, warnings, err := Parse([]Source{
		minimal,
		flags("num.io.threads=4", "listener.name.plaintext.ssl.client.auth=none", "tier.price.put=0.005"),
		{Format: Environment, Name: "environment", Pairs: []string{"TIDEMARK_SERVICE_HOST=10.0.0.1", "TIDEMARK_BOOTSTRAP=x", "TIDEMARK_TEST_S3=y"}},
	})
	want := []string{
		"environment: TIDEMARK_SERVICE_HOST is not a setting and is left out (the nearest is tier.price.get)",
		"known, but without effect in this version: listener.name.plaintext.ssl.client.auth, num.io.threads",
	}
	if err != nil || !slices.Equal(warnings, want) {
		t.Errorf("warnings %q, error %v", warnings, err)
	}
}

func TestListeners(t *testing.T) {
	b := mustParse(t, flags(
		"listeners=PLAINTEXT://127.0.0.1:9092,OUT://[::1]:9093",
		"advertised.listeners=OUT://broker.example:443,PLAINTEXT://a:1",
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OUT:SASL_SSL",
	))
	want := []Listener{{"PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092}, {"OUT", "SASL_SSL", "::1", 9093}}
	if !slices.Equal(b.Listeners, want) {
		t.Errorf("listeners %v", b.Listeners)
	}
	if want := []Listener{{"PLAINTEXT", "PLAINTEXT", "a", 1}, {"OUT", "SASL_SSL", "broker.example", 443}}; !slices.Equal(b.AdvertisedListeners, want) {
		t.Errorf("advertised %v", b.AdvertisedListeners)
	}
	if got := b.Listeners[1].String(); got != "OUT://[::1]:9093" {
		t.Errorf("listener reads %s", got)
	}
	if got := b.ClusterListener.Address(); got != "0.0.0.0:9093" {
		t.Errorf("cluster listener %s", got)
	}
}

func TestSecretsAreHidden(t *testing.T) {
	b := mustParse(t, flags("metadata.key=hunter2", "listener.name.x.ssl.keystore.password=hunter2"))
	for _, s := range b.Settings() {
		if strings.Contains(s.Value, "hunter2") {
			t.Errorf("%s shows its value", s.Name)
		}
	}
	for _, e := range DescribeBroker(b) {
		if e.Value != nil && strings.Contains(*e.Value, "hunter2") {
			t.Errorf("%s is described with its value", e.Name)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("node.id=1\nlog.dirs=/d", "log:\n  roll: {hours: 2}\n", "num.partitions=2")
	f.Add("a\\u00", "&a [*a]", "=")
	f.Fuzz(func(t *testing.T, properties, yaml, flag string) {
		b, _, err := Parse([]Source{{Format: Properties, Text: properties}, {Format: YAML, Text: yaml}, flags(flag)})
		if (b == nil) == (err == nil) {
			t.Errorf("broker %v with error %v", b, err)
		}
	})
}
