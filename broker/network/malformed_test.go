package network

import (
	"encoding/binary"
	"io"
	"math"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func size(n int32) string { return string(binary.BigEndian.AppendUint32(nil, uint32(n))) }

func TestBO100MalformedInputEndsTheConnectionAtOnce(t *testing.T) {
	tests := []struct {
		name, bytes string
	}{
		{"size -1", size(-1)},
		{"size 0", size(0)},
		{"size 3", size(3) + "abc"},
		{"size 2^31-1", size(1<<31 - 1)},
		{"size -2^31", size(-1 << 31)},
		{"one byte over the limit", size(defaultRequestMax + 1)},
		{"a header cut before the client id", size(8) + strings.Repeat("\x00", 8)},
		{"a client id longer than the frame", size(10) + strings.Repeat("\x00", 8) + "\x00\x05"},
		{"a client id of length -2", size(10) + strings.Repeat("\x00", 8) + "\xff\xfe"},
		{"TLS hello", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"},
		{"HTTP GET", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"},
		{"bad size after a good request", string(frame(keyEcho, 1, "x")) + size(-1)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := start(t, echo)
			c := r.dial()
			c.send([]byte(tt.bytes))
			if strings.HasPrefix(tt.bytes, string(frame(keyEcho, 1, "x"))) {
				c.wants(1, "x")
			}
			c.wantsEnd()
			r.allReturned()
			if n := r.logs.count("closing connection"); n != 1 {
				t.Errorf("%d log lines", n)
			}
			if n := r.metric("connections_closed_total", endMalformed); n != 1 {
				t.Errorf("%v connections are counted as malformed", n)
			}
			next := r.dial()
			next.send(frame(keyEcho, 5, "still here"))
			next.wants(5, "still here")
		})
	}
}

func TestLogOfMalformedInputIsBounded(t *testing.T) {
	var gate logGate
	now := time.Unix(100, 0)
	passed := 0
	for range 5 * logLinesPerSecond {
		if ok, _ := gate.pass(now); ok {
			passed++
		}
	}
	if passed != logLinesPerSecond {
		t.Errorf("%d lines in a second", passed)
	}
	if ok, suppressed := gate.pass(now.Add(time.Second)); !ok || suppressed != 4*logLinesPerSecond {
		t.Errorf("a second later: %v, %d suppressed", ok, suppressed)
	}
}

func TestBO099ClaimedSizesCostNothing(t *testing.T) {
	r := start(t, echo)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const n = 100
	for range n {
		c := r.dial()
		c.send([]byte(size(defaultRequestMax) + "few bytes"))
	}
	eventually(t, "all read", func() bool { return r.metric("received_bytes_total", "") == n*13 })
	if perConn := r.memory.inUse() / n; perConn > smallestBuffer {
		t.Errorf("a claim of 100 MiB takes %d bytes", perConn)
	}
	runtime.ReadMemStats(&after)
	// They were 10 GiB.
	if grown := after.TotalAlloc - before.TotalAlloc; grown > n*(64<<10) {
		t.Errorf("%d bytes were allocated for %d claims", grown, n)
	}
}

// pipeListener serves pipes, so that time can be virtual.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (l *pipeListener) dial(t testing.TB) *client {
	ours, theirs := net.Pipe()
	l.conns <- theirs
	t.Cleanup(func() { _ = ours.Close() })
	return &client{t: t, Conn: ours}
}

// inBubble runs a test against a server over pipes in virtual time.
func inBubble(t *testing.T, h handler, test func(t *testing.T, r *rig, dial func() *client)) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		r := startOn(t, l, h)
		test(t, r, func() *client { return l.dial(t) })
		ok(t, r.shut(time.Minute))
	})
}

// ended is when the server closed the connection.
func (c *client) ended() time.Time {
	_, _ = io.ReadAll(c)
	return time.Now()
}

func wantAfter(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if got != want {
		t.Errorf("%s after %v, want %v", what, got, want)
	}
}

func TestBO100HalfAFrameEndsByTimer(t *testing.T) {
	for _, tt := range []struct {
		name        string
		first, next string // a second later
		want        time.Duration
	}{
		{"half a size", "\x00\x00", "", allowance(defaultFrame, 4)},
		{"half a frame", size(100) + "half", "", allowance(defaultFrame, 104)},
		{"half of a large frame has longer", size(64<<20) + "half", "", allowance(defaultFrame, 4+64<<20)},
		{"so it has when its size comes in two pieces", size(64 << 20)[:3], size(64 << 20)[3:] + "half", allowance(defaultFrame, 4+64<<20)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, echo, func(t *testing.T, r *rig, dial func() *client) {
				c, began := dial(), time.Now()
				c.send([]byte(tt.first))
				if tt.next != "" {
					time.Sleep(time.Second)
					c.send([]byte(tt.next))
				}
				wantAfter(t, "ended", c.ended().Sub(began), tt.want)
				synctest.Wait()
				if n := r.metric("connections_closed_total", endSlow); n != 1 {
					t.Errorf("%v connections are counted as slow", n)
				}
			})
		})
	}
}

func TestFrameThatArrivesInTimeIsServedThoughSlow(t *testing.T) {
	inBubble(t, echo, func(t *testing.T, _ *rig, dial func() *client) {
		c := dial()
		for i := range 3 {
			for _, b := range frame(keyEcho, int32(i), "slow") {
				c.send([]byte{b})
				time.Sleep(time.Second)
			}
			c.wants(int32(i), "slow")
			time.Sleep(9 * time.Minute)
		}
	})
}

func TestIdleConnectionEndsAfterMaxIdle(t *testing.T) {
	inBubble(t, echo, func(t *testing.T, r *rig, dial func() *client) {
		c := dial()
		var last time.Time
		for i := range 4 {
			last = time.Now()
			c.send(frame(keyEcho, int32(i), ""))
			c.wants(int32(i), "")
			time.Sleep(defaultIdle - time.Second)
		}
		_ = c.SetReadDeadline(time.Time{})
		wantAfter(t, "ended", c.ended().Sub(last), defaultIdle)
		synctest.Wait()
		if n := r.metric("connections_closed_total", endIdle); n != 1 {
			t.Errorf("%v connections are counted as idle", n)
		}
	})
}

func TestConnectionWithParkedRequestIsNotIdle(t *testing.T) {
	inBubble(t, func(now time.Time, q *api.Request) api.Reply {
		time.AfterFunc(3*defaultIdle, func() { q.Complete(respond(q, "late")) })
		return api.Reply{Outcome: api.Parked, PipelineOn: q.Key == keyPipelined}
	}, func(t *testing.T, _ *rig, dial func() *client) {
		for _, key := range []int16{keyPark, keyPipelined} {
			c := dial()
			c.send(frame(key, 1, ""))
			time.Sleep(3 * defaultIdle)
			c.wants(1, "late")
			answered := time.Now()
			_ = c.SetReadDeadline(time.Time{})
			if got := c.ended().Sub(answered); got < defaultIdle || got > 2*defaultIdle {
				t.Errorf("ended %v after the answer", got)
			}
		}
	})
}

func TestThrottledConnectionIsNotReadForThatTime(t *testing.T) {
	inBubble(t, newParker().handle, func(t *testing.T, _ *rig, dial func() *client) {
		c, began := dial(), time.Now()
		// Both requests arrive together: what is here already waits, too.
		go func() { _, _ = c.Write(append(frame(keyThrottle, 1, "7s"), frame(keyEcho, 2, "x")...)) }()
		c.wants(1, "7s")
		wantAfter(t, "the throttled answer came", time.Since(began), 0)
		c.wants(2, "x")
		wantAfter(t, "the next answer came", time.Since(began), 7*time.Second)
	})
}

func TestClientThatDoesNotReadIsEnded(t *testing.T) {
	inBubble(t, echo, func(t *testing.T, r *rig, dial func() *client) {
		c := dial()
		c.send(frame(keyEcho, 1, "never read"))
		time.Sleep(defaultIdle + time.Second)
		synctest.Wait()
		if n := r.metric("connections_closed_total", endSlow); n != 1 {
			t.Errorf("%v connections are counted as slow", n)
		}
	})
}

func TestParkedRequestsOverAnyConnection(t *testing.T) {
	inBubble(t, func(_ time.Time, q *api.Request) api.Reply {
		time.AfterFunc(time.Duration(len(q.Body))*time.Second, func() { q.Complete(respond(q, string(q.Body))) })
		return api.Reply{Outcome: api.Parked, PipelineOn: true}
	}, func(t *testing.T, _ *rig, dial func() *client) {
		c, began := dial(), time.Now()
		for i, body := range []string{"4444", "1", "22", strings.Repeat("9", 9)} {
			c.send(frame(0, int32(i), body))
		}
		c.wants(0, "4444")
		c.wants(1, "1")
		c.wants(2, "22")
		wantAfter(t, "three came", time.Since(began), 4*time.Second)
		c.wants(3, "999999999")
		wantAfter(t, "the last came", time.Since(began), 9*time.Second)
	})
}

func TestRequestBehindAParkedOneIsNotTakenUp(t *testing.T) {
	p := newParker()
	inBubble(t, p.handle, func(t *testing.T, _ *rig, dial func() *client) {
		c := dial()
		go func() { _, _ = c.Write(append(frame(keyPark, 1, "x"), frame(keyPark, 2, "y")...)) }()
		for i, body := range []string{"x", "y"} {
			synctest.Wait()
			if n := len(p.parked); n != 1 {
				t.Fatalf("%d requests were taken up at once", n)
			}
			q := <-p.parked
			q.Complete(respond(q, string(q.Body)))
			c.wants(int32(i+1), body)
		}
	})
}

func TestNoLimitIsNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		r := startOn(t, l, echo, func(l *Limits) { l.IdleMax, l.FrameMax, l.WriteMax, l.QueuedBytesMax = -1, -1, -1, -1 })
		c := l.dial(t)
		for i := range 3 {
			request := frame(keyEcho, int32(i), strings.Repeat("x", 100_000))
			c.send(request[:9])
			time.Sleep(20 * 24 * time.Hour)
			c.send(request[9:])
			time.Sleep(20 * 24 * time.Hour)
			c.wants(int32(i), strings.Repeat("x", 100_000))
		}
		ok(t, r.shut(time.Minute))
	})
}

// FuzzConnection sends anything, in any pieces: the server must answer well-formed requests, end, and keep nothing.
func FuzzConnection(f *testing.F) {
	f.Add(frame(keyEcho, 1, "x"), 3)
	f.Add(append(frame(keyEcho, 1, "x"), frame(keySilent, 2, "")...), 100)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), 5)
	f.Add([]byte(size(-1)), 1)
	f.Add([]byte(size(defaultRequestMax)+"abc"), 2)
	f.Fuzz(func(t *testing.T, input []byte, step int) {
		step = max(step, 1)
		handled := 0
		m := newMemory(math.MaxInt64)
		in := inbound{memory: m, max: defaultRequestMax, expect: smallestBuffer}
		rest := input
		for len(rest) > 0 {
			space := in.space()
			n := copy(space, rest[:min(step, len(rest))])
			in.received(n, len(space))
			rest = rest[n:]
			for {
				frame, err := in.next()
				if err != nil {
					rest = nil
					break
				}
				if frame == nil {
					break
				}
				_, body, err := wire.ParseRequestHeader(frame, func(key wire.APIKey, _ int16) bool { return key%2 == 1 })
				if err == nil && len(body) > len(frame) {
					t.Fatalf("a body of %d bytes in a frame of %d", len(body), len(frame))
				}
				handled += sizeBytes + len(frame)
			}
			in.discard()
			if rest != nil && !in.reserve(nil) {
				t.Fatal("no room without a limit")
			}
		}
		if handled > len(input) {
			t.Fatalf("%d bytes handled of %d", handled, len(input))
		}
		if used := m.inUse(); used > int64(2*len(input)+2*smallMax) {
			t.Fatalf("%d bytes are taken for %d", used, len(input))
		}
		in.drop()
		if m.inUse() != 0 {
			t.Fatalf("%d bytes are out at the end", m.inUse())
		}
	})
}
