package config

import (
	"bufio"
	"os"
	"strings"
	"testing"
)

// rows reads a tab-separated file of testdata without its header.
func rows(t *testing.T, file string, columns int) [][]string {
	t.Helper()
	f, err := os.Open("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all [][]string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		cells := strings.Split(lines.Text(), "\t")
		if len(cells) != columns {
			t.Fatalf("%s: %d columns in %q", file, len(cells), lines.Text())
		}
		all = append(all, cells)
	}
	return all
}

var resourcesByName = map[string]Resource{"TOPIC": ResourceTopic, "BROKER": ResourceBroker, "GROUP": ResourceGroup}

// deviations are the defaults that differ from Kafka's on purpose.
var deviations = map[string]string{
	"broker.heartbeat.interval.ms": "500", // a dead broker is fenced sooner
}

// What a real Kafka 4.4 reports is what the table says: every name, type, default, sensitivity and way of change.
func TestDefinitionsAreThoseOfKafka(t *testing.T) {
	seen := map[Resource]map[string]bool{ResourceTopic: {}, ResourceBroker: {}, ResourceGroup: {}}
	for _, row := range rows(t, "kafka-4.4-configs.tsv", 8)[1:] {
		resource, name := resourcesByName[row[0]], row[1]
		seen[resource][name] = true
		d, ok := Lookup(resource, name)
		if !ok {
			t.Errorf("%s %s is not known", row[0], name)
			continue
		}
		if d.Type.String() != row[2] {
			t.Errorf("%s %s: type %s, Kafka has %s", row[0], name, d.Type, row[2])
		}
		if got := d.Sensitive(); got != (row[6] == "true") {
			t.Errorf("%s %s: sensitive %v, Kafka has %s", row[0], name, got, row[6])
		}
		if got := d.Mode == ReadOnly; got != (row[5] == "true") {
			t.Errorf("%s %s: read-only %v, Kafka has %s", row[0], name, got, row[5])
		}
		if want, has := defaultOf(row[3], row[4], row[7]); has && d.Default != want {
			if deviations[name] != d.Default && resource != ResourceGroup {
				t.Errorf("%s %s: default %q, Kafka has %q", row[0], name, d.Default, want)
			}
		}
	}
	for resource, names := range seen {
		for _, d := range Definitions(resource) {
			if !d.own && !d.dynamicOnly && !names[d.Name] {
				t.Errorf("%s is not a setting of Kafka", d.Name)
			}
		}
	}
}

// defaultOf finds the default in a row: the value itself, or the last of the synonyms "a=1 (X) < a=2 (DEFAULT_CONFIG)".
func defaultOf(value, source, synonyms string) (string, bool) {
	if source == "DEFAULT_CONFIG" {
		return value, true
	}
	chain := strings.Split(synonyms, " < ")
	last, isDefault := strings.CutSuffix(chain[len(chain)-1], " (DEFAULT_CONFIG)")
	_, last, _ = strings.Cut(last, "=")
	return last, isDefault
}

// Each value is read, shown or refused as Kafka 4.4's own ConfigDef does.
func TestValuesAreJudgedAsByKafka(t *testing.T) {
	unescape := strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\\`, `\`)
	for _, row := range rows(t, "kafka-4.4-values.tsv", 5) {
		resource, name, value, outcome, want := resourcesByName[row[0]], row[1], unescape.Replace(row[2]), row[3], unescape.Replace(row[4])
		d, ok := Lookup(resource, name)
		if !ok {
			t.Errorf("%s %s is not known", row[0], name)
			continue
		}
		got, err := d.Normalize(value)
		switch {
		case outcome == "error" && err == nil:
			t.Errorf("%s %s=%q is %q, Kafka says %q", row[0], name, value, got, want)
		case outcome == "error" && err.Error() != want:
			t.Errorf("%s %s=%q: %q, Kafka says %q", row[0], name, value, err, want)
		case outcome == "ok" && err != nil:
			t.Errorf("%s %s=%q: %v, Kafka takes it", row[0], name, value, err)
		case outcome == "ok" && got != want:
			t.Errorf("%s %s=%q is %q, in Kafka %q", row[0], name, value, got, want)
		}
	}
}

// Every default passes its own check.
func TestDefaultsAreValid(t *testing.T) {
	for resource := range tables {
		for _, d := range Definitions(resource) {
			if d.Default == Null {
				continue
			}
			if got, err := d.Normalize(d.Default); err != nil || got != d.Default {
				t.Errorf("%s: default %q reads as %q, %v", d.Name, d.Default, got, err)
			}
			if d.Doc == "" || !strings.HasSuffix(d.Doc, ".") {
				t.Errorf("%s: documentation %q is not a sentence", d.Name, d.Doc)
			}
		}
	}
}
