package log

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// crashes are what may be on a disk after a process that did not stop.
func crashes(mem *vfs.Mem) map[string]*vfs.Mem {
	disks := map[string]*vfs.Mem{"process crash": mem.ProcessCrashClone()}
	for seed := range uint64(20) {
		disks[fmt.Sprint("power loss ", seed)] = mem.CrashClone(rand.New(rand.NewPCG(seed, 1)))
	}
	return disks
}

// A checkpoint names partitions, not topic ids: what it says of a partition that was taken away must not be believed of one
// that was made anew under the name.
func TestAPartitionMadeAnewInheritsNoCheckpoint(t *testing.T) {
	for _, dirs := range [][]string{{"/d1"}, {"/d1", "/d2"}} {
		mem := vfs.NewMem()
		o := managerOptions(mem, dirs...)
		m := mustManage(t, o)
		l := create(t, m, partition(0))
		appendBatch(t, l, batch(10, 1, 10))
		l.UpdateHighWatermark(10)
		if err := errors.Join(l.AdvanceStart(9), l.Flush(), m.Checkpoint(), m.Delete(testTime, partition(0))); err != nil {
			t.Fatal(err)
		}
		if len(dirs) > 1 {
			create(t, m, partition(1)) // so that the next one goes to the other directory
		}
		l, err := m.Create(testTime, partition(0), wire.TopicID{10}, testConfig())
		if err != nil {
			t.Fatal(err)
		}
		appendBatch(t, l, batch(3, 1, 10))
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		for name, clone := range crashes(mem) {
			o := o
			o.FS = clone
			m, err := OpenManager(testTime, o)
			if err != nil {
				t.Fatalf("%s with %v: %v", name, dirs, err)
			}
			l, ok := m.Get(partition(0))
			if !ok || l.TopicID() != (wire.TopicID{10}) || l.StartOffset() != 0 || l.EndOffset() != 3 || l.RecoveryPoint() > 3 {
				t.Errorf("%s with %v: start %d, end %d, recovery point %d", name, dirs, l.StartOffset(), l.EndOffset(), l.RecoveryPoint())
			}
		}
	}
}

// A power loss can take a partition's directory and leave what a checkpoint says of it.
func TestAPartitionThatWasLostLeavesNoCheckpointBehind(t *testing.T) {
	mem := vfs.NewMem()
	o := managerOptions(mem, "/d1")
	m := mustManage(t, o)
	l := create(t, m, partition(0))
	appendBatch(t, l, batch(10, 1, 10))
	l.UpdateHighWatermark(10)
	if err := errors.Join(l.AdvanceStart(9), m.Checkpoint(), mem.RemoveAll(l.Dir())); err != nil {
		t.Fatal(err)
	}
	o.FS = mem.ProcessCrashClone()
	appendBatch(t, create(t, mustManage(t, o), partition(0)), batch(3, 1, 10))
	o.FS = o.FS.(*vfs.Mem).ProcessCrashClone()
	if l, ok := mustManage(t, o).Get(partition(0)); !ok || l.StartOffset() != 0 || l.EndOffset() != 3 {
		t.Errorf("start %d, end %d", l.StartOffset(), l.EndOffset())
	}
}

// The clean marker vouches for every log of its directory: one that could not be opened for want of room is still as the crash
// left it.
func TestALogThatWasNotOpenedKeepsItsDirectoryUnclean(t *testing.T) {
	mem := vfs.NewMem()
	o := managerOptions(mem, "/d1", "/d2")
	m := mustManage(t, o)
	create(t, m, partition(1))
	l := create(t, m, partition(0)) // in /d2
	appendBatch(t, l, batch(3, 1, 10))
	fault := vfs.NewFault(mem.ProcessCrashClone())
	o.FS = fault
	fault.SetRules(vfs.Rule{Path: "/d2/a-b-0/*", Op: vfs.OpRename, Err: vfs.ErrNoSpace}, vfs.Rule{Path: "/d2/a-b-0/*", Op: vfs.OpRemove, Err: vfs.ErrNoSpace})
	m = mustManage(t, o)
	if _, ok := m.Get(partition(0)); ok {
		t.Fatal("it opened without room")
	}
	_ = m.Close(testTime, 5)
	for dir, want := range map[string]bool{"/d1": true, "/d2": false} {
		if _, err := fault.Stat(dir + "/" + cleanFile); (err == nil) != want {
			t.Errorf("marker in %s: %v", dir, err)
		}
	}
}

// Whoever asks for a checkpoint may say afterwards that what he changed is durable, also where another had begun to write it.
func TestACheckpointWaitsForTheOneUnderWay(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem())
	m := mustManage(t, managerOptions(fault, "/d1"))
	l := create(t, m, partition(0))
	appendBatch(t, l, batch(3, 1, 10))
	l.UpdateHighWatermark(3)
	found := make(chan string, 1)
	fault.SetRules(vfs.Rule{Op: vfs.OpRename, Path: "/d1/" + logStartFile + "*", Times: 1, Hook: func(vfs.Call) {
		go func() {
			_ = m.Checkpoint()
			content, _ := readFile(fault, "/d1/"+logStartFile)
			found <- string(content)
		}()
		select {
		case early := <-found:
			found <- early
		case <-time.After(10 * time.Millisecond): // long enough for one who does not wait
		}
	}})
	if err := errors.Join(l.AdvanceStart(2), m.Checkpoint()); err != nil {
		t.Fatal(err)
	}
	if got := <-found; got != "0\n1\na-b 0 2\n" {
		t.Errorf("a checkpoint returned before it was written: %q", got)
	}
}

// Nor does a partition that is made anew while the checkpoint is written that no longer names the former one.
func TestAPartitionMadeAnewWaitsForTheCheckpointUnderWay(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem())
	m := mustManage(t, managerOptions(fault, "/d1"))
	l := create(t, m, partition(0))
	appendBatch(t, l, batch(10, 1, 10))
	l.UpdateHighWatermark(10)
	if err := errors.Join(l.AdvanceStart(9), m.Checkpoint(), m.Delete(testTime, partition(0))); err != nil {
		t.Fatal(err)
	}
	found := make(chan string, 1)
	fault.SetRules(vfs.Rule{Op: vfs.OpRename, Path: "/d1/" + recoveryPointFile + "*", Times: 1, Hook: func(vfs.Call) {
		go func() {
			_, err := m.Create(testTime, partition(0), wire.TopicID{8}, testConfig())
			content, _ := readFile(fault, "/d1/"+logStartFile)
			found <- fmt.Sprintf("%s%v", content, err)
		}()
		select {
		case early := <-found:
			found <- early
		case <-time.After(10 * time.Millisecond): // long enough for one who does not wait
		}
	}})
	if err := m.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	if got := <-found; got != "0\n0\n<nil>" {
		t.Errorf("it is there while the checkpoint says %q", got)
	}
}

// One that was never here does not wait: a topic of a thousand partitions would for a thousand checkpoints.
func TestANewPartitionDoesNotWaitForTheCheckpointUnderWay(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem())
	m := mustManage(t, managerOptions(fault, "/d1"))
	create(t, m, partition(0))
	if err := m.Delete(testTime, partition(0)); err != nil {
		t.Fatal(err)
	}
	hooked := false
	fault.SetRules(vfs.Rule{Op: vfs.OpRename, Path: "/d1/" + recoveryPointFile + "*", Times: 1, Hook: func(vfs.Call) {
		hooked = true
		create(t, m, partition(1)) // in the way of whom it would wait for
	}})
	if err := m.Checkpoint(); err != nil || !hooked {
		t.Fatal(err, hooked)
	}
}

// FM-32: once its segment is gone, the checkpoint no longer names the log start. A power loss must not bring the segment back.
func TestDeletedRecordsDoNotComeBackWithTheirSegment(t *testing.T) {
	mem := vfs.NewMem()
	o := managerOptions(mem, "/d1")
	m := mustManage(t, o)
	l := create(t, m, partition(0))
	appendBatch(t, l, batch(3, 1, 10))
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	l.UpdateHighWatermark(3)
	if err := errors.Join(l.AdvanceStart(3), m.Checkpoint(), l.Roll(testTime)); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Retain(testTime); n != 1 || err != nil {
		t.Fatalf("%d segments went: %v", n, err)
	}
	markChanged(&l.env.disk.startChanged) // by another partition
	if err := m.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	for name, clone := range crashes(mem) {
		o := o
		o.FS = clone
		if l, ok := mustManage(t, o).Get(partition(0)); !ok || l.StartOffset() != 3 {
			t.Errorf("%s: start %d", name, l.StartOffset())
		}
	}
}

// Nor while it goes: until the directory says so, durably, another partition's DeleteRecords must not write a checkpoint without it.
func TestDeletedRecordsDoNotComeBackWhileTheirSegmentGoes(t *testing.T) {
	for op, file := range map[vfs.Op]string{vfs.OpRename: "/d1/a-b-0/*" + logSuffix, vfs.OpSyncDir: "/d1/a-b-0"} {
		mem := vfs.NewMem()
		fault := vfs.NewFault(mem)
		o := managerOptions(fault, "/d1")
		m := mustManage(t, o)
		l := create(t, m, partition(0))
		appendBatch(t, l, batch(3, 1, 10))
		l.UpdateHighWatermark(3)
		if err := errors.Join(l.AdvanceStart(3), m.Checkpoint(), l.Roll(testTime), l.Flush()); err != nil {
			t.Fatal(err)
		}
		var disks map[string]*vfs.Mem
		fault.SetRules(vfs.Rule{Op: op, Path: file, Times: 1, Hook: func(vfs.Call) {
			markChanged(&l.env.disk.startChanged) // by that partition
			if err := m.Checkpoint(); err != nil {
				t.Error(err)
			}
			disks = crashes(mem)
		}})
		if n, err := l.Retain(testTime); n != 1 || err != nil {
			t.Fatalf("%d segments went: %v", n, err)
		}
		if disks == nil {
			t.Fatal("no crash")
		}
		for name, disk := range disks {
			if l := startOf(t, disk, o, partition(0)); l.StartOffset() != 3 {
				t.Errorf("%s before the %s: start %d", name, op, l.StartOffset())
			}
		}
	}
}

// FM-28: a sync that fails for want of room has lost pages like any other: what was not synced is gone from the page cache, and the
// next sync would vouch for it.
func TestAFailedSyncIsNoFullDisk(t *testing.T) {
	for _, suffix := range []string{logSuffix, txnSuffix} {
		fault := vfs.NewFault(vfs.NewMem())
		l := mustOpen(t, options(fault, testConfig()))
		appendBatch(t, l, batch(3, 1, 10, from(1, 0, 0), transactional))
		if _, err := l.AppendAsLeader(testTime, record.NewEndTxnMarker(1, 0, 1, record.EndTxnMarker{Type: record.Abort}), 1, Coordinator); err != nil {
			t.Fatal(err)
		}
		fault.SetRules(vfs.Rule{Op: vfs.OpSync, Path: testDir + "/*" + suffix, Err: vfs.ErrNoSpace, Times: 1})
		if err := l.Flush(); !errors.Is(err, ErrStorage) {
			t.Fatalf("%s: %v", suffix, err)
		}
		if err := l.Flush(); !errors.Is(err, ErrStorage) || l.RecoveryPoint() != 0 {
			t.Errorf("%s: after a failed sync the next one gives %v and recovery point %d", suffix, err, l.RecoveryPoint())
		}
	}
}

// Safety rule 9: whatever goes wrong, a folder that was there is not removed.
func TestSafety09AFailedCreateRemovesNothingThatWasThere(t *testing.T) {
	mem := vfs.NewMem()
	m := mustManage(t, managerOptions(mem, "/d1"))
	o := options(mem, testConfig())
	o.Dir = "/d1/" + partition(0).String()
	l := mustOpen(t, o)
	appendBatch(t, l, batch(3, 1, 10))
	if _, err := m.Create(testTime, partition(0), wire.TopicID{10}, testConfig()); !errors.Is(err, errTopicID) {
		t.Fatal(err)
	}
	if got := len(contents(t, mustOpen(t, o))); got == 0 {
		t.Error("the log is gone")
	}
}

// A process that dies tears nothing but its last write. What is unsound before that is damage: acknowledged records follow it.
func TestAProcessCrashCutsNothingBehindDamage(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, testConfig()))
	appendBatches(t, l, 10)
	whole := contents(t, l)
	size := len(whole) / 10
	damaged := append(bytes.Clone(whole), whole[:size/2]...) // a write that was torn
	damaged[6*size+100]++
	writeAll(t, mem, segmentFile(0, logSuffix), damaged)
	checkDamaged(t, "process crash", mustOpen(t, crashed(mem, testConfig(), StopProcessCrash, 0)), 6, whole, size)
}

// FM-73: a producer snapshot may know batches that the log has lost. A retry of one of them must be appended.
func TestProducersForgetWhatTheLogHasLost(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, testConfig()))
	for i := range int32(4) {
		appendBatch(t, l, batch(1, int64(i), 200, from(1, 0, i)))
	}
	whole := contents(t, l)
	if err := l.Close(testTime); err != nil {
		t.Fatal(err)
	}
	writeAll(t, mem, segmentFile(0, logSuffix), whole[:len(whole)/2])
	for _, stop := range []Stop{StopPowerLoss, StopProcessCrash, StopClean} {
		l := mustOpen(t, crashed(mem.ProcessCrashClone(), testConfig(), stop, 4))
		if info := appendBatch(t, l, batch(1, 2, 200, from(1, 0, 2))); info.Duplicate || info.First != 2 {
			t.Errorf("stop %d: %+v", stop, info)
		}
	}
}

// Retention by size counts what has come since. That must not be lost to a power loss after what it took the place of is gone.
func TestRetentionBySizeKeepsAsMuchThatIsDurable(t *testing.T) {
	mem := vfs.NewMem()
	o := managerOptions(mem, "/d1")
	l := create(t, mustManage(t, o), partition(0))
	cfg := smallSegments()
	cfg.RetentionBytes = 300
	l.UpdateConfig(cfg)
	appendBatches(t, l, 6)
	l.UpdateHighWatermark(6)
	if n, err := l.Retain(testTime); n != 1 || err != nil {
		t.Fatalf("%d segments went: %v", n, err)
	}
	want := l.Size()
	for name, clone := range crashes(mem) {
		o := o
		o.FS = clone
		if l, ok := mustManage(t, o).Get(partition(0)); !ok || l.Size() < want || l.EndOffset() != 6 {
			t.Errorf("%s: %d bytes up to %d are left of %d", name, l.Size(), l.EndOffset(), want)
		}
	}
}

// FM-32: where the disk is too full to rename a file, deleted records are not forgotten to be deleted.
func TestASegmentThatCannotBeDeletedIsTriedAgain(t *testing.T) {
	mem := vfs.NewMem()
	disk := vfs.NewFault(mem)
	o := managerOptions(disk, "/d1")
	m := mustManage(t, o)
	l := create(t, m, partition(0))
	l.UpdateConfig(smallSegments())
	appendBatches(t, l, 10)
	l.UpdateHighWatermark(10)
	if err := l.AdvanceStart(9); err != nil {
		t.Fatal(err)
	}
	disk.SetRules(vfs.Rule{Op: vfs.OpRename, Path: "*0004.log", Err: vfs.ErrNoSpace})
	if n, err := l.Retain(testTime); n != 1 || !errors.Is(err, ErrStorage) || len(m.Offline()) != 0 {
		t.Errorf("%d segments went: %v, offline %v", n, err, m.Offline())
	}
	if err := m.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	o.FS = mem.ProcessCrashClone()
	if l, ok := mustManage(t, o).Get(partition(0)); !ok || l.StartOffset() != 9 {
		t.Errorf("after a kill the log starts at %d", l.StartOffset())
	}
	disk.SetRules()
	if n, err := l.Retain(testTime); n != 1 || err != nil || len(l.Segments()) != 1 {
		t.Errorf("with room again %d segments went: %v", n, err)
	}
}

// With flush.messages an answer says that the batch is flushed, also to the retry of one whose flush has failed.
func TestADuplicateIsFlushedBeforeItIsAnswered(t *testing.T) {
	disk := vfs.NewFault(vfs.NewMem())
	cfg := testConfig()
	cfg.FlushMessages = 1
	l := mustOpen(t, options(disk, cfg))
	disk.SetRules(vfs.Rule{Op: vfs.OpCreate, Path: testDir + "/" + epochFile + "*", Err: vfs.ErrNoSpace, Times: 2})
	for try := range 3 {
		info, err := l.AppendAsLeader(testTime, batch(1, 1, 10, from(1, 0, 0)), 1, Client)
		if failed := try < 2; errors.Is(err, ErrStorage) != failed {
			t.Fatalf("try %d: %+v, %v", try, info, err)
		}
	}
	if l.EndOffset() != 1 || l.RecoveryPoint() != 1 {
		t.Errorf("end %d, recovery point %d", l.EndOffset(), l.RecoveryPoint())
	}
}
