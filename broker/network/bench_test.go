package network

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/vfs"
)

// BenchmarkEcho is one small request after the other: a wake-up each way.
func BenchmarkEcho(b *testing.B) {
	benchmark(b, echo, frame(keyEcho, 1, strings.Repeat("x", 100)), 1)
}

// BenchmarkEchoPipelined has 16 small requests in flight, which arrive and leave together.
func BenchmarkEchoPipelined(b *testing.B) {
	benchmark(b, echo, frame(keyEcho, 1, strings.Repeat("x", 100)), 16)
}

// BenchmarkEchoParked is BenchmarkEcho with a reply that another goroutine brings.
func BenchmarkEchoParked(b *testing.B) {
	requests := make(chan *api.Request, 1)
	defer close(requests)
	go func() {
		for r := range requests {
			r.Complete(echo(time.Time{}, r))
		}
	}()
	benchmark(b, func(_ time.Time, r *api.Request) api.Reply {
		requests <- r
		return api.Reply{Outcome: api.Parked, PipelineOn: true}
	}, frame(keyEcho, 1, strings.Repeat("x", 100)), 1)
}

// BenchmarkReceive takes requests of 128 KiB, as a producer sends them.
func BenchmarkReceive(b *testing.B) {
	b.SetBytes(128 << 10)
	benchmark(b, func(_ time.Time, r *api.Request) api.Reply { return respond(r, "") },
		frame(keyEcho, 1, strings.Repeat("x", 128<<10)), 4)
}

// BenchmarkSendfile answers with 1 MiB of a file.
func BenchmarkSendfile(b *testing.B) {
	const size = 1 << 20
	f, _ := segment(b, vfs.OS{}, b.TempDir(), 64<<20)
	offset := int64(0)
	b.SetBytes(size)
	benchmark(b, func(_ time.Time, r *api.Request) api.Reply {
		offset = (offset + size) % (64 << 20)
		return respond(r, "", api.Part{Range: vfs.Range{File: f, Offset: offset, Length: size}})
	}, frame(keyEcho, 1, ""), 1)
}

// benchmark keeps depth requests in flight on one connection. All answers are of one size.
func benchmark(b *testing.B, h handler, request []byte, depth int) {
	c := start(b, h).dial()
	burst := bytes.Repeat(request, depth)
	c.send(request)
	_, body := c.answer()
	answers := make([]byte, (sizeBytes+4+len(body))*depth)
	ok(b, c.SetReadDeadline(time.Time{}))
	b.ReportAllocs()
	for n := 1; b.Loop(); n++ {
		if n%depth != 0 {
			continue
		}
		if _, err := c.Write(burst); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, answers); err != nil {
			b.Fatal(err)
		}
	}
}
