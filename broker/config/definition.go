package config

import (
	"slices"
	"strings"
)

// Type is a setting's type; the numbers are those of ConfigType in DescribeConfigs.
type Type int8

// The types.
const (
	Unknown  Type = 0
	Boolean  Type = 1
	String   Type = 2
	Int      Type = 3
	Short    Type = 4
	Long     Type = 5
	Double   Type = 6
	List     Type = 7
	Class    Type = 8
	Password Type = 9
)

// String is the type's name as Kafka's messages write it.
func (t Type) String() string {
	return [...]string{"UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"}[t]
}

// Mode says whether and where a broker setting can change while the broker runs.
type Mode int8

// The modes.
const (
	ReadOnly    Mode = iota // needs a restart
	PerBroker               // for one broker by name
	ClusterWide             // for one broker or for all
)

// Resource is what settings belong to; the numbers are those of ConfigResource.Type.
type Resource int8

// The resources.
const (
	ResourceTopic         Resource = 2
	ResourceBroker        Resource = 4
	ResourceBrokerLogger  Resource = 8
	ResourceClientMetrics Resource = 16
	ResourceGroup         Resource = 32
)

// Definition is what is known of one setting.
type Definition struct {
	Name    string
	Type    Type
	Default string // in the text that DescribeConfigs shows; Null says that there is none
	Mode    Mode   // of broker settings; topic, group and client-metrics settings can always change
	Doc     string // one sentence for people

	check       check
	synonym     string // the broker setting that a topic or group setting falls back to
	dynamicOnly bool   // accepted by AlterConfigs, not in a file
	own         bool   // Tidemark's, unknown to Kafka
}

// Null is the Default of a setting without one.
const Null = "null"

const (
	maxInt  = "2147483647"
	maxLong = "9223372036854775807"
)

// Sensitive tells whether the value is never shown.
func (d *Definition) Sensitive() bool { return d.Type == Password }

// define makes a broker setting.
func define(name string, t Type, def string, c check, mode Mode, doc string) Definition {
	return Definition{Name: name, Type: t, Default: def, Mode: mode, Doc: doc, check: c}
}

// dynamicOnly makes a broker setting that a file cannot hold.
func dynamicOnly(name string, t Type, def string, c check, doc string) Definition {
	return Definition{Name: name, Type: t, Default: def, Mode: ClusterWide, Doc: doc, check: c, dynamicOnly: true}
}

// override makes a topic or group setting; synonym is the broker setting that it overrides, if any.
func override(name string, t Type, def string, c check, synonym, doc string) Definition {
	return Definition{Name: name, Type: t, Default: def, Mode: ClusterWide, Doc: doc, check: c, synonym: synonym}
}

// own makes one of Tidemark's settings.
func own(d Definition) Definition {
	d.own = true
	return d
}

// Definitions lists a resource's settings by name.
func Definitions(resource Resource) []*Definition { return tables[resource].sorted }

// Lookup finds a setting by its exact name.
func Lookup(resource Resource, name string) (*Definition, bool) {
	d, ok := tables[resource].byName[name]
	return d, ok
}

// table is the definitions of one resource.
type table struct {
	sorted []*Definition
	byName map[string]*Definition
}

var tables = map[Resource]table{
	ResourceTopic: newTable(topicTable, tidemarkTopicTable),
	ResourceBroker: newTable(brokerTable, logTable, replicationTable, groupTable, transactionTable, securityTable, remoteTable,
		tidemarkTable),
	ResourceGroup:         newTable(groupResourceTable),
	ResourceClientMetrics: newTable(clientMetricsTable),
}

func newTable(parts ...[]Definition) table {
	t := table{byName: make(map[string]*Definition)}
	for _, part := range parts {
		for i := range part {
			t.sorted = append(t.sorted, &part[i])
			t.byName[part[i].Name] = &part[i]
		}
	}
	slices.SortFunc(t.sorted, func(a, b *Definition) int { return strings.Compare(a.Name, b.Name) })
	return t
}
