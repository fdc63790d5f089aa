package log

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// hourly is a log of segments with one batch each, whose records are one hour apart, the last one as old as testTime.
func hourly(t *testing.T, fsys vfs.FS, segments int, edit func(*config.Topic)) *Log {
	t.Helper()
	cfg := testConfig()
	if edit != nil {
		edit(&cfg)
	}
	l := mustOpen(t, options(fsys, cfg))
	for i := range segments {
		if i > 0 {
			if err := l.Roll(testTime); err != nil {
				t.Fatal(err)
			}
		}
		appendBatch(t, l, batch(1, testTime.Add(time.Duration(i+1-segments)*time.Hour).UnixMilli(), 100))
	}
	l.UpdateHighWatermark(l.EndOffset())
	return l
}

func TestRetention(t *testing.T) {
	size := int64(len(batch(1, testTime.UnixMilli(), 100)))
	hour := time.Hour.Milliseconds()
	for name, c := range map[string]struct {
		edit  func(*config.Topic)
		hw    wire.Offset
		start wire.Offset // where the log starts then, of five segments
	}{
		"no limits":                     {func(c *config.Topic) {}, 5, 0},
		"by time":                       {func(c *config.Topic) { c.RetentionMs = 2*hour + 1 }, 5, 2},
		"by time, not older":            {func(c *config.Topic) { c.RetentionMs = 2 * hour }, 5, 2},
		"by size":                       {func(c *config.Topic) { c.RetentionBytes = 3 * size }, 5, 2},
		"by size, a byte more":          {func(c *config.Topic) { c.RetentionBytes = 3*size + 1 }, 5, 1},
		"by both":                       {func(c *config.Topic) { c.RetentionBytes = 4 * size; c.RetentionMs = hour + 1 }, 5, 3},
		"all, the active one too":       {func(c *config.Topic) { c.RetentionBytes = 0 }, 5, 5},
		"BO-080 FM-79 high watermark":   {func(c *config.Topic) { c.RetentionBytes = 0 }, 3, 3},
		"compacted only: never deleted": {func(c *config.Topic) { c.RetentionBytes = 0; c.CleanupCompact, c.CleanupDelete = true, false }, 5, 0},
		"compacted and deleted":         {func(c *config.Topic) { c.RetentionBytes = 0; c.CleanupCompact = true }, 5, 5},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			l := hourly(t, mem, 5, c.edit)
			l.UpdateHighWatermark(c.hw)
			n, err := l.Retain(testTime)
			if err != nil || l.StartOffset() != c.start || n != int(c.start) {
				t.Fatalf("%d segments went, start %d, %v; want %d", n, l.StartOffset(), err, c.start)
			}
			if l.EndOffset() != 5 || l.StartOffset() > l.HighWatermark() {
				t.Errorf("end %d, high watermark %d", l.EndOffset(), l.HighWatermark())
			}
			if info := appendBatch(t, l, batch(1, testTime.UnixMilli(), 10)); info.First != 5 {
				t.Errorf("next append at %d", info.First)
			}
			reopened := mustOpen(t, crashed(mem.ProcessCrashClone(), l.Config(), StopProcessCrash, l.RecoveryPoint()))
			if reopened.StartOffset() != c.start || reopened.EndOffset() != 6 {
				t.Errorf("after a crash: start %d, end %d", reopened.StartOffset(), reopened.EndOffset())
			}
		})
	}
}

func TestRetentionByFileTimeWithoutTimestamps(t *testing.T) {
	mem := vfs.NewMem()
	mem.SetClock(func() time.Time { return testTime })
	cfg := testConfig()
	cfg.RetentionMs = 1000
	l := mustOpen(t, options(mem, cfg))
	appendBatch(t, l, batch(1, -1, 100))
	l.UpdateHighWatermark(1)
	if n, _ := l.Retain(testTime.Add(time.Second)); n != 0 {
		t.Error("a segment went too early")
	}
	if n, _ := l.Retain(testTime.Add(1001 * time.Millisecond)); n != 1 {
		t.Error("a segment stayed")
	}
}

func TestFutureTimestampsKeepASegment(t *testing.T) { // FM-36, FM-37
	l := hourly(t, vfs.NewMem(), 3, func(c *config.Topic) { c.RetentionMs = 1 })
	if n, _ := l.Retain(testTime.Add(-10 * 365 * 24 * time.Hour)); n != 0 {
		t.Errorf("clock set back: %d segments went", n)
	}
}

func TestDeletedFilesAreRenamedAndReadersGoOn(t *testing.T) {
	mem := vfs.NewMem()
	l := hourly(t, mem, 3, nil)
	r, err := l.Read(ReadRequest{From: 0, UpTo: 3, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	cfg := l.Config()
	cfg.RetentionBytes = 0
	l.UpdateConfig(cfg)
	if _, err := l.Retain(testTime); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Range.File.ReadAt(make([]byte, r.Range.Length), r.Range.Offset); err != nil {
		t.Errorf("range of a deleted segment: %v", err)
	}
	r.Range.Release()
	if _, err := l.Read(ReadRequest{From: 0, UpTo: 3, MaxBytes: 1 << 20}); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("read below the start: %v", err)
	}
	names := listFiles(t, mem, testDir)
	if !slices.Contains(names, fileName(0, logSuffix+deletedSuffix)) || slices.Contains(names, fileName(0, logSuffix)) {
		t.Errorf("files %v", names)
	}
	delay := l.deleteDelay()
	if paths := l.env.trash.take(testTime.Add(delay - 1)); len(paths) != 0 {
		t.Errorf("removed before file.delete.delay.ms: %v", paths)
	}
	if paths := l.env.trash.take(testTime.Add(delay)); len(paths) < 3 {
		t.Errorf("to be removed: %v", paths)
	}
}

func TestAdvanceStart(t *testing.T) { // BO-083
	l := hourly(t, vfs.NewMem(), 4, nil)
	l.UpdateHighWatermark(3)
	for _, c := range []struct {
		to    wire.Offset
		err   error
		start wire.Offset
	}{{0, nil, 0}, {2, nil, 2}, {1, nil, 2}, {4, ErrOffsetOutOfRange, 2}, {3, nil, 3}} {
		if err := l.AdvanceStart(c.to); !errors.Is(err, c.err) || l.StartOffset() != c.start {
			t.Errorf("to %d: %v, start %d", c.to, err, l.StartOffset())
		}
	}
	if n, err := l.Retain(testTime); n != 3 || err != nil {
		t.Errorf("%d segments went, %v", n, err)
	}
	if got := l.Epochs(); len(got) != 1 || got[0].Start != 3 {
		t.Errorf("epochs %v", got)
	}
}

func TestTruncate(t *testing.T) {
	for to := wire.Offset(0); to <= 12; to++ {
		mem := vfs.NewMem()
		cfg := smallSegments()
		l := mustOpen(t, options(mem, cfg))
		for i := range int32(10) {
			b := batch(1, int64(1000-i), 200, from(5, 0, i))
			if _, err := l.AppendAsLeader(testTime, b, wire.LeaderEpoch(i/3), Client); err != nil {
				t.Fatal(err)
			}
		}
		whole := batches(contents(t, l))
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		l.UpdateHighWatermark(10)
		cut, err := l.TruncateTo(testTime, to)
		if err != nil || cut != (to < 10) {
			t.Fatalf("to %d: %v, %v", to, cut, err)
		}
		end := min(to, 10)
		if l.EndOffset() != end || l.HighWatermark() > end || l.RecoveryPoint() > end {
			t.Fatalf("to %d: end %d, high watermark %d, recovery point %d", to, l.EndOffset(), l.HighWatermark(), l.RecoveryPoint())
		}
		checkSurvivors(t, l, StopClean, whole[:end], 0)
		for i := int32(end); i < 12; i++ {
			if _, err := l.AppendAsLeader(testTime, batch(1, 5, 100, from(5, 0, i)), 9, Client); err != nil {
				t.Fatal(err)
			}
		}
		checkLookups(t, l)
		want := batches(contents(t, l))
		checkSurvivors(t, mustOpen(t, crashed(mem.ProcessCrashClone(), cfg, StopProcessCrash, l.RecoveryPoint())), StopProcessCrash, want, 0)
	}
}

func TestTruncateFullyAndStartAt(t *testing.T) {
	mem := vfs.NewMem()
	l := hourly(t, mem, 3, nil)
	if err := l.TruncateFullyAndStartAt(testTime, 77); err != nil {
		t.Fatal(err)
	}
	if len(l.Epochs()) != 0 || l.Size() != 0 {
		t.Errorf("epochs %v, size %d", l.Epochs(), l.Size())
	}
	checkEmptyAt(t, l, 77)
	reopened := mustOpen(t, crashed(mem.ProcessCrashClone(), l.Config(), StopProcessCrash, 0))
	if reopened.StartOffset() != 77 || reopened.EndOffset() != 78 {
		t.Errorf("after a crash: start %d, end %d", reopened.StartOffset(), reopened.EndOffset())
	}
}

func TestTruncationLowersTheCheckpointFirst(t *testing.T) {
	l := hourly(t, vfs.NewMem(), 3, nil)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	var saved []wire.Offset
	l.env.saveRecoveryPoints = func() error {
		saved = append(saved, l.RecoveryPoint(), l.EndOffset())
		return nil
	}
	if _, err := l.TruncateTo(testTime, 1); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(saved, []wire.Offset{1, 3}) {
		t.Errorf("recovery point and end when it was saved: %v", saved)
	}
}

// statHook is a file system that does something between what it finds out about a file and its telling.
type statHook struct {
	vfs.FS
	then func(name string)
}

func (f *statHook) Stat(name string) (vfs.Info, error) {
	info, err := f.FS.Stat(name)
	if f.then != nil {
		f.then(name)
	}
	return info, err
}

func TestRetentionSparesWhatIsAppendedWhileItLooks(t *testing.T) {
	mem := vfs.NewMem()
	mem.SetClock(func() time.Time { return testTime })
	fsys := &statHook{FS: mem}
	cfg := testConfig()
	cfg.RetentionMs = 1000
	l := mustOpen(t, options(fsys, cfg))
	appendBatch(t, l, batch(1, -1, 10))
	if err := l.Roll(testTime); err != nil {
		t.Fatal(err)
	}
	appendBatch(t, l, batch(1, -1, 10))
	l.UpdateHighWatermark(l.EndOffset())
	fsys.then = func(name string) {
		if name != segmentFile(1, logSuffix) {
			return
		}
		fsys.then = nil
		appendBatch(t, l, batch(1, testTime.Add(time.Hour).UnixMilli(), 10))
	}
	n, err := l.Retain(testTime.Add(time.Hour))
	if err != nil || n != 1 || l.StartOffset() != 1 {
		t.Fatalf("%d segments went, start %d, %v; want one, 1", n, l.StartOffset(), err)
	}
	if l.UpdateHighWatermark(l.EndOffset()); len(batches(contents(t, l))) != 2 {
		t.Errorf("%d batches are left, want 2", len(batches(contents(t, l))))
	}
}

// Retention makes room on a full disk, where nothing can be written anew, but spares what a recovery needs to begin from.
func TestRetentionOnAFullDisk(t *testing.T) {
	for name, c := range map[string]struct {
		retained int64 // segments
		full     vfs.Rule
		appended bool // to the active segment, too
		start    wire.Offset
	}{
		"no room for a snapshot":     {retained: 3, full: vfs.Rule{Op: vfs.OpCreate, Path: "*" + snapshotSuffix + temporarySuffix}, start: 2},
		"nor for the newest segment": {retained: 0, full: vfs.Rule{Op: vfs.OpCreate, Path: "*" + snapshotSuffix + temporarySuffix}, start: 4},
		"no room for anything":       {retained: 0, full: vfs.Rule{Op: vfs.OpCreate}, appended: true, start: 4},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			fault := vfs.NewFault(mem)
			cfg := testConfig()
			l := mustOpen(t, options(fault, cfg))
			sealed := func(i int32) {
				t.Helper()
				appendBatch(t, l, batch(1, 1, 100, from(7, 0, i)))
				if err := l.Roll(testTime); err != nil {
					t.Fatal(err)
				}
			}
			for i := range int32(4) {
				sealed(i)
			}
			if err := errors.Join(l.Flush(), mem.SyncDir("/")); err != nil { // a manager does the latter
				t.Fatal(err)
			}
			sealed(4)
			if c.appended {
				appendBatch(t, l, batch(1, 1, 100, from(7, 0, 5)))
			}
			end := l.EndOffset()
			l.UpdateHighWatermark(end)
			cfg.RetentionBytes = c.retained * (*l.segments.Load())[0].size.Load()
			l.UpdateConfig(cfg)
			c.full.Err = vfs.ErrNoSpace
			fault.SetRules(c.full)
			if n, err := l.Retain(testTime); n != int(c.start) || err != nil || l.StartOffset() != c.start {
				t.Fatalf("%d segments went, start %d, %v", n, l.StartOffset(), err)
			}
			for name, disk := range crashes(mem) {
				stop := StopPowerLoss
				if name == "process crash" {
					stop = StopProcessCrash
				}
				again := mustOpen(t, crashed(disk, cfg, stop, l.RecoveryPoint()))
				if p := again.Producers(); again.StartOffset() != c.start || again.EndOffset() != end || len(p) != 1 || p[0].LastSequence != int32(end-1) {
					t.Errorf("%s: from %d to %d, producers %+v", name, again.StartOffset(), again.EndOffset(), p)
				}
			}
		})
	}
}
