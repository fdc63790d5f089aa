package log

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// indexedLog is a closed log of two sealed segments and an active one, with about 15 index entries each and timestamps
// that go up and down.
func indexedLog(t testing.TB, fsys vfs.FS, dir string) Options {
	t.Helper()
	cfg := testConfig()
	cfg.IndexIntervalBytes = 500
	cfg.SegmentBytes = 15_000
	o := options(fsys, cfg)
	o.Dir = dir
	l := mustOpen(t, o)
	for i := range 100 {
		appendBatch(t, l, batch(1+i%3, int64(1000+i*10-(i%7)*25), 50+i%5*40))
	}
	if n := len(l.Segments()); n != 3 {
		t.Fatalf("%d segments", n)
	}
	if err := l.Close(testTime); err != nil {
		t.Fatal(err)
	}
	o.Stop = StopClean
	return o
}

// TestReadsGoOnWhereAnIndexCannotBeRebuilt: a full disk refuses writes, not reads.
func TestReadsGoOnWhereAnIndexCannotBeRebuilt(t *testing.T) {
	mem := vfs.NewMem()
	cfg := testConfig()
	cfg.IndexIntervalBytes = 0
	l := mustOpen(t, options(mem, cfg))
	for i := range 5 {
		appendBatch(t, l, batch(2, int64(10*i), 10))
	}
	if err := errors.Join(l.Roll(testTime), l.Close(testTime)); err != nil {
		t.Fatal(err)
	}
	if err := mem.Remove(segmentFile(0, offsetSuffix)); err != nil {
		t.Fatal(err)
	}
	mem.SetSpace(1)
	o := options(mem.ProcessCrashClone(), cfg)
	o.Stop = StopClean
	checkLookups(t, mustOpen(t, o))
}

func TestIndexNotesLastOffsetsAndPositions(t *testing.T) {
	mem := vfs.NewMem()
	o := indexedLog(t, mem, testDir)
	l := mustOpen(t, o)
	for _, s := range l.Segments() {
		data := readAll(t, mem, segmentFile(s.Base, logSuffix))
		offsets, err := DecodeOffsetIndex(readAll(t, mem, segmentFile(s.Base, offsetSuffix)), s.Base)
		if err != nil || len(offsets) == 0 {
			t.Fatalf("%d entries, %v", len(offsets), err)
		}
		for _, e := range offsets {
			if b := batches(data[e.Position:])[0]; b.LastOffset() != e.Offset {
				t.Errorf("segment %d: entry %+v for the batch that ends at %d", s.Base, e, b.LastOffset())
			}
		}
		times, err := DecodeTimeIndex(readAll(t, mem, segmentFile(s.Base, timeSuffix)), s.Base)
		if err != nil || len(times) == 0 {
			t.Fatalf("%d entries, %v", len(times), err)
		}
		largest := int64(-1)
		for _, b := range batches(data) {
			largest = max(largest, b.MaxTimestamp())
		}
		if last := times[len(times)-1]; last.Timestamp != largest {
			t.Errorf("segment %d: last time entry %+v, largest timestamp %d", s.Base, last, largest)
		}
	}
}

// TestDamagedIndexesAnswerLikeAScan is FM-26 and BO-079.
func TestDamagedIndexesAnswerLikeAScan(t *testing.T) {
	mem := vfs.NewMem()
	o := indexedLog(t, mem, testDir)
	segments := mustOpen(t, o).Segments()
	damages := map[string]func(b, other []byte) []byte{
		"deleted":           func(b, other []byte) []byte { return nil },
		"emptied":           func(b, other []byte) []byte { return []byte{} },
		"cut in an entry":   func(b, other []byte) []byte { return b[:len(b)-3] },
		"cut at an entry":   func(b, other []byte) []byte { return b[:len(b)/2/24*24] },
		"padded with zeros": func(b, other []byte) []byte { return append(bytes.Clone(b), make([]byte, 2400)...) },
		"all zeros":         func(b, other []byte) []byte { return make([]byte, 2400) },
		"another segment's": func(b, other []byte) []byte { return other },
		"out of order": func(b, other []byte) []byte {
			return append(bytes.Clone(b[24:]), b[:24]...)
		},
		"garbage": func(b, other []byte) []byte { return bytes.Repeat([]byte{0x7f, 0x11, 0x94}, len(b)/3) },
	}
	for name, damage := range damages {
		for _, suffix := range []string{offsetSuffix, timeSuffix} {
			for i, s := range segments {
				for _, stop := range []Stop{StopClean, StopProcessCrash} {
					t.Run(fmt.Sprintf("%s %s of segment %d, stop %d", name, suffix, i, stop), func(t *testing.T) {
						clone := mem.ProcessCrashClone()
						file := segmentFile(s.Base, suffix)
						other := segmentFile(segments[(i+1)%3].Base, suffix)
						if b := damage(readAll(t, mem, file), readAll(t, mem, other)); b == nil {
							if err := clone.Remove(file); err != nil {
								t.Fatal(err)
							}
						} else {
							writeAll(t, clone, file, b)
						}
						o := o
						o.FS, o.Stop, o.RecoveryPoint = clone, stop, segments[2].Base
						l := mustOpen(t, o)
						checkLookups(t, l)
						checkMaxTimestamp(t, l)
						appendBatch(t, l, batch(1, 5000, 10))
						checkLookups(t, l)
						if err := l.Roll(testTime); err != nil {
							t.Fatal(err)
						}
						if err := l.Close(testTime); err != nil {
							t.Fatal(err)
						}
						if i < 2 && !bytes.Equal(readAll(t, clone, file), readAll(t, mem, file)) {
							t.Error("the index is not what it was")
						}
					})
				}
			}
		}
	}
}

// The time index of a partition that is written in step with this one says things that are nearly true here: the same times, offsets
// inside the same batches, or a last entry that is right.
func TestTheTimeIndexOfATwinIsNotBelieved(t *testing.T) {
	mem := vfs.NewMem()
	cfg := testConfig()
	cfg.IndexIntervalBytes = 500
	l := mustOpen(t, options(mem, cfg))
	for i := range 40 {
		appendBatch(t, l, batch(3, int64(1000*i), 50))
	}
	if err := errors.Join(l.Roll(testTime), l.Close(testTime)); err != nil {
		t.Fatal(err)
	}
	file := segmentFile(0, timeSuffix)
	right := readAll(t, mem, file)
	n := len(right) / timeEntrySize
	for name, wrong := range map[string][]int{
		"the last entry lies inside its batch": {n - 1},
		"only the last entry is right":         {0, n / 2},
		"only the first entry is right":        {n / 2, n - 1},
	} {
		t.Run(name, func(t *testing.T) {
			twin := bytes.Clone(right)
			for _, i := range wrong {
				at := twin[i*timeEntrySize+8:]
				binary.BigEndian.PutUint32(at, binary.BigEndian.Uint32(at)-1)
			}
			clone := mem.ProcessCrashClone()
			writeAll(t, clone, file, twin)
			o := options(clone, cfg)
			o.Stop = StopClean
			contents(t, mustOpen(t, o)) // no look-up by time, which would notice
			if got := readAll(t, clone, file); !bytes.Equal(got, right) {
				t.Errorf("the index is still\n%x, not\n%x", got, right)
			}
		})
	}
}

func checkMaxTimestamp(t *testing.T, l *Log) {
	t.Helper()
	largest := int64(-1)
	all := batches(contents(t, l))
	for _, b := range all {
		largest = max(largest, b.MaxTimestamp())
	}
	got, err := l.OffsetOfMaxTimestamp(l.EndOffset())
	if want := scanTime(risingTimes(all, l.StartOffset()), largest); err != nil || got != want {
		t.Errorf("OffsetOfMaxTimestamp = %+v, %v; want %+v", got, err, want)
	}
}

func TestPaddedTimeIndexDoesNotDeleteEarly(t *testing.T) { // BO-079
	mem := vfs.NewMem()
	o := indexedLog(t, mem, testDir)
	for _, name := range listFiles(t, mem, testDir) {
		if base, suffix, ok := splitFileName(name); ok && (suffix == timeSuffix || suffix == offsetSuffix) {
			file := segmentFile(base, suffix)
			writeAll(t, mem, file, append(readAll(t, mem, file), make([]byte, 24*50)...))
		}
	}
	o.Config.RetentionMs = testTime.UnixMilli() - 1000
	l := mustOpen(t, o)
	l.UpdateHighWatermark(l.EndOffset())
	if n, err := l.Retain(testTime); n != 0 || err != nil {
		t.Errorf("%d segments are gone, %v", n, err)
	}
}

// TestIndexCutUnderItsMapIsNoCrash reads a large index through its map, before and after its file was cut from outside.
func TestIndexCutUnderItsMapIsNoCrash(t *testing.T) { // FM-27
	dir := filepath.Join(t.TempDir(), "orders-0")
	cfg := testConfig()
	cfg.IndexIntervalBytes = 0
	o := options(vfs.OS{}, cfg)
	o.Dir = dir
	l := mustOpen(t, o)
	for i := range 3000 {
		if i == 1500 {
			if err := l.Roll(testTime); err != nil {
				t.Fatal(err)
			}
		}
		appendBatch(t, l, batch(1, int64(i), 1))
	}
	if err := l.Close(testTime); err != nil {
		t.Fatal(err)
	}
	o.Stop = StopClean
	l = mustOpen(t, o)
	checkLookups(t, l)
	for _, s := range *l.segments.Load() {
		h := s.files.Load()
		if h == nil || h.maps[offsetMap].Load() == nil || h.maps[timeMap].Load() == nil {
			t.Fatalf("indexes of segment %d are not mapped", s.base)
		}
		for _, suffix := range []string{offsetSuffix, timeSuffix} {
			if err := os.Truncate(s.path(suffix), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := batches(contents(t, l))
	for _, at := range []int{0, 1, 700, 1499, 1500, 1501, 2999} {
		r, err := l.Read(ReadRequest{From: wire.Offset(at), UpTo: 3000, MaxBytes: 1, MinOneBatch: true})
		if err != nil || r.First != all[at].BaseOffset() {
			t.Fatalf("Read(%d) begins at %d, %v", at, r.First, err)
		}
		r.Range.Release()
		if got, err := l.OffsetForTimestamp(int64(at), 3000); err != nil || got.Offset != wire.Offset(at) {
			t.Fatalf("OffsetForTimestamp(%d) = %+v, %v", at, got, err)
		}
	}
}

func TestIdlePartitionHoldsNothingOpen(t *testing.T) {
	mem := vfs.NewMem()
	o := indexedLog(t, mem, testDir)
	l := mustOpen(t, o)
	if n := open(l); n != 0 {
		t.Errorf("%d segments open after a clean start", n)
	}
	checkLookups(t, l)
	r, err := l.Read(ReadRequest{From: 0, UpTo: l.EndOffset(), MaxBytes: 1, MinOneBatch: true})
	if err != nil {
		t.Fatal(err)
	}
	l.env.files.sweep() // used since the last sweep
	l.env.files.sweep()
	if n := open(l); n != 0 {
		t.Errorf("%d segments open after two sweeps", n)
	}
	if _, err := r.Range.File.ReadAt(make([]byte, 1), r.Range.Offset); err != nil {
		t.Errorf("a range in use was closed: %v", err)
	}
	r.Range.Release()
	if _, err := r.Range.File.ReadAt(make([]byte, 1), r.Range.Offset); err == nil {
		t.Error("a released range's file is still open")
	}
	checkLookups(t, l)
}

func open(l *Log) (n int) {
	for _, s := range *l.segments.Load() {
		if s.files.Load() != nil {
			n++
		}
	}
	return n
}

func FuzzIndexes(f *testing.F) {
	f.Add(appendOffsetEntry(appendOffsetEntry(nil, 5, 9, 100), 5, 11, 300))
	f.Add(appendTimeEntry(appendTimeEntry(nil, 5, 1000, 9), 5, 1001, 9))
	f.Add(appendTxnEntry(nil, AbortedTransaction{ProducerID: 1, First: 2, Last: 3, LastStableOffset: 4}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if entries, err := DecodeOffsetIndex(data, 5); err == nil {
			var again []byte
			for _, e := range entries {
				again = appendOffsetEntry(again, 5, e.Offset, e.Position)
			}
			if !bytes.Equal(again, data) {
				t.Error("offset index is not what it was")
			}
			x := index{width: offsetEntrySize}
			for i, e := range entries {
				got, ok, err := x.searchMapped(data, int64(len(entries)), int64(e.Offset-5))
				if err != nil || !ok || got.position() != e.Position {
					t.Errorf("entry %d: %v %v %v", i, got, ok, err)
				}
			}
		}
		if entries, err := DecodeTimeIndex(data, 5); err == nil {
			var again []byte
			for _, e := range entries {
				again = appendTimeEntry(again, 5, e.Timestamp, e.Offset)
			}
			if !bytes.Equal(again, data) {
				t.Error("time index is not what it was")
			}
		}
		if list, err := DecodeTransactionIndex(data); err == nil {
			var again []byte
			for _, e := range list {
				again = appendTxnEntry(again, e)
			}
			if !bytes.Equal(again, data) {
				t.Error("transaction index is not what it was")
			}
		}
	})
}

// FuzzIndexFile puts arbitrary bytes in the place of an index: no look-up may differ from a scan.
func FuzzIndexFile(f *testing.F) {
	mem := vfs.NewMem()
	o := indexedLog(f, mem, testDir)
	f.Add([]byte{})
	f.Add(readAll(f, mem, segmentFile(0, offsetSuffix)))
	f.Add(binary.BigEndian.AppendUint64(nil, 1<<63))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > o.Config.SegmentIndexBytes {
			return
		}
		for _, suffix := range []string{offsetSuffix, timeSuffix} {
			clone := mem.ProcessCrashClone()
			writeAll(t, clone, segmentFile(0, suffix), data)
			o := o
			o.FS = clone
			checkLookups(t, mustOpen(t, o))
		}
	})
}

// A map does not grow: a segment rolls when its indexes have the size that they could have when it was made.
func TestASegmentKeepsTheSizeOfItsIndexes(t *testing.T) {
	cfg := testConfig()
	cfg.IndexIntervalBytes, cfg.SegmentIndexBytes = 1, 12*offsetEntrySize
	l := mustOpen(t, options(vfs.NewMem(), cfg))
	appendBatches(t, l, 3)
	cfg.SegmentIndexBytes = 64 << 10
	l.UpdateConfig(cfg)
	appendBatches(t, l, 40)
	if s := l.Segments(); len(s) != 2 || s[0].Next > 13 {
		t.Errorf("segments %+v", s)
	}
	checkLookups(t, l)
}

// The limit is that of one record, as for Produce.
func TestLookUpsInABatchThatUnfoldsToMoreThanOneRecordMay(t *testing.T) {
	cfg := testConfig()
	cfg.MaxDecompressedBytes = 1000
	l := mustOpen(t, options(vfs.NewMem(), cfg))
	appendBatch(t, l, batch(20, 1, 100, func(w *record.Builder) { w.Compression.Codec = record.Gzip }))
	if got, err := l.OffsetForTimestamp(6, 20); err != nil || got.Offset != 5 {
		t.Errorf("%+v, %v", got, err)
	}
	l.UpdateHighWatermark(20)
	if err := l.AdvanceStart(7); err != nil {
		t.Fatal(err)
	}
	if got, err := l.OffsetOfMaxTimestamp(20); err != nil || got.Offset != 19 {
		t.Errorf("%+v, %v", got, err)
	}
}
