package log

import (
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// safety.md 21: whether a log may lack its end must not be forgotten by a process that dies before the manifest was read.
func TestSafety21MayLackEndOutlivesTheNextStop(t *testing.T) {
	cfg := testConfig()
	tieredConfig()(&cfg)
	mem := vfs.NewMem()
	o := options(mem, cfg)
	o.fresh = true
	l := mustOpen(t, o)
	appendBatch(t, l, batch(3, 1, 10))
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	reopen := func(stop Stop) *Log {
		mem = mem.ProcessCrashClone()
		return mustOpen(t, crashed(mem, cfg, stop, 3))
	}
	if reopen(StopProcessCrash).MayLackEnd() {
		t.Error("after the end of a process")
	}
	if !reopen(StopPowerLoss).MayLackEnd() {
		t.Error("not after a power loss")
	}
	for _, stop := range []Stop{StopProcessCrash, StopClean} {
		if l = reopen(stop); !l.MayLackEnd() {
			t.Errorf("not after stop %d, with the power loss before it", stop)
		}
	}
	if err := l.Verified(); err != nil || l.MayLackEnd() || reopen(StopProcessCrash).MayLackEnd() {
		t.Errorf("after it was verified: %v", err)
	}
	if err := l.Verified(); err != nil {
		t.Error(err)
	}
}

func TestSafety21AStartFromTheTierIsVerifiedWhenItIsWhole(t *testing.T) {
	cfg := testConfig()
	tieredConfig()(&cfg)
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, cfg))
	if err := l.StartFromTier(testTime, 100, 20, nil, nil); err != nil {
		t.Fatal(err)
	}
	if !l.MayLackEnd() || !mustOpen(t, crashed(mem.ProcessCrashClone(), cfg, StopProcessCrash, wire.NoOffset)).MayLackEnd() {
		t.Error("it may be half a start")
	}
}

// safety.md 21: a log that was made anew in place of one that is gone lacks all of it, also for the process after the one that made it.
func TestSafety21ALogMadeAnewLacksItsEnd(t *testing.T) {
	mem := vfs.NewMem()
	cfg := testConfig()
	tieredConfig()(&cfg)
	plain := testConfig()
	m := mustManage(t, managerOptions(mem, "/d"))
	made := map[int32]bool{}
	for i, create := range []func(time.Time, wire.TopicPartition, wire.TopicID, config.Topic) (*Log, error){m.Create, m.CreateAnew} {
		l, err := create(testTime, partition(i), wire.TopicID{9}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		made[int32(i)] = l.MayLackEnd()
	}
	if made[0] || !made[1] {
		t.Errorf("a new partition's log lacks its end: %v; one made anew: %v", made[0], made[1])
	}
	if _, err := m.CreateAnew(testTime, partition(2), wire.TopicID{9}, plain); err != nil {
		t.Fatal(err)
	}
	after := mustManage(t, managerOptions(mem.ProcessCrashClone(), "/d"))
	for i, want := range []bool{false, true, false} {
		if l, ok := after.Get(partition(i)); !ok || l.MayLackEnd() != want {
			t.Errorf("partition %d after a crash: its end is missing: %v", i, !want)
		}
	}
}
