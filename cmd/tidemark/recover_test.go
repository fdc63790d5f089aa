package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/engine"
	"github.com/tidemark-io/tidemark/deploy/process"
)

// recovery is a broker over a folder, and what `tidemark recover` needs to know of it.
type recovery struct {
	*process.Broker
	session
	logs   string
	store  string
	config string // the path of it
}

func newRecovery(t *testing.T) *recovery {
	t.Helper()
	if testing.Short() {
		t.Skip("waits for a lease to run out")
	}
	dir := t.TempDir()
	r := &recovery{
		logs: filepath.Join(dir, "logs"), store: "file://" + filepath.Join(dir, "store"), config: filepath.Join(dir, "broker.properties"),
	}
	settings := []string{
		"node.id=1", "admin.listener=127.0.0.1:0", "cluster.listener=127.0.0.1:0", "log.dirs=" + r.logs, "store.url=" + r.store,
		"offsets.topic.replication.factor=1", "offsets.topic.num.partitions=1", "tier.enable=true", "tier.max.unsealed.ms=1000",
		"lease.ttl.ms=3000", "lease.renew.ms=500", "listeners=PLAINTEXT://127.0.0.1:0",
	}
	if err := os.WriteFile(r.config, []byte(strings.Join(settings, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Broker = programAt(t, dir, settings[4:len(settings)-1]...)
	r.session = session{t: t}
	r.start()
	return r
}

func (r *recovery) start() {
	r.t.Helper()
	if err := r.Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.address = r.Address
}

// loseDisk kills the broker and takes its disk away.
func (r *recovery) loseDisk() {
	r.t.Helper()
	r.Kill()
	if err := os.RemoveAll(r.logs); err != nil {
		r.t.Fatal(err)
	}
}

// The disk is lost under a broker that is killed: what was uploaded comes back, once somebody has seen what is lost and says so.
func TestRecoverBringsBackWhatWasUploaded(t *testing.T) {
	s := newRecovery(t)
	s.ok("", "topic create t --partitions 1")
	s.ok("a\nb\n", "produce t")
	uploaded := func() bool {
		list := decode[[]tierPartition](s.session, "tier status t --store "+s.store)
		return list[0].End == 2
	}
	for deadline := time.Now().Add(20 * time.Second); !uploaded(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is uploaded")
		}
	}
	expect(t, s.fails("recover --dry-run --config "+s.config), "lock log directory")
	expect(t, s.fails("recover --dry-run --config "+s.config+" --set log.dirs="+s.logs+"-new"), "the cluster is alive")
	s.loseDisk()

	refused := tidemark(t, nil, "", "broker", "--config", s.config)
	if refused.status != 1 {
		t.Fatalf("status %d", refused.status)
	}
	expect(t, refused.stderr, "t-0 from offset 2 on", "--recover", s.logs)

	if lost := decode[engine.RecoveryReport](s.session, "recover --dry-run --config "+s.config).Lost; len(lost) != 1 || lost[0].First != 2 || lost[0].Next != 10_000_002 {
		t.Errorf("it would lose %+v", lost)
	}
	done := s.ok("", "recover --config "+s.config)
	expect(t, done, "incarnation", "10000002", "everything before")
	expect(t, s.fails("recover --config "+s.config), "nothing was recovered")

	s.start()
	if got := s.ok("", "consume t --from start -e"); got != "a\nb\n" {
		t.Errorf("consumed %q", got)
	}
}

// A recovery that is killed on its way is brought to its end by the next one, which tells the same.
func TestRecoverIsBegunAgain(t *testing.T) {
	r := newRecovery(t)
	r.ok("", "topic create t --partitions 300")
	r.loseDisk()
	first := exec.CommandContext(t.Context(), os.Args[0], "recover", "--config", r.config)
	first.Env = append(os.Environ(), asTidemark+"=1")
	stderr, err := first.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	begun := false
	for lines := bufio.NewScanner(stderr); !begun && lines.Scan(); {
		begun = strings.Contains(lines.Text(), "the cluster was recovered")
	}
	if err := errors.Join(first.Process.Kill(), first.Wait()); !begun || err == nil {
		t.Fatalf("begun %t, and it ends with %v", begun, err)
	}
	expect(t, r.ok("", "recover --config "+r.config), "0 to 299", "10000000", "nothing")
	r.start()
	for _, p := range decode[[]tierPartition](r.session, "tier status t --store "+r.store) {
		if p.End != 10_000_000 || len(p.Lost) != 1 {
			t.Errorf("partition %d goes on at %d, lost are %v", p.Partition, p.End, p.Lost)
		}
	}
	expect(t, r.ok("", "tier explain t/7 --store "+r.store), "lost: offsets 0 to 9999999")
	lost := func() float64 { // 0 of a partition whose manifest is not read yet
		sum, err := r.Metric(t.Context(), "tidemark_tier_lost_offsets", `topic="t"`)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	for deadline := time.Now().Add(20 * time.Second); lost() != 300*10_000_000; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%v offsets are lost by the metrics", lost())
		}
	}
}
