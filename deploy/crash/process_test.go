package crash

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-io/tidemark/deploy/process"
)

// patience is how long anything may take that is expected.
const patience = 30 * time.Second

var program = process.Flag()

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
	program.Remove()
	os.Exit(code)
}

// broker is a broker in a process of its own.
type broker struct {
	*process.Broker
	t testing.TB
}

// newBroker is a broker that was not started yet. settings are key=value.
func newBroker(t testing.TB, settings ...string) *broker {
	t.Helper()
	b := brokerAt(t, t.TempDir())
	b.Settings = append([]string{"offsets.topic.num.partitions=3", "group.initial.rebalance.delay.ms=0"}, settings...)
	return b
}

// brokerAt has its data in a folder, which may be another's.
func brokerAt(t testing.TB, dir string) *broker {
	t.Helper()
	name, err := program.Path()
	if err != nil {
		t.Fatal(err)
	}
	b, err := process.New(name, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Kill)
	return &broker{b, t}
}

// start starts the broker and waits until it serves.
func (b *broker) start(args ...string) {
	b.t.Helper()
	if err := b.Start(context.Background(), args...); err != nil {
		b.t.Fatal(err)
	}
}

// stop is an orderly stop. Its status is not 0 where the store is away or a disk is broken; how it ended shows in what comes of it.
func (b *broker) stop() {
	b.t.Helper()
	if err := b.Stop(); err != nil && !process.EndedByItself(err) {
		b.t.Error(err)
	}
}

// refuses fails the test unless a start fails, with a reason that contains why.
func (b *broker) refuses(why string, args ...string) {
	b.t.Helper()
	if err := b.Start(context.Background(), args...); !process.EndedByItself(err) || !strings.Contains(b.Log(), why) {
		b.Kill()
		b.t.Errorf("%v:\n%s\nwant %q", err, b.Log(), why)
	}
}

// logs is the log directory that dev makes.
func (b *broker) logs() string { return filepath.Join(b.Data, "logs") }

// client is a client that goes on while the broker is away.
func (b *broker) client(options ...kgo.Opt) *kgo.Client {
	b.t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(b.Address), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
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
	out, err := exec.Command(b.Command[0], append([]string{"log", "dump"}, paths...)...).CombinedOutput()
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
