package config

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/configuration.md anew")

const configurationPage = "../../docs/configuration.md"

// The page of the settings is that of the definitions. `go test ./broker/config -run ConfigurationPage -update` writes it anew.
func TestConfigurationPage(t *testing.T) {
	want := configuration()
	if *update {
		if err := os.WriteFile(configurationPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(configurationPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the settings are: run this test with -update", configurationPage)
	}
}

// Each name that has an effect is that of a setting.
func TestEffectsAreThoseOfSettings(t *testing.T) {
	for name := range effective {
		_, ofBroker := Lookup(ResourceBroker, name)
		_, ofTopic := Lookup(ResourceTopic, name)
		if !ofBroker && !ofTopic {
			t.Errorf("%s has an effect and is no setting", name)
		}
	}
}

func configuration() string {
	var page strings.Builder
	page.WriteString(`# Configuration

Names and defaults are those of Apache Kafka 4.4 wherever Kafka has the setting. This page is made from the definitions in
[broker/config](../broker/config); a test holds them together.

Sources, from weak to strong: default, file (properties or YAML), environment (` + "`TIDEMARK_LOG_SEGMENT_BYTES` for `log.segment.bytes`" + `),
` + "`--set key=value`" + `, what was altered over the protocol. ` + "`tidemark broker --config FILE --print-config`" + ` prints the outcome. A name that
nobody knows is an error that names the nearest one. ` + "`zookeeper.*`, `process.roles` and `controller.quorum.*`" + ` are refused with advice.

The least that a file for a cluster of one has to say (Kafka's default is three replicas of the offsets topic: with fewer brokers there would be no
consumer groups):

    node.id=1
    log.dirs=/var/lib/tidemark
    store.url=s3://bucket/cluster-1?region=eu-central-1
    listeners=PLAINTEXT://0.0.0.0:9092
    advertised.listeners=PLAINTEXT://broker-1.example.com:9092
    offsets.topic.replication.factor=1

A setting without effect yet is accepted, shown to clients, and warned of where a file or flag sets it. Times are in milliseconds and
sizes in bytes unless the name says otherwise. "Changes" says what takes a new value while the broker runs: nothing (*restart*),
one broker at a time (*broker*), or also all at once (*cluster*).

## Settings of Tidemark's own

`)
	settingsTable(&page, ResourceBroker, func(d *Definition) bool { return d.own })
	page.WriteString("\n## Kafka's settings of a broker\n\n")
	settingsTable(&page, ResourceBroker, func(d *Definition) bool { return !d.own && d.HasEffect() })
	page.WriteString(`
## Settings of a topic

They override the broker's setting that is named with them, if any, and can always be changed.

`)
	overrideTable(&page, ResourceTopic)
	page.WriteString("\n## Settings of a group\n\n")
	overrideTable(&page, ResourceGroup)
	page.WriteString(`
## Kafka's settings of a broker that have no effect yet

`)
	for _, d := range Definitions(ResourceBroker) {
		if !d.own && !d.HasEffect() {
			fmt.Fprintf(&page, "- `%s` (%s)\n", d.Name, shown(d.Default))
		}
	}
	return page.String()
}

func settingsTable(page *strings.Builder, resource Resource, want func(*Definition) bool) {
	page.WriteString("| name | default | changes | what it is |\n| --- | --- | --- | --- |\n")
	for _, d := range Definitions(resource) {
		if want(d) {
			changes := [...]string{"restart", "broker", "cluster"}[d.Mode]
			fmt.Fprintf(page, "| `%s` | %s | %s | %s%s |\n", d.Name, shown(d.Default), changes, d.Doc, later(d.HasEffect()))
		}
	}
}

func overrideTable(page *strings.Builder, resource Resource) {
	page.WriteString("| name | default | overrides | what it is |\n| --- | --- | --- | --- |\n")
	for _, d := range Definitions(resource) {
		overridden := ""
		if d.synonym != "" {
			overridden = "`" + d.synonym + "`"
		}
		fmt.Fprintf(page, "| `%s` | %s | %s | %s%s |\n", d.Name, shown(d.Default), overridden, d.Doc, later(effective[cmp.Or(d.synonym, d.Name)]))
	}
}

func later(effect bool) string {
	if effect {
		return ""
	}
	return " *No effect yet.*"
}

// shown is a default in the page's form.
func shown(value string) string {
	switch value {
	case Null:
		return "none"
	case "":
		return "empty"
	case maxInt, maxLong:
		return "no limit"
	}
	return "`" + value + "`"
}
