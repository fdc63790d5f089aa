package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemark-io/tidemark/broker/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker answers frames on one connection with what answer makes of them, until it returns nil.
func broker(t *testing.T, answer func(wire.RequestHeader, []byte) []byte) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for {
			var size [4]byte
			if _, err := io.ReadFull(conn, size[:]); err != nil {
				return
			}
			frame := make([]byte, binary.BigEndian.Uint32(size[:]))
			if _, err := io.ReadFull(conn, frame); err != nil {
				return
			}
			header, body, err := wire.ParseRequestHeader(frame, func(_ wire.APIKey, v int16) bool { return v >= 9 })
			if err != nil {
				t.Errorf("request header: %v", err)
				return
			}
			reply := answer(header, body)
			if reply == nil {
				return
			}
			if _, err := conn.Write(reply); err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		listener.Close()
		done.Wait()
	})
	return listener.Addr().String()
}

func echo(h wire.RequestHeader, body []byte) []byte {
	frame := wire.AppendResponseHeader(nil, h.CorrelationID, h.Version >= 9)
	frame = append(frame, body...)
	wire.FinishFrame(frame, 0)
	return frame
}

func dial(t *testing.T, address string, change func(*Options)) *Conn {
	t.Helper()
	o := Options{ClientID: "broker-1", ResponseBytesMax: 1 << 20, InFlightMax: 4, Timeout: 5 * time.Second}
	if change != nil {
		change(&o)
	}
	c, err := Dial(t.Context(), address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestAnswersReachTheirRequests(t *testing.T) {
	c := dial(t, broker(t, echo), nil)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			want := fmt.Sprintf("request %d", i)
			got, err := c.Do(t.Context(), Request{Key: 1, Version: int16(i % 18), Flexible: i%18 >= 9, Body: []byte(want)})
			if err != nil || string(got) != want {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
		})
	}
	all.Wait()
}

func TestHeaderNamesTheBroker(t *testing.T) {
	headers := make(chan wire.RequestHeader, 1)
	c := dial(t, broker(t, func(h wire.RequestHeader, body []byte) []byte {
		headers <- h
		return echo(h, body)
	}), nil)
	if _, err := c.Do(t.Context(), Request{Key: 18, Version: 3}); err != nil {
		t.Fatal(err)
	}
	if h := <-headers; h.Key != 18 || h.Version != 3 || h.ClientID == nil || *h.ClientID != "broker-1" {
		t.Errorf("header %+v", h)
	}
}

func TestConnectionEnds(t *testing.T) {
	tests := map[string]func(wire.RequestHeader, []byte) []byte{
		"when the broker closes it": func(wire.RequestHeader, []byte) []byte { return nil },
		"at an answer that is too large": func(h wire.RequestHeader, _ []byte) []byte {
			return []byte{0x7f, 0xff, 0xff, 0xff}
		},
		"at an answer of a negative size": func(wire.RequestHeader, []byte) []byte { return []byte{0xff, 0xff, 0xff, 0xff} },
		"at an answer to another request": func(h wire.RequestHeader, body []byte) []byte {
			h.CorrelationID += 7
			return echo(h, body)
		},
		"at an answer without a header": func(wire.RequestHeader, []byte) []byte { return []byte{0, 0, 0, 1, 0} },
	}
	for name, answer := range tests {
		t.Run(name, func(t *testing.T) {
			c := dial(t, broker(t, answer), nil)
			if _, err := c.Do(t.Context(), Request{Body: []byte("x")}); !errors.Is(err, ErrClosed) {
				t.Errorf("got %v, want %v", err, ErrClosed)
			}
			<-c.Done()
			if _, err := c.Do(t.Context(), Request{}); !errors.Is(err, ErrClosed) {
				t.Errorf("afterwards: got %v, want %v", err, ErrClosed)
			}
		})
	}
}

func TestLateAnswerEndsTheConnection(t *testing.T) {
	release := make(chan struct{})
	c := dial(t, broker(t, func(wire.RequestHeader, []byte) []byte {
		<-release
		return nil
	}), func(o *Options) { o.Timeout = 20 * time.Millisecond })
	_, err := c.Do(t.Context(), Request{})
	close(release)
	if !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want %v", err, ErrClosed)
	}
}

func TestCancelledRequestLeavesTheConnection(t *testing.T) {
	arrived, release := make(chan struct{}, 2), make(chan struct{})
	c := dial(t, broker(t, func(h wire.RequestHeader, body []byte) []byte {
		arrived <- struct{}{}
		<-release
		return echo(h, body)
	}), nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	if _, err := c.Do(ctx, Request{Body: []byte("given up")}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	close(release)
	if got, err := c.Do(t.Context(), Request{Body: []byte("next")}); err != nil || string(got) != "next" {
		t.Errorf("next request: got %q, %v", got, err)
	}
}

func TestRequestsInFlightAreBounded(t *testing.T) {
	release := make(chan struct{})
	c := dial(t, broker(t, func(h wire.RequestHeader, body []byte) []byte {
		<-release
		return echo(h, body)
	}), func(o *Options) { o.InFlightMax = 1 })
	var first sync.WaitGroup
	first.Go(func() {
		if _, err := c.Do(t.Context(), Request{}); err != nil {
			t.Error(err)
		}
	})
	for len(c.slots) == 0 { // until the first one holds the slot
		select {
		case <-c.Done():
			t.Fatal("connection ended")
		default:
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Do(ctx, Request{}); !errors.Is(err, context.Canceled) {
		t.Errorf("second request: got %v, want to wait until cancelled", err)
	}
	close(release)
	first.Wait()
}
