package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker"
	"github.com/tidemark-io/tidemark/deploy/process"
)

// asTidemark makes the test's binary be the program.
const asTidemark = "TIDEMARK_TEST_AS_TIDEMARK"

func TestMain(m *testing.M) {
	if os.Getenv(asTidemark) != "" {
		main()
	}
	os.Exit(m.Run())
}

// inProcess starts a broker in this process over a folder, for tests of commands, and returns its store.
func inProcess(t *testing.T, dir string, settings ...string) (b *broker.Broker, store string) {
	t.Helper()
	store = "file://" + filepath.ToSlash(filepath.Join(dir, "store"))
	parsed, err := parse(t.Output(), devDefaults("127.0.0.1:0", "127.0.0.1:0", dir, store), append(settings, "offsets.topic.num.partitions=1"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err = broker.Start(t.Context(), parsed, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	return b, store
}

func closeBroker(t *testing.T, b *broker.Broker) {
	t.Helper()
	if err := b.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// testBroker is a broker in this process until the test ends. It returns its address and its store.
func testBroker(t *testing.T) (address, store string) {
	t.Helper()
	b, store := inProcess(t, t.TempDir(), "group.initial.rebalance.delay.ms=0")
	t.Cleanup(func() { closeBroker(t, b) })
	return b.Addresses()[0], store
}

// programAt is this program, to be run in a process of its own over a folder.
func programAt(t *testing.T, dir string, settings ...string) *process.Broker {
	t.Helper()
	b, err := process.New(os.Args[0], dir, settings...)
	if err != nil {
		t.Fatal(err)
	}
	b.Environment, b.Stderr = []string{asTidemark + "=1"}, t.Output()
	t.Cleanup(b.Kill)
	return b
}

// The program itself: it says what to type next, serves, and upon SIGTERM stops in order, with the clean marker and the lease given up.
func TestTheProgramStopsInOrder(t *testing.T) {
	dir := t.TempDir()
	program := programAt(t, dir)
	if err := program.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := regexp.MustCompile(`Kafka clients +(\S+)`).FindStringSubmatch(program.Greeting())
	if at == nil {
		t.Fatalf("it says %q", program.Greeting())
	}
	s := session{t, at[1]}
	s.ok("", "topic create greetings")
	s.ok("x\n", "produce greetings")
	if got := s.ok("", "consume greetings --from start -e"); got != "x\n" {
		t.Errorf("consumed %q", got)
	}

	began := time.Now()
	if err := program.Stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the stop took %v", took)
	}
	if _, err := os.Stat(filepath.Join(dir, "logs", ".kafka_cleanshutdown")); err != nil {
		t.Error(err)
	}
	if body, err := os.ReadFile(filepath.Join(dir, "store", "controller", "lease.json")); err != nil || !strings.Contains(string(body), `"state":"released"`) {
		t.Errorf("lease %s, %v", body, err)
	}
}

func TestAConfigurationFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	properties := "node.id=7\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs=" + dir + "\nstore.url=mem://\n"
	for _, c := range []struct {
		name, file string
		args       []string
		wants      []string
	}{
		{"properties", write("a.properties", properties), []string{"--set", "num.partitions=3"}, []string{"node.id=7\t# ", "num.partitions=3\t# --set"}},
		{"YAML", write("a.yaml", "node:\n  id: 7\nlog.dirs: "+dir+"\nstore.url: mem://\nlisteners: PLAINTEXT://127.0.0.1:0\n"), nil, []string{"node.id=7\t# "}},
		{"a setting without effect", write("b.properties", properties+"socket.listen.backlog.size=7\n"), nil, []string{"socket.listen.backlog.size=7"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := tidemark(t, nil, "", append([]string{"broker", "--print-config", "--config", c.file}, c.args...)...)
			if got.status != 0 {
				t.Fatal(got.stderr)
			}
			expect(t, got.stdout, c.wants...)
			if warned := strings.Contains(got.stderr, "socket.listen.backlog.size"); warned != strings.Contains(c.name, "without effect") {
				t.Errorf("warned: %q", got.stderr)
			}
		})
	}
	if got := tidemark(t, nil, "", "broker", "--config", write("c.properties", properties+"num.partition=3\n")); got.status != 1 || !strings.Contains(got.stderr, "num.partitions") {
		t.Errorf("an unknown setting: status %d, %s", got.status, got.stderr)
	}
}

// The metadata log reads as JSON lines, from any entry on, and leads to the image.
func TestMetadataInTheStore(t *testing.T) {
	address, store := testBroker(t)
	s := session{t, address}
	s.ok("", "topic create shown -p 3")

	var last metadataLine
	var types []string
	for i, line := range strings.Split(strings.TrimSpace(s.ok("", "metadata cat --store "+store)), "\n") {
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if last.Offset != int64(i) || last.Epoch != 1 || last.Broker != 1 {
			t.Errorf("line %d is %s", i, line)
		}
		var record struct{ Type string }
		if err := json.Unmarshal(last.Record, &record); err != nil {
			t.Fatal(err)
		}
		types = append(types, record.Type)
	}
	if types[0] != "ControllerElected" || !strings.Contains(strings.Join(types, " "), "Topic Partition Partition Partition") {
		t.Errorf("records %v", types)
	}
	if first, _, _ := strings.Cut(s.ok("", "metadata cat --from 2 --store "+store), "\n"); !strings.Contains(first, `"entry":2,`) {
		t.Errorf("from entry 2: %s", first)
	}
	expect(t, s.ok("", "metadata image --store "+store), `{"type":"Topic","version":0,"name":"shown"`)
	expect(t, status(t, 2, "metadata", "cat", "--store", emptyStore(t)).stderr, "no cluster.json")
	expect(t, status(t, 2, "metadata", "image", "--store", "floppy://a").stderr, `unknown kind "floppy"`)
}
