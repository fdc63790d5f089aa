package broker_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/tidemark-io/tidemark/broker"
	"github.com/tidemark-io/tidemark/broker/config"
)

// get reads a page of the admin listener.
func get(t *testing.T, address, page string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+page, nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// A broker that was started and closed leaves no goroutine behind, with clients on it or not.
func TestACloseLeavesNoGoroutine(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	r := &rig{t: t, dir: t.TempDir()}
	r.start()
	c, err := kgo.NewClient(kgo.SeedBrokers(r.addr), kgo.DefaultProduceTopic("t"), kgo.AllowAutoTopicCreation())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	r.stop() // under the client's eyes
	c.Close()
}

// A start that fails says why, and leaves nothing behind: no goroutine, no port, no lock.
func TestAStartThatFailsLeavesNothingBehind(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())

	first := &rig{t: t, dir: t.TempDir()}
	first.start()
	defer first.stop()
	for _, c := range []struct {
		name string
		set  []string
		want string
	}{
		{"the listener's port is taken", []string{"listeners=PLAINTEXT://" + taken.Addr().String()}, "listen on"},
		{"the admin port is taken", []string{"admin.listener=" + taken.Addr().String()}, "admin.listener"},
		{"the directory is in use", []string{"log.dirs=" + filepath.Join(first.dir, "logs")}, "locked"},
		{"the store is none", []string{"store.url=ftp://x"}, "store.url"},
		// Nobody but the controller can register a broker, and another one has the lease.
		{"nobody registers it", []string{
			"node.id=2", "store.url=file://" + filepath.Join(first.dir, "store"), "initial.broker.registration.timeout.ms=300",
		}, "initial.broker.registration.timeout.ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			settings, _, err := config.Parse([]config.Source{{Format: config.Flags, Name: "test", Pairs: append([]string{
				"node.id=1", "listeners=PLAINTEXT://127.0.0.1:0", "admin.listener=127.0.0.1:0", "cluster.listener=127.0.0.1:0",
				"log.dirs=" + filepath.Join(dir, "logs"), "store.url=file://" + filepath.Join(dir, "store"),
			}, c.set...)}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			b, err := broker.Start(ctx, settings, slog.New(slog.DiscardHandler))
			if err == nil {
				t.Error("it started")
				_ = b.Close(ctx)
			} else if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v does not say %q", err, c.want)
			}
		})
	}
}

// The admin listener tells how far a broker is from the beginning: alive at once, ready once clients are served.
func TestReadinessIsToldFromTheBeginning(t *testing.T) {
	first := startBroker(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	if status, body := get(t, first.broker.AdminAddress(), "/readyz"); status != http.StatusOK || body != "ready\n" {
		t.Errorf("ready: %d %q", status, body)
	}

	settings, _, err := config.Parse([]config.Source{{Format: config.Flags, Name: "test", Pairs: []string{
		"node.id=2", "listeners=PLAINTEXT://127.0.0.1:0", "admin.listener=" + address, "cluster.listener=127.0.0.1:0",
		"log.dirs=" + t.TempDir(), "store.url=file://" + filepath.Join(first.dir, "store"),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := broker.Start(ctx, settings, slog.New(slog.DiscardHandler))
		ended <- err
	}()
	for conn := net.Conn(nil); conn == nil; { // it listens soon
		if conn, err = net.DialTimeout("tcp", address, patience); err != nil {
			conn = nil
			select {
			case err := <-ended:
				t.Fatal(err)
			case <-time.After(10 * time.Millisecond):
			}
		} else {
			conn.Close()
		}
	}
	if status, _ := get(t, address, "/healthz"); status != http.StatusOK {
		t.Errorf("alive: %d", status)
	}
	if status, _ := get(t, address, "/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("while it starts: %d", status)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("a start that was given up succeeded")
	}
}

func TestMetricsAreServed(t *testing.T) {
	r := startBroker(t)
	r.create("t", 2)
	client := r.client(kgo.DefaultProduceTopic("t"))
	if err := client.ProduceSync(t.Context(), &kgo.Record{Partition: 1, Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	status, body := get(t, r.broker.AdminAddress(), "/metrics")
	if status != http.StatusOK {
		t.Fatal(status)
	}
	for _, want := range []string{
		"\ntidemark_leader_partitions 2\n",
		"\ntidemark_offline_partitions 0\n",
		"\ntidemark_under_replicated_partitions 0\n",
		`tidemark_partition_high_watermark{partition="0",topic="t"}`,
		`tidemark_partition_log_end_offset{partition="1",topic="t"}`,
		`tidemark_partition_in_sync_replicas{partition="1",topic="t"} 1`,
		`tidemark_request_duration_seconds_count{api="Produce"} 1`,
		`tidemark_request_duration_seconds_count{api="DescribeQuorum"} 0`,
		"\ntidemark_metadata_offset ",
		"\ntidemark_tier_cache_hits_total{level=\"memory\"} 0\n",
		"\ngo_build_info{",
		"\ngo_goroutines ",
		"\nprocess_open_fds ",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is missing", strings.TrimSpace(want))
		}
	}
	if status, _ := get(t, r.broker.AdminAddress(), "/debug/pprof/"); status != http.StatusOK {
		t.Errorf("pprof: %d", status)
	}
}

// Limits of connections are settings that change while the broker runs.
func TestConnectionLimitsAreDynamic(t *testing.T) {
	r := startBroker(t)
	admin := kadm.NewClient(r.client())
	alter := func(op kadm.IncrementalOp, value string) {
		t.Helper()
		responses, err := admin.AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{{Op: op, Name: "max.connections.per.ip", Value: &value}})
		if err == nil {
			err = responses[0].Err
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func() bool {
		c := r.dial()
		_, err := c.Write(fmt.Appendf(nil, "\x00\x00\x00\x0b\x00\x12\x00\x00\x00\x00\x00\x01\x00\x01x"))
		if err != nil {
			return true
		}
		return c.closed()
	}
	if refused() {
		t.Fatal("refused without a limit")
	}
	alter(kadm.SetConfig, "1") // the admin client has the one
	if !refused() {
		t.Error("not refused beyond the limit")
	}
	alter(kadm.DeleteConfig, "")
	if refused() {
		t.Error("refused without a limit")
	}
}
