package crash

import (
	"context"
	be "encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-io/tidemark/tier/object/s3test"
)

var (
	volume = flag.Int64("volume", 96<<20, "bytes to write before everything is read from the store")
	tools  = flag.String("kafka", "", "a kafka.sh as the rigs have it: Kafka's own tools take part")
)

// memoryMax is for the cache of 256 MiB, as much again of garbage, and what is under way.
const memoryMax = 700 << 20

// All but the tail of each partition is in the bucket and gone from disk, and everybody reads what was written: kcat, Kafka's console
// consumer and franz-go, alone and as a group that a member joins in the middle, also with read_committed, also 50 cold partitions at once. Look-ups by
// time answer as looking at each record does. What lies in the bucket are Kafka's files, and JSON.
func TestConsumersReadFromTheStore(t *testing.T) {
	const partitions, manyPartitions = 8, 50
	segment := max(*volume/partitions/16, 1<<20)
	store := newBucket(t, s3test.MinIO, "minio")
	b := newBroker(t, fmt.Sprint("log.segment.bytes=", segment), fmt.Sprint("log.local.retention.bytes=", 2*segment),
		"log.retention.check.interval.ms=1000", "log.segment.delete.delay.ms=1000")
	b.Store = store.url
	b.start()
	b.create("deep", partitions)
	b.create("long", 1, "segment.bytes=1048576")
	b.create("wide", manyPartitions, "segment.bytes=1048576", "local.retention.bytes=1")

	begun := time.Now()
	deep := b.write("deep", partitions, *volume)
	t.Logf("%d records of %d bytes are written in %v", deep.records(), *volume, time.Since(begun))
	wide := b.write("wide", manyPartitions, manyPartitions*2_500_000)
	b.write("long", 1, 40<<20) // segments enough for snapshots of the manifest
	b.settles()
	for topic, limit := range map[string]int64{"deep": partitions * 4 * segment, "wide": manyPartitions << 20} {
		eventually(t, "all but the tail is gone from disk", func() bool { return b.onDisk(topic) <= limit })
		t.Logf("%v after the first record all is uploaded; %d bytes of %s are on disk; at most %d MiB of memory", time.Since(begun), b.onDisk(topic), topic, b.memory()>>20)
	}
	for _, h := range []*history{deep, wide} {
		h.readers(b)
		h.joined(b)
	}
	deep.lookUp(b)
	if most := b.memory(); most > memoryMax {
		t.Errorf("at most %d MiB of memory, want %d", most>>20, memoryMax>>20)
	} else {
		t.Logf("at most %d MiB of memory", most>>20)
	}
	b.stop() // which puts the rest into the bucket
	store.holds(t, b, deep)
	store.fsck(t, "all")
}

// readers has everybody read everything.
func (h *history) readers(b *broker) {
	b.t.Helper()
	for _, reader := range []struct {
		name string
		read func() *reading
	}{
		{"franz-go", func() *reading { return h.consume(b) }},
		{"franz-go, read_committed", func() *reading { return h.consume(b, kgo.FetchIsolationLevel(kgo.ReadCommitted())) }},
		{"kcat", func() *reading { return h.kcat(b) }},
		{"console consumer", func() *reading { return h.consoleConsumer(b) }},
	} {
		fetched := func() float64 { return b.metric("tidemark_store_bytes_total", `cause="fetch"`) }
		before, begun := fetched(), time.Now()
		if r := reader.read(); r != nil {
			h.compare(r)
			b.t.Logf("%s reads %s: %v, %.0f MB from the bucket, at most %d MiB of memory so far",
				reader.name, h.topic, time.Since(begun), (fetched()-before)/1e6, b.memory()>>20)
		}
	}
}

// memory is the most that the broker has had so far.
func (b *broker) memory() int64 {
	b.t.Helper()
	_, most, err := b.Memory()
	if err != nil {
		b.t.Skip(err)
	}
	return most
}

func (h *history) kcat(b *broker) *reading {
	b.t.Helper()
	name, err := exec.LookPath("kcat")
	if err != nil {
		b.t.Log("NOT TESTED with kcat, which is not installed")
		return nil
	}
	return h.parse(b.t, "kcat", name, "-b", b.Address, "-C", "-q", "-t", h.topic, "-o", "beginning", "-e", "-X", "check.crcs=true",
		"-f", `CreateTime:%T\tPartition:%p\tOffset:%o\t%s\n`)
}

func (h *history) consoleConsumer(b *broker) *reading {
	b.t.Helper()
	if *tools == "" {
		b.t.Log("NOT TESTED with Kafka's console consumer: -kafka is not set")
		return nil
	}
	return h.parse(b.t, "console consumer", *tools, "tool", "console-consumer", "--bootstrap-server", b.Address, "--topic", h.topic, "--from-beginning",
		"--max-messages", strconv.Itoa(h.records()), "--timeout-ms", "60000", "--formatter-property", "print.timestamp=true",
		"--formatter-property", "print.partition=true", "--formatter-property", "print.offset=true")
}

// joined reads everything by a group of two, to which a third comes when half is read: no record is left out.
func (h *history) joined(b *broker) {
	b.t.Helper()
	type seen struct {
		partition int32
		offset    int64
		value     []byte
	}
	records, ended := make(chan seen, 1000), make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	assigned := make(chan struct{}, 100)
	member := func() {
		c := b.client(kgo.ConsumerGroup("readers "+h.topic), kgo.ConsumeTopics(h.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, now map[string][]int32) {
				if len(now) > 0 {
					assigned <- struct{}{}
				}
			}))
		go func() {
			defer func() { ended <- struct{}{} }()
			for ctx.Err() == nil {
				fetches := c.PollRecords(ctx, 5000)
				for _, e := range fetches.Errors() {
					if ctx.Err() == nil {
						b.t.Errorf("group: %v", e.Err)
					}
				}
				fetches.EachRecord(func(r *kgo.Record) {
					select {
					case records <- seen{r.Partition, r.Offset, r.Value}:
					case <-ctx.Done():
					}
				})
			}
		}()
	}
	begun := time.Now()
	member()
	member()
	there := make([][]bool, len(h.log))
	for p := range there {
		there[p] = make([]bool, len(h.log[p].times))
	}
	again, members := 0, 2
	for left := h.records(); left > 0; {
		select {
		case r := <-records:
			if !slices.Equal(r.value, value1000(r.partition, r.offset)) {
				b.t.Errorf("group: partition %d, offset %d: %.20q", r.partition, r.offset, r.value)
			}
			if there[r.partition][r.offset] {
				again++
				continue
			}
			there[r.partition][r.offset] = true
			if left--; left == h.records()/2 {
				members++
				for len(assigned) > 0 {
					<-assigned
				}
				member()
				<-assigned // nobody gets a record before that
			}
		case <-ctx.Done():
			b.t.Errorf("group: %d records are missing", left)
			left = 0
		}
	}
	cancel()
	for range members {
		<-ended
	}
	b.t.Logf("a group, whose third member came in the middle, reads %s: %v, %d records twice, at most %d MiB of memory so far",
		h.topic, time.Since(begun), again, b.memory()>>20)
}

// lookUp compares look-ups by time and of the special kind with what was written.
func (h *history) lookUp(b *broker) {
	t := b.t
	t.Helper()
	random := rand.New(rand.NewPCG(3, 3))
	c := b.client()
	begun, lookups := time.Now(), 0
	for p, l := range h.log {
		local := offsetAt(t, c, h.topic, int32(p), -4)
		if local == 0 || local > offsetAt(t, c, h.topic, int32(p), -5)+1 {
			t.Errorf("partition %d: local from offset %d on", p, local)
		}
		moments := append(l.moments(random, 50), l.times[local-1], l.times[local]) // and where local and remote meet
		for _, ms := range moments {
			if got, want := offsetAt(t, c, h.topic, int32(p), ms), l.since(ms); got != want {
				t.Errorf("partition %d, time %d: offset %d, want %d", p, ms, got, want)
			}
			lookups++
		}
		if got := offsetAt(t, c, h.topic, int32(p), -3); got != l.newest() {
			t.Errorf("partition %d: offset %d has the largest timestamp, want %d", p, got, l.newest())
		}
	}
	t.Logf("%d look-ups by time in %v", lookups, time.Since(begun))
	if *tools == "" {
		return
	}
	moments := h.log[0].moments(random, 12)
	for _, ms := range moments[1 : len(moments)-1] { // a time behind all has no row
		h.getOffsets(t, b, strconv.FormatInt(ms, 10), func(l partitionHistory) int64 { return l.since(ms) })
	}
	h.getOffsets(t, b, "earliest", func(partitionHistory) int64 { return 0 })
	h.getOffsets(t, b, "latest", func(l partitionHistory) int64 { return int64(len(l.times)) })
	h.getOffsets(t, b, "max-timestamp", partitionHistory.newest)
}

// getOffsets compares what kafka-get-offsets prints for a time.
func (h *history) getOffsets(t testing.TB, b *broker, when string, want func(partitionHistory) int64) {
	t.Helper()
	var owed strings.Builder
	for p, l := range h.log {
		if offset := want(l); offset >= 0 {
			fmt.Fprintf(&owed, "%s:%d:%d\n", h.topic, p, offset)
		}
	}
	got, err := exec.Command(*tools, "tool", "get-offsets", "--bootstrap-server", b.Address, "--topic", h.topic, "--time", when).Output()
	if err != nil || string(got) != owed.String() {
		t.Errorf("kafka-get-offsets --time %s: %v\n%swant\n%s", when, err, got, owed.String())
	}
}

// holds fetches objects of each kind and has those look at them who know nothing of Tidemark: Kafka's dump-log, and jq.
func (b *bucket) holds(t *testing.T, broker *broker, h *history) {
	t.Helper()
	client := b.client(t)
	ctx := t.Context()
	dir := t.TempDir()
	var manifest, snapshots []string
	for object := range client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: "tidemark/", Recursive: true}) {
		if object.Err != nil {
			t.Fatal(object.Err)
		}
		folder, name := path.Split(strings.TrimPrefix(object.Key, "tidemark/"))
		ofTopic := strings.HasPrefix(folder, "topics/"+h.topic+".")
		switch {
		case strings.HasSuffix(name, ".snapshot.json.zst"):
			snapshots = append(snapshots, filepath.Join(dir, folder, name))
		case ofTopic && strings.HasSuffix(folder, "/0/manifest/") && path.Ext(name) == ".json":
			manifest = append(manifest, filepath.Join(dir, folder, name))
		case ofTopic && strings.HasSuffix(folder, "/1/"): // every segment of one partition, and its sidecar
		default:
			continue
		}
		if err := client.FGetObject(ctx, b.name, object.Key, filepath.Join(dir, folder, name), minio.GetObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	jq(t, manifest, snapshots)
	dumpLog(t, broker, dir, len(h.log[1].times))
}

// jq reads a manifest's entries and all snapshots.
func jq(t *testing.T, manifest, snapshots []string) {
	t.Helper()
	for _, name := range []string{"jq", "zstd"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Logf("NOT TESTED with %s, which is not installed", name)
			return
		}
	}
	const program = `[.[].records[] | select(.type == "add")] | {segments: length, gaps: [range(1; length) as $i | select(.[$i].start != .[$i - 1].end)] | length}`
	out, err := exec.Command("jq", append([]string{"-c", "-s", program}, manifest...)...).CombinedOutput()
	var found struct{ Segments, Gaps int }
	if err != nil || json.Unmarshal(out, &found) != nil || found.Segments < 3 || found.Gaps != 0 {
		t.Errorf("jq on %d entries: %s: %v", len(manifest), out, err)
	}
	for _, name := range snapshots {
		out, err := exec.Command("sh", "-c", `zstd -qdc "$1" | jq -e '.position.number > 0 and .state.version == 1'`, "sh", name).CombinedOutput()
		if err != nil {
			t.Errorf("jq on snapshot %s: %s: %v", name, out, err)
		}
	}
	if len(snapshots) == 0 {
		t.Error("the bucket has no snapshot")
	}
	t.Logf("jq finds %d segments in %d entries, and reads %d snapshots", found.Segments, len(manifest), len(snapshots))
}

// dumpLog has `tidemark log dump`, and Kafka's tool if there is one, read each segment below a folder with the indexes of its sidecar.
func dumpLog(t *testing.T, b *broker, dir string, records int) {
	t.Helper()
	objects, err := filepath.Glob(filepath.Join(dir, "topics", "*", "1", "*.log"))
	if err != nil || len(objects) == 0 {
		t.Fatalf("no segments: %v", err)
	}
	files := t.TempDir()
	var logs, indexes []string
	for _, name := range objects {
		base, _, _ := strings.Cut(filepath.Base(name), "-")
		log := filepath.Join(files, base+".log")
		if err := os.Rename(name, log); err != nil {
			t.Fatal(err)
		}
		logs = append(logs, log)
		parts := sections(t, strings.TrimSuffix(name, ".log")+".aux")
		for suffix, section := range map[string]string{".index": "offset_index", ".timeindex": "time_index"} {
			index := filepath.Join(files, base+suffix)
			if err := os.WriteFile(index, parts[section], 0o600); err != nil {
				t.Fatal(err)
			}
			indexes = append(indexes, index)
		}
	}
	if damaged, text := b.dump(logs...); damaged {
		t.Errorf("tidemark log dump:\n%s", marked(text))
	}
	if *tools == "" {
		return
	}
	dump := func(args ...string) string {
		out, err := exec.Command(*tools, append([]string{"tool", "dump-log"}, args...)...).CombinedOutput()
		if err != nil || strings.Contains(string(out), "ound ") { // "Found timestamp mismatch", "Mismatches found"
			t.Errorf("kafka-dump-log %.100q: %v: %.2000s", args, err, out)
		}
		return string(out)
	}
	out := dump("--deep-iteration", "--files", strings.Join(logs, ","))
	if got := strings.Count(out, "\n| offset: "); got != records || strings.Contains(out, "isvalid: false") {
		t.Errorf("kafka-dump-log: %d records, want %d; invalid: %v", got, records, strings.Contains(out, "isvalid: false"))
	}
	slices.Sort(indexes)
	dump("--files", strings.Join(indexes, ","))
	out = dump("--index-sanity-check", "--files", strings.Join(indexes, ","))
	if got := strings.Count(out, "passed sanity check") + strings.Count(out, ".index is empty"); got != len(indexes) { // large batches need no index
		t.Errorf("kafka-dump-log --index-sanity-check: %d of %d pass:\n%.2000s", got, len(indexes), out)
	}
	t.Logf("kafka-dump-log reads %d records of %d segments, and %d indexes", records, len(logs), len(indexes))
}

// sections are the parts of a sidecar, read as docs/format/sidecar.md says.
func sections(t *testing.T, name string) map[string][]byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	body := data[16+be.BigEndian.Uint32(data[8:]):]
	var directory struct {
		Sections []struct {
			Name           string
			Offset, Length int64
		}
	}
	if err := json.Unmarshal(data[16:len(data)-len(body)], &directory); err != nil {
		t.Fatal(err)
	}
	parts := map[string][]byte{}
	for _, s := range directory.Sections {
		parts[s.Name] = body[s.Offset : s.Offset+s.Length]
	}
	return parts
}
