package log

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// TestFileOperations is the golden list of what each step does to files, in order: reviewers see each sync and rename.
func TestFileOperations(t *testing.T) {
	var calls []string
	fault := vfs.NewFault(vfs.NewMem())
	changes := []vfs.Op{vfs.OpCreate, vfs.OpRename, vfs.OpRemove, vfs.OpRemoveAll, vfs.OpSyncDir, vfs.OpWrite, vfs.OpTruncate, vfs.OpReserve, vfs.OpSync}
	fault.SetRules(vfs.Rule{Hook: func(c vfs.Call) {
		if !slices.Contains(changes, c.Op) {
			return
		}
		line := strings.ReplaceAll(c.String(), testDir+"/", "")
		calls = append(calls, strings.ReplaceAll(line, strings.Repeat("0", 19), "~"))
	}})
	cfg := testConfig()
	cfg.IndexIntervalBytes = 0
	var l *Log
	step := func(what string, f func() error, want ...string) {
		t.Helper()
		calls = nil
		if err := f(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if !slices.Equal(calls, want) {
			t.Errorf("%s:\n\t%s\nwant:\n\t%s", what, strings.Join(calls, "\n\t"), strings.Join(want, "\n\t"))
		}
	}
	add := func() error {
		b := batch(1, 1, 1)
		_, err := l.AppendAsLeader(testTime, slices.Clip(b), 1, Client)
		return err
	}
	step("create", func() (err error) { l, err = Open(testTime, options(fault, cfg)); return err },
		"create partition.metadata.tmp", "write partition.metadata.tmp 0+43", "rename partition.metadata.tmp partition.metadata",
		"create ~0.log")
	step("append", add, "write ~0.log 0+74")
	step("first flush", l.Flush,
		"sync ~0.log",
		"create leader-epoch-checkpoint.tmp", "write leader-epoch-checkpoint.tmp 0+8", "sync leader-epoch-checkpoint.tmp",
		"rename leader-epoch-checkpoint.tmp leader-epoch-checkpoint", "syncdir "+testDir,
		"syncdir "+testDir, "sync partition.metadata", "syncdir /data")
	step("append", add, "write ~0.log 74+74")
	step("flush", l.Flush, "sync ~0.log")
	step("append", add, "write ~0.log 148+74")
	step("roll", func() error { return l.Roll(testTime) }, "create ~3.log")
	step("append", add, "write ~3.log 0+74")
	step("flush of the sealed segment", func() error { return l.FlushDue(testTime) },
		"create ~0.index", "write ~0.index 0+16", "create ~0.timeindex", "write ~0.timeindex 0+12",
		"sync ~0.log",
		"create ~3.snapshot.tmp", "write ~3.snapshot.tmp 0+10", "sync ~3.snapshot.tmp", "rename ~3.snapshot.tmp ~3.snapshot", "syncdir "+testDir,
		"syncdir "+testDir)
	step("truncate", func() error { _, err := l.TruncateTo(testTime, 3); return err },
		"truncate ~3.log 0", "sync ~3.log", "remove ~3.txnindex", "syncdir "+testDir)
	l.UpdateHighWatermark(3)
	if err := l.AdvanceStart(3); err != nil {
		t.Fatal(err)
	}
	step("retain", func() error { _, err := l.Retain(testTime); return err },
		"create leader-epoch-checkpoint.tmp", "write leader-epoch-checkpoint.tmp 0+4", "sync leader-epoch-checkpoint.tmp",
		"rename leader-epoch-checkpoint.tmp leader-epoch-checkpoint", "syncdir "+testDir,
		"rename ~0.log ~0.log.deleted", "rename ~0.index ~0.index.deleted", "rename ~0.timeindex ~0.timeindex.deleted",
		"rename ~0.txnindex ~0.txnindex.deleted", "rename ~0.snapshot ~0.snapshot.deleted", "syncdir "+testDir)
	step("append", add, "write ~3.log 0+74")
	step("close", func() error { return l.Close(testTime) },
		"create ~3.index", "create ~3.timeindex", "write ~3.timeindex 0+12",
		"sync ~3.log",
		"create ~4.snapshot.tmp", "write ~4.snapshot.tmp 0+10", "sync ~4.snapshot.tmp", "rename ~4.snapshot.tmp ~4.snapshot", "syncdir "+testDir,
		"create leader-epoch-checkpoint.tmp", "write leader-epoch-checkpoint.tmp 0+8", "sync leader-epoch-checkpoint.tmp",
		"rename leader-epoch-checkpoint.tmp leader-epoch-checkpoint", "syncdir "+testDir)
}

func TestRecoverySyncsItsCut(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, testConfig()))
	appendBatch(t, l, batch(1, 1, 1))
	name := segmentFile(0, logSuffix)
	writeAll(t, mem, name, append(readAll(t, mem, name), "torn"...))
	var calls []vfs.Op
	fault := vfs.NewFault(mem)
	fault.SetRules(vfs.Rule{Path: "*.log", Hook: func(c vfs.Call) {
		if c.Op == vfs.OpTruncate || c.Op == vfs.OpSync {
			calls = append(calls, c.Op)
		}
	}})
	o := crashed(mem, testConfig(), StopPowerLoss, 0)
	o.FS = fault
	mustOpen(t, o)
	if !slices.Equal(calls, []vfs.Op{vfs.OpTruncate, vfs.OpSync}) {
		t.Errorf("calls %v", calls)
	}
}

// TestCleanMarkerIsGoneForGood: a power loss after a clean stop and a new start must not bring the marker back.
func TestCleanMarkerIsGoneForGood(t *testing.T) {
	for seed := range uint64(20) {
		mem := vfs.NewMem()
		o := managerOptions(mem, "/d1")
		m := mustManage(t, o)
		appendBatch(t, create(t, m, partition(0)), batch(1, 1, 1))
		if err := m.Close(testTime, 1); err != nil {
			t.Fatal(err)
		}
		if err := mem.SyncDir("/"); err != nil {
			t.Fatal(err)
		}
		mustManage(t, o)
		o.FS = mem.CrashClone(rand.New(rand.NewPCG(seed, 0)))
		if m := mustManage(t, o); m.CleanEpoch() != -1 {
			t.Fatalf("seed %d: clean epoch %d", seed, m.CleanEpoch())
		}
	}
}

// TestFilesOfACrashedProcessBecomeDurable: their directory entries were not, and the next process must see to it.
func TestFilesOfACrashedProcessBecomeDurable(t *testing.T) {
	for seed := range uint64(20) {
		mem := vfs.NewMem()
		if err := errors.Join(mem.MkdirAll("/data"), mem.SyncDir("/")); err != nil {
			t.Fatal(err)
		}
		appendBatch(t, mustOpen(t, options(mem, testConfig())), batch(1, 1, 1))
		mem = mem.ProcessCrashClone()
		l := mustOpen(t, crashed(mem, testConfig(), StopProcessCrash, 0))
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		mem = mem.CrashClone(rand.New(rand.NewPCG(seed, 0)))
		if l := mustOpen(t, crashed(mem, testConfig(), StopPowerLoss, 1)); l.EndOffset() != 1 {
			t.Fatalf("seed %d: end %d", seed, l.EndOffset())
		}
	}
}

// TestALogThatLostEverythingAboveItsStartKeepsIt: what was deleted was all that a power loss left. Nothing but the name of the new
// segment says where the log goes on.
func TestALogThatLostEverythingAboveItsStartKeepsIt(t *testing.T) {
	for _, size := range []int{0, 1} {
		for seed := range uint64(20) {
			mem := vfs.NewMem()
			if err := errors.Join(mem.MkdirAll("/data"), mem.SyncDir("/")); err != nil {
				t.Fatal(err)
			}
			if size > 0 {
				l := mustOpen(t, options(mem, testConfig()))
				appendBatch(t, l, batch(size, 1, 1))
				if err := l.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			o := crashed(mem, testConfig(), StopPowerLoss, 0)
			o.LogStart = 10
			if err := mustOpen(t, o).Close(testTime); err != nil {
				t.Fatal(err)
			}
			mem = mem.CrashClone(rand.New(rand.NewPCG(seed, 0)))
			if l := mustOpen(t, crashed(mem, testConfig(), StopClean, 0)); l.StartOffset() != 10 || l.EndOffset() != 10 {
				t.Fatalf("seed %d: %d to %d", seed, l.StartOffset(), l.EndOffset())
			}
		}
	}
}

// cutShort is a log with one flushed batch, of which a full disk has cut the next one short.
func cutShort(t *testing.T) (*vfs.Mem, *Log) {
	t.Helper()
	mem := vfs.NewMem()
	if err := errors.Join(mem.MkdirAll("/data"), mem.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	l := mustOpen(t, options(mem, testConfig()))
	appendBatch(t, l, batch(1, 1, 100))
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	usage, err := mem.Usage("/")
	if err != nil {
		t.Fatal(err)
	}
	mem.SetSpace(usage.Total - usage.Free + 80)
	if _, err := l.AppendAsLeader(testTime, batch(1, 1, 100), 1, Client); !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatalf("append to a full disk: %v", err)
	}
	mem.SetSpace(1 << 30)
	return mem, l
}

// TestASealedSegmentEndsWhereItsLastBatchDoes: a write that a full disk cut short was undone, behind the recovery point, and
// then the segment was sealed. No power loss may bring the piece back: recovery does not look there.
func TestASealedSegmentEndsWhereItsLastBatchDoes(t *testing.T) {
	for seed := range uint64(20) {
		mem, l := cutShort(t)
		if err := errors.Join(l.Roll(testTime), l.FlushDue(testTime)); err != nil {
			t.Fatal(err)
		}
		mem = mem.CrashClone(rand.New(rand.NewPCG(seed, 0)))
		l = mustOpen(t, crashed(mem, testConfig(), StopPowerLoss, 1))
		appendBatch(t, l, batch(1, 1, 100))
		if n := len(batches(contents(t, l))); n != 2 {
			t.Fatalf("seed %d: %d batches", seed, n)
		}
		if _, _, err := l.Scrub(1 << 20); err != nil || len((*l.segments.Load())[0].damages()) > 0 {
			t.Fatalf("seed %d: damage in the sealed segment, error %v", seed, err)
		}
	}
}

// The same with a process that dies before it has finished the sealed segment, and a clean stop of the next one, which finds nothing to do
// there.
func TestWhatAFullDiskCutShortStaysAway(t *testing.T) {
	for seed := range uint64(20) {
		mem, l := cutShort(t)
		if err := l.Roll(testTime); err != nil {
			t.Fatal(err)
		}
		mem = mem.ProcessCrashClone()
		l = mustOpen(t, crashed(mem, testConfig(), StopProcessCrash, 1))
		appendBatch(t, l, batch(1, 1, 100))
		if err := l.Close(testTime); err != nil {
			t.Fatal(err)
		}
		mem = mem.CrashClone(rand.New(rand.NewPCG(seed, 0)))
		l = mustOpen(t, crashed(mem, testConfig(), StopClean, 2))
		if _, _, err := l.Scrub(1 << 20); err != nil || len((*l.segments.Load())[0].damages()) > 0 {
			t.Fatalf("seed %d: damage in the sealed segment, error %v", seed, err)
		}
		if n := len(batches(contents(t, l))); n != 2 {
			t.Fatalf("seed %d: %d batches", seed, n)
		}
	}
}

// TestASealedSegmentHasItsIndexes, also where all of it was flushed before it was sealed.
func TestASealedSegmentHasItsIndexes(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, testConfig()))
	appendBatch(t, l, batch(1, 1, 10_000))
	appendBatch(t, l, batch(1, 2, 10))
	if err := errors.Join(l.Flush(), l.Roll(testTime), l.FlushDue(testTime)); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{offsetSuffix, timeSuffix} {
		if len(readAll(t, mem, segmentFile(0, suffix))) == 0 {
			t.Errorf("%s is empty", suffix)
		}
	}
}

// TestEpochsOfAHistoryCutOffAreForgotten: leader-epoch-checkpoint is written at flushes only, and may be older than a
// truncation.
func TestEpochsOfAHistoryCutOffAreForgotten(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, testConfig()))
	for _, epoch := range []wire.LeaderEpoch{1, 1, 1, 2} {
		if _, err := l.AppendAsLeader(testTime, batch(1, 1, 1), epoch, Client); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.TruncateTo(testTime, 2); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := l.AppendAsLeader(testTime, batch(1, 1, 1), 2, Client); err != nil {
			t.Fatal(err)
		}
	}
	reopened := mustOpen(t, crashed(mem.ProcessCrashClone(), testConfig(), StopProcessCrash, l.RecoveryPoint()))
	if got, want := reopened.Epochs(), []EpochEntry{{1, 0}, {2, 2}}; !slices.Equal(got, want) {
		t.Errorf("epochs %v, want %v", got, want)
	}
}

// TestRoomIsReservedWhereDataFlows: never more than the segment holds, nothing for small ones, and what is left over is given back
// when nothing more is appended.
func TestRoomIsReservedWhereDataFlows(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem())
	var room, reserved int64 // of the active segment, and the end of what is reserved
	fault.SetRules(vfs.Rule{Path: "*.log", Hook: func(c vfs.Call) {
		switch c.Op {
		case vfs.OpWrite:
			room = c.Offset + int64(c.Length)
		case vfs.OpReserve:
			if c.Offset != max(reserved, room) {
				t.Errorf("reserved from %d, of %d reserved and %d written", c.Offset, reserved, room)
			}
			reserved = c.Offset + int64(c.Length)
		case vfs.OpTruncate:
			if c.Offset != room {
				t.Errorf("cut at %d of %d", c.Offset, room)
			}
			reserved = 0
		}
	}})
	l := mustOpen(t, options(fault, testConfig()))
	value := 128 << 10
	fill := func(segmentBytes int64) {
		t.Helper()
		for end := room + segmentBytes; room < end; {
			appendBatch(t, l, batch(1, 1, value))
			switch {
			case room <= reserveFrom && reserved != 0, reserved > 2*room:
				t.Fatalf("%d reserved for %d", reserved, room)
			case room > reserveFrom+int64(2*value) && reserved < room:
				t.Fatalf("nothing reserved at %d", room)
			}
		}
	}
	fill(4 * reserveFrom)
	if err := l.Roll(testTime); err != nil {
		t.Fatal(err)
	}
	if err := l.FlushDue(testTime); err != nil {
		t.Fatal(err)
	}
	if reserved != 0 {
		t.Errorf("the sealed segment keeps %d for %d", reserved, room)
	}
	room = 0
	fill(3 * reserveFrom)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if reserved == 0 {
		t.Error("a flush gave back what the next appends need")
	}
	if err := l.Close(testTime); err != nil {
		t.Fatal(err)
	}
	if reserved != 0 {
		t.Errorf("the closed log keeps %d for %d", reserved, room)
	}
}
