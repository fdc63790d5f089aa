package cold

import (
	"sync"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
)

// crowd is a request for so many parts of a log, as if each were a partition. Its batches have two records each.
func (w *twin) crowd(parts, maxBytes int) *Request {
	q := &Request{MaxBytes: parts * maxBytes, MinOneBatch: true}
	begin := func(part wire.Offset) wire.Offset { return w.m.State().End / 2 * part / wire.Offset(parts) * 2 }
	for i := range wire.Offset(parts) {
		f := w.fetch(begin(i), begin(i+1), maxBytes)
		f.TopicPartition.Partition = int32(i)
		q.Partitions = append(q.Partitions, f)
	}
	return q
}

// step reads once, every byte as the log has it, and moves the places of the request on. It returns which partitions have got something.
func (w *twin) step(r *Reader, now time.Time, q *Request) (served []int32) {
	w.t.Helper()
	left := q.Partitions[:0:0]
	for i, result := range r.Read(w.t.Context(), now, q) {
		f := q.Partitions[i]
		if result.Code != wire.None {
			w.t.Fatalf("partition %d at %d: code %d", f.TopicPartition.Partition, f.Offset, result.Code)
		}
		if b := take(w.t, result); len(b) > 0 {
			if want := w.local(f.Offset, f.UpTo, len(b), true); string(b) != string(want) {
				w.t.Fatalf("partition %d at %d: %d bytes are not those of the log", f.TopicPartition.Partition, f.Offset, len(b))
			}
			served = append(served, f.TopicPartition.Partition)
			f.Offset = result.Next
		}
		if f.Offset < f.UpTo {
			left = append(left, f)
		}
	}
	q.Partitions = left
	return served
}

// T2: fifty partitions in one fetch cost few gets, as they have their chunks by turns.
func TestAFetchOfManyPartitionsReadsThemByTurns(t *testing.T) {
	w := long(t, 8, 256<<10)
	r := w.reader(scaled)
	now := testTime
	q := w.crowd(50, 1<<10)
	for len(q.Partitions) > 0 {
		now = now.Add(10 * time.Millisecond)
		if served := w.step(r, now, q); len(served) == 0 {
			t.Fatalf("nothing for %d partitions", len(q.Partitions))
		}
	}
	const most = 200 // the parts begin and end within chunks
	if perGB := float64(w.bucket.count()) / (float64(w.m.State().Bytes) * 1024 / 1e9); perGB > most {
		t.Errorf("%.0f gets for each GB, want at most %d", perGB, most)
	}
	// The last turn of a part goes beyond its end.
	if s := r.Stats(); float64(s.Cache.GetBytes) > 1.2*float64(w.m.State().Bytes) {
		t.Errorf("%d bytes were got of %d", s.Cache.GetBytes, w.m.State().Bytes)
	}
}

// However slow the reader of many partitions is, none of them waits for long.
func TestNoPartitionOfAFetchGivesWayForLong(t *testing.T) {
	w := long(t, 8, 128<<10)
	r := w.reader(scaled)
	const pause = 300 * time.Millisecond
	now := testTime
	last := make([]time.Time, 50)
	q := w.crowd(len(last), 1<<10)
	for i := range last {
		last[i] = now
	}
	for len(q.Partitions) > 0 {
		now = now.Add(pause)
		for _, p := range w.step(r, now, q) {
			last[p] = now
		}
		for _, f := range q.Partitions {
			if p := f.TopicPartition.Partition; now.Sub(last[p]) > turnWaitMax+pause {
				t.Fatalf("partition %d has got nothing for %v", p, now.Sub(last[p]))
			}
		}
	}
}

// Half of those whose turn it is make an answer: the slowest get holds up nobody but its own partition.
func TestAFetchOfManyPartitionsDoesNotWaitForTheSlowestGet(t *testing.T) {
	w := long(t, 8, 128<<10)
	slow := gate{make(chan struct{})}
	first := w.key(w.segments()[0], manifest.LogObject)
	w.bucket.onGet = func(key string, r object.Range) error {
		if key == first && r.Offset == 0 {
			return slow.onGet(key, r)
		}
		return nil
	}
	var running *sync.WaitGroup
	r := w.reader(scaled, func(o *Options) { running = goroutines(o) })
	q := w.crowd(50, 1<<10)
	for range 10 {
		if served := w.step(r, testTime, q); len(served) == 0 || served[0] == 0 {
			t.Fatalf("served: %v", served)
		}
	}
	close(slow.open)
	running.Wait()
	if s := r.Stats(); s.Cache.InUseBytes != 0 {
		t.Errorf("what came too late is still in use: %+v", s.Cache)
	}
}
