package log

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

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
