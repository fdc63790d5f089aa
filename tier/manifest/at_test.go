package manifest

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/object"
)

func TestAManifestOpensAsOfAPastTime(t *testing.T) {
	b := newBench(t)
	m := b.open(nil, 1)
	begin := b.now
	var states []*State // after each hour
	for i := range 40 {
		b.now = b.now.Add(time.Hour)
		b.add(m, 0, 1, 10)
		if i == 20 {
			b.page(m, 0)
			b.commit(m, 0, &StartRecord{25})
			b.drop(m, 0)
		}
		if m.SnapshotDue() {
			if err := m.Snapshot(t.Context(), b.now); err != nil {
				t.Fatal(err)
			}
		}
		states = append(states, m.State())
	}
	for i, want := range states {
		past, err := OpenAt(t.Context(), b.store, prefix, begin.Add(time.Duration(i+1)*time.Hour+time.Minute), b.options(2))
		if err != nil {
			t.Fatal(err)
		}
		got := *past.State()
		if got.Position.Writer == (chain.Writer{}) || got.End != want.End || got.LogStart != want.LogStart || !reflect.DeepEqual(got.Pages, want.Pages) || got.Segments != want.Segments {
			t.Errorf("after hour %d it is %+v, and was %+v", i+1, got, want)
		}
		if _, ok, err := past.Find(t.Context(), want.End-1); !ok || err != nil {
			t.Error(ok, err)
		}
		if again := b.refresh(past); again.End != want.End {
			t.Errorf("it goes on to %d", again.End)
		}
		b.refused(past, errPast, 9)
	}
	if past, err := OpenAt(t.Context(), b.store, prefix, begin, b.options(2)); err != nil || past.State().Position.Number != 0 {
		t.Errorf("before its first entry: %v", err)
	}
}

// TestFM44RebuiltManifest: a manifest that was made anew goes on with the next leader, and with nobody else.
func TestFM44RebuiltManifest(t *testing.T) {
	b := newBench(t)
	leader := b.open(nil, 1)
	b.add(leader, 3, 6, 10)
	segments := b.all(leader)
	segments = append(segments[:2:2], segments[3:]...) // one is lost

	o := b.options(-1)
	state, err := Rebuild(t.Context(), b.now, b.store, prefix, o, 3, Rebuilt{LogStart: 5, End: 60, Segments: segments})
	if err != nil {
		t.Fatal(err)
	}
	m := b.open(nil, 2)
	if got := m.State(); !reflect.DeepEqual(got, state) || got.LogStart != 5 || got.End != 60 || !reflect.DeepEqual(got.Lost, []Range{{20, 30}}) ||
		!reflect.DeepEqual(got.Epochs, []EpochStart{{3, 5}}) || got.Segments != 5 {
		t.Errorf("it reads as %+v, and was made as %+v", got, state)
	}
	if outcome, err := leader.Commit(t.Context(), b.now, 3, &AddRecord{b.segment(60, 70, 3)}); outcome == object.Done {
		t.Errorf("the former leader goes on: %v", err)
	}
	b.refresh(leader)
	b.refused(leader, chain.ErrFenced, 3, &AddRecord{b.segment(60, 70, 3)})
	b.add(m, 4, 1, 10)
	b.page(m, 4)
	if got := b.refresh(leader); got.End != 70 {
		t.Errorf("the former leader sees %+v", got)
	}

	lost, err := Rebuild(t.Context(), b.now, b.store, prefix, o, 4, Rebuilt{LogStart: 5, End: 1000, Segments: segments})
	if err != nil || lost.End != 1000 || !reflect.DeepEqual(lost.Lost, []Range{{20, 30}, {60, 1000}}) || !reflect.DeepEqual(b.open(nil, 3).State(), lost) {
		t.Errorf("what is lost at its end: %+v, %v", lost, err)
	}

	for _, bad := range []Rebuilt{
		{LogStart: 10, Segments: segments},
		{Segments: []Segment{segments[1], segments[0]}},
		{Segments: []Segment{{}}},
	} {
		if _, err := Rebuild(t.Context(), b.now, b.store, prefix, o, 9, bad); !errors.Is(err, ErrIllegal) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
