package manifest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

// TestSafety01ReadersHaltOnWhatNoLeaderWrote: records that don't fit are damage, once they are in the chain.
func TestSafety01ReadersHaltOnWhatNoLeaderWrote(t *testing.T) {
	for name, record := range map[string]string{
		"a gap":           `{"type":"lost","start":11,"end":20}`,
		"an unknown type": `{"type":"replace","segments":[]}`,
		"a new field":     `{"type":"lost","start":10,"end":20,"why":"?"}`,
		"no type":         `{"start":10}`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			m := b.open(nil, 1)
			b.add(m, 0, 1, 10)
			raw := &ledger{}
			c, err := chain.Open(t.Context(), b.store, prefix+chainFolder, chain.Options{Writer: m.opts.Writer, Nonce: b.next}, raw)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := c.Append(t.Context(), b.now, 1, []json.RawMessage{json.RawMessage(record)}); err != nil {
				t.Fatal(err)
			}
			before := m.State()
			if _, err := m.Refresh(t.Context()); !errors.Is(err, chain.ErrHalt) || !errors.Is(err, ErrIllegal) {
				t.Errorf("refresh: %v", err)
			}
			if m.State() != before {
				t.Error("the state has changed")
			}
			b.refused(m, chain.ErrHalt, 5)
			if _, err := Open(t.Context(), b.store, prefix, b.options(2)); !errors.Is(err, chain.ErrHalt) {
				t.Errorf("open: %v", err)
			}
		})
	}
}

// ledger is a fold that takes anything.
type ledger struct{}

func (*ledger) Restore([]byte) error    { return nil }
func (*ledger) Apply(chain.Entry) error { return nil }
func (*ledger) State() ([]byte, error)  { return []byte("{}"), nil }

// TestSafety01APausedLeaderStops: two leaders on one manifest make one history, and the former one gets to know.
func TestSafety01APausedLeaderStops(t *testing.T) {
	b := newBench(t)
	old := b.open(nil, 1)
	b.add(old, 0, 2, 10)
	stale := b.segment(20, 30, 0) // uploaded, and then the process was stopped

	leader := b.open(nil, 2)
	b.commit(leader, 1) // the fence
	b.refused(old, chain.ErrFenced, 0, &AddRecord{stale})
	b.refused(old, chain.ErrFenced, 0, &StartRecord{5}) // also before it has looked
	b.add(leader, 1, 1, 15)
	if s := b.refresh(old); s.End != 35 || s.Has(stale.Name) {
		t.Errorf("the former leader sees %+v", s)
	}
	b.refused(old, chain.ErrFenced, 0, &AddRecord{stale})
	b.refused(old, chain.ErrFenced, 1, &AddRecord{b.segment(35, 40, 1)}) // the epoch is another's
	b.same(leader)
	if got := ranges(b.all(leader)); !slices.Equal(got, []Range{{0, 10}, {10, 20}, {20, 35}}) {
		t.Errorf("the manifest has %v", got)
	}
}

// TestSafety02WhatWasNotReadBackDoesNotShow: a store that says yes and does nothing.
func TestSafety02WhatWasNotReadBackDoesNotShow(t *testing.T) {
	b := newBench(t)
	m := b.open(&liar{Store: b.store}, 1)
	outcome, err := m.Commit(t.Context(), b.now, 0, &AddRecord{b.segment(0, 10, 0)})
	if outcome != object.Unknown || err == nil || m.State().Segments != 0 {
		t.Errorf("commit is %v: %v, %d segments", outcome, err, m.State().Segments)
	}
	r, err := m.MakePage(t.Context(), 0)
	if err == nil {
		t.Errorf("an empty tail makes a page: %+v", r)
	}
}

type liar struct{ object.Store }

func (*liar) Put(_ context.Context, key string, body object.Body, cond object.Condition) (object.Token, error) {
	return "yes", nil
}

// TestSafety18ACutLeavesOneHistory: after an unclean election the manifest is cut to what the new leader's log has.
func TestSafety18ACutLeavesOneHistory(t *testing.T) {
	b := newBench(t)
	old := b.open(nil, 1)
	b.add(old, 0, 3, 10)
	b.add(old, 2, 5, 10) // [30, 80) of epoch 2, which the new leader has up to 45 only
	b.add(old, 3, 3, 10) // [80, 110)
	b.page(old, 3)       // [0, 40)
	b.page(old, 3)       // [40, 80)
	log := []EpochStart{{0, 0}, {2, 30}, {4, 45}}

	leader := b.open(nil, 2)
	common := leader.State().CommonEnd(log, 60)
	if common != 45 {
		t.Fatalf("common end is %d", common)
	}
	r, err := leader.MakeCut(t.Context(), b.now, common)
	if err != nil {
		t.Fatal(err)
	}
	b.commit(leader, 4, r)
	s := leader.State()
	if got := ranges(b.all(leader)); !slices.Equal(got, []Range{{0, 10}, {10, 20}, {20, 30}, {30, 40}, {40, 45}}) || s.End != 45 {
		t.Errorf("the manifest has %v and ends at %d", got, s.End)
	}
	if last := s.Tail[0]; !last.Clipped || len(last.Epochs) != 1 || last.Size != 1000 {
		t.Errorf("the clipped segment is %+v", last)
	}
	if !slices.Equal(s.Epochs, []EpochStart{{0, 0}, {2, 30}}) {
		t.Errorf("lineage %v", s.Epochs)
	}
	var dropped []Range
	for _, d := range s.Dropped {
		dropped = append(dropped, Range{d.Start, d.End})
	}
	// Six segments, and the page that the clipped one was taken from, which nothing else is in.
	if want := []Range{{50, 60}, {60, 70}, {70, 80}, {80, 90}, {90, 100}, {100, 110}}; !slices.Equal(dropped[:6], want) || len(dropped) != 7 || !s.Dropped[6].Page {
		t.Errorf("dropped are %+v", s.Dropped)
	}
	b.same(leader)
	next := b.segment(45, 60, 4)
	b.commit(leader, 4, &AddRecord{next})
	if leader.State().CommonEnd(log, 60) != 60 {
		t.Error("after the cut the histories still differ")
	}
	b.refused(old, chain.ErrFenced, 3, &AddRecord{b.segment(110, 120, 3)})
}

func TestSafety18WhatACutMayNotDo(t *testing.T) {
	b := newBench(t)
	m := b.open(nil, 1)
	b.add(m, 0, 3, 10)
	b.commit(m, 0, &StartRecord{5})
	tail := m.State().Tail
	clipped, unmarked, longer, below := clip(tail[1], 15), clip(tail[1], 15), clip(tail[1], 15), clip(tail[0], 4)
	unmarked.Clipped = false
	longer.Size++
	for name, r := range map[string]*CutRecord{
		"below the log start":          {End: 4, Segments: []DroppedRange{rangeOf(tail[1]), rangeOf(tail[2])}, Clipped: &below},
		"at the end":                   {End: 30},
		"leaves the newest":            {End: 20},
		"leaves one between":           {End: 15, Segments: []DroppedRange{rangeOf(tail[2])}},
		"takes one below":              {End: 15, Segments: []DroppedRange{rangeOf(tail[1]), rangeOf(tail[2])}},
		"leaves one out":               {End: 10, Segments: []DroppedRange{rangeOf(tail[1])}},
		"in the wrong order":           {End: 10, Segments: []DroppedRange{rangeOf(tail[2]), rangeOf(tail[1])}},
		"clips another than the cut":   {End: 16, Segments: []DroppedRange{rangeOf(tail[2])}, Clipped: &clipped},
		"changes what it clips":        {End: 15, Segments: []DroppedRange{rangeOf(tail[2])}, Clipped: &longer},
		"does not say that it clipped": {End: 15, Segments: []DroppedRange{rangeOf(tail[2])}, Clipped: &unmarked},
	} {
		t.Run(name, func(t *testing.T) {
			b.t = t
			b.refused(m, ErrIllegal, 1, r)
		})
	}
	b.t = t
	b.commit(m, 1, &CutRecord{End: 15, Segments: []DroppedRange{rangeOf(tail[2])}, Clipped: &clipped})
	b.same(m)
}

// TestSafety19ALostRangeIsNeverUsedAgain: the recovered leader fences, notes what may have been lost, and starts above.
func TestSafety19ALostRangeIsNeverUsedAgain(t *testing.T) {
	b := newBench(t)
	old := b.open(nil, 1)
	b.add(old, 4, 2, 10)
	leader := b.open(nil, 2)
	b.commit(leader, 5)
	end := leader.State().End
	b.commit(leader, 5, &LostRecord{end, end + 10_000_000})
	b.refused(leader, ErrIllegal, 5, &AddRecord{b.segment(end, end+10, 5)})
	b.refused(leader, ErrIllegal, 5, &LostRecord{end, end + 10})
	b.refused(old, chain.ErrFenced, 4, &AddRecord{b.segment(end, end+10, 4)})
	b.add(leader, 5, 1, 10)

	s := leader.State()
	if s.SkipLost(end) != end+10_000_000 || s.SkipLost(end+5) != end+10_000_000 || s.SkipLost(end-1) != end-1 || s.SkipLost(end+10_000_000) != end+10_000_000 {
		t.Error("reads in the lost range don't go on at its end")
	}
	if _, ok, err := leader.Find(t.Context(), end+5); ok || err != nil {
		t.Errorf("the lost range has a segment: %v", err)
	}
	if got, ok, err := leader.After(t.Context(), s.Tail[1]); !ok || got.Start != end+10_000_000 || err != nil {
		t.Errorf("after the range comes %+v: %v", got, err)
	}
	b.same(leader)
}

// TestSafety21OffsetsAndEpochsAgree: one history is what has the same offsets and the same leader epochs.
func TestSafety21OffsetsAndEpochsAgree(t *testing.T) {
	b := newBench(t)
	m := b.open(nil, 1)
	segment := b.segment(10, 30, 6)
	segment.Base, segment.Epochs = 0, []EpochStart{{2, 10}, {4, 20}, {6, 25}}
	b.commit(m, 6, &StartRecord{10}, &AddRecord{segment}, &AddRecord{b.segment(30, 40, 6)})
	s := m.State()
	ours := []EpochStart{{1, 0}, {2, 5}, {4, 20}, {6, 25}}
	ends := map[string]struct {
		lineage []EpochStart
		logEnd  wire.Offset
		want    wire.Offset
	}{
		"the same":                          {ours, 100, 40},
		"a log that ends below":             {ours, 33, 33},
		"a log that ends below the start":   {ours, 5, 5},
		"diverges in the middle":            {[]EpochStart{{2, 5}, {4, 20}, {7, 25}}, 100, 25},
		"an epoch that began earlier":       {[]EpochStart{{2, 5}, {4, 19}, {6, 25}}, 100, 19},
		"an epoch that began later":         {[]EpochStart{{2, 5}, {4, 21}, {6, 25}}, 100, 20},
		"an epoch between":                  {[]EpochStart{{2, 5}, {4, 20}, {5, 22}, {6, 25}}, 100, 22},
		"one that is missing":               {[]EpochStart{{2, 5}, {6, 25}}, 100, 20},
		"one without records":               {[]EpochStart{{2, 5}, {3, 20}, {4, 20}, {6, 25}}, 100, 40},
		"diverges at once":                  {[]EpochStart{{3, 5}}, 100, 10},
		"a log that begins above":           {[]EpochStart{{8, 200}}, 300, 40},
		"a log that begins in the middle":   {[]EpochStart{{6, 27}}, 100, 40},
		"begins in the middle of another's": {[]EpochStart{{5, 22}, {6, 25}}, 100, 22},
	}
	for name, test := range ends {
		if got := s.CommonEnd(test.lineage, test.logEnd); got != test.want {
			t.Errorf("common end with %s: %d, want %d", name, got, test.want)
		}
	}
}

// TestSafety22AnEntryAddsOnlyItsOwnEpochsObjects: so what a former leader uploaded can never be named.
func TestSafety22AnEntryAddsOnlyItsOwnEpochsObjects(t *testing.T) {
	b := newBench(t)
	m := b.open(nil, 1)
	b.add(m, 3, 1, 10)
	b.refused(m, ErrIllegal, 4, &AddRecord{b.segment(10, 20, 3)})
	b.refused(m, ErrIllegal, 4, &AddRecord{b.segment(10, 20, 5)})
	b.add(m, 4, 3, 10)
	r, err := m.MakePage(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	b.refused(m, ErrIllegal, 4, r)
}

// TestSafety22DroppedStaysNamedUntilItIsDeleted: nothing that was dropped is an orphan, nor may it be added again.
func TestSafety22DroppedStaysNamedUntilItIsDeleted(t *testing.T) {
	b := newBench(t)
	m := b.open(nil, 1)
	b.add(m, 0, 5, 10)
	b.page(m, 0)
	b.commit(m, 1, &StartRecord{45})
	b.drop(m, 1)
	s := m.State()
	if len(s.Dropped) != 5 || !s.Dropped[4].Page || s.Segments != 1 || s.Dropped[0].TimeMs != b.now.UnixMilli() {
		t.Fatalf("dropped are %+v", s.Dropped)
	}
	first := s.Dropped[0].Name
	b.refused(m, ErrIllegal, 1, &DeletedRecord{Segments: []Name{first, {first.Base, first.Epoch, "other"}}})
	b.refused(m, ErrIllegal, 1, &DeletedRecord{Pages: []Name{first}})
	b.refused(m, ErrIllegal, 1, &DeletedRecord{})
	b.commit(m, 1, &DeletedRecord{Segments: []Name{first}, Pages: []Name{s.Dropped[4].Name}})
	if s := m.State(); len(s.Dropped) != 3 || s.Dropped[0].Start != 10 {
		t.Errorf("dropped are %+v", s.Dropped)
	}
	b.same(m)
	b.refused(m, ErrIllegal, 1, &DeletedRecord{Segments: []Name{first}})
}

// TestSafety22WhatIsSwept: only what no state names and never can, and the list comes first.
func TestSafety22WhatIsSwept(t *testing.T) {
	b := newBench(t)
	put := func(key string) {
		if _, err := b.store.Put(t.Context(), key, bytes.NewReader([]byte("x")), object.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	m := b.open(nil, 1)
	upload := func(s Segment) Segment {
		put(m.Key(s.Name, LogObject))
		put(m.Key(s.Name, AuxObject))
		return s
	}
	var live []Segment
	for i := range wire.Offset(6) {
		live = append(live, upload(b.segment(10*i, 10*i+10, 0)))
		b.commit(m, 0, &AddRecord{live[i]})
	}
	b.page(m, 0)
	lost, err := m.MakePage(t.Context(), 0) // never committed
	if err != nil {
		t.Fatal(err)
	}
	b.commit(m, 0, &StartRecord{10})
	b.drop(m, 0)
	half := b.segment(60, 70, 0) // given up after the data
	put(m.Key(half.Name, LogObject))
	put(prefix + "/somebody-elses")
	put(prefix + "0/00000000000000000000-0-other.log")

	if got, err := m.Orphans(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("within its own epoch a leader sweeps %v: %v", got, err)
	}
	late := upload(b.segment(60, 70, 1)) // under way while the sweep looks
	leader := b.open(nil, 2)
	b.commit(leader, 1)
	got, err := m.Orphans(t.Context()) // which has not heard of the new leader
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, info := range got {
		keys = append(keys, info.Key)
	}
	if want := []string{m.Key(half.Name, LogObject), m.Key(lost.Name, PageObject)}; !slices.Equal(keys, want) {
		t.Errorf("orphans are %v, not %v", keys, want)
	}
	if slices.Contains(keys, m.Key(late.Name, LogObject)) {
		t.Error("an upload that is under way is swept")
	}

	// A sweep that reads the manifest before it lists takes what was added between.
	listed := false
	other := b.open(faultstore.New(b.store, func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.List && c.Key == prefix+"/" {
			listed = true
			b.commit(leader, 1, &AddRecord{late})
			b.commit(leader, 2)
		}
		return faultstore.None
	}), 3)
	if got, err := other.Orphans(t.Context()); err != nil || !listed || slices.ContainsFunc(got, func(i object.Info) bool { return i.Key == m.Key(late.Name, LogObject) }) {
		t.Errorf("what was added in mid-sweep is swept: %v, %v", got, err)
	}
}

// TestSafety23LogStartIsAField: it only goes up, drops follow it, and it passes what was never uploaded.
func TestSafety23LogStartIsAField(t *testing.T) {
	b := newBench(t)
	m := b.open(nil, 1)
	b.add(m, 0, 3, 10)
	tail := m.State().Tail
	b.refused(m, ErrIllegal, 0, &DropRecord{Segments: []DroppedRange{rangeOf(tail[0])}}) // the log start has not moved
	b.commit(m, 0, &StartRecord{19})
	b.refused(m, ErrIllegal, 0, &StartRecord{19})
	b.refused(m, ErrIllegal, 0, &StartRecord{5})
	b.refused(m, ErrIllegal, 0, &DropRecord{Segments: []DroppedRange{rangeOf(tail[0]), rangeOf(tail[1])}})
	b.refused(m, ErrIllegal, 0, &DropRecord{Segments: []DroppedRange{rangeOf(tail[1])}})
	b.refused(m, ErrIllegal, 0, &DropRecord{})
	if _, ok, _ := m.Find(t.Context(), 18); ok {
		t.Error("what lies below the log start is served")
	}
	if s, ok, _ := m.Find(t.Context(), 19); !ok || s.Start != 10 {
		t.Errorf("the log start is in %+v", s)
	}
	b.drop(m, 0)
	if got := ranges(b.all(m)); !slices.Equal(got, []Range{{10, 20}, {20, 30}}) {
		t.Errorf("the manifest has %v", got)
	}

	b.commit(m, 0, &StartRecord{50}) // total retention has outrun the uploads
	if s := m.State(); s.LogStart != 50 || s.End != 50 || len(s.Epochs) != 0 {
		t.Errorf("the state is %+v", s)
	}
	next := b.segment(50, 60, 0)
	next.Base = 30 // of which the first part is gone
	b.refused(m, ErrIllegal, 0, &AddRecord{b.segment(30, 60, 0)})
	b.commit(m, 0, &AddRecord{next})
	b.same(m)
	b.drop(m, 0)
	if got := ranges(b.all(m)); !slices.Equal(got, []Range{{50, 60}}) {
		t.Errorf("the manifest has %v", got)
	}
	b.same(m)
}

// TestSafety27AMissingPageIsLookedForAgain: it may have been dropped and deleted since the handle last looked.
func TestSafety27AMissingPageIsLookedForAgain(t *testing.T) {
	b := newBench(t)
	m := b.open(nil, 1)
	b.add(m, 0, 9, 10)
	b.page(m, 0)
	b.page(m, 0)
	reader := b.open(nil, 2)

	b.commit(m, 0, &StartRecord{45})
	b.drop(m, 0)
	dropped := m.State().Dropped
	page := dropped[len(dropped)-1]
	if err := b.store.Delete(t.Context(), m.Key(page.Name, PageObject)); err != nil || !page.Page {
		t.Fatalf("%+v: %v", page, err)
	}
	if s, ok, err := reader.Find(t.Context(), 25); ok || err != nil || reader.State().LogStart != 45 {
		t.Errorf("a reader that is behind finds %+v: %v", s, err)
	}
	if s, ok, err := reader.Find(t.Context(), 47); !ok || err != nil || s.Start != 40 {
		t.Errorf("and %+v: %v", s, err)
	}

	// Still named, and gone: that is an error, never "no such offset".
	left := m.State().Pages[0]
	fresh := b.open(nil, 3)
	if err := b.store.Delete(t.Context(), m.Key(left.Name, PageObject)); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := fresh.Find(t.Context(), 47); ok || !errors.Is(err, ErrPage) || !errors.Is(err, object.ErrNotExist) {
		t.Errorf("a page that is gone: %v, %v", ok, err)
	}
	if s, ok, err := fresh.Find(t.Context(), 85); !ok || err != nil || s.Start != 80 {
		t.Errorf("the rest is served no more: %+v, %v", s, err)
	}
}

// TestSafety29ClosedIsUndoneByTheNextEntry: also by one that only fences.
func TestSafety29ClosedIsUndoneByTheNextEntry(t *testing.T) {
	b := newBench(t)
	m := b.open(nil, 1)
	b.add(m, 0, 1, 10)
	b.refused(m, ErrIllegal, 0, &CloseRecord{9})
	b.refused(m, ErrIllegal, 0, &CloseRecord{11})
	b.commit(m, 0, &AddRecord{b.segment(10, 20, 0)}, &CloseRecord{20})
	if !m.State().Closed {
		t.Error("not closed")
	}
	b.same(m)
	b.commit(m, 1)
	if m.State().Closed {
		t.Error("a new leader has fenced, and the log still counts as whole")
	}
	b.commit(m, 1, &CloseRecord{20}, &AddRecord{b.segment(20, 30, 1)})
	if m.State().Closed {
		t.Error("closed, with a segment behind")
	}
	b.same(m)
}
