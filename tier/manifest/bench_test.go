package manifest

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// grown is a manifest of count segments of a thousand offsets, with a snapshot, and all its pages in memory.
func grown(b *bench, count int) *Manifest {
	b.t.Helper()
	o := b.options(1)
	o.PageSegments, o.Pages = defaultPageSegments, NewPageCache(1000)
	m, err := Open(b.t.Context(), b.store, prefix, o)
	if err != nil {
		b.t.Fatal(err)
	}
	for at, end := 0, wire.Offset(0); at < count; {
		var records []Record
		for range min(1000, count-at) {
			s := b.segment(end, end+1000, 0)
			s.Size, s.AuxSize, s.CRC, s.AuxCRC = 16<<20, 40_000, Checksum(rand.Uint32()), Checksum(rand.Uint32())
			s.MinTimestamp = 1_800_000_000_000 + int64(end)*60
			s.MaxTimestamp, s.UploadedMs = s.MinTimestamp+59_000, s.MinTimestamp+70_000
			records, end, at = append(records, &AddRecord{s}), s.End, at+1
		}
		b.commit(m, 0, records...)
		for m.PageDue() {
			b.page(m, 0)
		}
	}
	if err := m.Snapshot(b.t.Context(), b.now); err != nil {
		b.t.Fatal(err)
	}
	b.all(m)
	return m
}

// bySize runs a benchmark on manifests of three sizes.
func bySize(b *testing.B, run func(b *testing.B, x *bench, m *Manifest, n int)) {
	for _, n := range []int{10, 1_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x := newBench(b)
			m := grown(x, n)
			b.ReportAllocs()
			run(b, x, m, n)
		})
	}
}

// BenchmarkOpen is what a start costs, from a snapshot at the tail.
func BenchmarkOpen(b *testing.B) {
	bySize(b, func(b *testing.B, x *bench, _ *Manifest, _ int) {
		for b.Loop() {
			x.open(nil, 2)
		}
	})
}

// BenchmarkFind looks up offsets at random, pages in memory.
func BenchmarkFind(b *testing.B) {
	bySize(b, func(b *testing.B, _ *bench, m *Manifest, n int) {
		rng := rand.New(rand.NewPCG(1, 1))
		for b.Loop() {
			if _, ok, err := m.Find(b.Context(), wire.Offset(rng.IntN(n*1000))); !ok || err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkFindTime looks up the first candidate of a time at random, pages in memory.
func BenchmarkFindTime(b *testing.B) {
	bySize(b, func(b *testing.B, _ *bench, m *Manifest, n int) {
		rng := rand.New(rand.NewPCG(1, 1))
		for b.Loop() {
			for _, err := range m.FindTime(b.Context(), 1_800_000_000_000+int64(rng.IntN(n*60_000))) {
				if err != nil {
					b.Fatal(err)
				}
				break
			}
		}
	})
}

// BenchmarkFindCold looks up one offset with no page in memory: one get, and decoding it.
func BenchmarkFindCold(b *testing.B) {
	x := newBench(b)
	m := grown(x, 100_000)
	b.ReportAllocs()
	for b.Loop() {
		m.opts.Pages = NewPageCache(1)
		if _, ok, err := m.Find(b.Context(), 12_345_678); !ok || err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCommit adds a segment to a manifest of that size.
func BenchmarkCommit(b *testing.B) {
	bySize(b, func(b *testing.B, x *bench, m *Manifest, _ int) {
		for b.Loop() {
			x.add(m, 0, 1, 1000)
			if m.PageDue() {
				x.page(m, 0)
			}
		}
	})
}

// TestMemoryOfASegment: 64 bytes where its page is in memory, and the state itself stays small.
func TestMemoryOfASegment(t *testing.T) {
	b := newBench(t)
	count := 6_000
	heap := func() int64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	m := grown(b, count)
	with := heap()
	m.opts.Pages = NewPageCache(1)
	paged := int64(0)
	for _, p := range m.State().Pages {
		paged += int64(p.Segments)
	}
	if each := (with - heap()) / paged; each > 64 || each < 40 {
		t.Errorf("a segment takes %d bytes in memory", each)
	}
	text, err := m.State().encode()
	if err != nil {
		t.Fatal(err)
	}
	if each := len(text) - len(m.State().Tail)*400; each > len(m.State().Pages)*400+1000 {
		t.Errorf("the state has %d bytes for %d pages and a tail of %d", len(text), len(m.State().Pages), len(m.State().Tail))
	}
}
