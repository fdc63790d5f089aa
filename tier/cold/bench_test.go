package cold

import (
	"io"
	"math"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/cache"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
	"github.com/tidemark-io/tidemark/tier/object/storeurl"
)

// slowly is a body that takes its time.
type slowly struct {
	io.ReadCloser
	perByte time.Duration
}

func (s slowly) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p[:min(len(p), 256<<10)])
	time.Sleep(time.Duration(n) * s.perByte)
	return n, err
}

// benchmarkStore takes a millisecond to begin an answer, and sends each at 200 MB/s.
func benchmarkStore(w *twin) {
	w.bucket.onGet = func(string, object.Range) error { time.Sleep(time.Millisecond); return nil }
	w.bucket.body = func(_ string, _ object.Range, body io.ReadCloser) io.ReadCloser { return slowly{body, 5} }
}

// benchmarkTwin lies in the bucket that TIDEMARK_BENCH_STORE names, which has to be empty, or else in memory with delays.
func benchmarkTwin(b *testing.B) *twin {
	var store object.Store = memstore.New(nil)
	url := os.Getenv("TIDEMARK_BENCH_STORE")
	if url != "" {
		var err error
		if store, err = storeurl.Create(b.Context(), url+"/"+strconv.FormatInt(time.Now().UnixNano(), 36)); err != nil {
			b.Fatal(err)
		}
	}
	w := newTwinIn(b, store, 1)
	w.log, w.other = newLog(b, "/data/orders-0", 4096), newLog(b, "/other/orders-0", 4096)
	for range 8 {
		for range 256 {
			w.data(0, record.None, 64<<10-100)
		}
		w.roll()
	}
	w.finish()
	w.upload()
	if url == "" {
		benchmarkStore(w)
	}
	return w
}

// BenchmarkColdRead is T1: a cold sequential read of 128 MiB by 1 MiB a fetch, and the same objects by plain gets of 8 MiB, five at
// a time, one after the other so that both see the same machine.
func BenchmarkColdRead(b *testing.B) {
	w := benchmarkTwin(b)
	b.Run("cold", func(b *testing.B) { coldRead(b, w) })
	b.Run("raw", func(b *testing.B) { rawGets(b, w) })
}

func coldRead(b *testing.B, w *twin) {
	end := w.m.State().End
	b.SetBytes(w.m.State().Bytes)
	gets := 0
	for b.Loop() {
		before := w.bucket.count()
		r, running := benchmarkReader(w)
		for from := wire.Offset(0); from < end; {
			q := Request{MaxBytes: 1 << 20, MinOneBatch: true, Partitions: []Fetch{w.fetch(from, end, 1<<20)}}
			result := r.Read(b.Context(), time.Now(), &q)[0]
			if result.Records.Length == 0 {
				b.Fatal(result.Code)
			}
			if _, err := io.Copy(io.Discard, io.NewSectionReader(result.Records.File, result.Records.Offset, result.Records.Length)); err != nil {
				b.Fatal(err)
			}
			result.Records.Release()
			from = result.Next
		}
		gets = w.bucket.count() - before
		running.Wait()
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(gets)/(float64(w.m.State().Bytes)/1e9), "gets/GB")
}

func benchmarkReader(w *twin) (*Reader, *sync.WaitGroup) {
	running := &sync.WaitGroup{}
	r, err := Open(Options{
		Store: w.bucket, Go: func(f func()) { running.Go(f) }, Now: time.Now,
		Cache: cache.Options{MemoryBytes: 256 << 20, RangeBytes: 8 << 20},
		Config: func() Config {
			return Config{ReadAheadBytes: 32 << 20, BytesPerSecond: math.MaxInt64, MaxDecompressedBytes: 1 << 26}
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return r, running
}

func rawGets(b *testing.B, w *twin) {
	b.SetBytes(w.m.State().Bytes)
	for b.Loop() {
		jobs := make(chan func(buf []byte))
		var workers sync.WaitGroup
		for range 5 {
			workers.Go(func() {
				buf := make([]byte, 8<<20)
				for job := range jobs {
					job(buf)
				}
			})
		}
		for _, s := range w.segments() {
			for at := int64(0); at < s.Size; at += 8 << 20 {
				jobs <- func(buf []byte) {
					o, err := w.bucket.Get(b.Context(), w.key(s, manifest.LogObject), object.Range{Offset: at, Length: 8 << 20})
					if err != nil {
						b.Error(err)
						return
					}
					if n, err := io.ReadFull(o.Body, buf); int64(n) != min(s.Size-at, 8<<20) {
						b.Error(n, err)
					}
				}
			}
		}
		close(jobs)
		workers.Wait()
	}
}

// BenchmarkFirstByte is T3: what a first fetch waits for, beside one get of the same MiB.
func BenchmarkFirstByte(b *testing.B) {
	w := benchmarkTwin(b)
	segments := w.segments()
	end := w.m.State().End
	first := func(b *testing.B, offset func(s manifest.Segment) wire.Offset) {
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			r, running := benchmarkReader(w)
			b.StartTimer()
			q := Request{MaxBytes: 1 << 20, MinOneBatch: true, Partitions: []Fetch{w.fetch(offset(segments[i%len(segments)]), end, 1<<20)}}
			result := r.Read(b.Context(), time.Now(), &q)[0]
			b.StopTimer()
			if result.Records.Length == 0 {
				b.Fatal(result.Code)
			}
			result.Records.Release()
			running.Wait()
			if err := r.Close(); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	}
	b.Run("without index", func(b *testing.B) { first(b, func(s manifest.Segment) wire.Offset { return s.Start }) })
	b.Run("with index", func(b *testing.B) { first(b, func(s manifest.Segment) wire.Offset { return (s.Start + s.End) / 2 }) })
	b.Run("get", func(b *testing.B) {
		buf := make([]byte, 1<<20)
		for i := 0; b.Loop(); i++ {
			o, err := w.bucket.Get(b.Context(), w.key(segments[i%len(segments)], manifest.LogObject), object.Range{Offset: 1 << 20, Length: 1 << 20})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(o.Body, buf); err != nil {
				b.Fatal(err)
			}
			if err := o.Body.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkManyPartitions is T2: 128 MiB as fifty partitions, in fetches of all that are not at their end yet.
func BenchmarkManyPartitions(b *testing.B) {
	w := benchmarkTwin(b)
	end := w.m.State().End
	b.SetBytes(w.m.State().Bytes)
	for b.Loop() {
		r, running := benchmarkReader(w)
		q := Request{MaxBytes: 50 << 20, MinOneBatch: true}
		for i := range wire.Offset(50) {
			f := w.fetch(end*i/50, end*(i+1)/50, 1<<20)
			f.TopicPartition.Partition = int32(i)
			q.Partitions = append(q.Partitions, f)
		}
		for len(q.Partitions) > 0 {
			left := q.Partitions[:0:0]
			for i, result := range r.Read(b.Context(), time.Now(), &q) {
				f := q.Partitions[i]
				if result.Records.Length > 0 {
					result.Records.Release()
					f.Offset = result.Next
				}
				if f.Offset < f.UpTo {
					left = append(left, f)
				}
			}
			q.Partitions = left
		}
		running.Wait()
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
