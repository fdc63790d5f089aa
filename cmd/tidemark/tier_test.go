package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-io/tidemark/broker/readonly"
	"github.com/tidemark-io/tidemark/tier/fsck"
	"github.com/tidemark-io/tidemark/tier/object/filestore"
	"github.com/tidemark-io/tidemark/tier/reasons"
)

// tieredBroker runs a broker over a folder for as long as fill takes, and stops it cleanly: then all is in the store.
func tieredBroker(t *testing.T, dir string, fill func(s session)) (store string) {
	t.Helper()
	return withTieredBroker(t, dir, func(s session, _ string) { fill(s) })
}

// withTieredBroker tells fill the broker's admin listener, too.
func withTieredBroker(t *testing.T, dir string, fill func(s session, admin string)) (store string) {
	t.Helper()
	b, store := inProcess(t, dir, "tier.enable=true", "auto.create.topics.enable=false")
	fill(session{t, b.Addresses()[0]}, b.AdminAddress())
	closeBroker(t, b)
	return store
}

// lines are numbered, so that each is a record of its own.
func lines(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "record-%06d\n", i)
	}
	return b.String()
}

// status runs a command and compares its exit status.
func status(t *testing.T, want int, args ...string) result {
	t.Helper()
	got := tidemark(t, nil, "", args...)
	if got.status != want {
		t.Fatalf("tidemark %s: status %d, not %d\n%s%s", strings.Join(args, " "), got.status, want, got.stdout, got.stderr)
	}
	return got
}

// objects are the files of the store that match.
func objects(t *testing.T, dir, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "store", "topics", pattern))
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	return found
}

func TestTheBucketAloneIsEnoughForTheTools(t *testing.T) {
	dir := t.TempDir()
	store := tieredBroker(t, dir, func(s session) {
		s.ok("", "topic create orders -p 2 --config segment.bytes=1048576 --config index.interval.bytes=512 --config retention.ms=86400000")
		for i := range 5 { // an idempotent producer each
			s.ok(lines(i*100, i*100+100), fmt.Sprint("produce orders -p ", i%2))
		}
	})
	flag := "--store=" + store

	expect(t, status(t, 0, "tier", "ls", flag).stdout, "TOPIC", "orders")
	var topics []tierTopic
	if err := json.Unmarshal([]byte(status(t, 0, "tier", "ls", flag, "--json").stdout), &topics); err != nil || len(topics) != 1 || topics[0].Offsets != 500 || topics[0].InBucket != 2 {
		t.Errorf("%+v, %v", topics, err)
	}
	var coverage []tierPartition
	if err := json.Unmarshal([]byte(status(t, 0, "tier", "status", "orders", flag, "--json").stdout), &coverage); err != nil || len(coverage) != 2 || !strings.HasPrefix(coverage[1].State, "closed whole") {
		t.Errorf("%+v, %v", coverage, err)
	}
	expect(t, status(t, 0, "tier", "ls", "orders/0", flag).stdout, "00000000000000000000-0-")
	var why []reasons.Partition
	if err := json.Unmarshal([]byte(status(t, 0, "tier", "explain", "orders", flag, "--json").stdout), &why); err != nil || len(why) != 2 || why[0].Segments[0].UntilMs == 0 {
		t.Errorf("%+v, %v", why, err)
	}
	expect(t, status(t, 0, "tier", "explain", "orders/0", flag).stdout, "retention.ms")

	got := strings.Split(strings.TrimSpace(status(t, 0, "tier", "cat", "orders", flag).stdout), "\n")
	slices.Sort(got)
	if strings.Join(got, "\n")+"\n" != lines(0, 500) {
		t.Errorf("cat prints %d lines", len(got))
	}
	if got := status(t, 0, "tier", "cat", "orders/0", "--offset", "5", "--max", "2", "-f", `%o `, flag).stdout; got != "5 6 " {
		t.Errorf("cat from 5 on prints %q", got)
	}
	if got := status(t, 0, "tier", "cat", "orders", "--time", "-1h", "--max", "1", "--json", flag).stdout; !strings.Contains(got, `"offset":0,`) {
		t.Errorf("cat of the last hour begins with %s", got)
	}
	if got := status(t, 0, "tier", "cat", "orders", "--time", "2199-01-01", flag).stdout; got != "" {
		t.Errorf("cat of the future prints %s", got)
	}

	expect(t, status(t, 0, "tier", "fsck", flag).stdout, "All is well.")
	expect(t, status(t, 0, "tier", "verify", flag).stdout, "500 records", "All is well.")
	expect(t, status(t, 0, "tier", "rebuild-manifest", "orders/0", flag).stdout, "Nothing was written")
	expect(t, status(t, 0, "tier", "rebuild-manifest", "orders/0", "--json", flag).stdout, `"logStart": 0,`, `"written": false`)

	// What is wrong: findings are 1, what can't be looked at is 2.
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"fsck"}, "which store?"},
		{[]string{"ls", "--store", "floppy://a"}, `unknown kind "floppy"`},
		{[]string{"fsck", "--store", emptyStore(t)}, "no cluster"},
		{[]string{"fsck", "--level", "most", flag}, "unknown level"},
		{[]string{"status", "nobody", flag}, "no topic or partition nobody"},
		{[]string{"explain", "orders/99", flag}, "no topic or partition orders/99"},
		{[]string{"cat", "orders", "--time", "24h", flag}, "an age is written -24h"},
		{[]string{"cat", "orders/x", flag}, "is not TOPIC or TOPIC/PARTITION"},
		{[]string{"explain", "orders", "--admin", "127.0.0.1:1"}, "--admin"},
		{[]string{"rebuild-manifest", "orders/0", "--write", flag}, "--force"},
		{[]string{"rebuild-manifest", "orders", flag}, "which partition?"},
	} {
		if got := status(t, 2, append([]string{"tier"}, c.args...)...); !strings.Contains(got.stderr, c.want) {
			t.Errorf("%v: %s", c.args, got.stderr)
		}
	}
	for _, line := range []string{"tier cat orders", "metadata cat", "metadata image", "tier ls"} { // to a full disk
		args := append(strings.Fields(line), flag)
		if status := run(t.Context(), args, strings.NewReader(""), noSpace{}, io.Discard, func(string) string { return "" }); status != 1 {
			t.Errorf("%s: status %d", line, status)
		}
	}
	for _, aux := range objects(t, dir, "orders.*/0/*.aux") {
		if err := os.Remove(aux); err != nil {
			t.Fatal(err)
		}
		expect(t, status(t, 1, "tier", "fsck", flag).stdout, "missing: orders/0", "1 findings are left")
		expect(t, status(t, 0, "tier", "fsck", "--repair", flag).stdout, "repaired: made anew", "all repaired")
	}
	status(t, 0, "tier", "verify", flag)
	segment := objects(t, dir, "orders.*/0/*.log")[0]
	data, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(segment, data, 0o600); err != nil {
		t.Fatal(err)
	}
	status(t, 0, "tier", "fsck", "--level", "aux", flag)
	expect(t, status(t, 1, "tier", "verify", flag).stdout, "checksum: orders/0 offsets 0 to", "what to do:", "1 findings are left, 1 of them about records")
	var report struct {
		Findings []fsck.Finding
		Summary  fsck.Summary
	}
	if err := json.Unmarshal([]byte(status(t, 1, "tier", "fsck", "--level", "all", "--json", flag).stdout), &report); err != nil || len(report.Findings) != 1 || report.Findings[0].Kind != fsck.KindChecksum {
		t.Errorf("%+v, %v", report, err)
	}
	status(t, 0, "tier", "verify", "--only", "orders/1", flag)
	if got := status(t, 1, "tier", "cat", "orders/0", flag); !strings.Contains(got.stderr, "batch") {
		t.Errorf("cat of damage: %s", got.stderr)
	}
}

func TestARunningBrokerExplainsItsPartitions(t *testing.T) {
	withTieredBroker(t, t.TempDir(), func(s session, admin string) {
		s.ok("", "topic create orders -p 2")
		s.ok(lines(0, 10), "produce orders")
		flag := "--admin=" + admin
		expect(t, status(t, 0, "tier", "explain", "orders", flag).stdout, "orders/0, leader epoch", "orders/1, leader epoch", "local")
		var rows []tierPartition
		if err := json.Unmarshal([]byte(status(t, 0, "tier", "status", flag, "--json").stdout), &rows); err != nil || len(rows) != 2 || *rows[0].LogEnd+*rows[1].LogEnd != 10 {
			t.Errorf("%+v, %v", rows, err)
		}
		expect(t, status(t, 0, "tier", "status", "orders/0", flag).stdout, "LOG END", "orders/0")
		expect(t, status(t, 2, "tier", "explain", "orders/99", flag, "--json").stderr, "leads no partition orders/99")
		if got := status(t, 2, "tier", "explain", "nobody", flag); !strings.Contains(got.stderr, "404") {
			t.Error(got.stderr)
		}
	})
}

// TestFM44ALostManifestComesBack: the broker goes on with a manifest that was made anew.
func TestFM44ALostManifestComesBack(t *testing.T) {
	dir := t.TempDir()
	store := tieredBroker(t, dir, func(s session) {
		s.ok("", "topic create orders")
		s.ok(lines(0, 100), "produce orders")
	})
	flag := "--store=" + store
	for _, object := range append(objects(t, dir, "orders.*/0/manifest/*.json"), objects(t, dir, "orders.*/0/*.aux")...) {
		if err := os.Remove(object); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, status(t, 0, "tier", "rebuild-manifest", "orders/0", flag).stdout, "is made anew", "--write does it")
	expect(t, status(t, 0, "tier", "rebuild-manifest", "orders/0", "--write", flag).stdout, "has a new manifest of 1 segments")
	expect(t, status(t, 0, "tier", "verify", flag).stdout, "100 records", "All is well.")

	tieredBroker(t, dir, func(s session) { s.ok(lines(100, 200), "produce orders") })
	if got := status(t, 0, "tier", "cat", "orders", flag).stdout; got != lines(0, 200) {
		t.Errorf("afterwards the bucket has %d bytes of records", len(got))
	}
	expect(t, status(t, 0, "tier", "verify", flag).stdout, "200 records", "All is well.")

	// Not under a cluster that is at work.
	tieredBroker(t, dir, func(session) {
		got := status(t, 2, "tier", "rebuild-manifest", "orders/0", "--write", "--force", flag)
		expect(t, got.stderr, "a cluster is at work on this bucket")
	})
}

// serving runs serve --read-only for the length of the test, and returns its address.
func serving(t *testing.T, f serveFlags) (address string, err error) {
	t.Helper()
	f.listen, f.grace = "127.0.0.1:0", time.Hour
	s, err := openServing(t.Context(), time.Now(), f, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s.address, nil
}

// readWithFranz reads a topic to its end with franz-go, without a group.
func readWithFranz(t *testing.T, address, topic string, records int) string {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var got []string
	for len(got) < records {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d records: %v", len(got), err)
		}
		fetches.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)+"\n") })
	}
	slices.Sort(got)
	return strings.Join(got, "")
}

// readWithKcat reads a topic to its end with kcat.
func readWithKcat(t *testing.T, address, topic string) string {
	t.Helper()
	kcat, err := exec.LookPath("kcat")
	if err != nil {
		t.Skip("kcat is not installed: scripts/need kcat")
	}
	out, err := exec.CommandContext(t.Context(), kcat, "-b", address, "-t", topic, "-C", "-e", "-q", "-o", "beginning").Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.SplitAfter(string(out), "\n")
	slices.Sort(got)
	return strings.Join(got, "")
}

func TestAStoppedClustersBucketIsServed(t *testing.T) {
	dir := t.TempDir()
	tieredBroker(t, dir, func(s session) {
		s.ok("", "topic create orders -p 3")
		s.ok(lines(0, 200), "produce orders -p 0")
		s.ok(lines(200, 300), "produce orders -p 1")
	})
	between := time.Now()
	store := tieredBroker(t, dir, func(s session) { s.ok(lines(300, 400), "produce orders -p 1") })
	before := files(t, dir)

	for _, c := range []struct {
		name string
		at   string
		want string
	}{
		{"now", "", lines(0, 400)},
		{"before the last upload", fmt.Sprint(between.UnixMilli()), lines(0, 300)},
	} {
		t.Run(c.name, func(t *testing.T) {
			address, err := serving(t, serveFlags{store: store, at: c.at})
			if err != nil {
				t.Fatal(err)
			}
			if got := readWithFranz(t, address, "orders", strings.Count(c.want, "\n")); got != c.want {
				t.Errorf("franz-go reads %d bytes, not %d", len(got), len(c.want))
			}
			s := session{t, address}
			expect(t, s.ok("", "topic describe orders"), "orders")
			expect(t, s.fails("topic create another"), "too old")
			if got := s.run(lines(0, 1), "produce orders", "--timeout=5s"); got.status != 1 || !strings.Contains(got.stdout+got.stderr, "TOPIC_AUTHORIZATION_FAILED") {
				t.Errorf("a produce ends with %d, %s%s", got.status, got.stdout, got.stderr)
			}
			if got := readWithKcat(t, address, "orders"); got != c.want {
				t.Errorf("kcat reads %d bytes, not %d", len(got), len(c.want))
			}
		})
	}
	for _, at := range []string{"-3h", "-50m"} {
		if _, err := serving(t, serveFlags{store: store, at: at}); !errors.Is(err, readonly.ErrTooOld) {
			t.Errorf("as of %s: %v", at, err)
		}
	}
	if after := files(t, dir); !slices.Equal(before, after) {
		t.Errorf("the bucket has %d objects, and had %d", len(after), len(before))
	}
	status(t, 2, "serve", "--store", store)
}

// A disaster that has damaged one manifest does not take the other partitions along.
func TestADamagedPartitionIsNamedAndTheOthersAreServed(t *testing.T) {
	dir := t.TempDir()
	store := tieredBroker(t, dir, func(s session) {
		s.ok("", "topic create orders -p 2")
		s.ok(lines(0, 10), "produce orders -p 0")
		s.ok(lines(10, 20), "produce orders -p 1")
	})
	damage(t, objects(t, dir, "orders.*/0/manifest/*.json")[0])

	address, err := serving(t, serveFlags{store: store})
	if err != nil {
		t.Fatal(err)
	}
	s := session{t, address}
	if got := s.ok("", "consume orders -p 1 --from start -e"); got != lines(10, 20) {
		t.Errorf("of the other partition it serves %q", got)
	}
	expect(t, s.run("", "consume orders -p 0 --from start -e", "--timeout=2s").stderr, "KAFKA_STORAGE_ERROR")

	var log, greeting strings.Builder
	served, err := openServing(t.Context(), time.Now(), serveFlags{store: store, listen: "127.0.0.1:0"}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	served.greet(&greeting)
	ended, end := context.WithCancel(t.Context())
	end()
	if err := served.run(ended); err != nil {
		t.Error(err)
	}
	expect(t, greeting.String(), "damaged", "orders/0")
	expect(t, log.String(), "damaged", "topic=orders partition=0", "entry 1")
}

// A tool that finds no store does not make one: the folder may be that of a disk that is away.
func TestToolsMakeNoStore(t *testing.T) {
	dir := t.TempDir()
	nowhere := filepath.Join(dir, "nowhere")
	for _, line := range []string{"tier ls", "tier fsck --repair", "metadata cat", "serve --read-only --listen 127.0.0.1:0"} {
		expect(t, status(t, 2, append(strings.Fields(line), "--store", "file://"+nowhere)...).stderr, "no file store is there", nowhere)
	}
	settings := filepath.Join(dir, "broker.properties")
	text := "node.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs=" + filepath.Join(dir, "logs") + "\nstore.url=file://" + nowhere + "\n"
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, status(t, 1, "recover", "--dry-run", "--config", settings).stderr, "no file store is there", nowhere)
	if _, err := os.Stat(nowhere); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v", nowhere, err)
	}
}

// emptyStore is the URL of a store without a cluster.
func emptyStore(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := filestore.Create(dir); err != nil {
		t.Fatal(err)
	}
	return "file://" + dir
}

// files are the objects of the store with their sizes and times.
func files(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.Walk(filepath.Join(dir, "store"), func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() && !strings.Contains(path, "/.") {
			list = append(list, fmt.Sprint(path, info.Size(), info.ModTime()))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}
