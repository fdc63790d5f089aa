package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rig is a server on a free loopback port.
type rig struct {
	*Server
	t        testing.TB
	address  string
	registry *prometheus.Registry
	logs     *lines

	noted   sync.Mutex
	replies map[int32]int // by correlation id
}

type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

type handler = func(now time.Time, r *api.Request) api.Reply

func start(t testing.TB, h handler, change ...func(*Limits)) *rig {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	return startOn(t, l, h, change...)
}

func startOn(t testing.TB, l net.Listener, h handler, change ...func(*Limits)) *rig {
	t.Helper()
	limits := DefaultLimits()
	for _, c := range change {
		c(&limits)
	}
	r := &rig{t: t, address: l.Addr().String(), registry: prometheus.NewRegistry(), logs: &lines{}, replies: map[int32]int{}}
	r.Server = New(Options{
		Listeners:  []Listener{{Name: "PLAINTEXT", Listener: l}},
		Handler:    h,
		Answered:   r.note,
		Flexible:   func(wire.APIKey, int16) bool { return false },
		Limits:     limits,
		Logger:     slog.New(slog.NewTextHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Registerer: r.registry,
	})
	r.Start()
	t.Cleanup(func() { _ = r.shut(0) })
	return r
}

// note counts the replies by correlation id.
func (r *rig) note(q *api.Request, _ *api.Reply) {
	r.noted.Lock()
	defer r.noted.Unlock()
	r.replies[q.CorrelationID]++
}

// repliesTo is how many replies to a request there were.
func (r *rig) repliesTo(correlationID int32) int {
	r.noted.Lock()
	defer r.noted.Unlock()
	return r.replies[correlationID]
}

// shut closes the server within the given time.
func (r *rig) shut(within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return r.Close(ctx)
}

// metric is the value of a counter or gauge; label, if given, is the value of its only label.
func (r *rig) metric(name, label string) float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	ok(r.t, err)
	for _, family := range families {
		if family.GetName() != "tidemark_network_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			if label == "" || m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// eventually waits for a condition that another goroutine brings about.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// allReturned checks that the connections end and that no buffer stays out. Who completes a parked request may give back its own after that.
func (r *rig) allReturned() {
	r.t.Helper()
	eventually(r.t, "all connections gone", func() bool { return r.admission.count() == 0 })
	eventually(r.t, "all buffers back", func() bool { return r.memory.inUse() == 0 })
}

// client is a raw Kafka client.
type client struct {
	t testing.TB
	net.Conn
}

func (r *rig) dial() *client {
	r.t.Helper()
	nc, err := net.Dial("tcp", r.address)
	ok(r.t, err)
	r.t.Cleanup(func() { _ = nc.Close() })
	return &client{t: r.t, Conn: nc}
}

// frame is a request with the given key and body.
func frame(key int16, correlation int32, body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(10+len(body)))
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	b = append(b, 0xff, 0xff) // no client id
	return append(b, body...)
}

func (c *client) send(frames ...[]byte) {
	c.t.Helper()
	_, err := c.Write(bytes.Join(frames, nil))
	ok(c.t, err)
}

// answer reads one response.
func (c *client) answer() (correlation int32, body string) {
	c.t.Helper()
	correlation, body, err := c.tryAnswer()
	ok(c.t, err)
	return correlation, body
}

func (c *client) tryAnswer() (correlation int32, body string, err error) {
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	head := make([]byte, 8)
	if _, err := io.ReadFull(c, head); err != nil {
		return 0, "", err
	}
	b := make([]byte, binary.BigEndian.Uint32(head)-4)
	_, err = io.ReadFull(c, b)
	return int32(binary.BigEndian.Uint32(head[4:])), string(b), err
}

func (c *client) wants(correlation int32, body string) {
	c.t.Helper()
	if gotCorrelation, gotBody := c.answer(); gotCorrelation != correlation || gotBody != body {
		c.t.Fatalf("answer %d %.40q, want %d %.40q", gotCorrelation, gotBody, correlation, body)
	}
}

// wantsEnd checks that the server closes the connection without another byte.
func (c *client) wantsEnd() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	b, err := io.ReadAll(c)
	if len(b) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("instead of the end %q, %v", b, err)
	}
}

// respond is the answer with the given body.
func respond(r *api.Request, body string, more ...api.Part) api.Reply {
	b := append(wire.AppendResponseHeader(nil, r.CorrelationID, false), body...)
	size := 0
	for i := range more {
		size += int(partSize(&more[i]))
	}
	wire.FinishFrame(b, size)
	return api.Reply{Parts: append([]api.Part{{Bytes: b}}, more...)}
}

func echo(_ time.Time, r *api.Request) api.Reply { return respond(r, string(r.Body)) }

// Keys that the test handler knows.
const (
	keyEcho      = iota
	keyPark      // parks and stops the pipeline
	keyPipelined // parks, the pipeline goes on
	keySilent    // NoReply
	keyClose
	keyThrottle // echo, then silence for the number of milliseconds in the body
)

// parker is a handler that parks requests until the test completes them.
type parker struct {
	parked chan *api.Request
}

func newParker() *parker { return &parker{parked: make(chan *api.Request, 100)} }

func (p *parker) handle(now time.Time, r *api.Request) api.Reply {
	switch r.Key {
	case keyPark, keyPipelined:
		p.parked <- r
		return api.Reply{Outcome: api.Parked, PipelineOn: r.Key == keyPipelined}
	case keySilent:
		return api.Reply{Outcome: api.NoReply}
	case keyClose:
		return api.Reply{Outcome: api.Close}
	case keyThrottle:
		reply := echo(now, r)
		d, _ := time.ParseDuration(string(r.Body))
		reply.Throttle = d
		return reply
	}
	return echo(now, r)
}

// segment makes a file of the given size and returns it with its content.
func segment(t testing.TB, fsys vfs.FS, dir string, size int) (vfs.File, string) {
	t.Helper()
	text := make([]byte, size)
	for i := range text {
		text[i] = byte(i * 7 >> 3)
	}
	f, err := fsys.Create(filepath.Join(dir, "00000000000000000000.log"))
	ok(t, err)
	t.Cleanup(func() { _ = f.Close() })
	_, err = f.WriteAt(text, 0)
	ok(t, err)
	return f, string(text)
}
