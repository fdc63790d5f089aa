package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
)

// model is a manifest as a plain list, and the history of each offset.
type model struct {
	logStart, end wire.Offset
	segments      []Segment
	epochs        map[wire.Offset]wire.LeaderEpoch // of the records that are in the manifest
	lost          map[wire.Offset]bool
	dropped       []upload
	closed        bool
}

// machine does legal things to a manifest and compares it with the model.
type machine struct {
	b      *bench
	m      *Manifest
	epoch  wire.LeaderEpoch
	broker int32
	model  model
}

func (x *machine) commit(records ...Record) {
	x.b.commit(x.m, x.epoch, records...)
	x.model.closed = false
}

// do is one step that a correct leader may take; false if there is nothing of that kind to do.
func (x *machine) do(t *rapid.T) {
	s, m := x.m.State(), &x.model
	switch rapid.SampledFrom([]string{"add", "add", "add", "add", "start", "drop", "deleted", "cut", "lost", "close", "page", "page", "elect", "snapshot"}).Draw(t, "what") {
	case "add":
		x.add(t)
	case "start":
		m.logStart += wire.Offset(rapid.IntRange(1, 30).Draw(t, "start"))
		m.end = max(m.end, m.logStart)
		x.commit(&StartRecord{m.logStart})
	case "drop":
		x.drop(t)
	case "deleted":
		if n := len(s.Dropped); n > 0 {
			x.deleted(s.Dropped[:rapid.IntRange(1, n).Draw(t, "deleted")])
		}
	case "cut":
		x.cut(rapid.IntRange(int(m.logStart)-3, int(m.end)+1).Draw(t, "cut"))
	case "lost":
		end := m.end + wire.Offset(rapid.IntRange(1, 9).Draw(t, "lost"))
		x.commit(&LostRecord{m.end, end})
		for o := m.end; o < end; o++ {
			m.lost[o] = true
		}
		m.end = end
	case "close":
		x.commit(&CloseRecord{m.end})
		m.closed = true
	case "page":
		if len(s.Tail) > 0 {
			r, err := x.m.MakePage(x.b.t.Context(), x.epoch)
			if err != nil {
				t.Fatal(err)
			}
			x.commit(r)
		}
	case "elect":
		x.epoch += wire.LeaderEpoch(rapid.IntRange(1, 3).Draw(t, "epoch"))
		x.broker++
		x.m = x.b.open(nil, x.broker)
		x.commit()
	case "snapshot":
		if err := x.m.Snapshot(x.b.t.Context(), x.b.now); err != nil {
			t.Fatal(err)
		}
	}
}

func (x *machine) add(t *rapid.T) {
	m := &x.model
	segment := x.b.segment(m.end, m.end+wire.Offset(rapid.IntRange(1, 12).Draw(t, "length")), x.epoch)
	segment.Base -= wire.Offset(rapid.IntRange(0, min(5, int(segment.Base))).Draw(t, "begins before"))
	segment.MaxTimestamp = int64(rapid.IntRange(0, 40).Draw(t, "time"))
	segment.MinTimestamp = 0
	// The log may have records of earlier epochs, but none earlier than those before.
	var newest wire.LeaderEpoch
	if n := len(x.m.State().Epochs); n > 0 {
		newest = x.m.State().Epochs[n-1].Epoch
	}
	if newest < x.epoch && segment.End-segment.Start > 1 && rapid.Bool().Draw(t, "two epochs") {
		segment.Epochs = []EpochStart{{newest, segment.Start}, {x.epoch, segment.Start + 1}}
	}
	x.commit(&AddRecord{segment})
	for o := segment.Start; o < segment.End; o++ {
		m.epochs[o] = segment.Epochs[epochIndex(segment.Epochs, o)].Epoch
	}
	m.segments, m.end = append(m.segments, segment), segment.End
}

func (x *machine) drop(t *rapid.T) {
	r, err := x.m.MakeDrop(x.b.t.Context(), x.b.now, rapid.IntRange(1, 5).Draw(t, "count"))
	if err != nil {
		t.Fatal(err)
	}
	if r == nil {
		if len(x.model.segments) > 0 && x.model.segments[0].End <= x.model.logStart {
			t.Fatalf("%+v is not dropped", x.model.segments[0])
		}
		return
	}
	x.commit(r)
	for _, d := range r.Segments {
		if d.Name != x.model.segments[0].Name || d.End > x.model.logStart {
			t.Fatalf("%+v is dropped", d)
		}
		x.model.segments = x.model.segments[1:]
		x.model.dropped = append(x.model.dropped, upload{d.Name, false})
	}
}

func (x *machine) deleted(list []Dropped) {
	r := &DeletedRecord{}
	for _, d := range list {
		if d.Page {
			r.Pages = append(r.Pages, d.Name)
			continue
		}
		r.Segments = append(r.Segments, d.Name)
		x.model.dropped = slices.DeleteFunc(x.model.dropped, func(u upload) bool { return u.Name == d.Name })
	}
	x.commit(r)
}

func (x *machine) cut(end int) {
	m := &x.model
	if at := max(wire.Offset(end), m.logStart); at < m.end {
		x.b.cut(x.m, x.epoch, wire.Offset(end))
		m.closed = false
		for n := len(m.segments); n > 0 && m.segments[n-1].Start >= at; n-- {
			m.dropped = append(m.dropped, upload{m.segments[n-1].Name, false})
			m.segments = m.segments[:n-1]
		}
		if n := len(m.segments); n > 0 && m.segments[n-1].End > at {
			m.segments[n-1] = clip(m.segments[n-1], at)
		}
		for o := at; o < m.end; o++ {
			delete(m.epochs, o)
			delete(m.lost, o)
		}
		m.end = at
	}
}

// compare makes sure that the manifest is what the model says, and that a reader comes to the same.
func (x *machine) compare(t *rapid.T) {
	s, m := x.m.State(), &x.model
	x.b.same(x.m)
	if s.LogStart != m.logStart || s.End != m.end || s.Closed != m.closed || s.Segments != len(m.segments) {
		t.Fatalf("the state is %+v, the model %+v", s, m)
	}
	var size, aux int64
	for i, got := range x.b.all(x.m) {
		if want := m.segments[i]; !reflect.DeepEqual(got, want) {
			t.Fatalf("segment %d is %+v, not %+v", i, got, want)
		}
		size, aux = size+got.Size, aux+got.AuxSize
	}
	if s.Bytes != size || s.AuxBytes != aux {
		t.Fatalf("%d and %d bytes are live, the state says %d and %d", size, aux, s.Bytes, s.AuxBytes)
	}
	for o := m.logStart - 2; o < m.end+2; o++ {
		x.lookUp(t, s, o)
	}
	for ts := int64(0); ts <= 41; ts += 5 {
		var got, want []wire.Offset
		for f, err := range x.m.FindTime(x.b.t.Context(), ts) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, f.Start)
		}
		for _, segment := range m.segments {
			if segment.MaxTimestamp >= ts && segment.End > m.logStart {
				want = append(want, segment.Start)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("time %d is in %v, not %v", ts, got, want)
		}
	}
	var names []upload
	for _, d := range s.Dropped {
		if !d.Page {
			names = append(names, upload{d.Name, false})
		}
	}
	if len(names) != len(m.dropped) {
		t.Fatalf("dropped are %v, not %v", names, m.dropped)
	}
}

func (x *machine) lookUp(t *rapid.T, s *State, o wire.Offset) {
	m := &x.model
	found, ok, err := x.m.Find(x.b.t.Context(), o)
	epoch, want := m.epochs[o]
	want = want && o >= m.logStart
	if err != nil || ok != want || ok && !found.Contains(o) {
		t.Fatalf("offset %d is in %+v, %v: %v", o, found, ok, err)
	}
	if !ok {
		if got := s.SkipLost(o); (got > o) != (m.lost[o] && o >= m.logStart) && o >= m.logStart {
			t.Fatalf("from %d a read goes on at %d", o, got)
		}
		return
	}
	if i := epochIndex(found.Epochs, o); found.Epochs[i].Epoch != epoch {
		t.Fatalf("offset %d has epoch %d in %+v, not %d", o, found.Epochs[i].Epoch, found, epoch)
	}
	if e, end := s.EndOffsetForEpoch(epoch); e != epoch || end <= o {
		t.Fatalf("epoch %d ends at %d (%d), and there is offset %d", epoch, end, e, o)
	}
}

// TestManifestIsAPlainList: legal records in any order, folded from the beginning or from a snapshot, paged or not, make what a
// plain list makes; and what makes no sense is refused.
func TestManifestIsAPlainList(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		x := &machine{b: newBench(t), model: model{epochs: map[wire.Offset]wire.LeaderEpoch{}, lost: map[wire.Offset]bool{}}}
		x.m = x.b.open(nil, 0)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			x.do(rt)
			x.compare(rt)
			x.nonsense(rt)
		}
		x.replay(rt)
	})
}

// replay: all entries from the first one lead to the state that readers have by way of snapshots.
func (x *machine) replay(t *rapid.T) {
	f := newFold()
	for e, err := range chain.Read(x.b.t.Context(), x.b.store, prefix+chainFolder, 1) {
		if err == nil {
			err = f.Apply(e)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := f.State()
	want, err2 := x.b.open(nil, 99).State().encode()
	if err := errors.Join(err, err2); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("entries lead to\n%s\nsnapshots to\n%s\n%v", got, want, err)
	}
}

// nonsense is what no leader may write now.
func (x *machine) nonsense(t *rapid.T) {
	m := &x.model
	other := x.b.segment(m.end+1, m.end+5, x.epoch)
	below := x.b.segment(max(0, m.end-1), m.end+5, x.epoch)
	former := x.b.segment(m.end, m.end+5, x.epoch+1)
	wrong := []Record{
		&AddRecord{other}, &AddRecord{former}, &StartRecord{m.logStart}, &StartRecord{m.logStart - 1}, &LostRecord{m.end + 1, m.end + 2}, &LostRecord{m.end, m.end},
		&CloseRecord{m.end + 1}, &CutRecord{End: m.end}, &CutRecord{End: m.logStart - 1}, &DropRecord{}, &DeletedRecord{Segments: []Name{other.Name}}, &PageRecord{samplePage()},
	}
	if m.end > 0 {
		wrong = append(wrong, &AddRecord{below})
	}
	for _, s := range m.segments {
		if s.End > m.logStart {
			wrong = append(wrong, &DropRecord{Segments: []DroppedRange{rangeOf(s)}})
		}
		if s.End == m.end && s.Start < m.end-1 {
			wrong = append(wrong, &CutRecord{End: m.end - 1}) // clips nothing
		}
	}
	r := rapid.SampledFrom(wrong).Draw(t, "nonsense")
	raw, err := MarshalRecord(r)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := x.m.State().apply(int64(x.epoch)+1, []json.RawMessage{raw}); !errors.Is(err, ErrIllegal) {
		t.Fatalf("%s leads to %+v: %v", raw, s, err)
	}
}
