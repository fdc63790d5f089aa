package chain

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
)

// readAt is what the chain held that long after the beginning.
func (b *bench) readAt(after time.Duration) (string, error) {
	var l ledger
	_, err := ReadAt(b.t.Context(), b.store, prefix, time.UnixMilli(1_800_000_000_000).Add(after), &l)
	return strings.Join(l.records, ""), err
}

func TestAChainReadsAsOfAPastTime(t *testing.T) {
	b := newBench(t)
	if got, err := b.readAt(0); got != "" || err != nil {
		t.Error("an empty chain:", got, err)
	}
	w, _ := b.open(nil, 1)
	for _, r := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		b.now = b.now.Add(24 * time.Hour)
		b.commit(w, 1, r)
		if r != "a" && r != "g" {
			b.snapshot(w)
		}
	}
	check := func(oldest int) {
		t.Helper()
		for days, want := range []string{"", "a", "ab", "abc", "abcd", "abcde", "abcdef", "abcdefg", "abcdefgh", "abcdefgh"} {
			got, err := b.readAt(time.Duration(days)*24*time.Hour + time.Hour)
			if days < oldest {
				if !errors.Is(err, ErrTooOld) {
					t.Errorf("day %d, of which nothing is left: %q, %v", days, got, err)
				}
			} else if got != want || err != nil {
				t.Errorf("day %d: %q, %v, not %q", days, got, err, want)
			}
		}
	}
	check(0)
	b.put(prefix+"/00000000000000000005.snapshot.json.zst", []byte("damaged"))
	check(0)
	if at := b.trim(w); at != 2 {
		t.Fatalf("boundary at %d", at)
	}
	check(2)
}

func TestAChainBeginsAnewFromAState(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(b *bench)
	}{
		{"all of it is lost", func(b *bench) {
			for _, key := range b.keys() {
				b.remove(key)
			}
		}},
		{"an entry is lost", func(b *bench) { b.remove(prefix + "/00000000000000000002.json") }},
		{"rolled back", func(b *bench) { b.remove(prefix + "/00000000000000000003.json") }},
		{"damaged", func(b *bench) { b.put(prefix+"/00000000000000000002.json", []byte("{}")) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			former, _ := b.open(nil, 1)
			b.commit(former, 4, "a")
			b.commit(former, 4, "b")
			b.commit(former, 4, "c")
			reader, _ := b.open(nil, 2)
			c.damage(b)
			before := b.keys()
			p, err := Rebase(t.Context(), b.store, prefix, b.now, Writer{Broker: -1, Incarnation: "tool"}, b.options(9).Nonce, 4, []byte(`["x","y"]`))
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range before {
				if !slices.Contains(b.keys(), key) {
					t.Errorf("%s is gone", key)
				}
			}
			if outcome, err := b.append(former, 4, "d"); outcome != object.Unknown || !errors.Is(err, ErrFenced) {
				t.Errorf("the former writer goes on: %v, %v", outcome, err)
			}
			if u, err := reader.Refresh(t.Context()); err != nil || string(u.State) != `["x","y"]` || len(u.Entries) != 0 {
				t.Errorf("a reader gets %s, %v, %v", u.State, u.Entries, err)
			}
			next, l := b.open(nil, 3)
			if !slices.Equal(l.records, []string{"x", "y"}) || next.Tail() != p {
				t.Errorf("it reads as %v, at %+v", l.records, next.Tail())
			}
			if _, err := b.append(next, 4, "z"); !errors.Is(err, ErrFenced) {
				t.Errorf("another writer takes epoch 4: %v", err)
			}
			if _, err := next.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.commit(next, 5, "z")
			if _, l := b.open(nil, 4); !slices.Equal(l.records, []string{"x", "y", "z"}) {
				t.Errorf("it goes on as %v", l.records)
			}
			opts := b.options(2)
			opts.Seen = reader.Tail()
			if _, _, err := b.tryOpen(nil, opts); err != nil {
				t.Errorf("a broker that remembers the former chain: %v", err)
			}
			b.now = b.now.Add(48 * time.Hour)
			b.trim(next) // what was lost goes, in its time
			if _, l := b.open(nil, 4); !slices.Equal(l.records, []string{"x", "y", "z"}) {
				t.Errorf("after the trim it is %v", l.records)
			}
		})
	}
}
