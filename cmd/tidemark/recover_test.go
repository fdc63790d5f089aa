package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/engine"
)

// The disk is lost under a broker that is killed: what was uploaded comes back, once somebody has seen what is lost and says so.
func TestRecoverBringsBackWhatWasUploaded(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a lease to run out")
	}
	dir := t.TempDir()
	logs := filepath.Join(dir, "logs")
	settings := []string{
		"node.id=1", "admin.listener=127.0.0.1:0", "cluster.listener=127.0.0.1:0", "log.dirs=" + logs, "store.url=file://" + filepath.Join(dir, "store"),
		"offsets.topic.replication.factor=1", "offsets.topic.num.partitions=1", "tier.enable=true", "tier.max.unsealed.ms=1000",
		"lease.ttl.ms=3000", "lease.renew.ms=500", "listeners=PLAINTEXT://127.0.0.1:0",
	}
	config := filepath.Join(dir, "broker.properties")
	if err := os.WriteFile(config, []byte(strings.Join(settings, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func() (stop func(), s session) {
		args := []string{"dev", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", dir}
		for _, setting := range settings[4 : len(settings)-1] {
			args = append(args, "--set", setting)
		}
		program := exec.CommandContext(t.Context(), os.Args[0], args...)
		program.Env = append(os.Environ(), asTidemark+"=1")
		program.Stderr = t.Output()
		stdout, err := program.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := program.Start(); err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if at := regexp.MustCompile(`Kafka clients +(\S+)`).FindStringSubmatch(lines.Text()); at != nil {
				return func() { _ = program.Process.Kill(); _ = program.Wait() }, session{t, at[1]}
			}
		}
		t.Fatalf("it ended with %v", program.Wait())
		return nil, session{}
	}

	kill, s := start()
	s.ok("", "topic create t --partitions 1")
	s.ok("a\nb\n", "produce t")
	outlook := func() engine.RecoveryReport {
		return decode[engine.RecoveryReport](s, fmt.Sprint("recover --dry-run --config ", config))
	}
	for deadline := time.Now().Add(20 * time.Second); outlook().Lost[0].First < 2; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is uploaded")
		}
	}
	kill()
	if err := os.RemoveAll(logs); err != nil {
		t.Fatal(err)
	}

	refused := tidemark(t, nil, "", "broker", "--config", config)
	if refused.status != 1 {
		t.Fatalf("status %d", refused.status)
	}
	expect(t, refused.stderr, "t-0 from offset 2 on", "--recover", logs)

	if lost := outlook().Lost; len(lost) != 1 || lost[0].First != 2 || lost[0].Next != 10_000_002 {
		t.Errorf("it would lose %+v", lost)
	}
	done := s.ok("", fmt.Sprint("recover --config ", config))
	expect(t, done, "incarnation", "10000002", "everything before")
	expect(t, s.fails(fmt.Sprint("recover --config ", config)), "nothing was recovered")

	kill, s = start()
	defer kill()
	if got := s.ok("", "consume t --from start -e"); got != "a\nb\n" {
		t.Errorf("consumed %q", got)
	}
}
