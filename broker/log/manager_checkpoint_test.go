package log

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/broker/vfs"
)

func TestCheckpointWritesWhatChanged(t *testing.T) {
	mem := vfs.NewMem()
	fault := vfs.NewFault(mem)
	m := mustManage(t, managerOptions(fault, "/d1", "/d2"))
	var created []string
	fault.SetRules(vfs.Rule{Op: vfs.OpRename, Hook: func(c vfs.Call) { created = append(created, c.NewPath) }})
	step := func(what string, want ...string) {
		t.Helper()
		if err := m.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(created, want) {
			t.Errorf("%s: wrote %v, want %v", what, created, want)
		}
		created = nil
	}
	step("nothing happened")
	l := create(t, m, partition(0))
	appendBatch(t, l, batch(2, 1, 1))
	created = nil
	l.UpdateHighWatermark(2)
	step("high watermark", "/d1/"+highWatermarkFile)
	if err := errors.Join(l.AdvanceStart(1), l.Flush()); err != nil {
		t.Fatal(err)
	}
	created = nil
	step("start and recovery point", "/d1/"+recoveryPointFile, "/d1/"+logStartFile)
	l.UpdateHighWatermark(2)
	step("the same again")
	fault.SetRules(vfs.Rule{Op: vfs.OpCreate, Err: vfs.ErrNoSpace, Times: 1})
	l.UpdateHighWatermark(1)
	if err := m.Checkpoint(); !errors.Is(err, ErrStorage) || len(m.Offline()) != 0 {
		t.Errorf("full disk: %v, offline %v", err, m.Offline())
	}
	if err := m.Checkpoint(); err != nil || !strings.Contains(string(readAll(t, mem, "/d1/"+highWatermarkFile)), "a-b 0 1\n") {
		t.Errorf("the time after: %v", err)
	}
}

func TestDamagedCheckpointsAreNoObstacle(t *testing.T) { // FM-31
	mem := vfs.NewMem()
	o := managerOptions(mem, "/d1")
	m := mustManage(t, o)
	appendBatch(t, create(t, m, partition(0)), batch(3, 1, 10))
	if err := m.Close(testTime, 1); err != nil {
		t.Fatal(err)
	}
	for _, name := range checkpointFiles {
		writeAll(t, mem, "/d1/"+name, []byte("0\n5\nnonsense"))
	}
	if l, ok := mustManage(t, o).Get(partition(0)); !ok || l.EndOffset() != 3 {
		t.Error("log is not what it was")
	}
}
