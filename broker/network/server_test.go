package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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
	r := &rig{t: t, address: l.Addr().String(), registry: prometheus.NewRegistry(), logs: &lines{}}
	r.Server = New(Options{
		Listeners:  []Listener{{Name: "PLAINTEXT", Listener: l}},
		Handler:    h,
		Flexible:   func(wire.APIKey, int16) bool { return false },
		Limits:     limits,
		Logger:     slog.New(slog.NewTextHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Registerer: r.registry,
	})
	r.Start()
	t.Cleanup(func() { _ = r.shut(0) })
	return r
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

// allReturned checks that the connections have ended and that no buffer is out.
func (r *rig) allReturned() {
	r.t.Helper()
	eventually(r.t, "all connections gone", func() bool { return r.admission.count() == 0 })
	if n := r.memory.inUse(); n != 0 {
		r.t.Errorf("%d bytes of buffers are still out", n)
	}
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

func TestAnswersEachRequest(t *testing.T) {
	r := start(t, echo)
	c := r.dial()
	for i, size := range []int{0, 1, 100, 1000, 1014, 1015, 5000, 16 << 10, 100_000, 3, 1 << 20, 5 << 20, 7, 2 << 20} {
		body := strings.Repeat(string(rune('a'+i)), size)
		c.send(frame(keyEcho, int32(i), body))
		c.wants(int32(i), body)
	}
	ok(t, c.Close())
	r.allReturned()
}

func TestSessionTellsListenerAndClient(t *testing.T) {
	sessions := make(chan api.Session, 2)
	r := start(t, func(_ time.Time, r *api.Request) api.Reply {
		sessions <- *r.Session
		return respond(r, "")
	})
	for range 2 {
		r.dial().send(frame(keyEcho, 0, ""))
	}
	a, b := <-sessions, <-sessions
	if a.Listener != "PLAINTEXT" || a.Client.String() != "127.0.0.1" || a.ID == b.ID || a.Principal == "" {
		t.Errorf("sessions are %+v and %+v", a, b)
	}
}

func TestBO102AnswersLeaveInRequestOrder(t *testing.T) {
	p := newParker()
	r := start(t, p.handle)
	c := r.dial()
	const n = 99
	go func() { // completes whatever is parked, newest first where there are several
		for done := 0; done < 2*n/3; {
			batch := []*api.Request{<-p.parked}
			for len(p.parked) > 0 {
				batch = append(batch, <-p.parked)
			}
			for _, r := range slices.Backward(batch) {
				r.Complete(respond(r, string(r.Body)))
			}
			done += len(batch)
		}
	}()
	var all [][]byte
	for i := range n {
		all = append(all, frame([]int16{keyPipelined, keyEcho, keyPark}[i%3], int32(i), fmt.Sprint("body ", i)))
	}
	c.send(all...)
	for i := range n {
		c.wants(int32(i), fmt.Sprint("body ", i))
	}
	ok(t, c.Close())
	r.allReturned()
}

func TestParkedRequestStopsTheConnectionUnlessPipelined(t *testing.T) {
	p := newParker()
	r := start(t, p.handle, func(l *Limits) { l.PipelinedMax = 3 })
	c := r.dial()
	c.send(frame(keyPark, 1, "x"), frame(keyPark, 2, "y"))
	first := <-p.parked
	first.Complete(respond(first, "x"))
	c.wants(1, "x")
	second := <-p.parked // only now
	if string(first.Body) == "y" {
		t.Error("the body of the first request was written over")
	}
	second.Complete(respond(second, "y"))
	c.wants(2, "y")

	for i := range 4 {
		c.send(frame(keyPipelined, int32(10+i), ""))
	}
	var waiting []*api.Request
	for range 3 {
		waiting = append(waiting, <-p.parked)
	}
	if len(p.parked) > 0 {
		t.Error("a fourth request was taken up beside three that wait")
	}
	waiting[2].Complete(respond(waiting[2], "c"))
	waiting[0].Complete(respond(waiting[0], "a"))
	c.wants(10, "a")
	fourth := <-p.parked
	waiting[1].Complete(respond(waiting[1], "b"))
	fourth.Complete(respond(fourth, "d"))
	c.wants(11, "b")
	c.wants(12, "c")
	c.wants(13, "d")
}

// A client that neither reads nor finishes what it sends must not hold up the memory that others wait for.
func TestSlowReaderHoldsNoPlaceInTheLineForMemory(t *testing.T) {
	const limit = 128 << 10
	p := newParker()
	r := start(t, p.handle, func(l *Limits) { l.QueuedBytesMax = limit })
	slow := r.dial()
	body := strings.Repeat("x", 100<<10)
	slow.send(frame(keyPipelined, 1, body), frame(keyPipelined, 2, body))
	first, second := <-p.parked, <-p.parked
	go func() { _, _ = slow.Write(frame(keyEcho, 3, body)) }()
	waiting := func() int {
		r.memory.mu.Lock()
		defer r.memory.mu.Unlock()
		return len(r.memory.waiters)
	}
	eventually(t, "the third request waits for memory", func() bool { return waiting() == 1 })
	first.Complete(respond(first, strings.Repeat("x", 16<<20)))
	second.Complete(respond(second, ""))
	other := r.dial()
	other.send(frame(keyEcho, 9, body))
	other.wants(9, body)
}

func TestBodyOfParkedRequestStaysWhileOthersAreRead(t *testing.T) {
	p := newParker()
	r := start(t, p.handle)
	c := r.dial()
	var want []string
	for i := range 10 {
		want = append(want, strings.Repeat(string(rune('a'+i)), 1+i*i*300))
		c.send(frame(keyPipelined, int32(i), want[i]))
	}
	for i := range 10 {
		q := <-p.parked
		if string(q.Body) != want[i] {
			t.Errorf("body %d is not what was sent", i)
		}
		defer func() {
			if string(q.Body) != want[i] {
				t.Errorf("body %d was written over while parked", i)
			}
			q.Complete(respond(q, ""))
		}()
	}
	c.send(frame(keyEcho, 99, strings.Repeat("z", 30_000)))
}

func TestCompleteBeforeTheHandlerReturns(t *testing.T) {
	r := start(t, func(_ time.Time, q *api.Request) api.Reply {
		done := make(chan struct{})
		go func() {
			q.Complete(respond(q, string(q.Body)))
			close(done)
		}()
		<-done
		return api.Reply{Outcome: api.Parked}
	})
	c := r.dial()
	c.send(frame(0, 1, "one"), frame(0, 2, "two"))
	c.wants(1, "one")
	c.wants(2, "two")
	ok(t, c.Close())
	r.allReturned()
}

func TestNoReplySendsNothing(t *testing.T) {
	r := start(t, newParker().handle)
	c := r.dial()
	c.send(frame(keySilent, 1, "x"), frame(keySilent, 2, "x"), frame(keyEcho, 3, "x"))
	c.wants(3, "x")
}

func TestCloseComesAfterEarlierAnswers(t *testing.T) {
	p := newParker()
	r := start(t, p.handle)
	c := r.dial()
	c.send(frame(keyEcho, 1, "a"), frame(keyPipelined, 2, ""), frame(keyClose, 3, ""))
	q := <-p.parked
	q.Complete(respond(q, "b"))
	c.wants(1, "a")
	c.wants(2, "b")
	c.wantsEnd()
	r.allReturned()

	c = r.dial()
	c.send(frame(keyPipelined, 1, ""), frame(keyPipelined, 2, ""))
	first, second := <-p.parked, <-p.parked
	first.Complete(api.Reply{Outcome: api.Close})
	c.wantsEnd()
	eventually(t, "connection gone", func() bool { return r.admission.count() == 0 })
	second.Complete(respond(second, "too late"))
	r.allReturned()
}

func TestConnectionLimits(t *testing.T) {
	r := start(t, echo, func(l *Limits) { l.Connections = ConnectionLimits{Max: 2, MaxPerIP: 3} })
	a, b, waits := r.dial(), r.dial(), r.dial()
	for i, c := range []*client{a, b} {
		c.send(frame(keyEcho, int32(i), ""))
		c.wants(int32(i), "")
	}
	waits.send(frame(keyEcho, 7, ""))
	eventually(t, "both served", func() bool { return r.metric("connections_accepted_total", "") == 2 })
	ok(t, a.Close())
	waits.wants(7, "") // took the place of a

	r.SetConnectionLimits(ConnectionLimits{Max: 100, MaxPerIP: 2})
	refused := r.dial()
	refused.wantsEnd()
	if n := r.metric("connections_refused_total", ""); n != 1 {
		t.Errorf("%v connections were refused", n)
	}
	r.SetConnectionLimits(ConnectionLimits{Max: 100, MaxPerIP: 0, Overrides: nil})
	r.dial().wantsEnd()
}

// emfileListener fails to accept a few times.
type emfileListener struct {
	net.Listener
	fails atomic.Int32
}

func (l *emfileListener) Accept() (net.Conn, error) {
	if l.fails.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

func TestAcceptGoesOnAfterTooManyOpenFiles(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	bad := &emfileListener{Listener: l}
	bad.fails.Store(3)
	began := time.Now()
	r := startOn(t, bad, echo)
	c := r.dial()
	c.send(frame(keyEcho, 1, "x"))
	c.wants(1, "x")
	if time.Since(began) < acceptPauseMin+2*acceptPauseMin+4*acceptPauseMin {
		t.Error("accepting did not pause between the errors")
	}
}

func TestCloseDrainsThenEnds(t *testing.T) {
	p := newParker()
	r := start(t, p.handle)
	idle, busy := r.dial(), r.dial()
	idle.send(frame(keyEcho, 1, ""))
	idle.wants(1, "")
	busy.send(frame(keyPark, 1, "x"))
	q := <-p.parked
	closed := make(chan error)
	go func() { closed <- r.shut(time.Minute) }()
	idle.wantsEnd()
	if _, err := net.Dial("tcp", r.address); err == nil {
		t.Error("a closing server accepts")
	}
	q.Complete(respond(q, "done"))
	busy.wants(1, "done")
	busy.wantsEnd()
	ok(t, <-closed)
	ok(t, r.shut(time.Minute)) // again: nothing to do
}

func TestCloseCutsOffWhatDoesNotEnd(t *testing.T) {
	p := newParker()
	r := start(t, p.handle)
	c := r.dial()
	c.send(frame(keyPark, 1, "x"))
	q := <-p.parked
	if err := r.shut(0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close says %v", err)
	}
	c.wantsEnd()
	released := 0
	q.Complete(respond(q, "", api.Part{Range: vfs.Range{Release: func() { released++ }}}))
	if released != 1 {
		t.Errorf("a range that came after the end was released %d times", released)
	}
	r.allReturned()
}

// Many requests that are not answered may not keep a closing server from its end either.
func TestCloseEndsConnectionsThatDoNotRead(t *testing.T) {
	r := start(t, func(_ time.Time, q *api.Request) api.Reply { return respond(q, strings.Repeat("x", 8<<20)) })
	c := r.dial()
	c.send(frame(0, 1, ""))
	eventually(t, "the socket is full", func() bool { return r.metric("sent_bytes_total", "bytes") > 0 })
	if err := r.shut(0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close says %v", err)
	}
}

func TestSlowReaderBlocksNeitherOthersNorItsCompleter(t *testing.T) {
	p := newParker()
	r := start(t, p.handle)
	slow, quick := r.dial(), r.dial()
	slow.send(frame(keyPark, 1, ""))
	q := <-p.parked
	q.Complete(respond(q, strings.Repeat("x", 16<<20))) // returns though nobody reads
	for i := range 100 {
		quick.send(frame(keyEcho, int32(i), "x"))
		quick.wants(int32(i), "x")
	}
	slow.wants(1, strings.Repeat("x", 16<<20))
}

func TestSlowReaderIsEndedInTime(t *testing.T) {
	const size = 16 << 10
	r := start(t, func(_ time.Time, q *api.Request) api.Reply { return respond(q, strings.Repeat("x", size)) },
		func(l *Limits) { l.WriteMax, l.SendBufferBytes = 10*time.Millisecond, 1 })
	c := r.dial()
	ok(t, c.Conn.(*net.TCPConn).SetReadBuffer(1))
	for i := range 20 {
		c.send(frame(0, int32(i), ""))
	}
	eventually(t, "ended", func() bool { return r.metric("connections_closed_total", endSlow) == 1 })
	r.allReturned()
}

// recorder counts the writes of a transport.
type recorder struct {
	transport
	writes atomic.Int32
}

func (r *recorder) write(out *outbound, limit time.Duration) error {
	r.writes.Add(1)
	return r.transport.write(out, limit)
}

func TestRequestsThatArriveTogetherAreAnsweredTogether(t *testing.T) {
	r := start(t, echo)
	ours, theirs := net.Pipe()
	c := newConn(r.Server, theirs, api.Session{})
	counter := &recorder{transport: c.transport}
	c.transport = counter
	ended := make(chan struct{})
	go func() {
		_, _ = c.serve()
		c.end()
		close(ended)
	}()
	k := &client{t: t, Conn: ours}
	const n = 10
	go func() {
		var all []byte
		for i := range n {
			all = append(all, frame(keyEcho, int32(i), "small")...)
		}
		_, _ = k.Write(all)
	}()
	for i := range n {
		k.wants(int32(i), "small")
	}
	ok(t, k.Close())
	<-ended
	if got := counter.writes.Load(); got != 1 {
		t.Errorf("%d answers left in %d writes", n, got)
	}
}

func TestIdleConnectionsCostLittle(t *testing.T) {
	const n = 1000
	r := start(t, echo)
	clients := make([]net.Conn, n)
	served := func(i int) {
		if clients[i] == nil {
			clients[i] = r.dial()
		}
		c := &client{t: t, Conn: clients[i]}
		c.send(frame(keyEcho, 1, "x"))
		c.wants(1, "x")
	}
	served(0)
	before := memoryNow()
	for i := 1; i < n; i++ {
		served(i)
	}
	both := float64(memoryNow()-before) / (n - 1)
	// The clients of this process cost a part: a connection without a server goroutine, measured likewise.
	before = memoryNow()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	defer l.Close()
	pairs := make([]net.Conn, 0, n)
	for range n / 2 {
		a, err := net.Dial("tcp", l.Addr().String())
		ok(t, err)
		b, err := l.Accept()
		ok(t, err)
		pairs = append(pairs, a, b)
	}
	one := float64(memoryNow()-before) / n
	for _, nc := range pairs {
		_ = nc.Close()
	}
	t.Logf("%.0f bytes for an idle connection", both-one)
	if n := r.memory.inUse(); n != 0 {
		t.Errorf("idle connections hold %d bytes of buffers", n)
	}
	if both-one > 8<<10 {
		t.Errorf("an idle connection costs %.0f bytes", both-one)
	}
}

// memoryNow is what heap and stacks take.
func memoryNow() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
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
