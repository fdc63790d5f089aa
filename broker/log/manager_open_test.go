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

	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

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
		appendBatches(t, l, 8)
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
		if _, err := mem.Stat(shell); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the shell stays: %v", err)
		}
		// It may be made anew where the shell was.
		if err := again.Delete(testTime, partition(0)); err != nil {
			t.Fatal(err)
		}
		l = create(t, again, partition(0))
		again.Sweep(testTime)
		if _, err := mem.Stat(l.Dir()); err != nil {
			t.Errorf("made anew: %v", err)
		}
	}
}

// A directory whose disk had failed comes back with the partition of a topic that was deleted meanwhile, and made anew elsewhere.
func TestOfTwoDirectoriesOfAPartitionTheFormerTopicsIsSetAside(t *testing.T) {
	for _, former := range []string{"/d1", "/d2"} {
		mem := vfs.NewMem()
		for dir, id := range map[string]wire.TopicID{"/d1": {1}, "/d2": {1}} {
			if dir == former {
				id = wire.TopicID{2}
			}
			o := managerOptions(mem, dir)
			o.NewUUID = func() [16]byte { return [16]byte{dir[2]} }
			m := mustManage(t, o)
			l, err := m.Create(testTime, partition(0), id, testConfig())
			if err != nil {
				t.Fatal(err)
			}
			appendBatch(t, l, batch(int(id[0]), 1, 10))
			if err := m.Close(testTime, 1); err != nil {
				t.Fatal(err)
			}
		}
		o := managerOptions(mem, "/d1", "/d2")
		m := mustManage(t, o)
		if l, ok := m.Get(partition(0)); !ok || l.TopicID() != (wire.TopicID{1}) || l.EndOffset() != 1 {
			t.Errorf("with the former topic in %s: %+v", former, l)
		}
		if !slices.ContainsFunc(listFiles(t, mem, former), func(name string) bool { return strings.HasSuffix(name, straySuffix) }) {
			t.Errorf("what is of the former topic is not kept: %q", listFiles(t, mem, former))
		}
		// Two of the same topic are a copy: nobody knows which is newer.
		o = managerOptions(mem.ProcessCrashClone(), "/d1", "/d2")
		from, to := "/d1/a-b-0", "/d2/a-b-0"
		if former == "/d1" {
			from, to = to, from
		}
		if err := o.FS.MkdirAll(to); err != nil {
			t.Fatal(err)
		}
		writeAll(t, o.FS, to+"/"+partitionFile, readAll(t, o.FS, from+"/"+partitionFile))
		if _, err := OpenManager(testTime, o); !errors.Is(err, errIdentity) {
			t.Errorf("two of the same topic: %v", err)
		}
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
