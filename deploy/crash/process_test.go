package crash

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// patience is how long anything may take that is expected.
const patience = 30 * time.Second

var prebuilt = flag.String("broker", "", "the broker's binary; built from the source if empty")

// binary is the program, built once for all tests.
var binary = sync.OnceValues(func() (string, error) {
	if *prebuilt != "" {
		return *prebuilt, nil
	}
	dir, err := os.MkdirTemp("", "tidemark-crash-")
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "tidemark")
	out, err := exec.Command("go", "build", "-o", name, "github.com/tidemark-io/tidemark/cmd/tidemark").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return name, nil
})

// raceDetector tells that it watches this program: the brokers are processes of their own, of which it sees nothing.
var raceDetector bool

func TestMain(m *testing.M) {
	if raceDetector {
		return
	}
	flag.Parse()
	if testing.Short() {
		os.Exit(0) // short tests are for the race detector, which does not see into another process
	}
	code := m.Run()
	if name, err := binary(); err == nil && *prebuilt == "" {
		_ = os.RemoveAll(filepath.Dir(name)) // a temporary folder
	}
	os.Exit(code)
}

// broker is a broker in a process of its own, and its place, which outlives the process.
type broker struct {
	t     testing.TB
	dir   string
	addr  string
	admin string
	args  []string

	cmd    *exec.Cmd // nil while it does not run
	exited chan struct{}
	stderr *output
	ready  time.Duration // from the start of the process on
}

// output is what a process has said so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// newBroker is a broker that was not started yet. settings are key=value.
func newBroker(t testing.TB, settings ...string) *broker {
	t.Helper()
	b := &broker{t: t, dir: t.TempDir(), addr: freeAddress(t), admin: freeAddress(t)}
	for _, s := range append([]string{"offsets.topic.num.partitions=3", "group.initial.rebalance.delay.ms=0"}, settings...) {
		b.args = append(b.args, "--set", s)
	}
	t.Cleanup(b.kill)
	return b
}

// freeAddress is where nobody listens now, below the ports that the system gives to clients.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 20_000+nextPort())
		l, err := net.Listen("tcp", addr)
		if err == nil {
			_ = l.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

var (
	portMu sync.Mutex
	port   = os.Getpid() % 10_000
)

func nextPort() int {
	portMu.Lock()
	defer portMu.Unlock()
	port = (port + 1) % 10_000
	return port
}

// launch starts a process in the broker's place, with further arguments.
func (b *broker) launch(args ...string) (cmd *exec.Cmd, stdout io.Reader, stderr *output) {
	b.t.Helper()
	name, err := binary()
	if err != nil {
		b.t.Fatal(err)
	}
	cmd = exec.Command(name, append(append([]string{"dev", "--listen", b.addr, "--admin", b.admin, "--data", b.dir}, b.args...), args...)...)
	stderr = &output{}
	cmd.Stderr = stderr
	if stdout, err = cmd.StdoutPipe(); err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	return cmd, stdout, stderr
}

// start starts the broker and waits until it serves.
func (b *broker) start(args ...string) {
	b.t.Helper()
	began := time.Now()
	cmd, stdout, stderr := b.launch(args...)
	b.cmd, b.stderr, b.exited = cmd, stderr, make(chan struct{})
	ready := make(chan bool, 1)
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if strings.Contains(lines.Text(), "is ready") {
				ready <- true
			}
		}
		_ = cmd.Wait() // how it ended shows in what comes of it
		close(b.exited)
		ready <- false
	}()
	select {
	case ok := <-ready:
		if !ok {
			b.t.Fatalf("the broker does not start:\n%s", stderr)
		}
	case <-time.After(patience):
		b.t.Fatalf("the broker does not get ready:\n%s", stderr)
	}
	b.ready = time.Since(began)
}

// kill is kill -9.
func (b *broker) kill() { b.end(syscall.SIGKILL) }

// stop is an orderly stop.
func (b *broker) stop() {
	b.t.Helper()
	b.end(syscall.SIGTERM)
}

func (b *broker) end(how syscall.Signal) {
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Signal(how) // an error says that it has ended
	select {
	case <-b.exited:
	case <-time.After(patience):
		b.t.Errorf("the broker does not end:\n%s", b.stderr)
		_ = b.cmd.Process.Kill()
		<-b.exited
	}
	b.cmd = nil
}

// refuses fails the test unless a start fails, with a reason that contains why.
func (b *broker) refuses(why string, args ...string) {
	b.t.Helper()
	cmd, stdout, stderr := b.launch(args...)
	done := make(chan error, 1)
	go func() {
		_, _ = io.Copy(io.Discard, stdout)
		done <- cmd.Wait()
	}()
	select {
	case err := <-done:
		var status *exec.ExitError
		if !errors.As(err, &status) || !strings.Contains(stderr.String(), why) {
			b.t.Errorf("%v:\n%s\nwant %q", err, stderr, why)
		}
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		<-done
		b.t.Errorf("it starts, which should fail because of %q:\n%s", why, stderr)
	}
}

// logs is the log directory that dev makes.
func (b *broker) logs() string { return filepath.Join(b.dir, "logs") }

// client is a client that goes on while the broker is away.
func (b *broker) client(options ...kgo.Opt) *kgo.Client {
	b.t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(b.addr), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.MetadataMinAge(50 * time.Millisecond), kgo.RecordRetries(1 << 30), kgo.UnknownTopicRetries(-1),
		kgo.RetryTimeout(patience), kgo.FetchMaxWait(200 * time.Millisecond),
	}, options...)...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(c.Close)
	return c
}

// create makes a topic.
func (b *broker) create(topic string, partitions int32, settings ...string) {
	b.t.Helper()
	configs := map[string]*string{}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		configs[key] = &value
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := b.client()
	defer c.Close()
	if _, err := kadm.NewClient(c).CreateTopic(ctx, partitions, 1, configs, topic); err != nil {
		b.t.Fatalf("create %s: %v", topic, err)
	}
}

// dump runs `tidemark log dump` and tells whether it found damage.
func (b *broker) dump(paths ...string) (damaged bool, text string) {
	b.t.Helper()
	name, err := binary()
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := exec.Command(name, append([]string{"log", "dump"}, paths...)...).CombinedOutput()
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		b.t.Fatal(err)
	}
	return err != nil, string(out)
}

// marked are the lines of a dump that tell of damage.
func marked(dump string) string {
	var lines []string
	for line := range strings.Lines(dump) {
		if strings.Contains(line, "DAMAGED") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// eventually waits for what is about to be so.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	within(t, patience, what, so)
}

func within(t testing.TB, d time.Duration, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(d); !so(); {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to pass that %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
