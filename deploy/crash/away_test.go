package crash

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tidemark-io/tidemark/tier/object/s3proxy"
	"github.com/tidemark-io/tidemark/tier/object/s3test"
)

var away = flag.Duration("away", 1500*time.Millisecond, "how long the object store is away: its process; faults of a network last half a minute at most")

// While the store is away, in whatever way, produce and fetch of the end go on without an error; a fetch of what is in the bucket alone
// gets a retriable error soon, or nothing while an answer may still come. Afterwards uploads catch up, nothing is lost, and the bucket is sound: FM-03, FM-39, FM-45, FM-47, BO-097.
func TestTheStoreIsAway(t *testing.T) {
	const topic, partitions = "owed", 3
	store := newBucket(t, s3test.MinIO, "minio")
	b := newBroker(t, tiered...)
	b.Store = store.url
	b.start()
	b.create(topic, partitions)
	b.create("cold", partitions)
	old := b.write("cold", partitions, 3*tieredCache)
	b.settles()
	eventually(t, "most of the old topic is gone from disk", func() bool { return b.onDisk("cold") <= partitions*4<<20 })

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l := b.load(ctx, topic, partitions)
	readers := b.readCold(ctx, old)
	eventually(t, "producers have their ids, which are in the metadata", func() bool {
		l.ledger.mu.Lock()
		defer l.ledger.mu.Unlock()
		return len(l.acked) == partitions
	})
	through := func(decide func(s3proxy.Request) s3proxy.Fault) (begin, end func()) {
		return func() { store.proxy.Set(decide) }, func() { store.proxy.Set(nil) }
	}
	for _, fault := range []struct {
		name       string
		begin, end func()
		partly     bool // some requests are served
	}{
		{name: "paused", begin: func() { store.server.Pause(t) }, end: func() { store.server.Resume(t) }},
		{name: "killed", begin: store.server.Kill, end: func() { store.server.Restart(t) }},
		{name: "gone"},
		{name: "503"},
		{name: "a third is 503", partly: true},
		{name: "answers are lost", partly: true},
		{name: "hangs"},
	} {
		d := *away
		if fault.begin == nil {
			d = min(d, 30*time.Second)
			fault.begin, fault.end = through(faults[fault.name])
		}
		before := store.proxy.Requests()
		readers.take()
		fault.begin()
		time.Sleep(d) // that long it is away
		fault.end()
		requests := store.proxy.Requests() - before
		l.mu.Lock()
		slowest := l.slowest
		l.slowest = 0
		l.mu.Unlock()
		during := readers.take()
		t.Logf("%s for %v: %d requests; a record took at most %v to the reader of the end; at most %d MiB of memory so far; fetches of old records: %v",
			fault.name, d, requests, slowest, b.memory()>>20, during)
		if !fault.partly && during.refused()+during.empty == 0 {
			t.Errorf("%s: no fetch of old records went without them", fault.name)
		}
		if during.slowest > patience/3 {
			t.Errorf("%s: a fetch of old records took %v", fault.name, during.slowest)
		}
		begun := time.Now()
		b.settles()
		eventually(t, "old records are read again", func() bool { return readers.take().read > 0 })
		t.Logf("%v later all is uploaded, and old records are read again", time.Since(begun))
		if t.Failed() {
			t.Fatalf("%s\n%s", fault.name, b.Log())
		}
	}
	cancel()
	l.group.Wait()
	readers.group.Wait()
	b.settles()
	if size := b.onDisk(topic); size > partitions*6<<20 {
		t.Errorf("%d bytes are still on disk", size)
	}
	records := l.verify(b.client(), kadm.NewClient(b.client()), partitions)
	l.sample(b.client(), rand.New(rand.NewPCG(1, 2)), partitions)
	old.compare(old.consume(b))
	b.stop()
	store.fsck(t, "all")
	t.Logf("%d records", records)
}

// faults are what the proxy does to requests.
var faults = map[string]func(s3proxy.Request) s3proxy.Fault{
	"gone": func(s3proxy.Request) s3proxy.Fault { return s3proxy.Fault{Reset: true} },
	"503":  func(s3proxy.Request) s3proxy.Fault { return s3proxy.Fault{Refuse: http.StatusServiceUnavailable} },
	"a third is 503": func(r s3proxy.Request) s3proxy.Fault {
		if r.Seq%3 == 0 {
			return s3proxy.Fault{Refuse: http.StatusServiceUnavailable}
		}
		return s3proxy.Fault{}
	},
	"answers are lost": func(r s3proxy.Request) s3proxy.Fault {
		return s3proxy.Fault{Lose: r.Seq%2 == 0 && (r.Method == http.MethodPut || r.Method == http.MethodGet)}
	},
	"hangs": func(s3proxy.Request) s3proxy.Fault { return s3proxy.Fault{Hang: true} },
}

// coldReaders read from random places of an old topic.
type coldReaders struct {
	group sync.WaitGroup
	mu    sync.Mutex
	coldFetches
}

// coldFetches is what came of them.
type coldFetches struct {
	read, empty int
	errors      map[string]int
	slowest     time.Duration

	lookUps       int
	lookUpErrors  map[string]int
	slowestLookUp time.Duration
}

func (f coldFetches) refused() (n int) {
	for _, count := range f.errors {
		n += count
	}
	return n
}

func (f coldFetches) String() string {
	return fmt.Sprintf("%d read, %d empty, refused %v, at most %v; %d look-ups by time, refused %v, at most %v",
		f.read, f.empty, f.errors, f.slowest, f.lookUps, f.lookUpErrors, f.slowestLookUp)
}

// take is what has come since it was called last.
func (r *coldReaders) take() coldFetches {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.coldFetches
	r.coldFetches = coldFetches{errors: map[string]int{}, lookUpErrors: map[string]int{}}
	return f
}

// lookUp asks for old times until ctx ends.
func (r *coldReaders) lookUp(ctx context.Context, b *broker, h *history) {
	admin := kadm.NewClient(b.client())
	random := rand.New(rand.NewPCG(9, 9))
	for ctx.Err() == nil {
		times := h.log[0].times
		at := times[random.IntN(len(times)/2)]
		begun := time.Now()
		offsets, err := admin.ListOffsetsAfterMilli(ctx, at, h.topic)
		took := time.Since(begun)
		if ctx.Err() != nil {
			return
		}
		if got, ok := offsets.Lookup(h.topic, 0); err == nil && ok {
			err = got.Err
			if want := h.log[0].since(at); err == nil && got.Offset != want {
				b.t.Errorf("offset %d at %d, want %d", got.Offset, at, want)
			}
		}
		r.mu.Lock()
		r.lookUps++
		r.slowestLookUp = max(r.slowestLookUp, took)
		if err != nil {
			r.lookUpErrors[err.Error()]++
		}
		r.mu.Unlock()
		time.Sleep(50 * time.Millisecond) // a rate, not a wait
	}
}

// readCold has four readers jump about in a topic that lies in the bucket until ctx ends, and look-ups by time beside them.
func (b *broker) readCold(ctx context.Context, h *history) *coldReaders {
	r := &coldReaders{}
	r.take()
	r.group.Go(func() { r.lookUp(ctx, b, h) })
	retriable := []*kerr.Error{kerr.KafkaStorageError, kerr.RequestTimedOut}
	for i := range 4 {
		c := b.client()
		random := rand.New(rand.NewPCG(uint64(i), 5))
		r.group.Go(func() {
			for ctx.Err() == nil {
				p := random.Int32N(int32(len(h.log)))
				offset := random.Int64N(int64(len(h.log[p].times)) / 2)
				begun := time.Now()
				batches, err := fetchAt(c, h.topic, p, offset)
				took := time.Since(begun)
				var refused *kerr.Error
				r.mu.Lock()
				r.slowest = max(r.slowest, took)
				switch {
				case errors.As(err, &refused) && slices.Contains(retriable, refused):
					r.errors[refused.Message]++
				case err != nil && ctx.Err() == nil:
					b.t.Errorf("fetch of old records: %v", err)
				case len(batches) == 0:
					r.empty++
				default:
					r.read++
				}
				r.mu.Unlock()
				time.Sleep(10 * time.Millisecond) // a rate, not a wait
			}
		})
	}
	return r
}
