package log

import (
	"testing"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// BO-033: whatever of a producer's last five batches was in flight at the stop is recognised when it comes again, though a
// snapshot holds only the last.
func TestBatchesInFlightAtAStopAreRecognised(t *testing.T) {
	for name, c := range map[string]struct {
		stop  Stop
		point wire.Offset // the recovery point; segments begin every four batches
	}{
		"after a clean stop":                     {StopClean, 11},
		"after a crash":                          {StopProcessCrash, 11},
		"after a crash right behind a roll":      {StopProcessCrash, 8},
		"after a power loss":                     {StopPowerLoss, 11},
		"after a crash with nothing flushed":     {StopProcessCrash, 0},
		"after a power loss in a sealed segment": {StopPowerLoss, 6},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			l := mustOpen(t, options(mem, smallSegments()))
			for i := range int32(11) {
				id := wire.ProducerID(5 + i%2) // another one's batches lie between
				appendBatch(t, l, batch(1, 1, 200, from(id, 0, i/2)))
			}
			if err := l.Close(testTime); err != nil {
				t.Fatal(err)
			}
			l = mustOpen(t, crashed(mem.ProcessCrashClone(), smallSegments(), c.stop, c.point))
			for i := int32(1); i < 6; i++ {
				if info := appendBatch(t, l, batch(1, 1, 200, from(5, 0, i))); !info.Duplicate || info.First != wire.Offset(2*i) {
					t.Errorf("sequence %d again: %+v", i, info)
				}
			}
			if _, err := l.AppendAsLeader(testTime, batch(1, 1, 200, from(5, 0, 0)), 1, Client); wire.CodeOf(err) != wire.OutOfOrderSequenceNumber {
				t.Errorf("the sixth from the end: %v", err)
			}
			if info := appendBatch(t, l, batch(1, 1, 200, from(5, 0, 6))); info.Duplicate || info.First != 11 {
				t.Errorf("the next one: %+v", info)
			}
			for i := int32(2); i < 7; i++ {
				if info := appendBatch(t, l, batch(1, 1, 200, from(5, 0, i))); !info.Duplicate {
					t.Errorf("sequence %d again, later: %+v", i, info)
				}
			}
		})
	}
}

// Batches of an earlier epoch, and the markers between, are not what is looked for.
func TestRecallKeepsToTheEpoch(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, testConfig()))
	for i := range int32(3) {
		appendBatch(t, l, batch(1, 1, 10, from(5, 0, i)))
	}
	for i := range int32(3) {
		appendBatch(t, l, batch(1, 1, 10, from(5, 1, i), transactional))
		marker := record.NewEndTxnMarker(5, 1, 1, record.EndTxnMarker{Type: record.Commit, CoordinatorEpoch: 2})
		if _, err := l.AppendAsLeader(testTime, marker, 1, Coordinator); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(testTime); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, crashed(mem.ProcessCrashClone(), testConfig(), StopClean, 9))
	for i := range int32(3) {
		info := appendBatch(t, l, batch(1, 1, 10, from(5, 1, i), transactional))
		if want := wire.Offset(3 + 2*i); !info.Duplicate || info.First != want {
			t.Errorf("sequence %d again: %+v, want %d", i, info, want)
		}
	}
}

// A producer that goes wrong costs one look into the log, not one for each of its requests.
func TestRecallIsDoneOnce(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, testConfig()))
	appendBatch(t, l, batch(1, 1, 10, from(5, 0, 0)))
	if err := l.Close(testTime); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, crashed(mem.ProcessCrashClone(), testConfig(), StopClean, 1))
	if !l.producers.entries[5].restored {
		t.Fatal("the producer does not come from a snapshot")
	}
	_, err := l.AppendAsLeader(testTime, batch(1, 1, 10, from(5, 0, 9)), 1, Client)
	if wire.CodeOf(err) != wire.OutOfOrderSequenceNumber || l.producers.entries[5].restored {
		t.Errorf("%v, to be looked for again: %v", err, l.producers.entries[5].restored)
	}
}

// What was in flight may be in a segment that retention takes, or an upload, before it comes again.
func TestBatchesInFlightAtAStopAreRecognisedThoughTheirSegmentGoes(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, smallSegments()))
	for i := range int32(11) {
		appendBatch(t, l, batch(1, 1, 200, from(wire.ProducerID(5+i%2), 0, i/2)))
	}
	l.UpdateHighWatermark(11)
	if err := l.Close(testTime); err != nil {
		t.Fatal(err)
	}
	cfg := smallSegments()
	cfg.RetentionBytes = 0
	o := crashed(mem.ProcessCrashClone(), cfg, StopClean, 11)
	o.HighWatermark = 11
	l = mustOpen(t, o)
	if n, err := l.Retain(testTime); n == 0 || err != nil {
		t.Fatal(n, err)
	}
	for i := int32(1); i < 6; i++ {
		if info := appendBatch(t, l, batch(1, 1, 200, from(5, 0, i))); !info.Duplicate || info.First != wire.Offset(2*i) {
			t.Errorf("sequence %d again: %+v", i, info)
		}
	}
}
