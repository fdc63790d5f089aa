package log

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// smallSegments makes segments of about four batches of a record of 200 bytes.
func smallSegments() config.Topic {
	cfg := testConfig()
	cfg.SegmentBytes = 4*len(batch(1, 0, 200)) + 50
	cfg.IndexIntervalBytes = 300
	return cfg
}

func crashed(mem *vfs.Mem, cfg config.Topic, stop Stop, point wire.Offset) Options {
	o := options(mem, cfg)
	o.Stop, o.RecoveryPoint = stop, point
	return o
}

func TestTornTailIsCutAtEveryByte(t *testing.T) { // FM-24
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, testConfig()))
	for i := range 3 {
		appendBatch(t, l, batch(2, int64(i), 20))
	}
	whole := contents(t, l)
	last := lastOf(whole)
	name := segmentFile(0, logSuffix)
	for _, stop := range []Stop{StopProcessCrash, StopPowerLoss, StopClean} {
		for size := len(whole) - len(last); size <= len(whole); size++ {
			clone := mem.ProcessCrashClone()
			writeAll(t, clone, name, whole[:size])
			l := mustOpen(t, crashed(clone, testConfig(), stop, 0))
			want, end := whole[:len(whole)-len(last)], wire.Offset(4)
			if size == len(whole) {
				want, end = whole, 6
			}
			if got := contents(t, l); !bytes.Equal(got, want) || l.EndOffset() != end {
				t.Fatalf("stop %d, cut at byte %d of %d: end %d, %d bytes", stop, size, len(whole), l.EndOffset(), len(got))
			}
			if info := appendBatch(t, l, batch(1, 9, 20)); info.First != end {
				t.Fatalf("next append at %d", info.First)
			}
			checkLookups(t, l)
		}
	}
}

func TestFlippedTailIsCut(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, testConfig()))
	for i := range 3 {
		appendBatch(t, l, batch(2, int64(i), 20))
	}
	whole := contents(t, l)
	start := len(whole) - len(lastOf(whole))
	for at := start; at < len(whole); at++ {
		// The upper bits of the base offset and the leader epoch lie outside the checksum; a flip that raises them goes
		// unnoticed, as in Kafka.
		if in := at - start; in < 8 || in >= 12 && in < 16 {
			continue
		}
		clone := mem.ProcessCrashClone()
		flipped := bytes.Clone(whole)
		flipped[at] ^= 0x10
		writeAll(t, clone, segmentFile(0, logSuffix), flipped)
		for _, point := range []wire.Offset{0, 6} { // flushed or not
			l := mustOpen(t, crashed(clone.ProcessCrashClone(), testConfig(), StopProcessCrash, point))
			if l.EndOffset() != 4 {
				t.Errorf("byte %d of the last batch flipped, flushed up to %d: end %d", at-start, point, l.EndOffset())
			}
		}
	}
}

func TestDamageInSealedSegmentIsMarkedNeverCut(t *testing.T) { // FM-25
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, smallSegments()))
	appendBatches(t, l, 10)
	whole := contents(t, l)
	size := len(whole) / 10
	name := segmentFile(4, logSuffix)
	sealed := readAll(t, mem, name)
	for _, lost := range []wire.Offset{6, 7} { // the third and the last batch
		for field, at := range map[string]int{"base offset": 0, "length": 9, "magic": 16, "crc": 17, "attributes": 22, "delta": 26, "count": 60, "value": 200} {
			clone := mem.ProcessCrashClone()
			damaged := bytes.Clone(sealed)
			damaged[int(lost-4)*size+at] ^= 0x7f
			writeAll(t, clone, name, damaged)
			for _, stop := range []Stop{StopProcessCrash, StopClean} {
				l := mustOpen(t, crashed(clone, smallSegments(), stop, 0))
				if stop == StopClean {
					for done := false; !done; {
						var err error
						if _, done, err = l.Scrub(100); err != nil {
							t.Fatal(err)
						}
					}
				}
				checkDamaged(t, field, l, lost, whole, size)
				if err := l.Close(testTime); err != nil {
					t.Fatal(err)
				}
				if info, err := clone.Stat(name); err != nil || info.Size != int64(len(sealed)) {
					t.Fatalf("%s: sealed segment has %d of %d bytes", field, info.Size, len(sealed))
				}
				checkDamaged(t, field+" after a restart", mustOpen(t, crashed(clone, smallSegments(), StopClean, 0)), lost, whole, size)
			}
		}
	}
}

// checkDamaged verifies that the lost offset answers ErrStorage and all others their batch.
func checkDamaged(t *testing.T, what string, l *Log, lost wire.Offset, whole []byte, size int) {
	t.Helper()
	if l.EndOffset() != 10 {
		t.Fatalf("%s: end %d", what, l.EndOffset())
	}
	for at := range wire.Offset(10) {
		got, err := l.ReadBatches(at, at+1, make([]byte, 0, 4096))
		if at == lost {
			if !errors.Is(err, ErrStorage) {
				t.Fatalf("%s: damaged offset reads %d bytes, %v", what, len(got), err)
			}
			continue
		}
		if want := whole[int(at)*size : int(at+1)*size]; err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: offset %d reads %d bytes, %v", what, at, len(got), err)
		}
	}
}

func TestDamageBelowTheRecoveryPointOfTheActiveSegmentIsMarked(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, testConfig()))
	appendBatches(t, l, 10)
	whole := contents(t, l)
	size := len(whole) / 10
	damaged := bytes.Clone(whole)
	damaged[6*size+100]++
	name := segmentFile(0, logSuffix)
	writeAll(t, mem, name, damaged)
	checkDamaged(t, "flushed", mustOpen(t, crashed(mem.ProcessCrashClone(), testConfig(), StopPowerLoss, 8)), 6, whole, size)
	l = mustOpen(t, crashed(mem.ProcessCrashClone(), testConfig(), StopPowerLoss, 5))
	if l.EndOffset() != 6 {
		t.Errorf("not flushed: end %d", l.EndOffset())
	}
}

func TestPowerLossLeavesNoHole(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, smallSegments()))
	appendBatches(t, l, 12)
	sealed := readAll(t, mem, segmentFile(4, logSuffix))
	size := len(sealed) / 4
	for name, left := range map[string][]byte{
		"cut between batches": sealed[:2*size], "cut in a batch": sealed[:2*size+30], "zeros": append(bytes.Clone(sealed[:2*size]), make([]byte, 2*size)...),
	} {
		clone := mem.ProcessCrashClone()
		writeAll(t, clone, segmentFile(4, logSuffix), left)
		l := mustOpen(t, crashed(clone, smallSegments(), StopPowerLoss, 4))
		if l.EndOffset() != 6 || len(l.Segments()) != 2 {
			t.Errorf("%s: end %d, segments %+v", name, l.EndOffset(), l.Segments())
		}
		appendBatch(t, l, batch(1, 1, 200))
		checkLookups(t, l)
	}
}

func TestRecoveryScansFromTheRecoveryPointOnly(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, smallSegments()))
	appendBatches(t, l, 12)
	if err := l.FlushDue(testTime); err != nil || l.RecoveryPoint() != 8 {
		t.Fatalf("recovery point %d, %v", l.RecoveryPoint(), err)
	}
	var opened []string
	fault := vfs.NewFault(mem.ProcessCrashClone())
	fault.SetRules(vfs.Rule{Op: vfs.OpOpen, Path: "*.log", Hook: func(c vfs.Call) { opened = append(opened, c.Path) }})
	o := crashed(mem, smallSegments(), StopPowerLoss, l.RecoveryPoint())
	o.FS = fault
	if l := mustOpen(t, o); l.EndOffset() != 12 {
		t.Errorf("end %d", l.EndOffset())
	}
	if !slices.Equal(opened, []string{segmentFile(8, logSuffix)}) {
		t.Errorf("opened %v", opened)
	}
}

func TestCheckpointsAreClamped(t *testing.T) { // FM-31
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, testConfig()))
	appendBatch(t, l, batch(5, 1, 20))
	for _, point := range []wire.Offset{-7, 0, 1 << 40} {
		o := crashed(mem.ProcessCrashClone(), testConfig(), StopProcessCrash, point)
		o.HighWatermark = point
		l := mustOpen(t, o)
		if l.EndOffset() != 5 || l.RecoveryPoint() > 5 || l.HighWatermark() > 5 || l.HighWatermark() < 0 {
			t.Errorf("checkpoint %d: end %d, recovery point %d, high watermark %d", point, l.EndOffset(), l.RecoveryPoint(), l.HighWatermark())
		}
	}
}

func TestDeleteRecordsToTheEndThenCrash(t *testing.T) { // BO-084
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, testConfig()))
	appendBatch(t, l, batch(5, 1, 20))
	l.UpdateHighWatermark(5)
	if err := l.AdvanceStart(5); err != nil {
		t.Fatal(err)
	}
	o := crashed(mem.ProcessCrashClone(), testConfig(), StopProcessCrash, 0)
	o.LogStart = 5
	checkEmptyAt(t, mustOpen(t, o), 5)

	o = crashed(vfs.NewMem(), testConfig(), StopPowerLoss, 0) // the data did not survive, the log start did
	o.LogStart = 5
	checkEmptyAt(t, mustOpen(t, o), 5)

	torn := mem.ProcessCrashClone()
	writeAll(t, torn, segmentFile(0, logSuffix), []byte("torn"))
	o = crashed(torn, testConfig(), StopPowerLoss, 0)
	o.LogStart = 5
	checkEmptyAt(t, mustOpen(t, o), 5)
}

func checkEmptyAt(t *testing.T, l *Log, offset wire.Offset) {
	t.Helper()
	if l.StartOffset() != offset || l.EndOffset() != offset || l.HighWatermark() != offset {
		t.Errorf("start %d, end %d, high watermark %d", l.StartOffset(), l.EndOffset(), l.HighWatermark())
	}
	if info := appendBatch(t, l, batch(1, 1, 20)); info.First != offset {
		t.Errorf("next append at %d", info.First)
	}
	if got := contents(t, l); batches(got)[0].BaseOffset() != offset {
		t.Errorf("reads %d", batches(got)[0].BaseOffset())
	}
}

// TestCrashLoops appends, flushes, rolls, truncates and crashes, again and again. After a process crash everything is there; after
// a power loss a prefix that holds what was flushed.
func TestCrashLoops(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { crashLoop(t, seed) })
	}
}

func crashLoop(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	cfg := smallSegments()
	if rng.IntN(3) == 0 {
		cfg.FlushMessages = 1
	}
	mem := vfs.NewMem()
	if err := errors.Join(mem.MkdirAll("/data"), mem.SyncDir("/"), mem.SyncDir("/data")); err != nil {
		t.Fatal(err)
	}
	o := options(mem, cfg)
	var want []record.Batch // what the log must hold
	var sequence int32
	var saved, flushed wire.Offset // the recovery point in the checkpoint, and as it was
	for round := range 12 {
		l := mustOpen(t, o)
		l.env.saveRecoveryPoints = func() error { saved = l.RecoveryPoint(); return nil }
		want = checkSurvivors(t, l, o.Stop, want, flushed)
		if n := len(want); n > 0 && want[n-1].HasProducerID() {
			sequence = want[n-1].LastSequence() + 1
		} else {
			sequence = 0
		}
		for range rng.IntN(25) {
			switch rng.IntN(10) {
			case 0:
				if err := l.Flush(); err != nil {
					t.Fatal(err)
				}
			case 1:
				if err := l.FlushDue(testTime); err != nil {
					t.Fatal(err)
				}
			case 2:
				saved = l.RecoveryPoint()
			case 3:
				if err := l.Roll(testTime); err != nil {
					t.Fatal(err)
				}
			case 4:
				if len(want) > 2 && rng.IntN(3) == 0 {
					cut := len(want) - 1 - rng.IntN(2)
					if _, err := l.TruncateTo(testTime, want[cut].BaseOffset()); err != nil {
						t.Fatal(err)
					}
					want = want[:cut]
					sequence = want[cut-1].LastSequence() + 1
				}
			default:
				b := batch(1+rng.IntN(3), int64(rng.IntN(1000)), rng.IntN(240), from(9, 0, sequence))
				sequence += b.Count()
				if _, err := l.AppendAsLeader(testTime, b, wire.LeaderEpoch(round), Client); err != nil {
					t.Fatal(err)
				}
				want = append(want, b)
				if cfg.FlushMessages == 1 && l.RecoveryPoint() != l.EndOffset() {
					t.Fatal("flush.messages=1 is not flushed")
				}
			}
		}
		flushed = l.RecoveryPoint()
		switch rng.IntN(3) {
		case 0:
			mem, o.Stop = mem.ProcessCrashClone(), StopProcessCrash
		case 1:
			mem, o.Stop = mem.CrashClone(rng), StopPowerLoss
		case 2:
			if err := l.Close(testTime); err != nil {
				t.Fatal(err)
			}
			saved, o.Stop = l.RecoveryPoint(), StopClean
			mem = mem.ProcessCrashClone()
		}
		o.FS, o.RecoveryPoint = mem, saved
	}
}

// checkSurvivors compares a log that was opened with what was appended, and returns what it holds.
func checkSurvivors(t *testing.T, l *Log, stop Stop, want []record.Batch, flushed wire.Offset) []record.Batch {
	t.Helper()
	got := batches(contents(t, l))
	if stop != StopPowerLoss && len(got) != len(want) {
		t.Fatalf("stop %d: %d batches of %d", stop, len(got), len(want))
	}
	if len(got) > len(want) {
		t.Fatalf("%d batches of %d: something came back", len(got), len(want))
	}
	for i, b := range got {
		if !bytes.Equal(b, want[i]) {
			t.Fatalf("batch %d is another", i)
		}
	}
	if stop == StopPowerLoss && len(want) > len(got) && want[len(got)].NextOffset() <= flushed {
		t.Fatalf("flushed up to %d, %d survived", flushed, l.EndOffset())
	}
	checkLookups(t, l)
	checkProducer(t, l, got)
	return got
}

// checkProducer verifies that producer state and epochs are those of the batches.
func checkProducer(t *testing.T, l *Log, all []record.Batch) {
	t.Helper()
	var epochs epochCache
	for _, b := range all {
		if b.LeaderEpoch() > epochs.latest() {
			epochs = epochs.assign(b.LeaderEpoch(), b.BaseOffset())
		}
	}
	if got := l.Epochs(); !slices.Equal(got, epochs) {
		t.Fatalf("epochs %v, batches say %v", got, epochs)
	}
	producers := l.Producers()
	if len(all) == 0 {
		return
	}
	if last := all[len(all)-1]; len(producers) != 1 || producers[0].LastSequence != last.LastSequence() {
		t.Fatalf("producers %+v, last sequence %d", producers, last.LastSequence())
	}
}

// The log start rises, the epochs are flushed without what lies before it, and the process dies before the start is on disk: the records
// before it are back, and so are their epochs.
func TestEpochsComeBackWithTheirRecords(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, smallSegments()))
	for epoch := range wire.LeaderEpoch(8) {
		if _, err := l.AppendAsLeader(testTime, batch(2, int64(epoch), 200), epoch/2, Client); err != nil {
			t.Fatal(err)
		}
	}
	want := l.Epochs()
	l.UpdateHighWatermark(16)
	if err := errors.Join(l.AdvanceStart(11), l.Flush()); err != nil {
		t.Fatal(err)
	}
	for _, point := range []wire.Offset{0, 9, 16} {
		l := mustOpen(t, crashed(mem.ProcessCrashClone(), smallSegments(), StopProcessCrash, point))
		if got := l.Epochs(); l.StartOffset() != 0 || !slices.Equal(got, want) {
			t.Errorf("recovery point %d: start %d, epochs %v, want %v", point, l.StartOffset(), got, want)
		}
	}
}
