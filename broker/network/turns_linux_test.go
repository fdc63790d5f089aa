package network

import (
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/api"
)

func TestWhoeverTheNetworkHasWokenRunsBeforeTheNextTurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	turns := newTurns(1)
	defer turns.close()
	mine := turns.begin()
	defer func() { turns.end(mine) }()
	wantHeard(t, func() { mine = turns.next(mine) })
}

func TestWhoeverTheNetworkHasWokenRunsWhenOneYields(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	y := NewYielder()
	wantHeard(t, y.Yield)
	var others sync.WaitGroup
	for range 10 {
		others.Go(func() {
			for range 100 {
				y.Yield()
			}
		})
	}
	y.Close()
	y.Close()
	others.Wait() // those of them that were late do not wait for a place either
}

// wantHeard wants yield to let a reader run to whom something was sent. Go alone would look at the network when nothing else can run, or after
// ten milliseconds.
func wantHeard(t *testing.T, yield func()) {
	t.Helper()
	near, far := socketPair(t)
	const rounds = 1000 // more than an eventfd takes if it is counted up by too much
	early := 0
	for range rounds {
		var heard atomic.Bool
		var reader sync.WaitGroup
		reader.Go(func() {
			if _, err := near.Read(make([]byte, 1)); err != nil {
				t.Error(err)
			}
			heard.Store(true)
		})
		for range 3 {
			runtime.Gosched() // it waits by now
		}
		_, err := far.Write([]byte{0})
		ok(t, err)
		yield()
		if heard.Load() {
			early++
		}
		reader.Wait()
	}
	if early < rounds*9/10 {
		t.Errorf("heard in %d of %d rounds", early, rounds)
	}
}

// BenchmarkAnswerBesideWork is how long an echo takes, once a millisecond, beside one goroutine less than there are processors that sums up
// 128 KiB at a time.
func BenchmarkAnswerBesideWork(b *testing.B) {
	y := NewYielder()
	defer y.Close()
	var over atomic.Bool
	var work sync.WaitGroup
	for range max(runtime.GOMAXPROCS(0)-1, 1) {
		work.Go(func() {
			piece := make([]byte, 128<<10)
			for !over.Load() {
				_ = crc32.ChecksumIEEE(piece)
				y.Yield()
			}
		})
	}
	client, server := socketPair(b)
	go func() { _, _ = io.Copy(server, server) }() // until the client's end is closed
	var took []time.Duration
	message := make([]byte, 8)
	ticks := time.NewTicker(time.Millisecond)
	for b.Loop() {
		<-ticks.C
		begun := time.Now()
		_, err := client.Write(message)
		ok(b, err)
		_, err = io.ReadFull(client, message)
		ok(b, err)
		took = append(took, time.Since(begun))
	}
	over.Store(true)
	work.Wait()
	slices.Sort(took)
	b.ReportMetric(0, "ns/op")
	for _, percent := range []int{50, 90, 99} {
		b.ReportMetric(float64(took[len(took)*percent/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", percent))
	}
}

func socketPair(t testing.TB) (near, far net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	defer l.Close()
	far, err = net.Dial("tcp", l.Addr().String())
	ok(t, err)
	t.Cleanup(func() { _ = far.Close() })
	near, err = l.Accept()
	ok(t, err)
	t.Cleanup(func() { _ = near.Close() })
	return near, far
}

// crowded is a file in memory that counts how many send it at a time.
type crowded struct {
	pieces
	now, most *atomic.Int32
}

func (c crowded) Bytes(off, n int64) []byte {
	now := c.now.Add(1)
	defer c.now.Add(-1)
	for most := c.most.Load(); now > most && !c.most.CompareAndSwap(most, now); most = c.most.Load() {
	}
	runtime.Gosched()
	return []byte(c.text[off:min(off+n, int64(len(c.text)))])
}

func TestNoMoreThanTheirPlacesSendFromMemoryAtATime(t *testing.T) {
	const clients, size = 8, 2<<20 + 1000
	var now, most, releases atomic.Int32
	file := crowded{pieces{text: strings.Repeat("0123456789", size/10+1)}, &now, &most}
	r := start(t, func(_ time.Time, q *api.Request) api.Reply {
		return respond(q, "", counted(file, 3, size, &releases))
	})
	var all sync.WaitGroup
	for range clients {
		c := r.dial()
		all.Go(func() {
			for i := range int32(4) {
				c.send(frame(0, i, ""))
				c.wants(i, file.text[3:3+size])
			}
			_ = c.Close()
		})
	}
	all.Wait()
	r.allReturned()
	if places := max(runtime.GOMAXPROCS(0)-1, 1); most.Load() > int32(places) || releases.Load() != 4*clients {
		t.Errorf("%d at a time, places for %d; %d releases", most.Load(), places, releases.Load())
	}
}
