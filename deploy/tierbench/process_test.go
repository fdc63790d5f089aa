package tierbench

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-io/tidemark/deploy/process"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/s3test"
	"github.com/tidemark-io/tidemark/tier/object/storeurl"
)

var (
	program = process.Flag()
	scheme  = flag.String("scheme", "minio", "by which of the two clients the broker speaks to MinIO: minio or s3")
	rounds  = flag.Int("rounds", 3, "how often the two sides take turns")
	mib     = flag.Int64("mib", 512, "how much is read or written a round")
	link    = flag.Float64("link", 0, "MB/s of a wire to the store, each way; 0: no wire")
	pin     = flag.Bool("pin", false, "leave the broker a core of its own, and all else another")
	profile = flag.String("profile", "", "folder for the broker's CPU profile of what is measured")
)

// patience is how long anything may take that is expected.
const patience = time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	if *readersOf != "" {
		fmt.Fprintln(os.Stderr, beReaders(*readersOf, *readerPause, os.Stdout))
		os.Exit(1)
	}
	if *pin {
		if err := pinSelf(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	program.Remove()
	os.Exit(code)
}

// broker is a broker in a process of its own, and its bucket.
type broker struct {
	*process.Broker
	b     testing.TB
	store object.Store
	plain plainClient
}

// prefix is where the broker's objects lie in its bucket.
const prefix = "tidemark"

// start starts a broker over a new bucket.
func start(b testing.TB, server *s3test.Server, settings ...string) *broker {
	b.Helper()
	name, err := program.Path()
	if err != nil {
		b.Fatal(err)
	}
	r := &broker{b: b}
	if r.Broker, err = process.New(name, b.TempDir(), append([]string{
		"offsets.topic.num.partitions=1", "log.retention.check.interval.ms=500", "log.segment.delete.delay.ms=500",
		"tier.enable=true", "tier.max.unsealed.ms=3600000", "group.initial.rebalance.delay.ms=0",
	}, settings...)...); err != nil {
		b.Fatal(err)
	}
	r.Command = append(pinned(), r.Command...)
	bucket := server.Bucket(b)
	r.plain = newPlainClient(b, server, bucket)
	r.Store = server.StoreURL(*scheme, bucket, prefix)
	if r.store, err = storeurl.Open(b.Context(), r.Store); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		r.Kill()
		if b.Failed() {
			b.Logf("the broker's log:\n%s", r.Log())
		}
	})
	r.launch()
	return r
}

func freeAddress(b testing.TB) string {
	b.Helper()
	address, err := process.FreeAddress()
	if err != nil {
		b.Fatal(err)
	}
	return address
}

// launch starts the process and waits until it serves.
func (r *broker) launch() {
	r.b.Helper()
	if err := r.Start(context.Background()); err != nil {
		r.b.Fatal(err)
	}
}

// restart empties the broker's caches, and waits until it has read its manifests. A kill leaves the end of the log where it is; a stop
// would put it into the bucket.
func (r *broker) restart() {
	r.b.Helper()
	segments := r.metric("tidemark_tier_remote_segments")
	r.Kill()
	r.launch()
	eventually(r.b, "the manifests are read", func() bool { return r.metric("tidemark_tier_remote_segments") == segments })
}

// cpu is the process's time so far.
func (r *broker) cpu() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.PID()))
	if err != nil {
		r.b.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// resident is what the process has in memory: now, and at most so far.
func (r *broker) resident() (now, most int64) {
	now, most, err := r.Memory()
	if err != nil {
		r.b.Fatal(err)
	}
	return now, most
}

// own is the time of this process so far.
func own() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // does not fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// metric is what Metric says.
func (r *broker) metric(name string, labels ...string) float64 {
	r.b.Helper()
	sum, err := r.Metric(context.Background(), name, labels...)
	if err != nil {
		r.b.Fatal(err)
	}
	return sum
}

// profiled has a profile of the broker's CPU taken meanwhile, where one is wanted.
func (r *broker) profiled(name string, d time.Duration) (wait func()) {
	if *profile == "" {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		response, err := http.Get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", r.Admin, max(int(d.Seconds()), 1)))
		if err != nil {
			return
		}
		defer response.Body.Close()
		var body bytes.Buffer
		if _, err := body.ReadFrom(response.Body); err == nil {
			_ = os.WriteFile(filepath.Join(*profile, name+".prof"), body.Bytes(), 0o600) // it is missed when it is looked for
		}
	}()
	return func() { <-done }
}

// create makes a topic.
func (r *broker) create(topic string, partitions int32, settings ...string) {
	r.b.Helper()
	r.asAdmin(func(ctx context.Context, admin *kadm.Client) error {
		configs := map[string]*string{}
		for _, s := range settings {
			key, value, _ := strings.Cut(s, "=")
			configs[key] = &value
		}
		_, err := admin.CreateTopic(ctx, partitions, 1, configs, topic)
		return err
	})
}

// alter changes a setting of a topic.
func (r *broker) alter(topic, key, value string) {
	r.b.Helper()
	r.asAdmin(func(ctx context.Context, admin *kadm.Client) error {
		answers, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: key, Value: &value}}, topic)
		if err != nil {
			return err
		}
		return answers[0].Err
	})
}

func (r *broker) remove(topic string) {
	r.b.Helper()
	r.asAdmin(func(ctx context.Context, admin *kadm.Client) error {
		_, err := admin.DeleteTopic(ctx, topic)
		return err
	})
}

func (r *broker) asAdmin(do func(context.Context, *kadm.Client) error) {
	r.b.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(r.Address))
	if err != nil {
		r.b.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := do(ctx, kadm.NewClient(c)); err != nil {
		r.b.Fatal(err)
	}
}

// eventually waits for what is about to be so.
func eventually(b testing.TB, what string, so func() bool) {
	b.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("it does not come to pass that %s", what)
		}
	}
}
