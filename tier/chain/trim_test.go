package chain

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
)

// trimmed is a chain of 12 entries with snapshots at 2, 4, ..., 12 whose boundary is at 8, as high as it may be. stopped
// holds a handle for each number up to 12 that was left behind at that tail, all of the same writer.
func trimmed(t *testing.T) (b *bench, w *Chain, stopped []*Chain) {
	b = newBench(t)
	w, _ = b.open(nil, 1)
	for range 12 {
		left, _ := b.open(nil, 1)
		stopped = append(stopped, left)
		b.grow(w, 1)
	}
	b.now = b.now.Add(48 * time.Hour)
	for range 5 {
		b.trim(w)
	}
	if got := b.trim(w); got != 8 {
		t.Fatalf("boundary %d", got)
	}
	return b, w, stopped
}

// TestSafety04AStalledWriterNeverWins: its number was used by somebody else and deleted, so the create succeeds.
func TestSafety04AStalledWriterNeverWins(t *testing.T) {
	for behind := range int64(12) {
		b, w, handles := trimmed(t)
		stopped := handles[behind]
		want := object.Unknown
		if behind >= 8 {
			want = object.Lost
		}
		if outcome, err := b.append(stopped, 1, "forgotten"); outcome != want || !errors.Is(err, ErrFenced) {
			t.Errorf("the append of a writer stalled at %d is %v: %v", behind, outcome, err)
		}
		if outcome, _ := b.append(stopped, 1, "again"); outcome != object.Lost {
			t.Errorf("stalled at %d, it goes on: %v", behind, outcome)
		}
		if _, l := b.open(nil, 3); len(l.records) != 12 || slices.Contains(l.records, "forgotten") {
			t.Errorf("stalled at %d: a reader has %v", behind, l.records)
		}
		b.commit(w, 1, "13")
		u, err := stopped.Refresh(t.Context())
		if err != nil || (u.State != nil) != (behind < 8) || stopped.Tail() != w.Tail() {
			t.Errorf("stalled at %d: refresh: %v, at %+v", behind, err, stopped.Tail())
		}
	}
}

// TestSafety04WhatIsNotComparedWithTheBoundaryIsUnknown: the entry is created, and a boundary that covers it would make it nothing.
func TestSafety04WhatIsNotComparedWithTheBoundaryIsUnknown(t *testing.T) {
	b := newBench(t)
	away := false
	w, _ := b.open(faultstore.New(b.store, func(c faultstore.Call) faultstore.Fault {
		if away && c.Op == faultstore.List {
			return faultstore.Refuse
		}
		return faultstore.None
	}), 1)
	b.commit(w, 1, "a")
	away = true
	if outcome, err := b.append(w, 1, "b"); outcome != object.Unknown || !errors.Is(err, object.ErrUnavailable) {
		t.Errorf("%v, %v", outcome, err)
	}
	away = false
	if outcome, err := b.append(w, 1, "c"); outcome != object.Lost || !errors.Is(err, ErrFenced) {
		t.Errorf("it goes on: %v, %v", outcome, err)
	}
	if _, err := w.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.commit(w, 1, "d")
	if _, l := b.open(nil, 2); !slices.Equal(l.records, []string{"a", "b", "d"}) {
		t.Errorf("a reader has %v", l.records)
	}
}

// TestSafety04WhatLandsBehindTheBoundaryIsIgnored: a put that was delayed for longer than the retention links to the
// entry before, as the real one did. A reader that was stopped right there must not take it.
func TestSafety04WhatLandsBehindTheBoundaryIsIgnored(t *testing.T) {
	for behind := range int64(8) {
		for _, rubbish := range []bool{false, true} {
			b, w, stopped := trimmed(t)
			p, l := stopped[behind].Tail(), &ledger{}
			b.forge(Entry{
				Number: p.Number + 1, Epoch: 1, Writer: w.Tail().Writer, Nonce: "delayed",
				FirstRecord: p.NextRecord, PrevHash: p.Hash, Records: records("delayed"),
			})
			if rubbish {
				b.put(b.location().entry(p.Number+1), []byte("rubbish"))
			}
			u, err := stopped[behind].Refresh(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _ = u.ApplyTo(l); len(l.records) != 12 || slices.Contains(l.records, "delayed") {
				t.Errorf("a reader stopped at %d has %v", behind, l.records)
			}
			if _, l := b.open(nil, 4); len(l.records) != 12 {
				t.Errorf("who opens has %v", l.records)
			}
			b.trim(w)
			if keys := b.keys(); keys[0] != "00000000000000000008.snapshot.json.zst" {
				t.Errorf("trim leaves %v", keys)
			}
		}
	}
}

// TestSafety04TheBoundaryNeverGoesBack: a lower one that lands late changes nothing.
func TestSafety04TheBoundaryNeverGoesBack(t *testing.T) {
	b, w, stopped := trimmed(t)
	b.put(b.location().boundary(2), []byte("{}"))
	if outcome, _ := b.append(stopped[2], 1, "forgotten"); outcome != object.Unknown {
		t.Errorf("the stalled writer's append is %v", outcome)
	}
	if _, l := b.open(nil, 3); len(l.records) != 12 {
		t.Errorf("a reader has %v", l.records)
	}
	if got := b.trim(w); got != 8 {
		t.Errorf("boundary %d", got)
	}
}

// TestSafety04WhatTrimKeeps: three snapshots and all entries behind the oldest of them, however old they are.
func TestSafety04WhatTrimKeeps(t *testing.T) {
	b, _, _ := trimmed(t)
	want := []string{
		"00000000000000000008.snapshot.json.zst",
		"00000000000000000009.json",
		"00000000000000000010.json", "00000000000000000010.snapshot.json.zst",
		"00000000000000000011.json",
		"00000000000000000012.json", "00000000000000000012.snapshot.json.zst",
		"boundary/00000000000000000008",
	}
	if got := b.keys(); !slices.Equal(got, want) {
		t.Errorf("trim keeps %q", got)
	}
}

// TestSafety04RetentionIsADayAtLeast: whatever the caller asks for.
func TestSafety04RetentionIsADayAtLeast(t *testing.T) {
	b := newBench(t)
	w, _ := b.open(nil, 1)
	for i := 1; i <= 5; i++ {
		b.commit(w, 1, strconv.Itoa(i))
		b.snapshot(w)
	}
	for _, c := range []struct {
		after time.Duration
		want  int64
	}{{0, 0}, {MinRetention, 0}, {MinRetention + time.Millisecond, 1}, {MinRetention + time.Millisecond, 2}} {
		got, err := w.Trim(t.Context(), b.now.Add(c.after), 0, freshLedger)
		if err != nil || got != c.want {
			t.Errorf("after %v: boundary %d, %v; want %d", c.after, got, err, c.want)
		}
	}
}

// TestWithoutAnAgeNothingIsTrimmed: a store that does not tell when a snapshot was put.
func TestWithoutAnAgeNothingIsTrimmed(t *testing.T) {
	b := newBench(t)
	b.store = memstore.New(nil)
	w, _ := b.open(nil, 1)
	for i := 1; i <= 5; i++ {
		b.commit(w, 1, strconv.Itoa(i))
		b.snapshot(w)
	}
	if got := b.trim(w); got != 0 {
		t.Errorf("boundary %d", got)
	}
}

// TestSafety04TheBoundaryRestsOnAVerifiedSnapshot: the snapshot that would become the only copy is read back and compared
// with a replay.
func TestSafety04TheBoundaryRestsOnAVerifiedSnapshot(t *testing.T) {
	putSnapshot := func(b *bench, at Position, state string) {
		body, err := encodeSnapshot(b.now, at, []byte(state))
		if err != nil {
			b.t.Fatal(err)
		}
		b.put(b.location().snapshot(at.Number), body)
	}
	for _, c := range []struct {
		name  string
		spoil func(b *bench, at Position)
	}{
		{"another state, well formed", func(b *bench, at Position) { putSnapshot(b, at, `["1","something else"]`) }},
		{"another entry's", func(b *bench, at Position) {
			at.Hash[0] ^= 1
			putSnapshot(b, at, `["1","2"]`)
		}},
		{"damaged, and so is the only other one that may take its place", func(b *bench, at Position) {
			b.put(b.location().snapshot(at.Number), []byte("rubbish"))
			b.put(b.location().snapshot(at.Number+2), []byte("rubbish"))
		}},
		{"an entry is damaged", func(b *bench, at Position) { b.put(b.location().entry(at.Number), []byte("rubbish")) }},
		{"an entry is missing", func(b *bench, at Position) { b.remove(b.location().entry(at.Number)) }},
		{"an entry was exchanged", func(b *bench, at Position) {
			b.forge(Entry{Number: 1, Epoch: 1, Writer: at.Writer, Nonce: "another", Records: records("1")})
		}},
		{"the boundary can't be created", func(b *bench, at Position) {
			b.store = faultstore.New(b.store, func(c faultstore.Call) faultstore.Fault {
				if c.Op == faultstore.Put {
					return faultstore.Throttle
				}
				return faultstore.None
			})
		}},
	} {
		b := newBench(t)
		w, _ := b.open(nil, 1)
		b.grow(w, 2)
		first := w.Tail()
		b.grow(w, 6)
		c.spoil(b, first)
		w.at.store = b.store
		before := b.keys()
		b.now = b.now.Add(48 * time.Hour)
		if boundary, err := w.Trim(t.Context(), b.now, MinRetention, freshLedger); err == nil || boundary != 0 {
			t.Errorf("%s: boundary %d, %v", c.name, boundary, err)
		}
		if after := b.keys(); !slices.Equal(before, after) {
			t.Errorf("%s: trim changed the bucket to %v", c.name, after)
		}
	}
}

// TestSafety04ADamagedSnapshotIsPassedOver: the boundary goes to the next one, which is compared with a replay from where the old one
// is.
func TestSafety04ADamagedSnapshotIsPassedOver(t *testing.T) {
	grown := func() (*bench, *Chain) {
		b := newBench(t)
		w, _ := b.open(nil, 1)
		b.grow(w, 10)
		b.put(b.location().snapshot(4), []byte("rubbish"))
		b.now = b.now.Add(48 * time.Hour)
		if boundary := b.trim(w); boundary != 2 {
			t.Fatalf("boundary %d", boundary)
		}
		return b, w
	}
	b, w := grown()
	for _, want := range []int64{6, 6} {
		if boundary := b.trim(w); boundary != want {
			t.Errorf("boundary %d, want %d", boundary, want)
		}
	}
	if _, l := b.open(nil, 2); len(l.records) != 10 || slices.Contains(b.keys(), "00000000000000000004.snapshot.json.zst") {
		t.Errorf("a reader has %v of %v", l.records, b.keys())
	}

	b, w = grown()
	b.remove(b.location().entry(3))
	if boundary, err := w.Trim(t.Context(), b.now, MinRetention, freshLedger); err == nil || boundary != 2 {
		t.Errorf("without an entry on the way: boundary %d, %v", boundary, err)
	}

	// One that is too new is not taken early in its place.
	b = newBench(t)
	w, _ = b.open(nil, 1)
	b.grow(w, 2)
	b.put(b.location().snapshot(2), []byte("rubbish"))
	b.now = b.now.Add(48 * time.Hour)
	b.grow(w, 8)
	if boundary, err := w.Trim(t.Context(), b.now, MinRetention, freshLedger); err == nil || boundary != 0 {
		t.Errorf("before its time: boundary %d, %v", boundary, err)
	}
	b.now = b.now.Add(48 * time.Hour)
	if boundary := b.trim(w); boundary != 4 {
		t.Errorf("in its time: boundary %d", boundary)
	}
}

// TestSafety04BoundaryBeforeDelete: whoever is interrupted in between leaves nothing that a reader could stumble over.
func TestSafety04BoundaryBeforeDelete(t *testing.T) {
	for cut := 1; ; cut++ {
		b := newBench(t)
		w, _ := b.open(nil, 1)
		for i := 1; i <= 6; i++ {
			b.commit(w, 1, strconv.Itoa(i))
			if i%2 == 0 || i == 5 {
				b.snapshot(w)
			}
		}
		stopped, _ := b.open(nil, 2)
		b.now = b.now.Add(48 * time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		s := faultstore.New(b.store, func(c faultstore.Call) faultstore.Fault {
			if c.Seq == cut {
				cancel()
			}
			return faultstore.None
		})
		trimmer, _ := b.open(nil, 1)
		trimmer.at.store = s
		_, err := trimmer.Trim(ctx, b.now, MinRetention, freshLedger)
		finished := ctx.Err() == nil
		cancel()
		if (err == nil) != finished {
			t.Fatalf("cut at request %d: %v", cut, err)
		}
		if _, l, err := b.tryOpen(nil, b.options(3)); err != nil || len(l.records) != 6 {
			t.Fatalf("cut at request %d: %v, %v", cut, l.records, err)
		}
		if _, err := stopped.Refresh(t.Context()); err != nil {
			t.Fatalf("cut at request %d: %v", cut, err)
		}
		if got := b.trim(w); got != 2 && got != 4 {
			t.Fatalf("cut at request %d: then boundary %d", cut, got)
		}
		if finished {
			return
		}
	}
}

// datedStore has a clock of its own.
type datedStore struct {
	object.Store
	ahead time.Duration
}

func (s datedStore) Skew() (object.Skew, bool) { return object.Skew{Ahead: s.ahead}, true }

func TestSafety04TheRetentionGoesByTheStoresClock(t *testing.T) {
	const fast = 48 * time.Hour // our clock
	b := newBench(t)
	w, _ := b.open(datedStore{b.store, -fast}, 1)
	b.grow(w, 12)
	trim := func() int64 {
		boundary, err := w.Trim(t.Context(), b.now.Add(fast), MinRetention, freshLedger)
		if err != nil {
			t.Fatal(err)
		}
		return boundary
	}
	if got := trim(); got != 0 {
		t.Errorf("boundary %d, of what was stored just now", got)
	}
	b.now = b.now.Add(MinRetention + time.Second)
	if got := trim(); got == 0 {
		t.Error("no boundary after the retention")
	}
}
