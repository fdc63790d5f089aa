package cold

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// FM-45: while a store hangs, what is in memory is read all the same, past all the reads that wait. What is not there is not asked for.
func TestWhatIsInMemoryNeedsNoStore(t *testing.T) {
	w := three(t)
	g := gate{make(chan struct{})}
	var running *sync.WaitGroup
	r := w.reader(func(o *Options) { running = goroutines(o) })
	if q := w.all(0); len(r.Cached(testTime, &q)) != 1 || w.bucket.count() > 0 {
		t.Errorf("of an empty cache: gets %q", w.bucket.gets)
	}
	_, want := w.readOne(r, w.all(0))
	if len(want) == 0 {
		t.Fatal("nothing was read")
	}
	running.Wait()
	w.bucket.onGet = g.onGet
	for range tasksMax + 1 { // of another segment, and all of them wait
		q := w.all(14)
		r.Read(over(t), testTime, &q)
	}
	q := w.all(0)
	if code := r.Read(over(t), testTime, &q)[0].Code; code != wire.KafkaStorageError {
		t.Fatalf("there is room for more reads: code %d", code)
	}
	gets := w.bucket.count()
	q.Partitions = append(q.Partitions, w.fetch(20, 30, 1<<20))
	results := r.Cached(testTime, &q)
	if got := take(t, results[0]); !bytes.HasPrefix(got, want) || results[0].Code != wire.None {
		t.Errorf("code %d, %d bytes, want those %d that had come, at least", results[0].Code, len(got), len(want))
	}
	if results[1].Records.Length > 0 || results[1].Code != wire.None {
		t.Errorf("of what is not there: %+v", results[1])
	}
	if n := w.bucket.count(); n > gets {
		t.Errorf("it asked for %q", w.bucket.gets[gets:])
	}
	close(g.open)
	running.Wait()
	if s := r.Stats(); s.Cache.InUseBytes != 0 {
		t.Errorf("still in use: %+v", s.Cache)
	}
}

// over is a context that is over.
func over(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
