package network

import (
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/api"
)

// Go alone would look at the network when nothing else can run, or after ten milliseconds.
func TestWhoeverTheNetworkHasWokenRunsBeforeTheNextTurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	turns := newTurns(1)
	defer turns.close()
	mine := turns.begin()
	defer func() { turns.end(mine) }()
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
		mine = turns.next(mine)
		if heard.Load() {
			early++
		}
		reader.Wait()
	}
	if early < rounds*9/10 {
		t.Errorf("heard in %d of %d rounds", early, rounds)
	}
}

func socketPair(t *testing.T) (near, far net.Conn) {
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
