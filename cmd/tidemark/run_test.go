package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// result is what a command line came to.
type result struct {
	status         int
	stdout, stderr string
}

// tidemark runs a command line.
func tidemark(t *testing.T, environment map[string]string, stdin string, args ...string) result {
	t.Helper()
	return tidemarkIn(context.Background(), environment, strings.NewReader(stdin), args...)
}

// tidemarkIn runs a command line that may be interrupted.
func tidemarkIn(ctx context.Context, environment map[string]string, stdin io.Reader, args ...string) result {
	var stdout, stderr bytes.Buffer
	status := run(ctx, args, stdin, &stdout, &stderr, func(name string) string { return environment[name] })
	return result{status, stdout.String(), stderr.String()}
}

func TestStatusTellsMistakesFromFailures(t *testing.T) {
	for _, c := range []struct {
		name   string
		args   string
		status int
		stderr string
	}{
		{"no command", "", 0, ""},
		{"version", "--version", 0, ""},
		{"offsets of no topic", "group delete-offsets g --topic=", 2, "--topic names no topic"},
		{"a reset of no topic", "group reset g --topic= --to start --execute", 2, "--topic names no topic"},
		{"a group alone shows its help", "topic", 0, ""},
		{"unknown command", "nonsense", 2, `unknown command "nonsense" for "tidemark"`},
		{"missing argument", "topic create", 2, "See `tidemark topic create --help`."},
		{"unknown flag", "topic list --nope", 2, "unknown flag: --nope"},
		{"required flag", "topic truncate t", 2, `required flag(s) "before" not set`},
		{"one of two flags", "group reset g", 2, "at least one of the flags in the group [to shift] is required"},
		{"exclusive flags", "consume t --group g --partition 1", 2, "if any flags in the group [group partition] are set none of the others can be"},
		{"bad position", "topic truncate t --before yesterday", 2, `"yesterday" is not a position`},
		{"bad start", "consume t --from yesterday", 2, `"yesterday" is not a position`},
		{"an age without its minus", "topic truncate t --before @24h", 2, "an age is written -24h, as a position @-24h"},
		{"bad number of partitions", "topic alter t --partitions -3", 2, "--partitions must be at least 1, not -3"},
		{"bad partition", "group reset g --to end --topic t:x", 2, `"t:x" is not topic or topic:partition`},
		{"bad format", "consume t -f %", 2, `format "%"`},
		{"bad header", "produce t -H x", 2, `header "x" is not key=value`},
		{"bad setting", "topic create t --config x", 2, `"x" is not key=value`},
		{"bad acks", "produce t --acks most", 2, "--acks is all, leader or none"},
		{"bad codec", "produce t -z brotli", 2, "--compression is none, gzip, snappy, lz4 or zstd"},
		{"bad kind", "config describe planet x", 2, `"planet" is not a kind of resource`},
		{"kind without a name", "config describe topic", 2, "which topic?"},
		{"nothing to change", "config alter topic t", 2, "nothing to change"},
		{"nobody there", "topic list --bootstrap 127.0.0.1:1 --timeout 2s", 1, "No answer from 127.0.0.1:1. Start a broker with `tidemark dev`"},
		{"no such file", "log dump /no/such/file.log", 1, "no such file"},
		{"not a file of a log", "log dump main.go", 1, "not a file of a log"},
		{"no such store", "store-check floppy://a", 2, `unknown kind "floppy"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := tidemark(t, nil, "", strings.Fields(c.args)...)
			if got.status != c.status || !strings.Contains(got.stderr, c.stderr) {
				t.Errorf("status %d, %s", got.status, got.stderr)
			}
		})
	}
}

func TestWritingEndsWhenNobodyAnswers(t *testing.T) {
	for _, args := range []string{"produce t", "bench produce t -n 1"} {
		got := tidemark(t, nil, "x\n", strings.Fields(args+" --bootstrap 127.0.0.1:1 --timeout 1s")...)
		if got.status != 1 || !strings.Contains(got.stderr, "No answer from 127.0.0.1:1.") {
			t.Errorf("%s: status %d, %s", args, got.status, got.stderr)
		}
	}
}

func TestBootstrapComesFromFlagEnvironmentDefault(t *testing.T) {
	environment := map[string]string{"TIDEMARK_BOOTSTRAP": "127.0.0.2:1,127.0.0.3:1"}
	for _, c := range []struct {
		environment map[string]string
		args, want  string
	}{
		{environment, "--bootstrap 127.0.0.4:1", "No answer from 127.0.0.4:1."},
		{environment, "", "No answer from 127.0.0.2:1, 127.0.0.3:1."},
	} {
		got := tidemark(t, c.environment, "", strings.Fields("topic list --timeout 1s "+c.args)...)
		if got.status != 1 || !strings.Contains(got.stderr, c.want) {
			t.Errorf("status %d, %s", got.status, got.stderr)
		}
	}
	if a := newApp(func(string) string { return "" }); len(a.bootstrap) != 1 || a.bootstrap[0] != defaultBootstrap {
		t.Errorf("default %v", a.bootstrap)
	}
}

// Every command says in one line what it does, every flag too, and none is left out of the help's groups.
func TestEveryCommandIsExplained(t *testing.T) {
	root := newRoot(newApp(func(string) string { return "" }))
	for _, c := range root.Commands() {
		if c.GroupID == "" {
			t.Errorf("%s is in no group", c.CommandPath())
		}
	}
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: %q is no title", c.CommandPath(), c.Short)
		}
		for _, child := range c.Commands() {
			visit(child)
		}
	}
	visit(root)
}

func TestShellsGetCompletions(t *testing.T) {
	got := tidemark(t, nil, "", "__complete", "topic", "de")
	if !strings.Contains(got.stdout, "delete\tDelete topics with their records\ndescribe\t") {
		t.Errorf("completions %q", got.stdout)
	}
	if got := tidemark(t, nil, "", "completion", "bash"); got.status != 0 || !strings.Contains(got.stdout, "bash completion") {
		t.Errorf("status %d: %.100s", got.status, got.stdout)
	}
}

func TestStoreCheckTriesAStore(t *testing.T) {
	got := tidemark(t, nil, "", "store-check", "mem://")
	if got.status != 0 || !strings.Contains(got.stdout, "create-twice") || !strings.HasSuffix(got.stdout, "mem:// can hold a cluster.\n") {
		t.Errorf("status %d: %s%s", got.status, got.stdout, got.stderr)
	}
	got = tidemark(t, nil, "", "store-check", "mem://", "--json")
	if got.status != 0 || !strings.Contains(got.stdout, `"passed": true`) {
		t.Errorf("status %d: %s", got.status, got.stdout)
	}
}
