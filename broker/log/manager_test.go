package log

import (
	"errors"
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
		TopicID:       func(string) wire.TopicID { return wire.TopicID{1} },
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
	return createWith(t, m, tp, testConfig())
}

func createWith(t testing.TB, m *Manager, tp wire.TopicPartition, cfg config.Topic) *Log {
	t.Helper()
	l, err := m.Create(testTime, tp, wire.TopicID{9}, cfg)
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

func TestAPartitionOfAFailedDirectoryIsMadeAnewInAnotherOne(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem())
	o := managerOptions(fault, "/d1", "/d2")
	m := mustManage(t, o)
	former := create(t, m, partition(0))
	appendBatch(t, former, batch(1, 1, 1))
	fault.SetRules(vfs.Rule{Op: vfs.OpWrite, Path: "/d1/*/*.log", Err: errors.New("input/output error"), Times: 1})
	if _, err := former.AppendAsLeader(testTime, batch(1, 1, 1), 1, Client); !errors.Is(err, ErrStorage) {
		t.Fatal(err)
	}
	if err := m.Delete(testTime, partition(0)); !errors.Is(err, ErrStorage) {
		t.Errorf("nothing is said of files that stay: %v", err)
	}
	l, err := m.Create(testTime, partition(0), wire.TopicID{10}, testConfig())
	if err != nil {
		t.Fatal(err)
	}
	if path.Dir(l.Dir()) != "/d2" {
		t.Errorf("made in %s", l.Dir())
	}
	appendBatch(t, l, batch(1, 1, 1))
	if _, err := former.AppendAsLeader(testTime, batch(1, 1, 1), 1, Client); err == nil {
		t.Error("the deleted one takes records")
	}
	_ = m.Close(testTime, 1) // says that /d1 has failed
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
	appendSegments(t, l, 3, 3)
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

// What was sealed is flushed soon, whatever flush.ms says: no recovery reads more than a segment, and what is not flushed is not kept.
func TestSealedSegmentsAreFlushed(t *testing.T) {
	mem := vfs.NewMem()
	fault := vfs.NewFault(mem)
	o := managerOptions(fault, "/d1")
	m := mustManage(t, o)
	l := createWith(t, m, partition(0), smallSegments())
	appendBatches(t, l, 10)
	fault.SetRules(vfs.Rule{Op: vfs.OpCreate, Path: "*" + snapshotSuffix + temporarySuffix, Err: vfs.ErrNoSpace, Times: 1})
	if m.FlushSealed(); l.RecoveryPoint() != 0 || l.Err() != nil {
		t.Errorf("on a full disk: recovery point %d, %v", l.RecoveryPoint(), l.Err())
	}
	var synced []string
	fault.SetRules(vfs.Rule{Op: vfs.OpSync, Path: "*" + logSuffix, Hook: func(c vfs.Call) { synced = append(synced, path.Base(c.Path)) }})
	for range 2 {
		m.FlushSealed()
	}
	if want := []string{fileName(0, logSuffix), fileName(4, logSuffix)}; !slices.Equal(synced, want) || l.RecoveryPoint() != 8 || len(l.snapshots) > 0 {
		t.Errorf("synced %v, recovery point %d, %d snapshots wait", synced, l.RecoveryPoint(), len(l.snapshots))
	}
	// What a recovery has read is flushed, too, or the next one reads it again.
	appendBatches(t, l, 4)
	o.FS = mem.ProcessCrashClone()
	o.DefaultConfig = func(string) config.Topic { return smallSegments() }
	m = mustManage(t, o)
	l, _ = m.Get(partition(0))
	if m.FlushSealed(); l.RecoveryPoint() != 12 {
		t.Errorf("after a crash: recovery point %d", l.RecoveryPoint())
	}
}
