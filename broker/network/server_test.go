package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/vfs"
)

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

// TestEachReplyIsToldOnce, whether it comes at once or later, behind whatever others of its connection.
func TestEachReplyIsToldOnce(t *testing.T) {
	p := newParker()
	r := start(t, p.handle)
	c := r.dial()
	c.send(frame(keyEcho, 1, ""), frame(keySilent, 2, ""), frame(keyEcho, 3, ""), frame(keyPark, 4, ""), frame(keyEcho, 5, ""))
	q := <-p.parked
	if n := r.repliesTo(4); n != 0 {
		t.Errorf("%d replies to a parked request", n)
	}
	q.Complete(respond(q, ""))
	for _, id := range []int32{1, 3, 4, 5} {
		c.wants(id, "")
	}
	for id := range int32(5) {
		if n := r.repliesTo(id + 1); n != 1 {
			t.Errorf("%d replies to request %d", n, id+1)
		}
	}
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

// Memory of the cache is what others wait for: a client that stops reading has to let go of it, however long it may take for other answers.
func TestMemoryOfTheCacheIsNotHeldByWhoTakesNothing(t *testing.T) {
	const size = 16 << 20
	var releases atomic.Int32
	cached := pieces{text: strings.Repeat("x", size)}
	r := start(t, func(_ time.Time, q *api.Request) api.Reply {
		if q.Key == keyPark {
			return respond(q, cached.text)
		}
		return respond(q, "", counted(cached, 0, size, &releases))
	}, func(l *Limits) { l.HoldMax = 50 * time.Millisecond })
	other := r.dial()
	other.send(frame(keyPark, 1, ""))
	c := r.dial()
	c.send(frame(0, 1, ""))
	eventually(t, "it is let go of", func() bool { return releases.Load() == 1 && r.metric("connections_closed_total", endSlow) == 1 })
	other.wants(1, cached.text)
	ok(t, other.Close())
	r.allReturned()
}

// recorder counts the writes of a transport.
type recorder struct {
	transport
	writes atomic.Int32
}

func (r *recorder) write(out *outbound, limits *Limits) error {
	r.writes.Add(1)
	return r.transport.write(out, limits)
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
