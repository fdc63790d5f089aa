package manifest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
)

const prefix = "topics/orders.AAAAAAAAAAAAAAAAAAAAAQ/0"

// bench is a store with a clock, and leaders on it.
type bench struct {
	t     testing.TB
	now   time.Time
	store object.Store
	nonce int
}

func newBench(t testing.TB) *bench {
	b := &bench{t: t, now: time.UnixMilli(1_800_000_000_000)}
	b.store = memstore.New(func() time.Time { return b.now })
	return b
}

func (b *bench) next() string {
	b.nonce++
	return fmt.Sprintf("%032x", b.nonce)
}

func (b *bench) options(broker int32) Options {
	return Options{
		Writer: chain.Writer{Broker: broker, Incarnation: fmt.Sprint("run", broker)}, Nonce: b.next, PageSegments: 4,
		Pages: NewPageCache(2),
	}
}

// open opens the manifest through s, or through the faultless store if s is nil.
func (b *bench) open(s object.Store, broker int32) *Manifest {
	b.t.Helper()
	if s == nil {
		s = b.store
	}
	m, err := Open(b.t.Context(), s, prefix, b.options(broker))
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

// segment is an upload of [start, end) by the leader of an epoch, whose log has that epoch only.
func (b *bench) segment(start, end wire.Offset, epoch wire.LeaderEpoch) Segment {
	return Segment{
		Name: Name{start, epoch, b.next()}, Start: start, End: end, Size: 100 * int64(end-start), AuxSize: 10,
		CRC: Checksum(start), AuxCRC: Checksum(end), MinTimestamp: int64(start), MaxTimestamp: int64(end) - 1,
		Epochs: []EpochStart{{epoch, start}}, UploadedMs: b.now.UnixMilli(),
	}
}

func (b *bench) commit(m *Manifest, epoch wire.LeaderEpoch, records ...Record) {
	b.t.Helper()
	if outcome, err := m.Commit(b.t.Context(), b.now, epoch, records...); outcome != object.Done || err != nil {
		b.t.Fatalf("commit of epoch %d is %v: %v", epoch, outcome, err)
	}
}

// refused: a commit that is not tried.
func (b *bench) refused(m *Manifest, want error, epoch wire.LeaderEpoch, records ...Record) {
	b.t.Helper()
	before := m.State()
	if outcome, err := m.Commit(b.t.Context(), b.now, epoch, records...); outcome != object.Lost || !errors.Is(err, want) {
		b.t.Fatalf("commit of epoch %d is %v: %v, want %v", epoch, outcome, err, want)
	}
	if m.State() != before {
		b.t.Fatal("a refused commit has changed the state")
	}
}

// add commits segments of the given length one after the other, a commit each.
func (b *bench) add(m *Manifest, epoch wire.LeaderEpoch, count int, length wire.Offset) {
	b.t.Helper()
	for range count {
		end := m.State().End
		b.commit(m, epoch, &AddRecord{b.segment(end, end+length, epoch)})
	}
}

// page moves the tail's oldest segments into a page.
func (b *bench) page(m *Manifest, epoch wire.LeaderEpoch) {
	b.t.Helper()
	r, err := m.MakePage(b.t.Context(), epoch)
	if err != nil {
		b.t.Fatal(err)
	}
	b.commit(m, epoch, r)
}

func (b *bench) refresh(m *Manifest) *State {
	b.t.Helper()
	s, err := m.Refresh(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func (b *bench) cut(m *Manifest, epoch wire.LeaderEpoch, end wire.Offset) {
	b.t.Helper()
	for {
		r, err := m.MakeCut(b.t.Context(), b.now, end)
		if err != nil {
			b.t.Fatal(err)
		}
		if r == nil {
			return
		}
		b.commit(m, epoch, r)
	}
}

func (b *bench) drop(m *Manifest, epoch wire.LeaderEpoch) {
	b.t.Helper()
	r, err := m.MakeDrop(b.t.Context(), b.now, dropMax)
	if err != nil {
		b.t.Fatal(err)
	}
	if r != nil {
		b.commit(m, epoch, r)
	}
}

func (b *bench) all(m *Manifest) (list []Segment) {
	b.t.Helper()
	for s, err := range m.All(b.t.Context()) {
		if err != nil {
			b.t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

func ranges(list []Segment) (r []Range) {
	for _, s := range list {
		r = append(r, Range{s.Start, s.End})
	}
	return r
}

// same makes sure that a new reader comes to the state of a handle, and that the state holds.
func (b *bench) same(m *Manifest) {
	b.t.Helper()
	if err := m.State().check(); err != nil {
		b.t.Fatal(err)
	}
	got, want := b.open(nil, 99).State(), m.State()
	text, err := got.encode()
	text2, err2 := want.encode()
	if err := errors.Join(err, err2); err != nil {
		b.t.Fatal(err)
	}
	if !bytes.Equal(text, text2) || got.Position != want.Position {
		b.t.Fatalf("a new reader has\n%s\nand not\n%s", text, text2)
	}
}

func TestALeaderCommitsAndReadersFollow(t *testing.T) {
	b := newBench(t)
	leader, reader := b.open(nil, 1), b.open(nil, 2)
	first := b.segment(0, 100, 3)
	b.commit(leader, 3, &AddRecord{first})
	second := b.segment(100, 250, 3)
	second.Base, second.Epochs = 40, []EpochStart{{3, 100}} // the leader's segment begins where the follower's did not
	b.commit(leader, 3, &AddRecord{second})

	if s := reader.State(); s.Segments != 0 || s.End != 0 || s.LeaderEpoch() != wire.NoLeaderEpoch {
		t.Errorf("before it looks, a reader has %+v", s)
	}
	s := b.refresh(reader)
	if !reflect.DeepEqual(s.Tail, []Segment{first, second}) || s.End != 250 || s.LogStart != 0 || s.Bytes != 25_000 || s.AuxBytes != 20 {
		t.Errorf("a reader has %+v", s)
	}
	if s.LeaderEpoch() != 3 || s.Position.Number != 2 || !s.Has(second.Name) {
		t.Errorf("a reader is at %+v", s.Position)
	}
	b.same(leader)
}

func TestStatesAreImmutable(t *testing.T) {
	b := newBench(t)
	m := b.open(nil, 1)
	var states []*State
	var texts [][]byte
	note := func() {
		text, err := m.State().encode()
		if err != nil {
			t.Fatal(err)
		}
		states, texts = append(states, m.State()), append(texts, text)
	}
	for round := range wire.LeaderEpoch(4) {
		b.add(m, round, 9, 10)
		note()
		b.page(m, round)
		note()
		b.commit(m, round, &StartRecord{m.State().LogStart + 25})
		note()
		b.drop(m, round)
		note()
		b.cut(m, round, m.State().End-15)
		note()
		b.cut(m, round, m.State().End-35) // into the page
		note()
		b.commit(m, round, &LostRecord{m.State().End, m.State().End + 5})
		b.commit(m, round, &LostRecord{m.State().End, m.State().End + 5})
		note()
		b.cut(m, round, m.State().End-3)
		b.commit(m, round, &DeletedRecord{Segments: []Name{m.State().Dropped[0].Name}})
		note()
		b.same(m)
	}
	for i, s := range states {
		if text, err := s.encode(); err != nil || !bytes.Equal(text, texts[i]) {
			t.Errorf("state %d was\n%s\nand is now\n%s", i, texts[i], text)
		}
	}
}

// TestAnUnknownOutcomeIsFoundOutByName: whether the entry has landed or not, the leader finds out, and adds its segment once.
func TestAnUnknownOutcomeIsFoundOutByName(t *testing.T) {
	lost := func(c faultstore.Call) faultstore.Fault { return faultstore.Refuse }
	for name, put := range map[string]faultstore.Fault{
		"the answer is lost": faultstore.LoseAnswer, "the request is lost": faultstore.Refuse, "the request is late": faultstore.Late,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			down := false
			faulty := faultstore.New(b.store, func(c faultstore.Call) faultstore.Fault {
				switch {
				case !down:
					return faultstore.None
				case c.Op == faultstore.Put:
					return put
				}
				return lost(c)
			})
			m := b.open(faulty, 1)
			b.add(m, 0, 1, 10)

			down = true
			segment := b.segment(10, 20, 0)
			if outcome, err := m.Commit(t.Context(), b.now, 0, &AddRecord{segment}); outcome != object.Unknown || err == nil {
				t.Fatalf("commit is %v: %v", outcome, err)
			}
			if m.State().Has(segment.Name) {
				t.Fatal("what may not have happened shows")
			}
			b.refused(m, chain.ErrFenced, 0, &AddRecord{segment}) // before it has looked
			down = false
			s := b.refresh(m)
			if landed := s.Has(segment.Name); landed != (put == faultstore.LoseAnswer) {
				t.Fatalf("landed: %v", landed)
			}
			if !s.Has(segment.Name) {
				b.commit(m, 0, &AddRecord{segment})
			}
			for range faulty.Late() {
				if err := faulty.Release(t.Context(), 0); !errors.Is(err, object.ErrPrecondition) {
					t.Fatalf("a late put lands: %v", err)
				}
			}
			if got := ranges(b.all(m)); !slices.Equal(got, []Range{{0, 10}, {10, 20}}) {
				t.Errorf("the manifest has %v", got)
			}
			b.same(m)
		})
	}
}

func TestALateEntryIsFoundByItsOwner(t *testing.T) {
	b := newBench(t)
	late := false
	faulty := faultstore.New(b.store, func(c faultstore.Call) faultstore.Fault {
		switch {
		case !late:
			return faultstore.None
		case c.Op == faultstore.Put:
			return faultstore.Late
		}
		return faultstore.Refuse
	})
	m := b.open(faulty, 1)
	late = true
	segment := b.segment(0, 10, 0)
	if outcome, _ := m.Commit(t.Context(), b.now, 0, &AddRecord{segment}); outcome != object.Unknown {
		t.Fatalf("commit is %v", outcome)
	}
	late = false
	if s := b.refresh(m); s.Has(segment.Name) {
		t.Fatal("it is there already")
	}
	if err := faulty.Release(t.Context(), 0); err != nil { // between the look and the second try
		t.Fatal(err)
	}
	again := segment
	again.Nonce = b.next()
	if outcome, err := m.Commit(t.Context(), b.now, 0, &AddRecord{again}); outcome != object.Lost || !errors.Is(err, chain.ErrFenced) {
		t.Fatalf("the second try is %v: %v", outcome, err)
	}
	if s := b.refresh(m); !s.Has(segment.Name) || s.Has(again.Name) || s.Segments != 1 {
		t.Errorf("the manifest has %+v", s)
	}
	b.refused(m, ErrIllegal, 0, &AddRecord{again}) // the range is there
}

func TestCallsEndWithTheirContext(t *testing.T) {
	b := newBench(t)
	m := b.open(nil, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m.turn <- struct{}{} // somebody else is at it
	if outcome, err := m.Commit(ctx, b.now, 0); outcome != object.Lost || !errors.Is(err, context.Canceled) {
		t.Errorf("commit is %v: %v", outcome, err)
	}
	if _, err := m.Refresh(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, object.ErrUnavailable) {
		t.Errorf("refresh: %v", err)
	}
	<-m.turn
	b.add(m, 0, 1, 10)
}

func TestSnapshotsAreDueAndShortenTheWay(t *testing.T) {
	b := newBench(t)
	m := b.open(nil, 1)
	if err := m.Snapshot(t.Context(), b.now); err != nil || m.SnapshotDue() {
		t.Fatalf("an empty manifest needs a snapshot: %v", err)
	}
	b.add(m, 0, snapshotEntries-1, 1)
	if m.SnapshotDue() {
		t.Error("a snapshot is due too early")
	}
	b.add(m, 0, 1, 1)
	if !m.SnapshotDue() || !b.open(nil, 2).SnapshotDue() {
		t.Error("no snapshot is due")
	}
	if err := m.Snapshot(t.Context(), b.now); err != nil {
		t.Fatal(err)
	}
	b.add(m, 0, 3, 1)
	gets := 0
	counting := faultstore.New(b.store, func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.Get {
			gets++
		}
		return faultstore.None
	})
	late := b.open(counting, 2)
	if m.SnapshotDue() || late.SnapshotDue() || late.snapshotAt.Load() != snapshotEntries {
		t.Errorf("snapshot at %d of %d entries", late.snapshotAt.Load(), late.State().Position.Number)
	}
	if gets > 6 { // the snapshot and its entry, three entries, the end
		t.Errorf("opening takes %d gets", gets)
	}
	b.same(m)
}

// TestTrimmedManifestsOpen: what is trimmed lies in the snapshots, pages included.
func TestTrimmedManifestsOpen(t *testing.T) {
	b := newBench(t)
	m := b.open(nil, 1)
	for range 8 {
		b.add(m, 0, 3, 10)
		if m.PageDue() {
			b.page(m, 0)
		}
		b.commit(m, 0, &StartRecord{m.State().LogStart + 7})
		b.drop(m, 0)
		if err := m.Snapshot(t.Context(), b.now); err != nil {
			t.Fatal(err)
		}
		b.now = b.now.Add(20 * time.Hour)
	}
	rounds := 0
	for {
		moved, err := m.Trim(t.Context(), b.now, 0)
		if err != nil {
			t.Fatal(err)
		}
		if !moved {
			break
		}
		rounds++
	}
	if rounds != 6 { // three snapshots stay
		t.Errorf("the boundary moved %d times", rounds)
	}
	for e, err := range chain.Read(t.Context(), b.store, prefix+chainFolder, 1) {
		if err != nil || e.Number < 10 {
			t.Fatalf("entry %d is still there: %v", e.Number, err)
		}
		break
	}
	b.same(m)
	b.add(b.open(nil, 2), 1, 2, 10)
}
