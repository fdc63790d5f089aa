package network

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/broker/api"
)

// A write that had to wait leaves no deadline behind that a later one would run into.
func TestWriteDeadlineEndsWithItsAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	defer l.Close()
	reader, err := net.Dial("tcp", l.Addr().String())
	ok(t, err)
	defer reader.Close()
	writer, err := l.Accept()
	ok(t, err)
	defer writer.Close()
	ok(t, writer.(*net.TCPConn).SetWriteBuffer(64<<10))

	none := func() int64 { return 0 }
	m := newMetrics(prometheus.NewRegistry(), none, none)
	transports := newTransports(nil, m)
	defer transports.close()
	transport := transports.of(writer).(*tcpTransport)
	const size = 1 << 20
	// Nobody reads before the socket is full: a reader that is fast enough would keep it from ever being so.
	full, read := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		<-full
		_, _ = io.CopyN(io.Discard, reader, size)
	}()
	var out outbound
	out.add([]api.Part{{Bytes: make([]byte, size)}})
	var first sync.Once
	transport.writeReady = func(fd uintptr) bool {
		done := transport.writeSome(fd)
		first.Do(func() {
			if done || transport.due.IsZero() {
				t.Error("the socket was not full, or set no deadline")
			}
			close(full)
		})
		return done
	}
	ok(t, transport.write(&out, &Limits{WriteMax: time.Minute}))
	<-read
	if !transport.due.IsZero() {
		t.Error("the deadline outlives the write")
	}
}
