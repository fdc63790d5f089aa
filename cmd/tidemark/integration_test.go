package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// testBootstrap is the address of a broker to test against: the one that TIDEMARK_TEST_BOOTSTRAP names, which may be any Kafka, or
// our own.
func testBootstrap(t *testing.T) string {
	t.Helper()
	address := os.Getenv("TIDEMARK_TEST_BOOTSTRAP")
	if address == "" {
		address, _ = testBroker(t)
	}
	return address
}

// session runs commands against one broker.
type session struct {
	t       *testing.T
	address string
}

// ok runs a command that must succeed, and returns its output.
func (s session) ok(stdin, line string, extra ...string) string {
	s.t.Helper()
	got := s.run(stdin, line, extra...)
	if got.status != 0 {
		s.t.Fatalf("tidemark %s: status %d\n%s%s", line, got.status, got.stdout, got.stderr)
	}
	return got.stdout
}

// fails runs a command that must fail, and returns what it said.
func (s session) fails(line string, extra ...string) string {
	s.t.Helper()
	got := s.run("", line, extra...)
	if got.status != 1 {
		s.t.Fatalf("tidemark %s: status %d\n%s%s", line, got.status, got.stdout, got.stderr)
	}
	return got.stdout + got.stderr
}

func (s session) run(stdin, line string, extra ...string) result {
	s.t.Helper()
	return tidemark(s.t, map[string]string{"TIDEMARK_BOOTSTRAP": s.address}, stdin, append(strings.Fields(line), extra...)...)
}

// decode reads the JSON output of a command.
func decode[T any](s session, line string) T {
	s.t.Helper()
	var v T
	if out := s.ok("", line+" --json"); json.Unmarshal([]byte(out), &v) != nil {
		s.t.Fatalf("tidemark %s --json: %s", line, out)
	}
	return v
}

func expect(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

// Every command, once, against a real broker.
func TestCommandsAgainstABroker(t *testing.T) {
	s := session{t, testBootstrap(t)}
	topic := fmt.Sprintf("cli-test-%d", rand.Uint32())
	group := topic + "-group"

	expect(t, s.ok("", "topic create "+topic+" -p 2 -c retention.ms=86400000"), "created with 2 partitions, 1 replica")
	expect(t, s.fails("topic create "+topic), "TOPIC_ALREADY_EXISTS", "Use --if-not-exists")
	expect(t, s.ok("", "topic create "+topic+"y -p 1 -r 1 --validate-only"), "would be created with 1 partition, 1 replica")
	expect(t, s.ok("", "topic create "+topic+" --if-not-exists"), "exists")
	expect(t, s.fails("topic create "+topic+"x -c retention.ms=abc"), "INVALID_CONFIG: Invalid value abc for configuration retention.ms: Not a number of type LONG")
	expect(t, s.ok("", "topic list"), topic)

	expect(t, s.ok("a\nb\nc\n", "produce "+topic+" -p 0"), "3 records to "+topic)
	s.ok("k1:v1\nk2:NULL\n", "produce "+topic+" -K : --null NULL -H h=x -z zstd -p 1")
	if got := s.ok("", "consume "+topic+" --from start -e -p 0"); got != "a\nb\nc\n" {
		t.Errorf("consumed %q", got)
	}
	if got := s.ok("", "consume "+topic+" --from 1 -n 1 -p 0 -f", `%o=%v;`); got != "1=b;" {
		t.Errorf("consumed %q", got)
	}
	expect(t, s.ok("", "consume "+topic+" --from start -e -p 1 --json"), `"key":"k1","value":"v1","headers":[{"key":"h","value":"x"}]`, `"key":"k2","value":null`)
	expect(t, s.ok("", "consume "+topic+" --from @-1h -e --read-committed"), "a\n", "v1\n")

	offsets := decode[[]offsetRow](s, "offset list "+topic+" --at @-1h")
	if len(offsets) != 2 || *offsets[0].End != 3 || *offsets[1].Records != 2 || *offsets[0].At != 0 {
		t.Errorf("offsets %+v", offsets)
	}

	s.ok("", "consume "+topic+" --from start -n 2 -g "+group)
	expect(t, s.ok("", "group list"), group)
	details := decode[groupDetails](s, "group describe "+group)
	if len(details) != 1 || details[0].State != "Empty" || details[0].Members != 0 {
		t.Errorf("group %+v", details)
	}
	s.ok("", "group members "+group)
	expect(t, s.ok("", "group reset "+group+" --to end -t "+topic), "Nothing was changed")
	reset := decode[resetResult](s, "group reset "+group+" --to end --execute -t "+topic)
	if !reset.Executed || len(reset.Partitions) != 2 || reset.Partitions[0].Target != 3 {
		t.Errorf("reset %+v", reset)
	}
	reset = decode[resetResult](s, "group reset "+group+" --shift -1 --execute -t "+topic+":0")
	if len(reset.Partitions) != 1 || *reset.Partitions[0].Committed != 3 || reset.Partitions[0].Target != 2 {
		t.Errorf("reset %+v", reset)
	}
	if exact := decode[resetResult](s, "group reset "+group+" --to 1 -t "+topic+":0"); exact.Executed || exact.Partitions[0].Target != 1 {
		t.Errorf("reset %+v", exact)
	}
	if details := decode[groupDetails](s, "group describe "+group); details[0].Lag != 1 {
		t.Errorf("lag %d", details[0].Lag)
	}
	expect(t, s.ok("", "group delete-offsets "+group+" -t "+topic+":0"), topic+"-0  offset deleted")
	expect(t, s.ok("", "group delete "+group), "deleted")
	expect(t, s.fails("group describe "+group), "GROUP_ID_NOT_FOUND")

	expect(t, s.ok("", "topic truncate "+topic+" --before 2 -p 0"), topic+"-0  begins at 2")
	expect(t, s.fails("topic truncate "+topic+" --before 99 -p 0"), "OFFSET_OUT_OF_RANGE")
	expect(t, s.ok("", "topic alter "+topic+" -p 3 -c cleanup.policy=compact --delete-config retention.ms"), "has 3 partitions", "settings changed")
	expect(t, s.fails("topic alter "+topic+" -p 1"), "INVALID_PARTITIONS")
	described := decode[topicDetails](s, "topic describe "+topic)
	if len(described) != 1 || len(described[0].Partitions) != 3 || *described[0].Partitions[0].Start != 2 || len(described[0].Configs) != 1 || *described[0].Configs[0].Value != "compact" {
		t.Errorf("topic %+v", described)
	}

	s.ok("", "config alter topic "+topic+" --set retention.ms=5 --append cleanup.policy=delete")
	expect(t, s.ok("", "config describe topic "+topic+" --synonyms"), "compact,delete", "retention.ms", "log.cleanup.policy=delete (default)")
	expect(t, s.ok("", "config describe topic "+topic+" --all"), "segment.bytes", "1073741824")
	expect(t, s.ok("", "config alter topic "+topic+" --subtract cleanup.policy=compact --delete retention.ms --validate-only"), "would be changed")
	expect(t, s.fails("config alter topic "+topic+" --set segment.bytes=1"), "Value must be at least 1048576")
	expect(t, s.ok("", "config list topic"), topic)

	cluster := decode[clusterDetail](s, "cluster describe")
	if len(cluster.Brokers) == 0 || cluster.ID == "" {
		t.Fatalf("cluster %+v", cluster)
	}
	broker := fmt.Sprint(cluster.Brokers[0].ID)
	expect(t, s.ok("", "config describe broker "+broker+" -k num.partitions"), "num.partitions")
	expect(t, s.fails("config alter broker "+broker+" --set broker.id=9"), "Cannot update these configs dynamically: [broker.id]")
	s.ok("", "config describe broker")
	if dirs := decode[logDirs](s, "cluster log-dirs"); len(dirs) == 0 || dirs[0].Error != "" {
		t.Errorf("directories %+v", dirs)
	}
	expect(t, s.ok("", "api-versions"), "Produce", "Metadata")
	if quorum := decode[quorumView](s, "cluster quorum"); quorum.Leader < 0 || quorum.Epoch < 1 || len(quorum.Replicas) == 0 || quorum.Replicas[0].Lag != 0 {
		t.Errorf("quorum %+v", quorum)
	}
	if features := decode[featuresView](s, "cluster features"); len(features.Features) == 0 || features.Epoch < 0 {
		t.Errorf("features %+v", features)
	}
	expect(t, s.ok("", "cluster features"), "metadata.version")
	expect(t, s.ok("", "cluster quorum"), "voter")

	measured := decode[benchResult](s, "bench produce "+topic+" -n 500 -s 100 --clients 2 --keys 3")
	if measured.Records != 500 || measured.LatencySeconds == nil || measured.LatencySeconds.Max <= 0 {
		t.Errorf("bench %+v", measured)
	}
	if read := decode[benchResult](s, "bench consume "+topic+" -n 500"); read.Records < 500 || read.Seconds <= 0 {
		t.Errorf("bench %+v", read)
	}
	expect(t, s.ok("", "__complete topic describe cli-test"), topic)

	expect(t, s.ok("", "topic delete "+topic), "deleted")
	expect(t, s.fails("topic describe "+topic), "UNKNOWN_TOPIC_OR_PARTITION", "`tidemark topic list` shows the topics.")
}

// What is named and is not there is an error, also where a request to nothing would succeed.
func TestNothingToDoIsAnError(t *testing.T) {
	s := session{t, testBootstrap(t)}
	topic := fmt.Sprintf("cli-test-%d", rand.Uint32())
	group := topic + "-group"
	s.ok("", "topic create "+topic+" -p 2")
	s.ok("a\n", "produce "+topic+" -p 0")
	s.ok("", "consume "+topic+" -n 1 -g "+group)
	for line, want := range map[string]string{
		"topic truncate $t --before end -p 0,99":         "$t-99: UNKNOWN_TOPIC_OR_PARTITION",
		"topic truncate $t-none --before end":            "topic $t-none: UNKNOWN_TOPIC_OR_PARTITION",
		"group reset $g --to start --execute -t $t:99":   "$t-99: UNKNOWN_TOPIC_OR_PARTITION",
		"group reset $g --shift -1 --execute -t $t:1":    "has committed nothing of $t-1",
		"group reset $g-none --shift -1 --execute -t $t": "has committed nothing of $t",
		"group delete-offsets $g -t $t:0 -t $t:99":       "has no offset of $t-99",
		"consume $t -p 99 -e":                            "$t-99: UNKNOWN_TOPIC_OR_PARTITION",
		"offset list $t-none":                            "topic $t-none: UNKNOWN_TOPIC_OR_PARTITION",
		"bench consume $t --from end --timeout 2s":       "no record of $t came for 2s",
		"bench consume $t-none":                          "topic $t-none: UNKNOWN_TOPIC_OR_PARTITION",
	} {
		names := strings.NewReplacer("$t", topic, "$g", group)
		expect(t, s.fails(names.Replace(line)), names.Replace(want))
	}
	s.ok("", "topic delete "+topic)
}
