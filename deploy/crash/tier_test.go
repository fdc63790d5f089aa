package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-io/tidemark/tier/object/s3proxy"
	"github.com/tidemark-io/tidemark/tier/object/s3test"
)

// tiered are settings under which little stays on disk, and what is sealed goes soon.
var tiered = []string{
	"tier.enable=true", "log.segment.bytes=1048576", "log.local.retention.bytes=2097152", "log.retention.check.interval.ms=500",
	"log.segment.delete.delay.ms=500", fmt.Sprint("tier.cache.bytes=", tieredCache),
}

const tieredCache = 32 << 20

// bucket is a store on a real server, and the proxy before it.
type bucket struct {
	server *s3test.Server
	name   string
	proxy  *s3proxy.Proxy
	url    string // through the proxy
	plain  string // past it
}

func newBucket(t testing.TB, kind s3test.Kind, scheme string) *bucket {
	t.Helper()
	server := s3test.Start(t, kind)
	name := server.Bucket(t)
	b := &bucket{server: server, name: name, proxy: s3proxy.Start(t, server.URL), plain: server.StoreURL(scheme, name, "tidemark")}
	b.url = s3test.URL(b.proxy.URL, "", scheme, name, "tidemark")
	return b
}

// fsck fails the test if the bucket is not sound.
func (b *bucket) fsck(t testing.TB, level string) {
	t.Helper()
	name, err := program.Path()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(name, "tier", "fsck", "--store", b.plain, "--level", level).CombinedOutput(); err != nil {
		t.Errorf("fsck: %v\n%s", err, out)
	}
}

// load has producers and a reader of the end work on a topic until ctx ends.
type load struct {
	*ledger
	group   sync.WaitGroup
	mu      sync.Mutex
	slowest time.Duration // from a record's time until it was read at the end of the log
}

func (b *broker) load(ctx context.Context, topic string, partitions int32) *load {
	l := &load{ledger: newLedger(b.t, topic)}
	for i := range 2 {
		c := b.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(2000), kgo.StopProducerOnDataLossDetected())
		l.group.Go(func() { l.produce(ctx, c, i, partitions) })
	}
	hot := b.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))
	l.group.Go(func() {
		for ctx.Err() == nil {
			fetches := hot.PollFetches(ctx)
			for _, e := range fetches.Errors() {
				if ctx.Err() == nil {
					b.t.Errorf("reader of the end: %v", e.Err)
				}
			}
			fetches.EachRecord(func(r *kgo.Record) {
				l.mu.Lock()
				l.slowest = max(l.slowest, time.Since(r.Timestamp))
				l.mu.Unlock()
			})
		}
	})
	return l
}

// metric is what Metric says; an error fails the test.
func (b *broker) metric(name string, labels ...string) float64 {
	b.t.Helper()
	sum, err := b.Metric(context.Background(), name, labels...)
	if err != nil {
		b.t.Error(err)
	}
	return sum
}

// settles waits until every sealed segment is in the bucket. A partition that failed often waits for up to a minute.
func (b *broker) settles() {
	b.t.Helper()
	within(b.t, time.Minute+patience, "every sealed segment is in the bucket", func() bool {
		return b.metric("tidemark_tier_lag_segments") == 0 && b.metric("tidemark_tier_failing_partitions") == 0
	})
}

// onDisk is the size of a topic's segments here.
func (b *broker) onDisk(topic string) (size int64) {
	files, _ := filepath.Glob(filepath.Join(b.logs(), topic+"-*", "*.log"))
	for _, name := range files {
		if info, err := os.Stat(name); err == nil {
			size += info.Size()
		}
	}
	return size
}

// run has a load work for a while.
func (b *broker) run(topic string, partitions int32, d time.Duration) *load {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	l := b.load(ctx, topic, partitions)
	l.group.Wait()
	return l
}

// A clean stop puts everything into the bucket. The disk is wiped: topics, configs, group offsets and every record are back, no
// offset is left out. After a kill in place of the stop the broker asks before it goes on; what was uploaded is back, what was not is
// named, and no offset is given out twice.
func TestTheBucketAloneIsEnough(t *testing.T) {
	for _, c := range []struct {
		kind   s3test.Kind
		scheme string
	}{{s3test.MinIO, "minio"}, {s3test.Versity, "s3"}} {
		t.Run(string(c.kind), func(t *testing.T) {
			const topic, partitions = "owed", 3
			store := newBucket(t, c.kind, c.scheme)
			b := newBroker(t, tiered...)
			b.Store = store.url
			b.start()
			b.create(topic, partitions, "max.message.bytes=1000000")
			l := b.run(topic, partitions, 4*time.Second)
			b.settles()
			group := b.commit("readers", topic, 7)

			b.stop()
			b.wipe()
			b.start()
			admin := kadm.NewClient(b.client())
			count := l.verify(b.client(), admin, partitions)
			l.sample(b.client(), rand.New(rand.NewPCG(1, 1)), partitions)
			b.committed(group, topic, 7)
			if configs, err := admin.DescribeTopicConfigs(t.Context(), topic); err != nil || value(configs, "max.message.bytes") != "1000000" {
				t.Errorf("configs: %v, %v", configs, err)
			}

			more := b.run(topic, partitions, 2*time.Second)
			b.Kill()
			b.wipe()
			b.refuses("--recover")
			b.start("--recover")
			lost := more.afterLoss(b, partitions)
			t.Logf("%d records came back after the stop; %d of the %d since then were lost with the kill", count, lost, more.count())
			store.fsck(t, "all")
			b.stop()
			store.fsck(t, "all")
		})
	}
}

// wipe deletes the data directory.
func (b *broker) wipe() {
	b.t.Helper()
	if err := os.RemoveAll(b.logs()); err != nil {
		b.t.Fatal(err)
	}
}

// commit commits an offset of partition 0 for a group.
func (b *broker) commit(group, topic string, offset int64) string {
	b.t.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, offset, -1)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := kadm.NewClient(b.client()).CommitAllOffsets(ctx, group, offsets); err != nil {
		b.t.Fatal(err)
	}
	return group
}

func (b *broker) committed(group, topic string, want int64) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	offsets, err := kadm.NewClient(b.client()).FetchOffsets(ctx, group)
	if got, ok := offsets.Lookup(topic, 0); err != nil || !ok || got.At != want {
		b.t.Errorf("group offset %d (%v), want %d", got.At, err, want)
	}
}

func value(configs kadm.ResourceConfigs, name string) string {
	for _, resource := range configs {
		for _, c := range resource.Configs {
			if c.Key == name && c.Value != nil {
				return *c.Value
			}
		}
	}
	return ""
}

// count is how many records were acknowledged.
func (l *ledger) count() (n int) {
	for _, offsets := range l.acked {
		n += len(offsets)
	}
	return n
}

// afterLoss reads each partition behind what is known to be there: what came back is what was acknowledged, in order and without a hole,
// and what is written now gets offsets that nobody had. It returns how many acknowledged records are gone.
func (l *load) afterLoss(b *broker, partitions int32) (lost int) {
	t := b.t
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	c := b.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range partitions {
		highest := int64(-1)
		for offset := range l.acked[p] {
			highest = max(highest, offset)
		}
		r := &kgo.Record{Topic: l.topic, Partition: p, Value: []byte("after")}
		if err := c.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatalf("partition %d: %v", p, err)
		}
		if r.Offset <= highest {
			t.Errorf("partition %d: offset %d is given out again, %d was acknowledged before", p, r.Offset, highest)
		}
		there := map[int64]string{}
		reader := b.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.topic: {p: kgo.NewOffset().AtStart()}}))
		for end := false; !end; {
			fetches := reader.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				t.Fatalf("partition %d: %v", p, err)
			}
			fetches.EachRecord(func(got *kgo.Record) {
				there[got.Offset] = string(got.Value)
				end = end || got.Offset == r.Offset
			})
		}
		gone := false
		for offset := int64(0); offset <= highest; offset++ {
			owed, ok := l.acked[p][offset]
			if !ok {
				continue
			}
			got, here := there[offset]
			switch {
			case !here:
				gone = true
				lost++
			case gone:
				t.Errorf("partition %d: offset %d is there and one before it is not", p, offset)
			case !strings.HasPrefix(got, owed.value):
				t.Errorf("partition %d, offset %d: %.30q, want %q", p, offset, got, owed.value)
			}
		}
	}
	return lost
}
