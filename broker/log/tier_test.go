package log

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// tieredConfig edits a topic whose sealed segments go to the object store.
func tieredConfig(edits ...func(*config.Topic)) func(*config.Topic) {
	return func(c *config.Topic) {
		c.RemoteStorageEnable, c.LocalRetentionMs, c.LocalRetentionBytes = true, asTotal, asTotal
		for _, edit := range edits {
			edit(c)
		}
	}
}

func localBytes(n int64) func(*config.Topic) {
	return func(c *config.Topic) { c.LocalRetentionBytes = n }
}

func TestLocalRetention(t *testing.T) {
	size := int64(len(batch(1, testTime.UnixMilli(), 100)))
	hour := time.Hour.Milliseconds()
	for name, c := range map[string]struct {
		edit         func(*config.Topic)
		hw, tiered   wire.Offset
		logStart     wire.Offset // before, by DeleteRecords
		local, start wire.Offset // of five segments, afterwards
	}{
		"no limits":                            {func(c *config.Topic) {}, 5, 4, 0, 0, 0},
		"by bytes":                             {localBytes(3 * size), 5, 4, 0, 2, 0},
		"by bytes, a byte more":                {localBytes(3*size + 1), 5, 4, 0, 1, 0},
		"by time":                              {func(c *config.Topic) { c.LocalRetentionMs = 2 * hour }, 5, 4, 0, 2, 0},
		"by what the total retention is":       {func(c *config.Topic) { c.RetentionBytes = 3 * size }, 5, 4, 0, 2, 0},
		"also where nothing is ever deleted":   {func(c *config.Topic) { c.RetentionBytes, c.CleanupDelete = 3*size, false }, 5, 4, 0, 2, 0},
		"FM-43 not above the tiered end":       {localBytes(0), 5, 2, 0, 2, 0},
		"FM-43 not while nothing is known":     {localBytes(0), 5, wire.NoOffset, 0, 0, 0},
		"BO-080 not above the high watermark":  {localBytes(0), 3, 4, 0, 3, 0},
		"not the active segment":               {localBytes(0), 5, 5, 0, 4, 0},
		"total retention moves nothing itself": {func(c *config.Topic) { c.RetentionBytes, c.LocalRetentionBytes = 0, -1 }, 5, 4, 0, 0, 0},
		"what the log start has passed goes":   {func(c *config.Topic) {}, 5, wire.NoOffset, 3, 3, 3},
		"a log start inside what goes":         {localBytes(0), 5, 4, 2, 4, 2},
		"compacted only: retention.* is not its": {func(c *config.Topic) {
			c.CleanupDelete, c.CleanupCompact, c.RetentionBytes = false, true, 0
		}, 5, 4, 0, 0, 0},
		"copies are off: by the total": {func(c *config.Topic) {
			c.RemoteLogCopyDisable, c.LocalRetentionBytes, c.RetentionBytes = true, 0, 3*size
		}, 5, 4, 0, 2, 0},
		"copies are off: still not what is not there": {func(c *config.Topic) {
			c.RemoteLogCopyDisable, c.RetentionBytes = true, 0
		}, 5, 1, 0, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			l := hourly(t, mem, 5, tieredConfig(c.edit))
			l.UpdateHighWatermark(c.hw)
			if err := l.AdvanceStart(c.logStart); err != nil {
				t.Fatal(err)
			}
			l.SetTiered(c.tiered)
			n, err := l.Retain(testTime)
			if err != nil || l.LocalStartOffset() != c.local || l.StartOffset() != c.start || n != int(c.local) {
				t.Fatalf("%d segments went, local start %d, log start %d, %v; want %d, %d", n, l.LocalStartOffset(), l.StartOffset(), err, c.local, c.start)
			}
			for at := range wire.Offset(5) {
				_, err := l.Read(ReadRequest{From: at, UpTo: 5, MaxBytes: 0})
				want := error(nil)
				switch {
				case at < c.start:
					want = ErrOffsetOutOfRange
				case at < c.local:
					want = ErrNotLocal
				}
				if !errors.Is(err, want) {
					t.Errorf("read at %d: %v, want %v", at, err, want)
				}
			}
			if got := l.Epochs(); len(got) != 1 || got[0].Start != c.start {
				t.Errorf("epochs %v", got)
			}
		})
	}
}

func TestSafety25InternalTopicsKeepTheirLiveDataHere(t *testing.T) {
	cfg := testConfig()
	tieredConfig(localBytes(0))(&cfg)
	o := options(vfs.NewMem(), cfg)
	o.TopicPartition.Topic = wire.ConsumerOffsetsTopic
	l := mustOpen(t, o)
	appendSegments(t, l, 3, 1)
	l.UpdateHighWatermark(3)
	l.SetTiered(3)
	if n, err := l.Retain(testTime); n != 0 || err != nil {
		t.Errorf("%d segments went, %v", n, err)
	}
	if err := l.AdvanceStart(2); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Retain(testTime); n != 2 || err != nil {
		t.Errorf("%d segments went that the log start has passed, %v", n, err)
	}
}

func TestAdvanceStartOfATieredLog(t *testing.T) {
	l := hourly(t, vfs.NewMem(), 5, tieredConfig(localBytes(0)))
	l.SetTiered(3)
	if _, err := l.Retain(testTime); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ to, start, local wire.Offset }{{1, 1, 3}, {0, 1, 3}, {3, 3, 3}, {4, 4, 4}} {
		if err := l.AdvanceStart(c.to); err != nil || l.StartOffset() != c.start || l.LocalStartOffset() != c.local {
			t.Errorf("to %d: %v, log start %d, local start %d", c.to, err, l.StartOffset(), l.LocalStartOffset())
		}
	}
	if err := l.AdvanceStart(6); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("above the high watermark: %v", err)
	}
}

func TestLookupsSeeWhatIsLocal(t *testing.T) { // BO-091
	l := hourly(t, vfs.NewMem(), 5, tieredConfig(localBytes(0)))
	first, err := l.OffsetForTimestamp(0, 5)
	if err != nil || first.Offset != 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	l.SetTiered(3)
	if _, err := l.Retain(testTime); err != nil {
		t.Fatal(err)
	}
	if got, err := l.OffsetForTimestamp(0, 5); err != nil || got.Offset != l.LocalStartOffset() {
		t.Errorf("the first record here: %+v, %v", got, err)
	}
	if got, err := l.OffsetOfMaxTimestamp(5); err != nil || got.Offset != 4 {
		t.Errorf("the latest record here: %+v, %v", got, err)
	}
	if got, end := l.EndOffsetForEpoch(1); got != 1 || end != 5 {
		t.Errorf("epoch 1 ends at %d (%d)", end, got)
	}
}

func TestATieredLogThatIsCut(t *testing.T) {
	for name, c := range map[string]struct {
		to, start, local, end wire.Offset
		tiered                wire.Offset
	}{
		"at the tiered end":       {4, 0, 2, 4, 4},
		"below it":                {3, 0, 2, 3, wire.NoOffset},
		"at the local start":      {2, 0, 2, 2, wire.NoOffset},
		"below the local start":   {1, 0, 1, 1, wire.NoOffset},
		"at the start of the log": {0, 0, 0, 0, wire.NoOffset},
	} {
		t.Run(name, func(t *testing.T) {
			l := hourly(t, vfs.NewMem(), 5, tieredConfig(func(c *config.Topic) { c.LocalRetentionMs = 2 * time.Hour.Milliseconds() }))
			l.SetTiered(4)
			if _, err := l.Retain(testTime); err != nil || l.LocalStartOffset() != 2 {
				t.Fatal(l.LocalStartOffset(), err)
			}
			if cut, err := l.TruncateTo(testTime, c.to); !cut || err != nil {
				t.Fatal(cut, err)
			}
			if l.StartOffset() != c.start || l.LocalStartOffset() != c.local || l.EndOffset() != c.end || l.TieredEndOffset() != c.tiered {
				t.Errorf("log start %d, local start %d, end %d, tiered end %d", l.StartOffset(), l.LocalStartOffset(), l.EndOffset(), l.TieredEndOffset())
			}
			if got := l.Epochs(); c.to > 0 && (len(got) != 1 || got[0].Start != 0) || c.to == 0 && len(got) != 0 {
				t.Errorf("epochs %v", got)
			}
		})
	}
}

func powerLoss(mem *vfs.Mem) *vfs.Mem { return mem.CrashClone(rand.New(rand.NewPCG(1, 0))) }

// startOf is what a manager finds of a log after a crash.
func startOf(t *testing.T, fsys vfs.FS, o ManagerOptions, tp wire.TopicPartition) *Log {
	t.Helper()
	o.FS = fsys
	l, ok := mustManage(t, o).Get(tp)
	if !ok {
		t.Fatal("the log is gone")
	}
	return l
}

func TestTheLogStartOutlivesTheSegments(t *testing.T) {
	cfg := testConfig()
	tieredConfig(localBytes(0))(&cfg)
	for name, c := range map[string]struct {
		checkpoint bool        // before retention
		logStart   wire.Offset // moved before retention
		alone      bool        // retention of this log alone
		want       wire.Offset
	}{
		"though no checkpoint was written":        {false, 0, false, 0},
		"with a checkpoint":                       {true, 0, false, 0},
		"moved, and no checkpoint since":          {true, 1, false, 1},
		"moved over what goes":                    {true, 3, false, 3},
		"moved over what goes, and no checkpoint": {false, 3, false, 3},
		"alone, though no checkpoint was written": {false, 0, true, 0},
		"alone, moved over what goes":             {true, 3, true, 3},
	} {
		for crash, clone := range map[string]func(*vfs.Mem) *vfs.Mem{
			"process crash": (*vfs.Mem).ProcessCrashClone,
			"power loss":    powerLoss,
		} {
			t.Run(name+", "+crash, func(t *testing.T) {
				mem := vfs.NewMem()
				o := managerOptions(mem, "/d1")
				o.DefaultConfig = func(string) config.Topic { return cfg }
				m := mustManage(t, o)
				l := createWith(t, m, partition(1), cfg)
				appendSegments(t, l, 5, 1)
				l.UpdateHighWatermark(5)
				if c.checkpoint {
					if err := m.Checkpoint(); err != nil {
						t.Fatal(err)
					}
				}
				if err := l.AdvanceStart(c.logStart); err != nil {
					t.Fatal(err)
				}
				l.SetTiered(4)
				if c.alone {
					if _, err := l.Retain(testTime); err != nil {
						t.Fatal(err)
					}
				} else {
					m.Retain(testTime)
				}
				if l.LocalStartOffset() != 4 || l.StartOffset() != c.want {
					t.Fatalf("local start %d, log start %d", l.LocalStartOffset(), l.StartOffset())
				}
				again := startOf(t, clone(mem), o, partition(1))
				if again.StartOffset() != c.want || again.LocalStartOffset() != 4 || again.EndOffset() != 5 {
					t.Errorf("log start %d, local start %d, end %d", again.StartOffset(), again.LocalStartOffset(), again.EndOffset())
				}
				if again.HighWatermark() < again.LocalStartOffset() || again.TieredEndOffset() != wire.NoOffset {
					t.Errorf("high watermark %d, tiered end %d", again.HighWatermark(), again.TieredEndOffset())
				}
				if got := again.Epochs(); len(got) != 1 || got[0].Start != c.want {
					t.Errorf("epochs %v", got)
				}
			})
		}
	}
}

func TestLogStartsAreSavedOnceForAllLogs(t *testing.T) {
	cfg := testConfig()
	tieredConfig(localBytes(0))(&cfg)
	fault := vfs.NewFault(vfs.NewMem())
	m := mustManage(t, managerOptions(fault, "/d1"))
	for i := range 20 {
		l := createWith(t, m, partition(i), cfg)
		appendSegments(t, l, 3, 1)
		l.UpdateHighWatermark(3)
		if err := l.AdvanceStart(1); err != nil {
			t.Fatal(err)
		}
	}
	written := 0
	fault.SetRules(vfs.Rule{Op: vfs.OpCreate, Path: logStartFile + "*", Hook: func(vfs.Call) { written++ }})
	if n := m.Retain(testTime); n != 20 || written != 1 {
		t.Errorf("%d segments went, the log starts were written %d times", n, written)
	}
}

func TestALogThatIsNotTieredStartsAtItsFirstSegment(t *testing.T) {
	mem := vfs.NewMem()
	o := managerOptions(mem, "/d1")
	m := mustManage(t, o)
	l := create(t, m, partition(1))
	appendSegments(t, l, 4, 2)
	l.UpdateHighWatermark(8)
	if err := l.AdvanceStart(1); err != nil {
		t.Fatal(err)
	}
	if err := m.Checkpoint(); err != nil { // says 1
		t.Fatal(err)
	}
	if err := l.AdvanceStart(4); err != nil {
		t.Fatal(err)
	}
	m.Retain(testTime)
	if again := startOf(t, mem.ProcessCrashClone(), o, partition(1)); again.StartOffset() != 4 || again.LocalStartOffset() != 4 {
		t.Errorf("log start %d, local start %d", again.StartOffset(), again.LocalStartOffset())
	}
}

func TestATopicThatBecomesTiered(t *testing.T) {
	mem := vfs.NewMem()
	o := managerOptions(mem, "/d1")
	m := mustManage(t, o)
	l := create(t, m, partition(1))
	appendSegments(t, l, 3, 1)
	l.UpdateHighWatermark(3)
	if err := m.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	cfg := l.Config()
	tieredConfig(localBytes(0))(&cfg)
	l.UpdateConfig(cfg)
	o.DefaultConfig = func(string) config.Topic { return cfg }
	l.SetTiered(2)
	m.Retain(testTime)
	again := startOf(t, mem.ProcessCrashClone(), o, partition(1))
	if again.StartOffset() != 0 || again.LocalStartOffset() != 2 {
		t.Fatalf("log start %d, local start %d", again.StartOffset(), again.LocalStartOffset())
	}
	// And switched off again: what is here is all there is.
	if err := again.AdvanceStart(again.LocalStartOffset()); err != nil || again.StartOffset() != 2 {
		t.Errorf("log start %d, %v", again.StartOffset(), err)
	}
}

func TestStartFromTier(t *testing.T) {
	cfg := testConfig()
	tieredConfig()(&cfg)
	donor := mustOpen(t, options(vfs.NewMem(), cfg))
	for i := range int32(3) {
		appendBatch(t, donor, batch(1, 1, 10, from(7, 2, i)))
	}
	snapshot := donor.producers.encode()
	epochs := []EpochEntry{{1, 0}, {3, 50}, {4, 90}, {6, 100}}
	for crash, reopen := range map[string]func(*vfs.Mem) *vfs.Mem{
		"process crash": (*vfs.Mem).ProcessCrashClone,
		"power loss":    powerLoss,
	} {
		for name, fill := range map[string]bool{"a log that was there": true, "a new log": false} {
			t.Run(name+", "+crash, func(t *testing.T) {
				mem := vfs.NewMem()
				o := managerOptions(mem, "/d1")
				o.DefaultConfig = func(string) config.Topic { return cfg }
				m := mustManage(t, o)
				l := createWith(t, m, partition(1), cfg)
				if fill {
					appendBatch(t, l, batch(1, 1, 10, from(8, 0, 0)))
					if err := l.Roll(testTime); err != nil {
						t.Fatal(err)
					}
					appendBatch(t, l, batch(1, 1, 10))
					if err := l.Flush(); err != nil {
						t.Fatal(err)
					}
					l.SetTiered(1)
				}
				if err := l.StartFromTier(testTime, 100, 20, epochs, snapshot); err != nil {
					t.Fatal(err)
				}
				check := func(l *Log) {
					t.Helper()
					if l.StartOffset() != 20 || l.LocalStartOffset() != 100 || l.EndOffset() != 100 || l.HighWatermark() != 100 || l.TieredEndOffset() != wire.NoOffset {
						t.Fatalf("log start %d, local start %d, end %d, high watermark %d, tiered end %d",
							l.StartOffset(), l.LocalStartOffset(), l.EndOffset(), l.HighWatermark(), l.TieredEndOffset())
					}
					if want := []EpochEntry{{1, 20}, {3, 50}, {4, 90}}; !slices.Equal(l.Epochs(), want) {
						t.Errorf("epochs %v, want %v", l.Epochs(), want)
					}
					if p := l.Producers(); len(p) != 1 || p[0].ID != 7 || p[0].LastSequence != 2 {
						t.Errorf("producers %+v", p)
					}
					if _, err := l.Read(ReadRequest{From: 20, UpTo: 100, MaxBytes: 10}); !errors.Is(err, ErrNotLocal) {
						t.Errorf("read below the local start: %v", err)
					}
				}
				check(l)
				check(startOf(t, reopen(mem), o, partition(1)))
				l.AssignEpochStart(7)
				b := batch(1, 1, 10, from(7, 2, 3))
				if info, err := l.AppendAsLeader(testTime, b, 7, Client); err != nil || info.First != 100 {
					t.Fatalf("%+v, %v", info, err)
				}
				if epoch, end := l.EndOffsetForEpoch(3); epoch != 3 || end != 90 {
					t.Errorf("epoch 3 ends at %d (%d)", end, epoch)
				}
				if err := m.Close(testTime, 1); err != nil {
					t.Fatal(err)
				}
				again := startOf(t, mem.ProcessCrashClone(), o, partition(1))
				if again.StartOffset() != 20 || again.LocalStartOffset() != 100 || again.EndOffset() != 101 || again.LatestEpoch() != 7 {
					t.Errorf("log start %d, local start %d, end %d, epochs %v", again.StartOffset(), again.LocalStartOffset(), again.EndOffset(), again.Epochs())
				}
			})
		}
	}
}

func TestStartFromTierRefusesWhatCannotBe(t *testing.T) {
	l := hourly(t, vfs.NewMem(), 2, tieredConfig())
	for name, err := range map[string]error{
		"an end below the start":  l.StartFromTier(testTime, 5, 6, nil, nil),
		"a log start below 0":     l.StartFromTier(testTime, 5, -1, nil, nil),
		"a damaged snapshot":      l.StartFromTier(testTime, 5, 0, nil, []byte("x")),
		"epochs out of order":     l.StartFromTier(testTime, 5, 0, []EpochEntry{{2, 0}, {1, 3}}, nil),
		"epochs that go backward": l.StartFromTier(testTime, 5, 0, []EpochEntry{{1, 3}, {2, 0}}, nil),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if l.EndOffset() != 2 || l.LocalStartOffset() != 0 {
		t.Errorf("log is [%d, %d)", l.LocalStartOffset(), l.EndOffset())
	}
}

func TestStartFromTierOfALogThatWasDeleted(t *testing.T) {
	mem := vfs.NewMem()
	m := mustManage(t, managerOptions(mem, "/d1"))
	l := create(t, m, partition(1))
	if err := m.Delete(testTime, partition(1)); err != nil {
		t.Fatal(err)
	}
	if err := l.StartFromTier(testTime, 5, 0, nil, nil); !errors.Is(err, ErrStorage) {
		t.Errorf("%v", err)
	}
	if _, err := mem.Stat(l.Dir()); err == nil {
		t.Error("its directory is back")
	}
}

// A crash in the midst of StartFromTier never leaves a log that looks as if it had been done.
func TestStartFromTierThatCrashes(t *testing.T) {
	cfg := testConfig()
	tieredConfig()(&cfg)
	for failAt := 1; ; failAt++ {
		mem := vfs.NewMem()
		l := hourly(t, mem, 3, tieredConfig())
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		l.producers = producerState{}
		fault := vfs.NewFault(mem)
		l.env.fs = fault
		fault.SetRules(vfs.Rule{Skip: failAt - 1, Err: errors.New("disk broke")})
		err := l.StartFromTier(testTime, 100, 20, []EpochEntry{{1, 0}, {3, 50}}, (&producerState{}).encode())
		o := crashed(mem.ProcessCrashClone(), cfg, StopProcessCrash, 0)
		o.LogStart = 20
		again := mustOpen(t, o)
		if again.EndOffset() > 100 || again.EndOffset() == 100 && len(again.Epochs()) != 2 {
			t.Fatalf("call %d failed: log ends at %d, epochs %v", failAt, again.EndOffset(), again.Epochs())
		}
		if err == nil {
			if again.EndOffset() != 100 {
				t.Fatalf("log ends at %d", again.EndOffset())
			}
			return
		}
		if failAt > math.MaxInt8 {
			t.Fatal("it never succeeds")
		}
	}
}
