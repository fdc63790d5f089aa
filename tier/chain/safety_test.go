package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

// The tests of this file and of trim_test.go are named by the rules of docs/safety.md. Each fails without the check that it is about.

// TestSafety01ReadersHalt: whatever a correct writer could not have left stops a reader, whether it follows the chain or
// opens it, and it stays stopped.
func TestSafety01ReadersHalt(t *testing.T) {
	other := Writer{Broker: 7, Incarnation: "another"}
	rewrite := func(from, to string) func(*bench, Entry) {
		return func(b *bench, e Entry) {
			body := b.forge(e)
			raw := b.get(b.location().entry(body.Number))
			b.put(b.location().entry(e.Number), bytes.Replace(raw, []byte(from), []byte(to), 1))
		}
	}
	forged := func(change func(*Entry)) func(*bench, Entry) {
		return func(b *bench, e Entry) {
			change(&e)
			b.forge(e)
		}
	}
	for _, c := range []struct {
		name  string
		spoil func(b *bench, next Entry) // next would follow correctly
		fine  bool
	}{
		{name: "nothing wrong", spoil: forged(func(*Entry) {}), fine: true},
		{name: "higher epoch of another writer", spoil: forged(func(e *Entry) { e.Epoch, e.Writer = 6, other }), fine: true},
		{name: "a MAC, which is reserved", spoil: rewrite("\"}\n", `","mac":"00ff"}`+"\n"), fine: true},
		{name: "wrong hash of the entry before", spoil: forged(func(e *Entry) { e.PrevHash[3] ^= 1 })},
		{name: "epoch goes down", spoil: forged(func(e *Entry) { e.Epoch = 4 })},
		{name: "equal epoch from another broker", spoil: forged(func(e *Entry) { e.Writer.Broker++ })},
		{name: "equal epoch from another incarnation", spoil: forged(func(e *Entry) { e.Writer.Incarnation = "new" })},
		{name: "a record number is left out", spoil: forged(func(e *Entry) { e.FirstRecord++ })},
		{name: "a record number comes twice", spoil: forged(func(e *Entry) { e.FirstRecord-- })},
		{name: "no epoch", spoil: forged(func(e *Entry) { e.Epoch = 0 })},
		{name: "no nonce", spoil: forged(func(e *Entry) { e.Nonce = "" })},
		{name: "checksum does not fit", spoil: rewrite("next", "NEXT")},
		{name: "checksum is missing", spoil: rewrite("crc32c", "crc32d")},
		{name: "newer version", spoil: rewrite(`"version":1`, `"version":2`)},
		{name: "FM-09 half written", spoil: func(b *bench, e Entry) {
			raw := b.get(b.location().entry(b.forge(e).Number))
			b.put(b.location().entry(e.Number), raw[:len(raw)/2])
		}},
		{name: "FM-09 empty", spoil: func(b *bench, e Entry) { b.put(b.location().entry(e.Number), nil) }},
		{name: "another number inside", spoil: func(b *bench, e Entry) {
			key := b.location().entry(e.Number)
			e.Number++
			raw := b.get(b.location().entry(b.forge(e).Number))
			b.remove(b.location().entry(e.Number))
			b.put(key, raw)
		}},
		{name: "far too large", spoil: func(b *bench, e Entry) {
			b.put(b.location().entry(e.Number), make([]byte, EntryBytesMax+1))
		}},
		{name: "a gap", spoil: func(b *bench, e Entry) {
			e.Number++
			b.forge(e)
		}},
	} {
		b := newBench(t)
		w, _ := b.open(nil, 1)
		b.commit(w, 5, "a", "b")
		follower, _ := b.open(nil, 2)
		p := w.Tail()
		c.spoil(b, Entry{
			Number: 2, Epoch: 5, Writer: p.Writer, Nonce: "n", FirstRecord: 2, PrevHash: p.Hash, Records: records("next"),
		})
		_, followErr := follower.Refresh(t.Context())
		_, _, openErr := b.tryOpen(nil, b.options(3))
		var readErr error
		for _, err := range Read(t.Context(), b.store, prefix, 0) {
			readErr = err
		}
		for how, err := range map[string]error{"follow": followErr, "open": openErr, "read": readErr} {
			if c.fine && err != nil || !c.fine && !errors.Is(err, ErrHalt) {
				t.Errorf("%s, %s: %v", c.name, how, err)
			}
		}
		if c.fine {
			continue
		}
		b.remove(b.location().entry(2)) // it looks right again, but has been seen
		b.remove(b.location().entry(3))
		if _, err := follower.Refresh(t.Context()); !errors.Is(err, ErrHalt) {
			t.Errorf("%s: the halted handle goes on: %v", c.name, err)
		}
		if outcome, err := b.append(follower, 9, "x"); outcome != object.Lost || !errors.Is(err, ErrHalt) {
			t.Errorf("%s: the halted handle appends: %v, %v", c.name, outcome, err)
		}
	}
}

func TestAByteThatFellOverOnTheWayIsReadAgain(t *testing.T) {
	b := newBench(t)
	w, _ := b.open(nil, 1)
	b.commit(w, 1, "a")
	s := faultstore.New(b.store, faultstore.Script(faultstore.None, faultstore.Corrupt))
	if _, l := b.open(s, 2); len(l.records) != 1 {
		t.Errorf("records %v", l.records)
	}
}

func ignoringConditions(s object.Store) object.Store {
	return faultstore.New(s, func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.Put {
			return faultstore.IgnoreConditions
		}
		return faultstore.None
	})
}

// TestSafety02A2xxIsConfirmedByReadingBack: a store that ignores the condition lets both writers succeed.
func TestSafety02A2xxIsConfirmedByReadingBack(t *testing.T) {
	b := newBench(t)
	rival, _ := b.open(ignoringConditions(b.store), 2)
	s := faultstore.New(b.store, func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.Get && rival.Tail().Number == 0 && c.Seq > 3 { // between our 2xx and our reading back
			b.commit(rival, 2, "rival's")
		}
		return faultstore.None
	})
	w, _ := b.open(s, 1)
	if outcome, err := b.append(w, 1, "mine"); outcome != object.Lost {
		t.Errorf("outcome %v, %v, though another entry stands there", outcome, err)
	}
}

// TestPrevHashShowsAStoreThatOverwrites: the damage that reading back can't catch is found by every reader.
func TestPrevHashShowsAStoreThatOverwrites(t *testing.T) {
	b := newBench(t)
	w, _ := b.open(nil, 1)
	rival, _ := b.open(nil, 2)
	follower, _ := b.open(nil, 3)
	b.commit(w, 1, "acknowledged")
	b.commit(w, 1, "more")
	if _, err := follower.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	rival.at.store = ignoringConditions(b.store)
	b.commit(rival, 1, "written over it")
	if _, _, err := b.tryOpen(nil, b.options(4)); !errors.Is(err, ErrHalt) {
		t.Errorf("open: %v", err)
	}
}

// TestSafety03WhatA404Means: a missing number is the tail, or a gap, or deleted.
func TestSafety03WhatA404Means(t *testing.T) {
	setUp := func() (*bench, *Chain) {
		b := newBench(t)
		w, _ := b.open(nil, 1)
		b.grow(w, 8)
		return b, w
	}
	t.Run("the tail", func(t *testing.T) {
		_, w := setUp()
		if u, err := w.Refresh(t.Context()); err != nil || len(u.Entries) > 0 || u.More {
			t.Errorf("%+v, %v", u, err)
		}
	})
	t.Run("a gap is found by opening, before the first create", func(t *testing.T) {
		b, _ := setUp()
		b.remove(b.location().entry(8)) // with snapshots beyond it, and then without
		if _, _, err := b.tryOpen(nil, b.options(2)); !errors.Is(err, ErrHalt) {
			t.Errorf("snapshot without its entry: %v", err)
		}
		b, _ = setUp()
		for i := int64(2); i <= 8; i += 2 {
			b.remove(b.location().snapshot(i))
		}
		b.remove(b.location().entry(4))
		if _, _, err := b.tryOpen(nil, b.options(2)); !errors.Is(err, ErrHalt) {
			t.Errorf("entries behind the missing one: %v", err)
		}
	})
	t.Run("a gap is not filled by who has not seen its other side", func(t *testing.T) {
		b := newBench(t)
		r, _ := b.open(nil, 1)
		w, _ := b.open(nil, 1)
		for i := 1; i <= 5; i++ {
			b.commit(w, 1, strconv.Itoa(i))
		}
		b.remove(b.location().entry(4))
		if u, err := r.Refresh(t.Context()); err != nil || len(u.Entries) != 3 || !u.More {
			t.Errorf("%+v, %v", u, err)
		}
		if outcome, err := b.append(r, 2, "into the gap"); outcome != object.Lost || !errors.Is(err, ErrFenced) {
			t.Errorf("append: %v, %v", outcome, err)
		}
		if _, err := r.Refresh(t.Context()); !errors.Is(err, ErrHalt) {
			t.Errorf("refresh: %v", err)
		}
	})
	t.Run("behind the boundary: reload from a snapshot", func(t *testing.T) {
		b := newBench(t)
		slow, l := b.open(nil, 2)
		w, _ := b.open(nil, 1)
		b.grow(w, 8)
		b.now = b.now.Add(48 * time.Hour)
		if boundary := b.trim(w); boundary != 2 {
			t.Fatalf("boundary %d", boundary)
		}
		u, err := slow.Refresh(t.Context())
		if err != nil || u.State == nil || u.More {
			t.Fatalf("%+v, %v", u, err)
		}
		if _ = u.ApplyTo(l); fmt.Sprint(l.records) != "[1 2 3 4 5 6 7 8]" {
			t.Errorf("the slow reader has %v", l.records)
		}
	})
	t.Run("behind the boundary that moves while the chain is opened", func(t *testing.T) {
		b, w := setUp()
		overtaken := false
		s := faultstore.New(b.store, func(c faultstore.Call) faultstore.Fault {
			if c.Op == faultstore.Get && !overtaken {
				overtaken = true
				for range 3 {
					b.commit(w, 1, "more")
					b.snapshot(w)
				}
				b.now = b.now.Add(48 * time.Hour)
				for b.trim(w) < 9 {
				}
			}
			return faultstore.None
		})
		if _, l := b.open(s, 2); len(l.records) != 11 {
			t.Errorf("who opens has %v", l.records)
		}
	})
	t.Run("created since: the list is younger than the look", func(t *testing.T) {
		b, w := setUp()
		added := false
		s := faultstore.New(b.store, func(c faultstore.Call) faultstore.Fault {
			if c.Op == faultstore.List && w.Tail().Number == 8 && added {
				b.commit(w, 1, "9")
				b.commit(w, 1, "10")
			}
			return faultstore.None
		})
		r, l := b.open(s, 2)
		added = true
		for more := true; more; {
			u, err := r.Refresh(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = u.ApplyTo(l)
			more = u.More
		}
		if len(l.records) != 10 {
			t.Errorf("the reader has %v", l.records)
		}
	})
}

// TestSafety08WhatWasSeenMustBeThere: a broker's memory of the chain against a bucket that was rolled back.
func TestSafety08WhatWasSeenMustBeThere(t *testing.T) {
	b := newBench(t)
	w, _ := b.open(nil, 1)
	at := map[int64]Position{}
	for i := int64(1); i <= 12; i++ {
		b.commit(w, 1+i/6, strconv.Itoa(int(i)))
		at[i] = w.Tail()
		if i%2 == 0 {
			b.snapshot(w)
		}
	}
	change := func(p Position, f func(*Position)) Position {
		f(&p)
		return p
	}
	try := func(when string, fine bool, seen Position) {
		t.Helper()
		onDisk, err := json.Marshal(seen)
		if err != nil {
			t.Fatal(err)
		}
		opts := b.options(2)
		if err := json.Unmarshal(onDisk, &opts.Seen); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.tryOpen(nil, opts); fine && err != nil || !fine && !errors.Is(err, ErrHalt) {
			t.Errorf("%s: %v", when, err)
		}
	}
	try("nothing seen", true, Position{})
	try("the tail was seen", true, at[12])
	try("an older entry was seen", true, at[5])
	try("the chain ends lower", false, change(at[12], func(p *Position) { p.Number++ }))
	try("another entry was at the tail", false, change(at[12], func(p *Position) { p.Hash[0] ^= 1 }))
	try("another entry was further back", false, change(at[5], func(p *Position) { p.Hash[0] ^= 1 }))
	try("a higher epoch was seen", false, change(at[12], func(p *Position) { p.Epoch++ }))
	b.now = b.now.Add(48 * time.Hour)
	for range 5 {
		b.trim(w)
	}
	try("what was seen is deleted now", true, at[5])
	for i := int64(1); i <= 12; i++ {
		b.remove(b.location().entry(i))
		b.remove(b.location().snapshot(i))
		b.remove(b.location().boundary(i))
	}
	try("the bucket was emptied", false, at[5])
	try("the bucket was emptied, to a newcomer", true, Position{})
}

// TestSafety08AHandleRemembersWhatItSaw: the same without a restart, where the bucket is exchanged for another one. Whoever has read
// remembers as well as whoever has written.
func TestSafety08AHandleRemembersWhatItSaw(t *testing.T) {
	b := newBench(t)
	w, _ := b.open(nil, 1)
	b.commit(w, 9, "a")
	r, _ := b.open(nil, 2)
	other, _, _ := trimmed(t) // longer, trimmed, of lower epochs
	for who, c := range map[string]*Chain{"writer": w, "reader": r} {
		c.at.store = other.store
		if _, err := c.Refresh(t.Context()); !errors.Is(err, ErrHalt) {
			t.Errorf("%s: %v", who, err)
		}
	}
}
