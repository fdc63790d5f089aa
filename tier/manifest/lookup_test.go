package manifest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

// paged is a manifest with segments of ten offsets: [0, 120), of which [0, 80) is in pages, and the log start is 13.
func paged(b *bench) *Manifest {
	m := b.open(nil, 1)
	b.add(m, 0, 12, 10)
	b.page(m, 0)
	b.page(m, 0)
	b.commit(m, 0, &StartRecord{13})
	b.drop(m, 0)
	return m
}

func TestFindAndAfter(t *testing.T) {
	b := newBench(t)
	m := paged(b)
	for offset := wire.Offset(-1); offset <= 125; offset++ {
		s, ok, err := m.Find(t.Context(), offset)
		if want := offset >= 13 && offset < 120; err != nil || ok != want || ok && s.Start != offset/10*10 {
			t.Errorf("offset %d is in %+v: %v, %v", offset, s, ok, err)
		}
	}
	s, _, _ := m.Find(t.Context(), 13)
	for want := wire.Offset(20); want < 120; want += 10 {
		next, ok, err := m.After(t.Context(), s)
		if !ok || err != nil || next.Start != want {
			t.Fatalf("after [%d, %d) comes %+v: %v", s.Start, s.End, next, err)
		}
		s = next
	}
	if _, ok, err := m.After(t.Context(), s); ok || err != nil {
		t.Errorf("something comes after the last one: %v", err)
	}
}

func TestFindTime(t *testing.T) {
	b := newBench(t)
	m := b.open(nil, 1)
	times := []int64{500, 100, 300, 900, 200, 900, 50, 700, 1000, 10}
	for i, ts := range times {
		s := b.segment(wire.Offset(10*i), wire.Offset(10*i+10), 0)
		s.MinTimestamp, s.MaxTimestamp = 1, ts
		b.commit(m, 0, &AddRecord{s})
	}
	b.page(m, 0)
	b.page(m, 0)
	b.commit(m, 0, &StartRecord{10})
	for _, ts := range []int64{0, 100, 101, 300, 901, 1000, 1001} {
		var got, want []wire.Offset
		for s, err := range m.FindTime(t.Context(), ts) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, s.Start)
		}
		for i, largest := range times {
			if i > 0 && largest >= ts { // the first lies below the log start
				want = append(want, wire.Offset(10*i))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("time %d: %v, want %v", ts, got, want)
		}
	}
}

func TestEndOffsetForEpoch(t *testing.T) {
	b := newBench(t)
	m := b.open(nil, 1)
	b.commit(m, 2, &StartRecord{10}, &AddRecord{b.segment(10, 20, 2)})
	b.add(m, 5, 2, 10)
	for epoch, want := range []EpochStart{{-1, -1}, {-1, -1}, {2, 20}, {2, 20}, {2, 20}, {5, 40}, {5, 40}} {
		if e, end := m.State().EndOffsetForEpoch(wire.LeaderEpoch(epoch)); e != want.Epoch || end != want.Start {
			t.Errorf("epoch %d: %d ends at %d, want %v", epoch, e, end, want)
		}
	}
}

func TestLoadGivesTheLivePart(t *testing.T) {
	b := newBench(t)
	m := paged(b)
	p := m.State().Pages[0]
	segments, err := m.Load(t.Context(), p)
	if got := ranges(segments); err != nil || !slices.Equal(got, []Range{{10, 20}, {20, 30}, {30, 40}}) || p.Segments != 3 {
		t.Errorf("page %+v has %v: %v", p, got, err)
	}
	b.cut(m, 1, 25)
	p = m.State().Pages[0]
	segments, err = m.Load(t.Context(), p)
	if got := ranges(segments); err != nil || !slices.Equal(got, []Range{{10, 20}}) || p.Segments != 1 || p.Bytes != 1000 {
		t.Errorf("after a cut, page %+v has %v: %v", p, got, err)
	}
	b.same(m)
}

// TestADamagedPageIsAnError: whatever is not the page that the record names.
func TestADamagedPageIsAnError(t *testing.T) {
	b := newBench(t)
	m := paged(b)
	key := m.Key(m.State().Pages[0].Name, PageObject)
	corrupt := faultstore.New(b.store, func(c faultstore.Call) faultstore.Fault {
		if c.Key == key {
			return faultstore.Corrupt
		}
		return faultstore.None
	})
	_, _, err := b.open(corrupt, 2).Find(t.Context(), 15)
	if !errors.Is(err, ErrPage) {
		t.Errorf("a flipped byte: %v", err)
	}
	down := faultstore.New(b.store, func(c faultstore.Call) faultstore.Fault {
		if c.Key == key {
			return faultstore.Throttle
		}
		return faultstore.None
	})
	if _, _, err := b.open(down, 2).Find(t.Context(), 15); !errors.Is(err, object.ErrUnavailable) || errors.Is(err, ErrPage) {
		t.Errorf("a store that is away is no damage: %v", err)
	}
}

// TestADropReadsNoPageThatItDoesNotNeed: the oldest page may go though the next one can't be read.
func TestADropReadsNoPageThatItDoesNotNeed(t *testing.T) {
	b := newBench(t)
	m := paged(b)
	b.commit(m, 0, &StartRecord{85})
	pages := m.State().Pages
	fresh := b.open(nil, 2)
	if err := b.store.Delete(t.Context(), m.Key(pages[1].Name, PageObject)); err != nil {
		t.Fatal(err)
	}
	r, err := fresh.MakeDrop(t.Context(), b.now, pages[0].Segments)
	if err != nil || len(r.Segments) != pages[0].Segments {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := fresh.MakeDrop(t.Context(), b.now, pages[0].Segments+1); !errors.Is(err, ErrPage) {
		t.Errorf("with a segment of the next page: %v", err)
	}
}

// TestAPageIsReadOnce: a hundred who look at the same time, and all who come after.
func TestAPageIsReadOnce(t *testing.T) {
	b := newBench(t)
	m := paged(b)
	key := m.Key(m.State().Pages[1].Name, PageObject)
	synctest.Test(t, func(t *testing.T) {
		gets, gate := 0, make(chan struct{})
		reader, err := Open(t.Context(), faultstore.New(b.store, func(c faultstore.Call) faultstore.Fault {
			if c.Key == key {
				gets++
				<-gate
			}
			return faultstore.None
		}), prefix, b.options(2))
		if err != nil {
			t.Fatal(err)
		}
		given, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, _, err := reader.Find(given, 55); err == nil {
				t.Error("the first one's context has ended")
			}
		})
		synctest.Wait()
		for range 99 {
			wg.Go(func() {
				if s, ok, err := reader.Find(t.Context(), 55); !ok || err != nil || s.Start != 50 {
					t.Errorf("%+v: %v", s, err)
				}
			})
		}
		synctest.Wait()
		cancel() // the one that reads gives up: another takes over
		gate <- struct{}{}
		synctest.Wait()
		close(gate)
		wg.Wait()
		if _, _, err := reader.Find(t.Context(), 44); err != nil || gets != 2 {
			t.Errorf("%d gets: %v", gets, err)
		}
	})
}

func TestTheCacheKeepsTheLastUsedPages(t *testing.T) {
	c := NewPageCache(2)
	reads := 0
	get := func(key string) {
		if _, err := c.get(t.Context(), pageKey{name: Name{Nonce: key}}, func(context.Context) (*packed, error) { reads++; return &packed{}, nil }); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"a", "b", "a", "c", "a", "b"} {
		get(key)
	}
	if reads != 4 || len(c.pages) != 2 || len(c.flights) != 0 {
		t.Errorf("%d reads, %d pages", reads, len(c.pages))
	}
}

func TestPackedSegmentsComeBackAsTheyWere(t *testing.T) {
	b := newBench(t)
	var segments []Segment
	for i := range 50 {
		s := b.segment(wire.Offset(1000*i), wire.Offset(1000*i+999), wire.LeaderEpoch(i))
		s.Base -= wire.Offset(min(i, int(s.Base)))
		s.Aborted, s.Clipped = i%2 == 0, i%3 == 0
		s.Nonce = []string{s.Nonce, fmt.Sprint("short", i), "ABCDEF0123456789ABCDEF0123456789", "x"}[i%4]
		if i%5 == 0 {
			s.SHA256 = fmt.Sprintf("%064x", i)
			s.Epochs = append(s.Epochs, EpochStart{s.Epoch + 1, s.Start + 1})
			s.MinTimestamp, s.MaxTimestamp, s.UploadedMs = -1, -1, 0
		}
		segments = append(segments, s)
	}
	p := pack(segments)
	for i, s := range segments {
		if got := p.segment(i); !reflect.DeepEqual(got, s) || p.end(i) != s.End {
			t.Errorf("segment %d was %+v and is %+v", i, s, got)
		}
	}
}
