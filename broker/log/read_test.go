package log

import (
	"bytes"
	"errors"
	"io/fs"
	"runtime"
	"testing"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func TestReadBounds(t *testing.T) {
	l := mustOpen(t, options(vfs.NewMem(), smallSegments()))
	for i := range 10 { // two records a batch, segments at 0, 6, 12, 18 or so
		appendBatch(t, l, batch(2, int64(i), 100))
	}
	size := int64(len(batch(2, 0, 100)))
	perSegment := l.Segments()[0].Size
	l.UpdateHighWatermark(20)
	for name, c := range map[string]struct {
		r      ReadRequest
		first  wire.Offset
		length int64
	}{
		"from the start":                   {ReadRequest{From: 0, UpTo: 20, MaxBytes: 1 << 20}, 0, perSegment},
		"inside a batch":                   {ReadRequest{From: 3, UpTo: 20, MaxBytes: 1 << 20}, 2, perSegment - size},
		"cut inside a batch":               {ReadRequest{From: 0, UpTo: 20, MaxBytes: int(size) + 7}, 0, size + 7},
		"cut inside the first":             {ReadRequest{From: 0, UpTo: 20, MaxBytes: 7}, 0, 7},
		"the first one whole":              {ReadRequest{From: 0, UpTo: 20, MaxBytes: 7, MinOneBatch: true}, 0, size},
		"nothing wanted":                   {ReadRequest{From: 4, UpTo: 20, MaxBytes: 0}, 4, 0},
		"up to an offset":                  {ReadRequest{From: 0, UpTo: 4, MaxBytes: 1 << 20}, 0, 2 * size},
		"never beyond it, whole or not":    {ReadRequest{From: 0, UpTo: 4, MaxBytes: int(3 * size), MinOneBatch: true}, 0, 2 * size},
		"not the batch that it splits":     {ReadRequest{From: 0, UpTo: 5, MaxBytes: 1 << 20}, 0, 2 * size},
		"at it":                            {ReadRequest{From: 4, UpTo: 4, MaxBytes: 1 << 20}, 4, 0},
		"above it":                         {ReadRequest{From: 6, UpTo: 4, MaxBytes: 1 << 20}, 6, 0},
		"at the end":                       {ReadRequest{From: 20, UpTo: 20, MaxBytes: 1 << 20, MinOneBatch: true}, 20, 0},
		"a bound above the end":            {ReadRequest{From: 18, UpTo: 1 << 40, MaxBytes: 1 << 20}, 18, size},
		"last batch of a segment":          {ReadRequest{From: wire.Offset(2*perSegment/size) - 2, UpTo: 20, MaxBytes: 1 << 20}, wire.Offset(2*perSegment/size) - 2, size},
		"the segment's end is up to there": {ReadRequest{From: 0, UpTo: wire.Offset(2 * perSegment / size), MaxBytes: 1 << 20}, 0, perSegment},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := l.Read(c.r)
			if err != nil || got.First != c.first || got.Range.Length != c.length {
				t.Fatalf("first %d, length %d, %v; want %d, %d", got.First, got.Range.Length, err, c.first, c.length)
			}
			if c.length == 0 {
				return
			}
			defer got.Range.Release()
			if got.FirstBatch != int(size) {
				t.Errorf("first batch of %d bytes", got.FirstBatch)
			}
			b := make([]byte, got.Range.Length)
			if _, err := got.Range.File.ReadAt(b, got.Range.Offset); err != nil {
				t.Fatal(err)
			}
			upper := l.UpperOffset(got)
			for rest := b; len(rest) >= record.HeaderSize; {
				batch, after, err := record.Next(rest)
				if err != nil {
					break
				}
				if batch.LastOffset() >= upper || batch.LastOffset() >= c.r.UpTo {
					t.Errorf("batch at %d, upper offset %d", batch.BaseOffset(), upper)
				}
				rest = after
			}
		})
	}
	if err := l.AdvanceStart(3); err != nil {
		t.Fatal(err)
	}
	for _, at := range []wire.Offset{-1, 2, 21} {
		if _, err := l.Read(ReadRequest{From: at, UpTo: 20, MaxBytes: 1}); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Errorf("at %d: %v", at, err)
		}
	}
	if r, err := l.Read(ReadRequest{From: 3, UpTo: 20, MaxBytes: 1}); err != nil || r.First != 2 {
		t.Errorf("at the start, inside a batch: %d, %v", r.First, err)
	}
}

func TestReadGoesOnAcrossGaps(t *testing.T) { // BO-011
	l := mustOpen(t, options(vfs.NewMem(), smallSegments()))
	for _, base := range []wire.Offset{3, 10, 11, 40, 90, 91, 200} {
		b := batch(1, int64(base), 200)
		b.SetBaseOffset(base)
		if _, err := l.AppendAsFollower(testTime, b); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.Segments()) < 2 {
		t.Fatal("one segment")
	}
	for from, want := range map[wire.Offset]wire.Offset{0: 3, 3: 3, 4: 10, 12: 40, 41: 90, 92: 200, 200: 200} {
		r, err := l.Read(ReadRequest{From: from, UpTo: 201, MaxBytes: 1, MinOneBatch: true})
		if err != nil || r.First != want {
			t.Errorf("from %d: %d, %v; want %d", from, r.First, err, want)
			continue
		}
		r.Range.Release()
	}
	if r, err := l.Read(ReadRequest{From: 41, UpTo: 90, MaxBytes: 1000}); err != nil || r.Range.Length != 0 {
		t.Errorf("nothing between: %d bytes, %v", r.Range.Length, err)
	}
}

// TestLargestTimestampBehindTheLogStart: records that were deleted have no part in it, be it that they share a segment, or a batch,
// with those that are left.
func TestLargestTimestampBehindTheLogStart(t *testing.T) {
	l := mustOpen(t, options(vfs.NewMem(), testConfig()))
	appendBatch(t, l, batch(3, 1000, 10)) // 1000, 1001, 1002
	appendBatch(t, l, batch(1, 500, 10))
	if err := l.Roll(testTime); err != nil {
		t.Fatal(err)
	}
	appendBatch(t, l, batch(1, 700, 10))
	l.UpdateHighWatermark(5)
	for _, c := range []struct {
		start, offset wire.Offset
		timestamp     int64
	}{{0, 2, 1002}, {1, 2, 1002}, {3, 4, 700}, {4, 4, 700}, {5, -1, -1}} {
		if err := l.AdvanceStart(c.start); err != nil {
			t.Fatal(err)
		}
		if got, err := l.OffsetOfMaxTimestamp(5); err != nil || got.Offset != c.offset || got.Timestamp != c.timestamp {
			t.Errorf("from %d on: %+v, %v", c.start, got, err)
		}
	}
}

// TestLargestTimestampOfNone: of records without timestamps the first one counts.
func TestLargestTimestampOfNone(t *testing.T) {
	l := mustOpen(t, options(vfs.NewMem(), testConfig()))
	for range 2 {
		appendBatch(t, l, batch(1, record.NoTimestamp, 10))
		appendBatch(t, l, batch(1, record.NoTimestamp, 10))
		if err := l.Roll(testTime); err != nil {
			t.Fatal(err)
		}
	}
	l.UpdateHighWatermark(4)
	for start, want := range []wire.Offset{0, 1, 2, 3, wire.NoOffset} {
		if err := l.AdvanceStart(wire.Offset(start)); err != nil {
			t.Fatal(err)
		}
		if got, err := l.OffsetOfMaxTimestamp(4); err != nil || got.Offset != want || got.Timestamp != record.NoTimestamp {
			t.Errorf("from %d on: %+v, %v", start, got, err)
		}
	}
}

func TestTimeLookups(t *testing.T) {
	l := mustOpen(t, options(vfs.NewMem(), testConfig()))
	find := func(ts int64, upTo wire.Offset) TimestampOffset {
		t.Helper()
		got, err := l.OffsetForTimestamp(ts, upTo)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	largest := func(upTo wire.Offset) TimestampOffset {
		t.Helper()
		got, err := l.OffsetOfMaxTimestamp(upTo)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if find(0, 10) != NoTimestampOffset || largest(10) != NoTimestampOffset { // BO-003, empty
		t.Error("found something in an empty log")
	}
	for _, ts := range []int64{2, 4, 6, 8} {
		appendBatch(t, l, batch(1, ts, 10))
	}
	for ts, want := range map[int64]wire.Offset{0: 0, 2: 0, 3: 1, 5: 2, 7: 3, 8: 3, 9: -1} { // BO-001, BO-002
		if got := find(ts, 4); got.Offset != want || want >= 0 && got.Timestamp != 2*(int64(want)+1) || want < 0 && got != NoTimestampOffset {
			t.Errorf("time %d: %+v, want offset %d", ts, got, want)
		}
	}
	if got := find(7, 3); got != NoTimestampOffset { // BO-006
		t.Errorf("a hit at the bound: %+v", got)
	}
	appendBatch(t, l, batch(3, 1000, 10))                                                    // 4, 5, 6
	appendBatch(t, l, batch(1, 500, 10))                                                     // 7
	if got := largest(8); got.Offset != 6 || got.Timestamp != 1002 || got.LeaderEpoch != 1 { // BO-003
		t.Errorf("largest timestamp: %+v", got)
	}
	if got := largest(6); got != NoTimestampOffset {
		t.Errorf("largest timestamp at the bound: %+v", got)
	}
	b := batch(3, -5_000_000, 10) // BO-008
	b.SetMaxTimestamp(record.LogAppendTime, 9000)
	appendBatch(t, l, b)
	if got := find(8999, 20); got.Offset != 8 || got.Timestamp != 9000 {
		t.Errorf("log append time: %+v", got)
	}
	if got := largest(20); got.Offset != 8 {
		t.Errorf("largest log append time: %+v", got)
	}
	if err := l.AdvanceStart(0); err != nil {
		t.Fatal(err)
	}
	l.UpdateHighWatermark(11)
	if err := l.AdvanceStart(5); err != nil {
		t.Fatal(err)
	}
	if got := find(0, 20); got.Offset != 5 {
		t.Errorf("first record at or behind the start: %+v", got)
	}
}

func TestTimeLookupsInCompressedBatches(t *testing.T) {
	l := mustOpen(t, options(vfs.NewMem(), testConfig()))
	for codec := record.None; codec <= record.Zstd; codec++ {
		appendBatch(t, l, batch(10, int64(codec)*100, 50, func(w *record.Builder) { w.Compression.Codec = codec }))
	}
	checkLookups(t, l)
	if got, err := l.OffsetForTimestamp(305, 50); err != nil || got.Offset != 35 {
		t.Errorf("%+v, %v", got, err)
	}
}

// BO-103: what a batch unfolds to is no matter for the memory.
func TestTimeLookupsUnfoldInFlatMemory(t *testing.T) {
	l := mustOpen(t, options(vfs.NewMem(), testConfig()))
	appendBatch(t, l, batch(3, 100, 16<<20, func(w *record.Builder) { w.Compression.Codec = record.Zstd }))
	l.UpdateHighWatermark(3)
	if err := l.AdvanceStart(1); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	at, err := l.OffsetForTimestamp(102, 3)
	largest, err2 := l.OffsetOfMaxTimestamp(3)
	runtime.ReadMemStats(&after)
	if err != nil || err2 != nil || at.Offset != 2 || largest.Offset != 2 {
		t.Errorf("%+v %v, %+v %v", at, err, largest, err2)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 24<<20 { // the decoder's window, once
		t.Errorf("%d bytes allocated", used)
	}
}

func TestEpochs(t *testing.T) { // BO-019
	l := mustOpen(t, options(vfs.NewMem(), testConfig()))
	none := func(epoch wire.LeaderEpoch) {
		t.Helper()
		if e, o := l.EndOffsetForEpoch(epoch); e != -1 || o != -1 {
			t.Errorf("epoch %d: (%d, %d)", epoch, e, o)
		}
	}
	none(0)
	for i, epoch := range []wire.LeaderEpoch{2, 2, 4, 7} {
		if _, err := l.AppendAsLeader(testTime, batch(5, int64(i), 10), epoch, Client); err != nil {
			t.Fatal(err)
		}
	}
	for asked, want := range map[wire.LeaderEpoch]EpochEntry{
		0: {0, 0}, 1: {1, 0}, // older than all: the asked epoch and the first start
		2: {2, 10}, 3: {2, 10}, 4: {4, 15}, 5: {4, 15}, 6: {4, 15}, 7: {7, 20},
	} {
		if e, o := l.EndOffsetForEpoch(asked); e != want.Epoch || o != want.Start {
			t.Errorf("epoch %d: (%d, %d), want %+v", asked, e, o, want)
		}
	}
	none(8)
	none(-1)
	l.AssignEpochStart(8)
	if e, o := l.EndOffsetForEpoch(8); e != 8 || o != 20 {
		t.Errorf("epoch without records: (%d, %d)", e, o)
	}
	l.AssignEpochStart(9) // begins where 8 did, which is forgotten
	if e, o := l.EndOffsetForEpoch(8); e != 7 || o != 20 {
		t.Errorf("epoch that was empty: (%d, %d)", e, o)
	}
}

func TestReadersBesideTheAppender(t *testing.T) {
	l := mustOpen(t, options(vfs.NewMem(), smallSegments()))
	b := batch(1, 1, 200)
	done := make(chan error, 2)
	for range cap(done) {
		go func() {
			for at := wire.Offset(0); at < 2000; {
				got, err := l.ReadBatches(at, l.EndOffset(), make([]byte, 0, 8192))
				if err != nil {
					done <- err
					return
				}
				for _, read := range batches(got) {
					if read.BaseOffset() != at || read.Check() != nil {
						done <- errors.New("another batch than expected")
						return
					}
					at++
				}
			}
			done <- nil
		}()
	}
	for range 2000 {
		appendBatch(t, l, bytes.Clone(b))
		l.env.files.sweep()
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Whoever has found a segment and not looked into its index yet, as after a restart, finds that it was deleted, and makes no file of it.
func TestAFirstLookUpInASegmentThatWasDeleted(t *testing.T) {
	for what, remove := range map[string]func(*Log) error{
		"with its topic": func(l *Log) error { return l.moveAway(testDir + "-delete") },
		"by retention": func(l *Log) error {
			l.UpdateHighWatermark(l.EndOffset())
			err := l.AdvanceStart(4)
			_, failed := l.Retain(testTime)
			return errors.Join(err, failed)
		},
	} {
		mem := vfs.NewMem()
		l := mustOpen(t, options(mem, smallSegments()))
		appendBatches(t, l, 10)
		if err := l.Close(testTime); err != nil {
			t.Fatal(err)
		}
		l = mustOpen(t, crashed(mem, smallSegments(), StopClean, 10))
		s := (*l.segments.Load())[0]
		h, err := s.open()
		if err != nil {
			t.Fatal(err)
		}
		if err := remove(l); err != nil {
			t.Fatal(err)
		}
		var buf [record.HeaderSize]byte
		if _, _, err := s.seek(h, 2, s.size.Load(), &buf); !errors.Is(err, errGone) {
			t.Errorf("%s: %v", what, err)
		}
		h.drop()
		if l.Err() != nil {
			t.Errorf("%s: the directory is offline: %v", what, l.Err())
		}
		if _, err := mem.Stat(segmentFile(0, offsetSuffix)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: its index: %v", what, err)
		}
	}
}

func TestAnOpenSegmentIsListedOnce(t *testing.T) {
	l := mustOpen(t, options(vfs.NewMem(), testConfig()))
	appendBatches(t, l, 1)
	s := l.active()
	for range 3 { // as when its indexes are made anew
		s.closeFiles()
		h, err := s.open()
		if err != nil {
			t.Fatal(err)
		}
		h.drop()
	}
	if n := len(l.env.files.segments); n != 1 {
		t.Errorf("listed %d times", n)
	}
	if l.env.files.sweep(); s.files.Load() == nil {
		t.Error("closed while it is in use")
	}
	l.env.files.sweep()
	if n := len(l.env.files.segments); n != 0 || s.files.Load() != nil {
		t.Errorf("not in use: listed %d times", n)
	}
	if appendBatches(t, l, 1); len(l.env.files.segments) != 1 {
		t.Error("in use again, and not listed")
	}
}
