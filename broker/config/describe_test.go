package config

import (
	"fmt"
	"strings"
	"testing"
)

var originNames = map[Origin]string{
	OriginTopic: "DYNAMIC_TOPIC_CONFIG", OriginBroker: "DYNAMIC_BROKER_CONFIG", OriginCluster: "DYNAMIC_DEFAULT_BROKER_CONFIG",
	OriginStatic: "STATIC_BROKER_CONFIG", OriginDefault: "DEFAULT_CONFIG", OriginGroup: "GROUP_CONFIG", OriginClientMetrics: "CLIENT_METRICS",
}

func show(value *string) string {
	if value == nil {
		return "null"
	}
	return *value
}

func showSynonyms(synonyms []Synonym) string {
	var parts []string
	for _, s := range synonyms {
		parts = append(parts, fmt.Sprintf("%s=%s (%s)", s.Name, show(s.Value), originNames[s.Origin]))
	}
	return strings.Join(parts, " < ")
}

// reference is a broker with the settings of the node behind kafka-4.4-configs.tsv.
func reference(t *testing.T, table [][]string) *Broker {
	t.Helper()
	var pairs []string
	for _, row := range table {
		if row[0] == "BROKER" && strings.Contains(row[7], "STATIC_BROKER_CONFIG") && refusal(row[1]) == "" {
			_, rest, _ := strings.Cut(row[7], row[1]+"=")
			if row[4] == "DYNAMIC_DEFAULT_BROKER_CONFIG" {
				_, rest, _ = strings.Cut(rest, row[1]+"=")
			}
			value, _, _ := strings.Cut(rest, " (STATIC_BROKER_CONFIG)")
			pairs = append(pairs, row[1]+"="+value)
		}
	}
	b, _, err := Parse([]Source{flags(append(pairs, "tier.enable=false")...)}) // the one default that differs
	if err != nil {
		t.Fatal(err)
	}
	b, err = b.WithDynamic(map[string]string{"min.insync.replicas": "1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// With the same settings, every row of every resource reads as a real Kafka 4.4 describes it.
func TestDescribeReadsAsInKafka(t *testing.T) {
	table := rows(t, "kafka-4.4-configs.tsv", 8)[1:]
	b := reference(t, table)
	entries := map[string][]Entry{"TOPIC": DescribeTopic(b, nil), "BROKER": DescribeBroker(b), "GROUP": DescribeGroup(b, nil)}
	byName := make(map[string]Entry)
	for kind, list := range entries {
		for _, e := range list {
			byName[kind+" "+e.Name] = e
		}
	}
	for _, row := range table {
		key := row[0] + " " + row[1]
		e, ok := byName[key]
		if !ok {
			t.Errorf("%s is not described", key)
			continue
		}
		delete(byName, key)
		got := strings.Join([]string{e.Type.String(), show(e.Value), originNames[e.Origin], fmt.Sprint(e.ReadOnly), fmt.Sprint(e.Sensitive), showSynonyms(e.Synonyms)}, "\t")
		if want := strings.Join(row[2:], "\t"); got != want && refusal(row[1]) == "" && deviations[row[1]] == "" {
			t.Errorf("%s\n got %s\nwant %s", key, got, want)
		}
	}
	for key, e := range byName {
		if d, _ := brokerDefinition(e.Name); d == nil || !d.own {
			t.Errorf("%s is described, in Kafka it is not", key)
		}
	}
}

func entry(t *testing.T, entries []Entry, name string) Entry {
	t.Helper()
	for _, e := range entries {
		if e.Name == name {
			return e
		}
	}
	t.Fatalf("%s is not described", name)
	return Entry{}
}

// The layers of a topic's value, as measured on the reference (its scenario broker-dynamic).
func TestSynonymsListTheLayersInOrder(t *testing.T) {
	b := mustParse(t, flags("log.cleaner.delete.retention.ms=86100000", "log.retention.hours=5"))
	b, err := b.WithDynamic(
		map[string]string{"log.cleaner.delete.retention.ms": "86300000"},
		map[string]string{"log.cleaner.delete.retention.ms": "86200000", "log.retention.ms": "5000", "no.such.config": "x"})
	if err != nil {
		t.Fatal(err)
	}
	topic := DescribeTopic(b, map[string]string{"retention.ms": " 77 ", "cleanup.policy": "delete,delete", "compressed.batch.validation": "full"})
	for _, c := range []struct{ name, value, synonyms string }{
		{"delete.retention.ms", "86200000", "log.cleaner.delete.retention.ms=86200000 (DYNAMIC_BROKER_CONFIG) < log.cleaner.delete.retention.ms=86300000 (DYNAMIC_DEFAULT_BROKER_CONFIG) < " +
			"log.cleaner.delete.retention.ms=86100000 (STATIC_BROKER_CONFIG) < log.cleaner.delete.retention.ms=86400000 (DEFAULT_CONFIG)"},
		{"retention.ms", "77", "retention.ms=77 (DYNAMIC_TOPIC_CONFIG) < log.retention.ms=5000 (DYNAMIC_BROKER_CONFIG) < log.retention.hours=5 (STATIC_BROKER_CONFIG) < log.retention.hours=168 (DEFAULT_CONFIG)"},
		{"cleanup.policy", "delete", "cleanup.policy=delete (DYNAMIC_TOPIC_CONFIG) < log.cleanup.policy=delete (DEFAULT_CONFIG)"},
		{"segment.ms", "604800000", ""},
		{"compressed.batch.validation", "full", "compressed.batch.validation=full (DYNAMIC_TOPIC_CONFIG) < compressed.batch.validation=first (DEFAULT_CONFIG)"},
	} {
		e := entry(t, topic, c.name)
		if show(e.Value) != c.value || showSynonyms(e.Synonyms) != c.synonyms {
			t.Errorf("%s = %s: %s", c.name, show(e.Value), showSynonyms(e.Synonyms))
		}
	}
	// An unknown setting is kept, and hidden: it might be a secret.
	unknown := entry(t, DescribeBroker(b), "no.such.config")
	if unknown.Value != nil || !unknown.Sensitive || !unknown.ReadOnly || unknown.Type != Unknown || unknown.Origin != OriginBroker {
		t.Errorf("unknown setting described as %+v", unknown)
	}
	cluster := DescribeCluster(b)
	if len(cluster) != 1 || cluster[0].Origin != OriginCluster || showSynonyms(cluster[0].Synonyms) != "log.cleaner.delete.retention.ms=86300000 (DYNAMIC_DEFAULT_BROKER_CONFIG)" {
		t.Errorf("cluster settings described as %+v", cluster)
	}
}

func TestClientMetricsAreDescribed(t *testing.T) {
	entries := DescribeClientMetrics(map[string]string{"interval.ms": "30000"})
	var got []string
	for _, e := range entries {
		got = append(got, fmt.Sprintf("%s=%s (%s) [%s]", e.Name, show(e.Value), originNames[e.Origin], showSynonyms(e.Synonyms)))
	}
	want := "interval.ms=30000 (CLIENT_METRICS) [interval.ms=30000 (CLIENT_METRICS)]; match= (DEFAULT_CONFIG) []; metrics= (DEFAULT_CONFIG) []"
	if strings.Join(got, "; ") != want {
		t.Errorf("got %s", strings.Join(got, "; "))
	}
}

func TestGroupOverridesAreDescribed(t *testing.T) {
	e := entry(t, DescribeGroup(mustParse(t), map[string]string{"consumer.session.timeout.ms": "46000"}), "consumer.session.timeout.ms")
	if got := showSynonyms(e.Synonyms); got != "consumer.session.timeout.ms=46000 (GROUP_CONFIG) < group.consumer.session.timeout.ms=45000 (DEFAULT_CONFIG)" {
		t.Errorf("synonyms %s", got)
	}
}
