package main

import (
	"fmt"
	"os"
	"path/filepath"
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
	b := programAt(t, dir, settings[4:len(settings)-1]...)
	start := func() session {
		t.Helper()
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		return session{t, b.Address}
	}

	s := start()
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
	b.Kill()
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

	s = start()
	if got := s.ok("", "consume t --from start -e"); got != "a\nb\n" {
		t.Errorf("consumed %q", got)
	}
}
