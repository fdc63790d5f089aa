package log

import (
	"testing"

	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// safety.md 21: whether a log may lack its end must not be forgotten by a process that dies before the manifest was read.
func TestSafety21MayLackEndOutlivesTheNextStop(t *testing.T) {
	cfg := testConfig()
	tieredConfig()(&cfg)
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, cfg))
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
