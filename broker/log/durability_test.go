package log

import (
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/broker/vfs"
)

// TestFileOperations is the golden list of what each step does to files, in order: reviewers see each sync and rename.
func TestFileOperations(t *testing.T) {
	var calls []string
	fault := vfs.NewFault(vfs.NewMem())
	changes := []vfs.Op{vfs.OpCreate, vfs.OpRename, vfs.OpRemove, vfs.OpRemoveAll, vfs.OpSyncDir, vfs.OpWrite, vfs.OpTruncate, vfs.OpSync}
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
		_, err := l.AppendAsLeader(testTime, b[:len(b):len(b)], 1, Client)
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
		"rename ~0.txnindex ~0.txnindex.deleted", "rename ~0.snapshot ~0.snapshot.deleted")
	step("append", add, "write ~3.log 0+74")
	step("close", func() error { return l.Close(testTime) },
		"create ~3.index", "create ~3.timeindex", "write ~3.timeindex 0+12",
		"sync ~3.log",
		"create ~4.snapshot.tmp", "write ~4.snapshot.tmp 0+10", "sync ~4.snapshot.tmp", "rename ~4.snapshot.tmp ~4.snapshot", "syncdir "+testDir,
		"create leader-epoch-checkpoint.tmp", "write leader-epoch-checkpoint.tmp 0+8", "sync leader-epoch-checkpoint.tmp",
		"rename leader-epoch-checkpoint.tmp leader-epoch-checkpoint", "syncdir "+testDir)
}
