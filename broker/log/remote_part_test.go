package log

import (
	"path"
	"testing"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// safety.md 23, BO-081: what lies in the object store alone stays part of the log when the checkpoints are gone, and when the topic is not
// tiered for a while. Else the next leader tells the manifest that the log begins with what is here.
func TestSafety23TheRemotePartOutlivesCheckpointsAndConfigs(t *testing.T) {
	tiered, plain := testConfig(), testConfig()
	tieredConfig(localBytes(0))(&tiered)
	for name, c := range map[string]struct {
		lost     []string
		untiered bool
		start    wire.Offset // 2 was deleted by DeleteRecords
	}{
		"all is there":                    {nil, false, 2},
		"BO-081 the checkpoints are gone": {[]string{highWatermarkFile, recoveryPointFile}, false, 2},
		"that of the log start, too":      {[]string{highWatermarkFile, recoveryPointFile, logStartFile}, false, 0},
		"not tiered for a while":          {nil, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			o := managerOptions(mem, "/d")
			m := mustManage(t, o)
			l := createWith(t, m, partition(0), tiered)
			for range 5 {
				appendBatch(t, l, batch(1, testTime.UnixMilli(), 100))
				if err := l.Roll(testTime); err != nil {
					t.Fatal(err)
				}
			}
			l.UpdateHighWatermark(5)
			l.SetTiered(4)
			if err := l.AdvanceStart(2); err != nil {
				t.Fatal(err)
			}
			if n, err := l.Retain(testTime); n != 4 || err != nil {
				t.Fatalf("%d segments went, %v", n, err)
			}
			crash := func(untiered bool) *Log {
				mem = mem.ProcessCrashClone()
				for _, file := range c.lost {
					_ = mem.Remove(path.Join("/d", file))
				}
				o := o
				o.FS = mem
				o.DefaultConfig = func(string) config.Topic {
					if untiered {
						return plain
					}
					return tiered
				}
				m = mustManage(t, o)
				l, _ := m.Get(partition(0))
				if l == nil || l.StartOffset() != c.start || l.LocalStartOffset() != 4 || l.EndOffset() != 5 || l.HighWatermark() < 4 {
					t.Fatalf("untiered %v: %+v", untiered, l)
				}
				if err := m.Checkpoint(); err != nil {
					t.Fatal(err)
				}
				return l
			}
			crash(c.untiered)
			crash(c.untiered)
			crash(false)
		})
	}
}

// A log that is begun anew begins where it is told to, whatever it had below before.
func TestALogThatIsBegunAnewHasNoRemotePart(t *testing.T) {
	mem := vfs.NewMem()
	l := hourly(t, mem, 5, tieredConfig(localBytes(0)))
	l.UpdateHighWatermark(5)
	l.SetTiered(3)
	if _, err := l.Retain(testTime); err != nil || l.LocalStartOffset() != 3 {
		t.Fatalf("local start %d, %v", l.LocalStartOffset(), err)
	}
	if err := l.TruncateFullyAndStartAt(testTime, 100); err != nil {
		t.Fatal(err)
	}
	off := l.Config()
	off.RemoteStorageEnable = false
	if l = mustOpen(t, crashed(mem.ProcessCrashClone(), off, StopProcessCrash, wire.NoOffset)); l.StartOffset() != 100 {
		t.Errorf("log start %d after a restart", l.StartOffset())
	}
}

// What is deleted while the topic is not tiered takes what lies below along.
func TestTheRemotePartGoesWithWhatIsHere(t *testing.T) {
	mem := vfs.NewMem()
	l := hourly(t, mem, 5, tieredConfig(localBytes(0)))
	l.UpdateHighWatermark(5)
	l.SetTiered(3)
	if _, err := l.Retain(testTime); err != nil || l.LocalStartOffset() != 3 || l.StartOffset() != 0 {
		t.Fatalf("local start %d, log start %d, %v", l.LocalStartOffset(), l.StartOffset(), err)
	}
	off := l.Config()
	off.RemoteStorageEnable, off.RetentionBytes = false, 0
	l.UpdateConfig(off)
	if _, err := l.Retain(testTime); err != nil || l.StartOffset() != 5 {
		t.Fatalf("log start %d, %v", l.StartOffset(), err)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if l = mustOpen(t, crashed(mem.ProcessCrashClone(), off, StopProcessCrash, wire.NoOffset)); l.StartOffset() != 5 {
		t.Errorf("log start %d after a restart", l.StartOffset())
	}
}
