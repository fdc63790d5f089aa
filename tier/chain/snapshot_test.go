package chain

import (
	"errors"
	"fmt"
	"testing"
)

// TestADamagedSnapshotIsPassedOver: the one before and the entries lead to the same state.
func TestADamagedSnapshotIsPassedOver(t *testing.T) {
	for name, spoil := range map[string]func(b *bench, l location){
		"rubbish":   func(b *bench, l location) { b.put(l.snapshot(4), []byte("rubbish")) },
		"empty":     func(b *bench, l location) { b.put(l.snapshot(4), nil) },
		"another's": func(b *bench, l location) { b.put(l.snapshot(4), b.get(l.snapshot(2))) },
		"of a fork": func(b *bench, l location) {
			body, _ := encodeSnapshot(b.now, Position{Number: 4, Epoch: 1, NextRecord: 4}, []byte(`["fork"]`))
			b.put(l.snapshot(4), body)
		},
	} {
		b := newBench(t)
		w, _ := b.open(nil, 1)
		b.grow(w, 5)
		spoil(b, b.location())
		if _, l := b.open(nil, 2); fmt.Sprint(l.records) != "[1 2 3 4 5]" {
			t.Errorf("%s: %v", name, l.records)
		}
	}
	b, _, _ := trimmed(t)
	old, err := encodeSnapshot(b.now, Position{Number: 6, Epoch: 1}, []byte(`[]`)) // left over, behind the boundary
	if err != nil {
		t.Fatal(err)
	}
	b.put(b.location().snapshot(6), old)
	for _, n := range []int64{8, 10, 12} {
		b.put(b.location().snapshot(n), []byte("rubbish"))
	}
	if _, _, err := b.tryOpen(nil, b.options(2)); !errors.Is(err, ErrHalt) {
		t.Errorf("with no usable snapshot behind the boundary: %v", err)
	}
}

func TestASnapshotOfANewerVersionHalts(t *testing.T) {
	b := newBench(t)
	w, _ := b.open(nil, 1)
	b.commit(w, 1, "a")
	b.put(b.location().snapshot(1), newerSnapshot(t, w.Tail()))
	if _, _, err := b.tryOpen(nil, b.options(2)); !errors.Is(err, ErrHalt) || !errors.Is(err, errVersion) {
		t.Error(err)
	}
}
