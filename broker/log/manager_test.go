package log

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func managerOptions(fsys vfs.FS, dirs ...string) ManagerOptions {
	var n byte
	return ManagerOptions{
		FS: fsys, Dirs: dirs, ClusterID: "Y2x1c3Rlci1vbmUtaWQhIQ", BrokerID: 1, BootID: "boot-1",
		DefaultConfig: func(string) config.Topic { return testConfig() },
		NewUUID:       func() (id [16]byte) { n++; id[0] = n; id[15] = dirs[0][1]; return id },
	}
}

func mustManage(t testing.TB, o ManagerOptions) *Manager {
	t.Helper()
	m, err := OpenManager(testTime, o)
	if err != nil {
		t.Fatalf("OpenManager: %v", err)
	}
	return m
}

func partition(i int) wire.TopicPartition {
	return wire.TopicPartition{Topic: "a-b", Partition: int32(i)}
}

func create(t testing.TB, m *Manager, tp wire.TopicPartition) *Log {
	t.Helper()
	l, err := m.Create(testTime, tp, wire.TopicID{9}, testConfig())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestManagerKeepsLogsOverRestarts(t *testing.T) {
	mem := vfs.NewMem()
	o := managerOptions(mem, "/d1", "/d2")
	m := mustManage(t, o)
	for i := range 5 {
		l := create(t, m, partition(i))
		appendBatch(t, l, batch(3, 1, 10))
		l.UpdateHighWatermark(2)
		if err := l.AdvanceStart(1); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Close(testTime, 42); err != nil {
		t.Fatal(err)
	}
	if got := string(readAll(t, mem, "/d1/"+highWatermarkFile)); got != "0\n3\na-b 0 2\na-b 2 2\na-b 4 2\n" {
		t.Errorf("high watermarks %q", got)
	}
	if got := string(readAll(t, mem, "/d1/"+cleanFile)); got != `{"version":0,"brokerEpoch":42}` {
		t.Errorf("clean marker %q", got)
	}
	for _, crash := range []bool{false, true} {
		clone := mem.ProcessCrashClone()
		if crash {
			for _, d := range o.Dirs {
				if err := clone.Remove(path.Join(d, cleanFile)); err != nil {
					t.Fatal(err)
				}
			}
		}
		o.FS = clone
		m := mustManage(t, o)
		if want := map[bool]wire.BrokerEpoch{false: 42, true: -1}[crash]; m.CleanEpoch() != want {
			t.Errorf("crash %v: clean epoch %d", crash, m.CleanEpoch())
		}
		if len(m.Logs()) != 5 {
			t.Fatalf("%d logs", len(m.Logs()))
		}
		for _, l := range m.Logs() {
			if l.StartOffset() != 1 || l.HighWatermark() != 2 || l.EndOffset() != 3 || l.RecoveryPoint() != 3 || l.TopicID() != (wire.TopicID{9}) {
				t.Errorf("crash %v: %s: start %d, high watermark %d, end %d, recovery point %d",
					crash, l.TopicPartition(), l.StartOffset(), l.HighWatermark(), l.EndOffset(), l.RecoveryPoint())
			}
		}
		if _, err := clone.Stat("/d1/" + cleanFile); err == nil {
			t.Error("the clean marker is still there")
		}
	}
}

func TestManagerSpreadsLogs(t *testing.T) {
	m := mustManage(t, managerOptions(vfs.NewMem(), "/d1", "/d2", "/d3"))
	for i := range 7 {
		create(t, m, partition(i))
	}
	var counts []int
	for _, d := range m.Dirs() {
		counts = append(counts, len(d.Logs))
	}
	if !slices.Equal(counts, []int{3, 2, 2}) {
		t.Errorf("logs per directory %v", counts)
	}
	l, err := m.Create(testTime, partition(3), wire.TopicID{9}, testConfig())
	if got, _ := m.Get(partition(3)); err != nil || l != got {
		t.Errorf("created twice: %v", err)
	}
	if _, err := m.Create(testTime, partition(3), wire.TopicID{8}, testConfig()); !errors.Is(err, errTopicID) {
		t.Errorf("under another topic id: %v", err)
	}
	for _, bad := range []string{"../x", "", "a/b", ".."} { // FM-95
		if _, err := m.Create(testTime, wire.TopicPartition{Topic: bad}, wire.TopicID{9}, testConfig()); wire.CodeOf(err) != wire.InvalidTopic {
			t.Errorf("topic %q: %v", bad, err)
		}
	}
}

func TestForeignDirectoriesAreRefused(t *testing.T) { // FM-33, FM-34, safety.md 7
	mem := vfs.NewMem()
	o := managerOptions(mem, "/d1")
	m := mustManage(t, o)
	if _, err := OpenManager(testTime, o); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("a second process: %v", err)
	}
	if err := m.Close(testTime, 1); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(*ManagerOptions){
		"cluster":     func(o *ManagerOptions) { o.ClusterID = "another" },
		"broker":      func(o *ManagerOptions) { o.BrokerID = 2 },
		"incarnation": func(o *ManagerOptions) { o.ClusterIncarnation = 1 },
	} {
		o := o
		edit(&o)
		if _, err := OpenManager(testTime, o); !errors.Is(err, errIdentity) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	meta, ok, err := ReadMeta(mem, "/d1")
	if err != nil || !ok || meta.ClusterID != o.ClusterID || meta.BrokerID != 1 || meta.DirectoryID.IsZero() {
		t.Errorf("meta %+v, %v, %v", meta, ok, err)
	}
	if _, ok, err := ReadMeta(mem, "/nothing"); ok || err != nil {
		t.Errorf("no directory: %v, %v", ok, err)
	}
	again := mustManage(t, o)
	if again.Dirs()[0].ID != meta.DirectoryID {
		t.Error("another directory id")
	}
	if err := again.Close(testTime, 1); err != nil {
		t.Fatal(err)
	}
	for _, edit := range []func(clone *vfs.Mem){
		func(clone *vfs.Mem) { writeAll(t, clone, "/d1/"+metaFile, []byte("nonsense")) },
		func(clone *vfs.Mem) { // a copied disk
			_ = clone.MkdirAll("/d2")
			writeAll(t, clone, "/d2/"+metaFile, readAll(t, clone, "/d1/"+metaFile))
		},
		func(clone *vfs.Mem) { // one partition in two places
			for _, dir := range []string{"/d1/t-0", "/d2/t-0"} {
				_ = clone.MkdirAll(dir)
				writeAll(t, clone, dir+"/"+partitionFile, []byte("version: 0\ntopic_id: AQAAAAAAAAAAAAAAAAAAAA\n"))
			}
		},
	} {
		clone := mem.ProcessCrashClone()
		edit(clone)
		o := managerOptions(clone, "/d1", "/d2")
		o.NewUUID = func() [16]byte { return [16]byte{77} }
		if _, err := OpenManager(testTime, o); !errors.Is(err, errIdentity) {
			t.Errorf("%v", err)
		}
	}
}

func TestFailedDirectoryTakesOnlyItsOwnPartitions(t *testing.T) {
	broken := errors.New("input/output error")
	fault := vfs.NewFault(vfs.NewMem())
	o := managerOptions(fault, "/d1", "/d2")
	m := mustManage(t, o)
	for i := range 4 {
		create(t, m, partition(i)) // 0 and 2 in /d1
	}
	fault.SetRules(vfs.Rule{Op: vfs.OpWrite, Path: "/d1/*/*.log", Err: broken, Times: 1})
	one, _ := m.Get(partition(0))
	if _, err := one.AppendAsLeader(testTime, batch(1, 1, 1), 1, Client); !errors.Is(err, ErrStorage) {
		t.Fatal(err)
	}
	if !slices.Equal(m.Offline(), []string{"/d1"}) {
		t.Errorf("offline: %v", m.Offline())
	}
	for i := range 4 {
		l, _ := m.Get(partition(i))
		_, err := l.AppendAsLeader(testTime, batch(1, 1, 1), 1, Client)
		if failed := errors.Is(err, ErrStorage); failed != (i%2 == 0) {
			t.Errorf("partition %d: %v", i, err)
		}
	}
	if l := create(t, m, partition(9)); path.Dir(l.Dir()) != "/d2" {
		t.Errorf("created in %s", l.Dir())
	}
	if err := m.Close(testTime, 1); err == nil {
		t.Error("closing says nothing of the failed directory")
	}
	if _, err := fault.Stat("/d1/" + cleanFile); err == nil {
		t.Error("a failed directory has a clean marker")
	}
	if _, err := fault.Stat("/d2/" + cleanFile); err != nil {
		t.Errorf("the other one: %v", err)
	}

	fault.SetRules(vfs.Rule{Op: vfs.OpList, Path: "/d1", Err: broken})
	m = mustManage(t, o)
	if !slices.Equal(m.Offline(), []string{"/d1"}) || len(m.Logs()) != 3 || m.CleanEpoch() != -1 {
		t.Errorf("at a start: offline %v, %d logs, clean epoch %d", m.Offline(), len(m.Logs()), m.CleanEpoch())
	}
	for _, l := range m.Logs() {
		if l.EndOffset() > 1 {
			t.Errorf("%s ends at %d", l.TopicPartition(), l.EndOffset())
		}
	}
	_ = m.Close(testTime, 1)
	fault.SetRules(vfs.Rule{Op: vfs.OpList, Err: broken})
	if _, err := OpenManager(testTime, o); !errors.Is(err, ErrStorage) {
		t.Errorf("all directories failed: %v", err)
	}
}

func TestDeleteAndStray(t *testing.T) {
	mem := vfs.NewMem()
	o := managerOptions(mem, "/d1")
	m := mustManage(t, o)
	for i := range 3 {
		appendBatch(t, create(t, m, partition(i)), batch(1, 1, 1))
	}
	deleted, _ := m.Get(partition(0))
	if err := errors.Join(m.Delete(testTime, partition(0)), m.MarkStray(testTime, partition(1))); err != nil {
		t.Fatal(err)
	}
	if err := m.Delete(testTime, partition(0)); wire.CodeOf(err) != wire.UnknownTopicOrPartition {
		t.Errorf("deleted twice: %v", err)
	}
	if _, err := deleted.AppendAsLeader(testTime, batch(1, 1, 1), 1, Client); !errors.Is(err, ErrStorage) {
		t.Errorf("append to a deleted log: %v", err)
	}
	if _, err := deleted.Read(ReadRequest{UpTo: 1, MaxBytes: 1}); !errors.Is(err, ErrStorage) {
		t.Errorf("read of a deleted log: %v", err)
	}
	parked := func(fsys vfs.FS, suffix string) (n int) {
		for _, name := range listFiles(t, fsys, "/d1") {
			if strings.HasPrefix(name, "a-b-") && strings.HasSuffix(name, suffix) {
				n++
			}
		}
		return n
	}
	if parked(mem, deleteSuffix) != 1 || parked(mem, straySuffix) != 1 || len(m.Logs()) != 1 {
		t.Errorf("files %v", listFiles(t, mem, "/d1"))
	}
	if l := create(t, m, partition(0)); l.EndOffset() != 0 {
		t.Error("a new log holds what was deleted")
	}
	crash := mem.ProcessCrashClone()
	m.Sweep(testTime.Add(59 * time.Second))
	if parked(mem, deleteSuffix) != 1 {
		t.Error("removed before file.delete.delay.ms")
	}
	m.Sweep(testTime.Add(time.Minute))
	if parked(mem, deleteSuffix) != 0 || parked(mem, straySuffix) != 1 {
		t.Errorf("after the delay: %v", listFiles(t, mem, "/d1"))
	}
	o.FS = crash
	m = mustManage(t, o)
	m.Sweep(testTime)
	if parked(crash, deleteSuffix) != 0 || parked(crash, straySuffix) != 1 || len(m.Logs()) != 2 {
		t.Errorf("after a crash: %v", listFiles(t, crash, "/d1"))
	}
}

// TestWorkOnADeletedLogTouchesNothing: flush, retention and scrub may have got hold of a log before it was deleted. Its files are
// not there any more, and that is no fault of the disk.
func TestWorkOnADeletedLogTouchesNothing(t *testing.T) {
	m := mustManage(t, managerOptions(vfs.NewMem(), "/d1"))
	l := create(t, m, partition(0))
	for range 3 {
		appendBatch(t, l, batch(3, 1, 10))
		if err := l.Roll(testTime); err != nil {
			t.Fatal(err)
		}
	}
	l.UpdateHighWatermark(9)
	if err := l.AdvanceStart(9); err != nil {
		t.Fatal(err)
	}
	if err := m.Delete(testTime, partition(0)); err != nil {
		t.Fatal(err)
	}
	m.FlushDue(testTime)
	if n, err := l.Retain(testTime); n != 0 || err != nil {
		t.Errorf("retention: %d segments, %v", n, err)
	}
	if _, _, err := l.Scrub(1 << 20); err != nil {
		t.Errorf("scrub: %v", err)
	}
	if offline := m.Offline(); len(offline) != 0 {
		t.Errorf("%v is offline", offline)
	}
}

func TestParkedNamesFit(t *testing.T) {
	tp := wire.TopicPartition{Topic: strings.Repeat("x", 249), Partition: 12345}
	name := parkedDirName(tp, [16]byte{0xab}, deleteSuffix)
	if len(name) != 255 || !strings.HasSuffix(name, "-12345.ab000000000000000000000000000000-delete") {
		t.Errorf("%d: %s", len(name), name)
	}
	if _, ok := parseDirName(name); ok {
		t.Error("taken for a partition")
	}
	for name, want := range map[string]bool{"a-0": true, "a-b-17": true, "a-": false, "a": false, "a-01": false, "a--1": true, "-1": false, "a-0.x-stray": false, ".lock": false, "a-99999999999": false} {
		if _, ok := parseDirName(name); ok != want {
			t.Errorf("%q: %v", name, ok)
		}
	}
}

func TestBootIDTellsPowerLossFromProcessCrash(t *testing.T) { // safety.md 11
	for before, after := range map[string]map[string]wire.Offset{
		"boot-1": {"boot-1": 8, "boot-2": 2, "": 2},
		"":       {"boot-1": 2, "": 2},
	} {
		mem := vfs.NewMem()
		o := managerOptions(mem, "/d1")
		o.BootID = before
		l := create(t, mustManage(t, o), partition(0))
		cfg := smallSegments()
		l.UpdateConfig(cfg)
		for i := range 8 {
			appendBatch(t, l, batch(1, int64(i), 200))
		}
		name := path.Join(l.Dir(), fileName(0, logSuffix))
		sealed := readAll(t, mem, name)
		sealed[len(sealed)/2+70]++
		writeAll(t, mem, name, sealed)
		for boot, want := range after {
			o := o
			o.FS, o.BootID = mem.ProcessCrashClone(), boot
			l, _ := mustManage(t, o).Get(partition(0))
			if l.EndOffset() != want {
				t.Errorf("boot id %q after %q: end %d, want %d", boot, before, l.EndOffset(), want)
			}
		}
	}
}

func TestFlushDue(t *testing.T) {
	m := mustManage(t, managerOptions(vfs.NewMem(), "/d1"))
	l := create(t, m, partition(0))
	cfg := testConfig()
	cfg.FlushMs = 1000
	l.UpdateConfig(cfg)
	appendBatch(t, l, batch(1, 1, 1))
	m.FlushDue(testTime.Add(999 * time.Millisecond))
	if l.RecoveryPoint() != 0 {
		t.Error("flushed too early")
	}
	m.FlushDue(testTime.Add(time.Second))
	if l.RecoveryPoint() != 1 {
		t.Error("not flushed by flush.ms")
	}
	appendBatch(t, l, batch(1, 1, 1))
	if err := l.Roll(testTime); err != nil {
		t.Fatal(err)
	}
	m.FlushDue(testTime)
	if l.RecoveryPoint() != 2 {
		t.Error("a sealed segment is not flushed")
	}
	if len(m.dirty.logs) != 0 {
		t.Errorf("%d logs have something to flush", len(m.dirty.logs))
	}
}

// TestIdlePartitionsCostNothing counts the calls of a clean stop and start: none of them syncs a log in which nothing
// happened, and nothing but the directory and the small files is read.
func TestIdlePartitionsCostNothing(t *testing.T) {
	mem := vfs.NewMem()
	fault := vfs.NewFault(mem)
	o := managerOptions(fault, "/d1")
	m := mustManage(t, o)
	const partitions = 20
	for i := range partitions {
		l := create(t, m, partition(i))
		if i%2 == 0 {
			appendBatch(t, l, batch(3, 1, 10))
		}
	}
	if err := m.Close(testTime, 1); err != nil {
		t.Fatal(err)
	}
	counts := map[vfs.Op]int{}
	fault.SetRules(vfs.Rule{Hook: func(c vfs.Call) {
		if strings.Contains(c.Path, "/a-b-") {
			counts[c.Op]++
		}
	}})
	m = mustManage(t, o)
	if n := counts[vfs.OpWrite] + counts[vfs.OpSync] + counts[vfs.OpCreate] + counts[vfs.OpRename]; n != 0 {
		t.Errorf("a clean start writes: %v", counts)
	}
	if n := counts[vfs.OpRead]; n > 6*partitions {
		t.Errorf("a clean start reads: %v", counts)
	}
	for _, l := range m.Logs() {
		l.AssignEpochStart(5) // every restart brings a new leader epoch
	}
	clear(counts)
	m.FlushDue(testTime.Add(time.Hour))
	if err := errors.Join(m.Checkpoint(), m.Close(testTime, 2)); err != nil {
		t.Fatal(err)
	}
	if len(counts) != 0 {
		t.Errorf("an idle broker's clean stop calls %v", counts)
	}
}

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

func TestFullDiskAtStartIsTriedAgain(t *testing.T) {
	mem := vfs.NewMem()
	fault := vfs.NewFault(mem)
	o := managerOptions(fault, "/d1", "/d2")
	m := mustManage(t, o)
	create(t, m, partition(1))
	l := create(t, m, partition(0)) // in /d2
	appendBatch(t, l, batch(3, 1, 10))
	o.FS = vfs.NewFault(mem.ProcessCrashClone())
	o.FS.(*vfs.Fault).SetRules(vfs.Rule{Op: vfs.OpRemove, Err: vfs.ErrNoSpace}, vfs.Rule{Op: vfs.OpRename, Err: vfs.ErrNoSpace})
	m, err := OpenManager(testTime, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := m.Get(partition(0)); ok {
		t.Fatal("it opened without room")
	}
	o.FS.(*vfs.Fault).SetRules()
	if l := create(t, m, partition(0)); l.EndOffset() != 3 || path.Dir(l.Dir()) != "/d2" {
		t.Errorf("%s ends at %d", l.Dir(), l.EndOffset())
	}
}

// TestAPartitionThatFailedToBeMadeIsInNoDirectory: the next try may go to another directory, and a start that finds it in two
// refuses.
func TestAPartitionThatFailedToBeMadeIsInNoDirectory(t *testing.T) {
	mem := vfs.NewMem()
	o := managerOptions(vfs.NewFault(mem), "/d1", "/d2")
	m := mustManage(t, o)
	fault := o.FS.(*vfs.Fault)
	fault.SetRules(vfs.Rule{Op: vfs.OpWrite, Path: "/d1/*/*", Err: vfs.ErrNoSpace})
	if _, err := m.Create(testTime, partition(0), wire.TopicID{1}, testConfig()); !errors.Is(err, ErrStorage) {
		t.Fatalf("create on a full disk: %v", err)
	}
	fault.SetRules()
	create(t, m, partition(1)) // now /d2 is the emptiest
	create(t, m, partition(0))
	o.FS = mem.ProcessCrashClone()
	if _, err := OpenManager(testTime, o); err != nil {
		t.Error(err)
	}
}

// A power loss may undo the removal of what could not be made, when the partition is elsewhere already.
func TestAnEmptyShellIsNoSecondPlace(t *testing.T) {
	for _, shell := range []string{"/d1/a-b-0", "/d2/a-b-0"} {
		mem := vfs.NewMem()
		o := managerOptions(mem, "/d1", "/d2")
		m := mustManage(t, o)
		l := create(t, m, partition(0))
		appendBatch(t, l, batch(3, 1, 10))
		dir := l.Dir()
		if err := m.Close(testTime, 1); err != nil {
			t.Fatal(err)
		}
		if dir == shell { // the other way round
			if err := mem.Rename(dir, "/d2/a-b-0"); err != nil {
				t.Fatal(err)
			}
		}
		if err := mem.MkdirAll(shell); err != nil {
			t.Fatal(err)
		}
		writeAll(t, mem, shell+"/00000000000000000000.log", nil)
		again := mustManage(t, o)
		if l, ok := again.Get(partition(0)); !ok || l.EndOffset() != 3 || l.Dir() == shell {
			t.Errorf("with a shell in %s: %v", shell, l)
		}
		again.Sweep(testTime)
		if _, err := mem.Stat(shell); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the shell stays: %v", err)
		}
	}
}

func TestManagerScrubGoesRound(t *testing.T) {
	mem := vfs.NewMem()
	m := mustManage(t, managerOptions(mem, "/d1"))
	for i := range 3 {
		l := create(t, m, partition(i))
		l.UpdateConfig(smallSegments())
		for range 9 {
			appendBatch(t, l, batch(1, 1, 200))
		}
	}
	last, _ := m.Get(partition(2))
	name := path.Join(last.Dir(), fileName(4, logSuffix))
	b := readAll(t, mem, name)
	b[100]++
	writeAll(t, mem, name, b)
	last.env.files.sweep()
	last.env.files.sweep() // the file was replaced: open it anew
	steps := 0
	for ; steps < 100; steps++ {
		if _, err := last.ReadBatches(4, 5, nil); errors.Is(err, ErrStorage) {
			break
		}
		m.Scrub(300)
	}
	if steps < 5 || steps == 100 {
		t.Errorf("damage was found in step %d", steps)
	}
}

func TestParallelLoad(t *testing.T) {
	mem := vfs.NewMem()
	o := managerOptions(mem, "/d1")
	m := mustManage(t, o)
	for i := range 30 {
		appendBatch(t, create(t, m, partition(i)), batch(1+i, 1, 10))
	}
	o.FS = mem.ProcessCrashClone()
	o.Run = func(n int, work func(int)) {
		done := make(chan struct{})
		for i := range n {
			go func() { work(i); done <- struct{}{} }()
		}
		for range n {
			<-done
		}
	}
	m = mustManage(t, o)
	for i := range 30 {
		if l, ok := m.Get(partition(i)); !ok || l.EndOffset() != wire.Offset(1+i) {
			t.Errorf("partition %d", i)
		}
	}
	if err := m.Close(testTime, 1); err != nil {
		t.Fatal(err)
	}
}

// A power loss takes no log directory with all that was flushed in it: its name, and those of new folders above it, are durable.
func TestANewLogDirectorySurvivesAPowerLoss(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		mem := vfs.NewMem()
		o := managerOptions(mem, "/data/logs/d1")
		id := mustManage(t, o).Dirs()[0].ID
		meta, ok, err := ReadMeta(mem.CrashClone(rng), "/data/logs/d1")
		if err != nil || !ok || meta.DirectoryID != id {
			t.Fatalf("directory %v became %v, %t, %v", id, meta.DirectoryID, ok, err)
		}
	}
}
