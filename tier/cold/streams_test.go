package cold

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/cache"
	"github.com/tidemark-io/tidemark/tier/manifest"
)

// long is a twin with segments of about so many bytes each, in batches of about a KiB.
func long(t testing.TB, segments, bytes int) *twin {
	w := newTwin(t, 3)
	for range segments {
		for n := 0; n < bytes-1000; n += 1000 {
			w.data(0, record.None, 440, 460)
		}
		w.roll()
	}
	w.finish()
	w.upload()
	w.bucket.gets = nil
	return w
}

// scaled is a cache with the proportions of the defaults, each byte of which stands for a KiB: 8 MiB a get, 256 MiB in all.
func scaled(o *Options) {
	o.Cache = cache.Options{MemoryBytes: 256 << 10, BlockBytes: 256, RangeBytes: 8 << 10, Plain: true}
	o.Config = func() Config {
		return Config{ReadAheadBytes: 32 << 10, BytesPerSecond: math.MaxInt64, MaxDecompressedBytes: 1 << 20}
	}
}

// T4: gets for each cold gigabyte with 1 and with 20 readers of the same range, which don't keep in step.
func TestGetsPerGigabyte(t *testing.T) {
	w := long(t, 8, 128<<10)
	for _, tt := range []struct {
		readers, fetchBytes int
		most                float64
	}{{1, 1 << 10, 140}, {1, 50 << 10, 140}, {20, 1 << 10, 150}, {20, 3 << 10, 150}} {
		t.Run(fmt.Sprint(tt.readers, " readers of ", tt.fetchBytes), func(t *testing.T) {
			w.bucket.gets = nil
			r := w.reader(scaled)
			rng := rand.New(rand.NewPCG(1, 1))
			end := w.m.State().End
			at := make([]wire.Offset, tt.readers)
			now := testTime
			for left := tt.readers; left > 0; {
				i := rng.IntN(tt.readers)
				if at[i] >= end || at[i] > slices.Min(at)+128 { // they stay within 128 records, which stand for 60 MB
					continue
				}
				now = now.Add(time.Millisecond)
				q := Request{MaxBytes: tt.fetchBytes, MinOneBatch: true, Partitions: []Fetch{w.fetch(at[i], end, tt.fetchBytes)}}
				result := r.Read(t.Context(), now, &q)[0]
				if len(take(t, result)) == 0 {
					t.Fatalf("reader %d at %d: code %d", i, at[i], result.Code)
				}
				if at[i] = result.Next; at[i] >= end {
					left--
				}
			}
			perGB := float64(w.bucket.count()) / (float64(w.m.State().Bytes) * 1024 / 1e9)
			if perGB > tt.most {
				t.Errorf("%.0f gets for each GB, want at most %.0f", perGB, tt.most)
			}
			t.Logf("%.0f gets for each GB", perGB)
		})
	}
}

// T3: a first read gets what it was asked for, by one get with no index needed, by two with it.
func TestAFirstReadGetsNoMoreThanItWasAskedFor(t *testing.T) {
	w := long(t, 1, 64<<10)
	r := w.reader(scaled, func(o *Options) { o.Cache.RangeBytes = 64 << 10 })
	end := w.m.State().End
	for _, tt := range []struct {
		offset wire.Offset
		gets   int
	}{{0, 1}, {end / 2, 2}, {end / 4, 1}} {
		before := w.bucket.count()
		if _, b := w.readOne(r, Request{MaxBytes: 2000, MinOneBatch: true, Partitions: []Fetch{w.fetch(tt.offset, end, 2000)}}); len(b) == 0 {
			t.Fatal("nothing")
		}
		gets := w.bucket.gets[before:]
		if len(gets) != tt.gets {
			t.Errorf("offset %d: %q", tt.offset, gets)
		}
	}
	if s := r.Stats(); s.Cache.GetBytes > 3*(2000+indexSlack+2*256) {
		t.Errorf("%d bytes were got", s.Cache.GetBytes)
	}
}

// Read-ahead goes on behind the end of a segment.
func TestReadAheadCrossesTheEndsOfSegments(t *testing.T) {
	w := long(t, 4, 10<<10)
	r := w.reader(scaled)
	end := w.m.State().End
	second := w.segments()[1]
	for from := wire.Offset(0); from < second.Start; {
		result, b := w.readOne(r, Request{MaxBytes: 2000, MinOneBatch: true, Partitions: []Fetch{w.fetch(from, end, 2000)}})
		if len(b) == 0 {
			t.Fatalf("at %d: code %d", from, result.Code)
		}
		from = result.Next
	}
	before := w.bucket.count()
	if _, b := w.readOne(r, Request{MaxBytes: 2000, MinOneBatch: true, Partitions: []Fetch{w.fetch(second.Start, end, 2000)}}); len(b) == 0 {
		t.Fatal("nothing")
	}
	for _, get := range w.bucket.gets[before:] {
		if w.key(second, manifest.LogObject) == get[:len(get)-len(" 0+0")] {
			t.Errorf("%q had to be got", get)
		}
	}
	if !slices.ContainsFunc(w.bucket.gets[:before], func(get string) bool { return get == w.key(second, manifest.LogObject)+" 0+8192" }) {
		t.Errorf("gets %q", w.bucket.gets[:before])
	}
}

// What lies behind the fetch's end is on the local disk: nobody will ask for it here.
func TestReadAheadEndsWhereTheLocalLogBegins(t *testing.T) {
	w := long(t, 4, 10<<10)
	r := w.reader(scaled)
	second := w.segments()[1]
	for from := wire.Offset(0); from < second.Start; {
		result, b := w.readOne(r, Request{MaxBytes: 2000, MinOneBatch: true, Partitions: []Fetch{w.fetch(from, second.Start, 2000)}})
		if len(b) == 0 {
			t.Fatalf("at %d: code %d", from, result.Code)
		}
		from = result.Next
	}
	for _, get := range w.bucket.gets {
		if strings.HasPrefix(get, w.key(second, manifest.LogObject)) {
			t.Errorf("%q was not needed", get)
		}
	}
}

func TestAWindowGrowsWhileReadsWaitAndShrinksWhenItIsNotNeeded(t *testing.T) {
	const chunk, most = 8, 80
	s := newStreams()
	now := testTime
	at := place{offset: 0}
	read := func(took time.Duration, stalled bool) int64 {
		now = now.Add(took)
		m, _ := s.find(at)
		next := at
		next.offset++
		s.note(now, left{at: m, next: next, bytes: 8, stalled: stalled, get: 100 * time.Millisecond}, chunk, most)
		at = next
		m, ok := s.find(at)
		if !ok {
			t.Fatal("the place is not known")
		}
		return s.window(m, 1<<30, chunk)
	}
	if got := read(0, true); got != chunk {
		t.Errorf("first: %d", got)
	}
	for i := range 20 {
		if got, want := read(10*time.Millisecond, true), min(int64(chunk*(i+2)), most); got != want {
			t.Errorf("after %d waits: %d, want %d", i+1, got, want)
		}
	}
	// 8 bytes in 10 ms, and a get takes 100 ms: 80 bytes are under way, and all of the window is of use.
	for range 20 {
		read(10*time.Millisecond, false)
	}
	if got := read(10*time.Millisecond, false); got != most {
		t.Errorf("a reader that takes all: %d, want %d", got, most)
	}
	for range 40 {
		read(time.Second, false)
	}
	if got := read(time.Second, false); got > 2*chunk {
		t.Errorf("a slow reader: %d", got)
	}
}

func TestStreamsShareTheRoomAndAreBounded(t *testing.T) {
	s := newStreams()
	for i := range 3 * placesMax {
		s.note(testTime, left{next: place{offset: wire.Offset(i)}}, 8, 80)
	}
	if n := len(s.places); n != placesMax {
		t.Errorf("%d places", n)
	}
	m, _ := s.find(place{offset: 3*placesMax - 1})
	if got := s.window(m, 3*placesMax*20, 8); got != 8 {
		t.Errorf("share %d, want what the stream wants", got)
	}
	m.stream.target = 80
	if got := s.window(m, 3*placesMax*20, 8); got != 20 {
		t.Errorf("share %d, want 20", got)
	}
	if got := s.window(m, 1, 8); got != 8 {
		t.Errorf("share %d, want a chunk", got)
	}
	s.note(testTime.Add(time.Minute), left{next: place{offset: -1}}, 8, 80)
	if n := s.len(); n != 1 {
		t.Errorf("%d streams, want the one that is read", n)
	}
}

// FM-52: a tiny cache, 64 readers that jump about, and every byte right.
func TestManyReadersOfATinyCache(t *testing.T) {
	w := long(t, 4, 16<<10)
	whole := map[wire.Offset][]byte{}
	end := w.m.State().End
	for from := range end {
		whole[from] = w.local(from, end, 2000, true)
	}
	var running *sync.WaitGroup
	r := w.reader(func(o *Options) {
		running = goroutines(o)
		o.Cache.MemoryBytes, o.Cache.BlockBytes = 32<<10, 256
	})
	t.Cleanup(func() { running.Wait() })
	var readers sync.WaitGroup
	for i := range 64 {
		rng := rand.New(rand.NewPCG(2, uint64(i)))
		readers.Go(func() {
			from := wire.Offset(rng.IntN(int(end)))
			for n := 0; n < 30; {
				q := Request{MaxBytes: 2000, MinOneBatch: true, Partitions: []Fetch{w.fetch(from, end, 2000)}}
				result := r.Read(t.Context(), testTime, &q)[0]
				b := take(t, result)
				if result.Code != wire.None {
					t.Errorf("at %d: code %d", from, result.Code)
					return
				}
				if len(b) == 0 {
					continue // all tasks were taken
				}
				if want := whole[from]; len(b) > len(want) || string(b) != string(want[:len(b)]) {
					t.Errorf("at %d: %d bytes are not those of the log", from, len(b))
				}
				n++
				if from = result.Next; from >= end || rng.IntN(4) == 0 {
					from = wire.Offset(rng.IntN(int(end)))
				}
			}
		})
	}
	readers.Wait()
	running.Wait()
	if s := r.Stats(); s.Cache.InUseBytes != 0 || s.Cache.Bytes > 32<<10 {
		t.Errorf("stats %+v", s.Cache)
	}
}
