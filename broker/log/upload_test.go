package log

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// uploadable is a log of three sealed segments with transactions, of which some aborted, and an active one.
func uploadable(t *testing.T, fsys vfs.FS) *Log {
	t.Helper()
	cfg := testConfig()
	tieredConfig()(&cfg)
	cfg.IndexIntervalBytes = 300
	l := mustOpen(t, options(fsys, cfg))
	at := testTime.UnixMilli()
	for i := range int32(4) {
		if i > 0 {
			if err := l.Roll(testTime); err != nil {
				t.Fatal(err)
			}
		}
		for j := range int32(5) {
			id := wire.ProducerID(3 + j%2)
			b := batch(2, at, 100, from(id, 0, 2*(i*3+j/2)-i*2*(j%2)), transactional)
			if _, err := l.AppendAsLeader(testTime, b, wire.LeaderEpoch(1+i/2), Replication); err != nil {
				t.Fatal(err)
			}
			at += 1000
		}
		for id, kind := range map[wire.ProducerID]record.ControlType{3: record.Abort, 4: record.Commit} {
			m := record.NewEndTxnMarker(id, 0, at, record.EndTxnMarker{Type: kind})
			if _, err := l.AppendAsLeader(testTime, m, wire.LeaderEpoch(1+i/2), Coordinator); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.UpdateHighWatermark(l.EndOffset())
	return l
}

func mustUpload(t *testing.T, l *Log, base wire.Offset) *Upload {
	t.Helper()
	var also bytes.Buffer
	u, err := l.OpenUpload(base, &also)
	if err != nil {
		t.Fatalf("OpenUpload(%d): %v", base, err)
	}
	t.Cleanup(u.Release)
	if !bytes.Equal(also.Bytes(), uploadBytes(t, u)) {
		t.Errorf("OpenUpload(%d) has written %d bytes that are not the segment's", base, also.Len())
	}
	return u
}

func uploadBytes(t *testing.T, u *Upload) []byte {
	t.Helper()
	b := make([]byte, u.Size)
	if _, err := u.File.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// checkUpload compares an upload with the log.
func checkUpload(t *testing.T, l *Log, u *Upload) {
	t.Helper()
	all := batches(uploadBytes(t, u))
	if all[0].BaseOffset() != u.Base || all[len(all)-1].NextOffset() != u.Next {
		t.Errorf("batches [%d, %d) in [%d, %d)", all[0].BaseOffset(), all[len(all)-1].NextOffset(), u.Base, u.Next)
	}
	positions, pos := map[wire.Offset]int64{}, int64(0)
	earliest, latest := int64(math.MaxInt64), int64(-1)
	for _, b := range all {
		positions[b.LastOffset()] = pos
		pos += int64(len(b))
		earliest, latest = min(earliest, b.BaseTimestamp()), max(latest, b.MaxTimestamp())
	}
	if u.MinTimestamp != earliest || u.MaxTimestamp != latest {
		t.Errorf("timestamps %d to %d, want %d to %d", u.MinTimestamp, u.MaxTimestamp, earliest, latest)
	}
	offsets, err := DecodeOffsetIndex(u.OffsetIndex, u.Base)
	if err != nil || len(offsets) == 0 {
		t.Errorf("offset index %v, %v", offsets, err)
	}
	for _, e := range offsets {
		if at, ok := positions[e.Offset]; !ok || at != e.Position {
			t.Errorf("offset entry %+v names no batch", e)
		}
	}
	times, err := DecodeTimeIndex(u.TimeIndex, u.Base)
	if err != nil || len(times) == 0 || times[len(times)-1].Timestamp != latest {
		t.Errorf("time index %v, %v", times, err)
	}
	aborted, err := DecodeTransactionIndex(u.TxnIndex)
	if err != nil || len(aborted) != 1 || aborted[0].ProducerID != 3 || aborted[0].Last < u.Base || aborted[0].Last >= u.Next {
		t.Errorf("transaction index %+v, %v", aborted, err)
	}
	producers, err := DecodeProducerSnapshot(u.Producers)
	if err != nil || len(producers) != 2 || producers[0].LastOffset < u.Base || producers[0].LastOffset >= u.Next {
		t.Errorf("producers %+v, %v", producers, err)
	}
	if want := []EpochEntry(epochCache(l.Epochs()).truncateEnd(u.Next)); !slices.Equal(u.Epochs, want) {
		t.Errorf("epochs %v, want %v", u.Epochs, want)
	}
}

func TestUpload(t *testing.T) {
	l := uploadable(t, vfs.NewMem())
	sealed, err := l.SealedSegments(0)
	if err != nil || len(sealed) != 3 {
		t.Fatalf("%+v, %v", sealed, err)
	}
	for _, s := range sealed {
		u := mustUpload(t, l, s.Base)
		if u.Next != s.Next || u.Size != s.Size || u.MaxTimestamp != s.LatestMs || s.Damaged {
			t.Errorf("%+v of %+v", u, s)
		}
		checkUpload(t, l, u)
	}
	if rest, err := l.SealedSegments(sealed[0].Next); err != nil || len(rest) != 2 || rest[0] != sealed[1] {
		t.Errorf("behind %d: %+v, %v", sealed[0].Next, rest, err)
	}
}

// meter counts the uploads that are being read at a time.
type meter struct{ now, most atomic.Int32 }

func (m *meter) Write(p []byte) (int, error) {
	m.most.Store(max(m.most.Load(), m.now.Add(1)))
	for range 100 {
		runtime.Gosched()
	}
	m.now.Add(-1)
	return len(p), nil
}

func TestSegmentsAreVerifiedForTheirUploadOneAtATime(t *testing.T) {
	l := uploadable(t, vfs.NewMem())
	var m meter
	var uploads sync.WaitGroup
	for _, s := range l.Segments()[:3] {
		uploads.Go(func() {
			u, err := l.OpenUpload(s.Base, &m)
			if err != nil {
				t.Error(err)
				return
			}
			u.Release()
		})
	}
	uploads.Wait()
	if most := m.most.Load(); most != 1 {
		t.Errorf("%d at a time", most)
	}
}

// What nobody waits for, a verification before an upload or by the scrub, lets others have the processor now and then; a recovery does not.
func TestWhatNobodyWaitsForYields(t *testing.T) {
	yields := 0
	o := options(vfs.NewMem(), testConfig())
	o.Yield = func() { yields++ }
	l := mustOpen(t, o)
	for l.Size() < 6*scanBuffer {
		appendBatch(t, l, sized(100<<10))
	}
	if err := l.Roll(testTime); err != nil {
		t.Fatal(err)
	}
	u, err := l.OpenUpload(0)
	if err != nil {
		t.Fatal(err)
	}
	u.Release()
	if yields < 4 {
		t.Errorf("%d yields while a segment is verified for its upload", yields)
	}
	yields = 0
	if _, _, err := l.Scrub(1 << 30); err != nil || yields < 4 {
		t.Errorf("%d yields while a segment is scrubbed: %v", yields, err)
	}
	yields = 0
	o.Stop = StopProcessCrash
	mustOpen(t, o)
	if yields > 0 {
		t.Errorf("%d yields in a recovery", yields)
	}
}

// BO-095: a damaged index is made anew for the bucket.
func TestUploadOfASegmentWithDamagedIndexes(t *testing.T) {
	mem := vfs.NewMem()
	l := uploadable(t, mem)
	if err := l.Close(testTime); err != nil {
		t.Fatal(err)
	}
	base, next := l.Segments()[1].Base, l.Segments()[2].Base
	for _, damage := range []string{"missing", "cut", "other", "zeros"} {
		clone := mem.ProcessCrashClone()
		for _, name := range []string{
			segmentFile(base, offsetSuffix), segmentFile(base, timeSuffix), segmentFile(base, txnSuffix), segmentFile(next, snapshotSuffix),
		} {
			data := readAll(t, clone, name)
			switch damage {
			case "missing":
				if err := clone.Remove(name); err != nil {
					t.Fatal(err)
				}
				continue
			case "cut":
				data = data[:len(data)-1]
			case "other":
				for i := range data {
					data[i] ^= 0x5a
				}
			case "zeros":
				clear(data)
			}
			writeAll(t, clone, name, data)
		}
		again := mustOpen(t, crashed(clone, l.Config(), StopClean, l.RecoveryPoint()))
		t.Run(damage, func(t *testing.T) {
			u := mustUpload(t, again, base)
			checkUpload(t, again, u)
			if want := mustUpload(t, mustOpen(t, crashed(mem.ProcessCrashClone(), l.Config(), StopClean, 0)), base); !bytes.Equal(u.TxnIndex, want.TxnIndex) ||
				!bytes.Equal(u.OffsetIndex, want.OffsetIndex) || !bytes.Equal(u.TimeIndex, want.TimeIndex) {
				t.Error("not what it was before the damage")
			}
		})
	}
}

// A topic may be deleted while a segment of it is verified for its upload: there is nothing to upload then, and nothing wrong with the disk.
func TestAnUploadOfATopicThatIsDeletedMeanwhile(t *testing.T) {
	for _, tt := range []struct {
		name   string
		damage func(t *testing.T, fs *vfs.Mem, sealed SegmentInfo)
	}{
		{"whole", func(*testing.T, *vfs.Mem, SegmentInfo) {}},
		{"with a damaged batch", func(t *testing.T, fs *vfs.Mem, sealed SegmentInfo) {
			overwrite(t, fs, segmentFile(sealed.Base, logSuffix), sealed.Size-1)
		}},
		{"with a damaged transaction index", func(t *testing.T, fs *vfs.Mem, sealed SegmentInfo) {
			overwrite(t, fs, segmentFile(sealed.Base, txnSuffix), 0)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mem := vfs.NewMem()
			l := uploadable(t, mem)
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
			sealed := l.Segments()[1]
			tt.damage(t, mem, sealed)
			deleted := false
			u, err := l.OpenUpload(sealed.Base, writer(func() {
				if !deleted {
					deleted = true
					if err := l.moveAway(testDir + "-delete"); err != nil {
						t.Fatal(err)
					}
				}
			}))
			if u != nil || !errors.Is(err, ErrOffsetOutOfRange) || !deleted {
				t.Errorf("%+v, %v; deleted: %t", u, err, deleted)
			}
			if l.Err() != nil {
				t.Errorf("the directory is offline: %v", l.Err())
			}
		})
	}
}

// Nor while it is looked at for the first time after a restart, which reads the disk.
func TestALookAtALogThatIsDeletedMeanwhile(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, testConfig()))
	for range 2 { // without timestamps: the files' times count
		if err := l.Roll(testTime); err != nil {
			t.Fatal(err)
		}
		appendBatch(t, l, batch(1, -1, 10))
	}
	l = mustOpen(t, crashed(mem.ProcessCrashClone(), testConfig(), StopProcessCrash, 0))
	if err := l.moveAway(testDir + "-delete"); err != nil {
		t.Fatal(err)
	}
	if since, ok, err := l.UnsealedSince(testTime); ok || !errors.Is(err, errClosed) {
		t.Errorf("the active segment: since %v, %t, %v", since, ok, err)
	}
	if sealed, err := l.SealedSegments(0); len(sealed) > 0 || err != nil {
		t.Errorf("the sealed ones: %+v, %v", sealed, err)
	}
	if l.Err() != nil {
		t.Errorf("the directory is offline: %v", l.Err())
	}
}

// The same holds for a partition whose log and manifest are just made one history.
func TestADeletedLogDoesNotBeginAnew(t *testing.T) {
	l := uploadable(t, vfs.NewMem())
	if err := l.moveAway(testDir + "-delete"); err != nil {
		t.Fatal(err)
	}
	_, cut := l.TruncateTo(testTime, l.EndOffset()-1)
	for what, err := range map[string]error{
		"cut": cut, "begun anew": l.TruncateFullyAndStartAt(testTime, 5), "begun in the tier": l.StartFromTier(testTime, 5, 0, nil, nil),
	} {
		if !errors.Is(err, errClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := errors.Join(l.Verified(), l.Flush(), l.Err()); err != nil {
		t.Error(err)
	}
}

func overwrite(t *testing.T, fs *vfs.Mem, name string, at int64) {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff}, at); err != nil {
		t.Fatal(err)
	}
}

// writer is called for each piece.
type writer func()

func (w writer) Write(b []byte) (int, error) {
	w()
	return len(b), nil
}

// BO-095: damaged data holds the upload back, now and after a restart, and is never cut.
func TestUploadOfADamagedSegmentIsHeldBack(t *testing.T) {
	mem := vfs.NewMem()
	l := uploadable(t, mem)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	sealed := l.Segments()[1]
	f, err := mem.Open(segmentFile(sealed.Base, logSuffix))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff, 0xff}, sealed.Size/2); err != nil {
		t.Fatal(err)
	}
	check := func(l *Log) {
		t.Helper()
		if u, err := l.OpenUpload(sealed.Base); !errors.Is(err, ErrDamaged) || !errors.Is(err, ErrStorage) {
			t.Fatalf("%+v, %v", u, err)
		}
		list, err := l.SealedSegments(0)
		if err != nil || list[0].Damaged || !list[1].Damaged || list[1].Size != sealed.Size {
			t.Errorf("%+v, %v", list, err)
		}
		if l.Err() != nil {
			t.Errorf("the directory is offline: %v", l.Err())
		}
		mustUpload(t, l, 0)
	}
	check(l)
	check(l)
	check(mustOpen(t, crashed(mem.ProcessCrashClone(), l.Config(), StopProcessCrash, l.RecoveryPoint())))
}

// Whatever is handed out for an upload is on disk here.
func TestSafety20AnUploadIsDurableHere(t *testing.T) {
	mem := vfs.NewMem()
	l := uploadable(t, mem)
	last := l.Segments()[2]
	want := mustUpload(t, l, last.Base)
	if err := mem.SyncDir("/"); err != nil { // a manager does that
		t.Fatal(err)
	}
	again := mustOpen(t, crashed(powerLoss(mem), l.Config(), StopPowerLoss, l.RecoveryPoint()))
	if again.EndOffset() < last.Next {
		t.Fatalf("log ends at %d", again.EndOffset())
	}
	// A power loss may take what was appended since, and with it the file that sealed the segment.
	appendBatch(t, again, batch(1, 1, 10))
	if err := again.Roll(testTime); err != nil {
		t.Fatal(err)
	}
	got := mustUpload(t, again, last.Base)
	if !bytes.HasPrefix(uploadBytes(t, got), uploadBytes(t, want)) {
		t.Error("other bytes")
	}
	for _, suffix := range []string{offsetSuffix, timeSuffix, txnSuffix, logSuffix} {
		if _, err := powerLoss(mem).Stat(segmentFile(last.Base, suffix)); err != nil {
			t.Errorf("%s: %v", suffix, err)
		}
	}
}

func TestOnlySealedSegmentsAreUploaded(t *testing.T) {
	l := uploadable(t, vfs.NewMem())
	segments := l.Segments()
	for _, base := range []wire.Offset{segments[3].Base, segments[1].Base + 1, -1, 1 << 40} {
		if u, err := l.OpenUpload(base); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Errorf("OpenUpload(%d): %+v, %v", base, u, err)
		}
	}
}

func TestAnUploadIsHeldOverItsDeletion(t *testing.T) {
	l := uploadable(t, vfs.NewMem())
	u := mustUpload(t, l, 0)
	want := uploadBytes(t, u)
	if err := l.AdvanceStart(u.Next); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Retain(testTime); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if !bytes.Equal(uploadBytes(t, u), want) {
		t.Error("other bytes")
	}
	if _, err := l.OpenUpload(0); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("of a segment that has gone: %v", err)
	}
}

// Append times replace what the batches' first records say, which may be later.
func TestTimesOfAnUploadWithAppendTime(t *testing.T) {
	l := uploadable(t, vfs.NewMem())
	base := l.EndOffset()
	if err := l.Roll(testTime); err != nil {
		t.Fatal(err)
	}
	b := batch(2, testTime.UnixMilli()+1_000_000, 10)
	b.SetMaxTimestamp(record.LogAppendTime, 500)
	appendBatch(t, l, b)
	if err := l.Roll(testTime); err != nil {
		t.Fatal(err)
	}
	if u := mustUpload(t, l, base); u.MinTimestamp != 500 || u.MaxTimestamp != 500 {
		t.Errorf("timestamps %d to %d", u.MinTimestamp, u.MaxTimestamp)
	}
}

func TestUnsealedSince(t *testing.T) {
	mem := vfs.NewMem()
	clock := testTime
	mem.SetClock(func() time.Time { return clock })
	cfg := testConfig()
	l := mustOpen(t, options(mem, cfg))
	check := func(l *Log, want time.Time, wantOK bool) {
		t.Helper()
		if got, ok, err := l.UnsealedSince(clock); err != nil || ok != wantOK || !got.Equal(want) {
			t.Errorf("%v, %v, %v; want %v, %v", got, ok, err, want, wantOK)
		}
	}
	reopened := func() *Log {
		t.Helper()
		return mustOpen(t, crashed(mem.ProcessCrashClone(), cfg, StopProcessCrash, l.RecoveryPoint()))
	}
	add := func(ts time.Time) {
		t.Helper()
		if _, err := l.AppendAsLeader(clock, batch(1, ts.UnixMilli(), 10), 1, Client); err != nil {
			t.Fatal(err)
		}
	}
	check(l, time.Time{}, false)
	created := clock
	clock = clock.Add(time.Minute)
	first := clock
	add(clock)
	clock = clock.Add(time.Minute)
	add(clock)
	check(l, first, true)
	check(reopened(), first, true)

	if err := l.Roll(clock); err != nil {
		t.Fatal(err)
	}
	check(l, time.Time{}, false)
	rolled := clock
	clock = clock.Add(time.Hour)
	add(created.Add(-time.Hour)) // a producer whose clock is behind
	second := clock
	check(l, second, true)
	check(reopened(), rolled, true) // no earlier than the end of the segment before
	if err := l.Roll(clock); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(time.Hour)
	add(clock.Add(24 * time.Hour)) // and one whose clock is ahead
	check(l, clock, true)
	check(reopened(), clock, true)
}
