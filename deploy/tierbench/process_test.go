package tierbench

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/s3test"
	"github.com/tidemark-io/tidemark/tier/object/storeurl"
)

var (
	prebuilt = flag.String("broker", "", "the broker's binary; built from the source if empty")
	scheme   = flag.String("scheme", "minio", "by which of the two clients the broker speaks to MinIO: minio or s3")
	rounds   = flag.Int("rounds", 3, "how often the two sides take turns")
	mib      = flag.Int64("mib", 512, "how much is read or written a round")
	link     = flag.Float64("link", 0, "MB/s of a wire to the store, each way; 0: no wire")
	pin      = flag.Bool("pin", false, "leave the broker a core of its own, and all else another")
	profile  = flag.String("profile", "", "folder for the broker's CPU profile of what is measured")
)

// patience is how long anything may take that is expected.
const patience = time.Minute

// built is the folder of a binary that was built here.
var built string

// program is the broker's binary, built once.
var program = sync.OnceValues(func() (string, error) {
	if *prebuilt != "" {
		return *prebuilt, nil
	}
	var err error
	if built, err = os.MkdirTemp("", "tidemark-tierbench-"); err != nil {
		return "", err
	}
	name := filepath.Join(built, "tidemark")
	out, err := exec.Command("go", "build", "-o", name, "github.com/tidemark-io/tidemark/cmd/tidemark").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return name, nil
})

func TestMain(m *testing.M) {
	flag.Parse()
	if *pin {
		if err := pinSelf(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built) // a temporary folder
	}
	os.Exit(code)
}

// broker is a broker in a process of its own, its place, which outlives the process, and its bucket.
type broker struct {
	b        testing.TB
	dir      string
	addr     string
	admin    string
	settings []string
	url      string // of the store
	store    object.Store

	cmd    *exec.Cmd // nil while it does not run
	exited chan struct{}
	stderr bytes.Buffer // to be read when it has exited
	ready  time.Duration
}

// start starts a broker over a new bucket.
func start(b testing.TB, server *s3test.Server, settings ...string) *broker {
	b.Helper()
	r := &broker{
		b: b, dir: b.TempDir(), addr: freeAddress(b), admin: freeAddress(b), url: server.StoreURL(*scheme, server.Bucket(b), "tidemark"),
		settings: append([]string{
			"offsets.topic.num.partitions=1", "log.retention.check.interval.ms=500", "log.segment.delete.delay.ms=500",
			"tier.enable=true", "tier.max.unsealed.ms=3600000", "group.initial.rebalance.delay.ms=0",
		}, settings...),
	}
	var err error
	if r.store, err = storeurl.Open(b.Context(), r.url); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { r.end(syscall.SIGKILL) })
	r.launch()
	return r
}

func freeAddress(b testing.TB) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// launch starts the process and waits until it serves.
func (r *broker) launch(args ...string) {
	r.b.Helper()
	name, err := program()
	if err != nil {
		r.b.Fatal(err)
	}
	args = append([]string{name, "dev", "--listen", r.addr, "--admin", r.admin, "--data", r.dir, "--store", r.url}, args...)
	for _, s := range r.settings {
		args = append(args, "--set", s)
	}
	args = append(pinned(), args...)
	began := time.Now()
	r.cmd, r.exited = exec.Command(args[0], args[1:]...), make(chan struct{})
	r.stderr.Reset()
	r.cmd.Stderr = &r.stderr
	stdout, err := r.cmd.StdoutPipe()
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		r.b.Fatal(err)
	}
	ready := make(chan bool, 1)
	cmd, exited := r.cmd, r.exited
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if strings.Contains(lines.Text(), "is ready") {
				ready <- true
			}
		}
		_ = cmd.Wait() // how it ended shows in what comes of it
		close(exited)
		ready <- false
	}()
	select {
	case ok := <-ready:
		if !ok {
			r.b.Fatalf("the broker does not start:\n%s", r.stderr.String())
		}
	case <-time.After(patience):
		r.b.Fatal("the broker does not get ready")
	}
	r.ready = time.Since(began)
}

func (r *broker) end(how syscall.Signal) {
	if r.cmd == nil {
		return
	}
	_ = r.cmd.Process.Signal(how) // an error says that it has ended
	select {
	case <-r.exited:
	case <-time.After(patience):
		_ = r.cmd.Process.Kill()
		<-r.exited
	}
	r.cmd = nil
}

// restart empties the broker's caches, and waits until it has read its manifests. A kill leaves the end of the log where it is; a stop
// would put it into the bucket.
func (r *broker) restart() {
	r.b.Helper()
	segments := r.metric("tidemark_tier_remote_segments")
	r.end(syscall.SIGKILL)
	r.launch()
	eventually(r.b, "the manifests are read", func() bool { return r.metric("tidemark_tier_remote_segments") == segments })
}

// cpu is the process's time so far.
func (r *broker) cpu() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.cmd.Process.Pid))
	if err != nil {
		r.b.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// resident is the memory of the process that is in memory: now, and at most so far.
func (r *broker) resident() (now, most int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		r.b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			switch fields[0] {
			case "VmRSS:":
				now = kib << 10
			case "VmHWM:":
				most = kib << 10
			}
		}
	}
	return now, most
}

// own is the time of this process so far.
func own() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // does not fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// metric is the sum of a metric's rows that have all of some labels, written as they are there.
func (r *broker) metric(name string, labels ...string) (sum float64) {
	r.b.Helper()
	response, err := http.Get("http://" + r.admin + "/metrics")
	if err != nil {
		r.b.Fatal(err)
	}
	defer response.Body.Close()
rows:
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		row, value, _ := strings.Cut(lines.Text(), " ")
		if metric, _, _ := strings.Cut(row, "{"); metric != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(row, l) {
				continue rows
			}
		}
		v, _ := strconv.ParseFloat(value, 64)
		sum += v
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
		response, err := http.Get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", r.admin, max(int(d.Seconds()), 1)))
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
	c, err := kgo.NewClient(kgo.SeedBrokers(r.addr))
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
