package broker

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/engine"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
)

// driven is an engine in memory over store under a loop, inside a bubble of synctest.
func driven(t *testing.T, store object.Store, watch sleepWatch) (_ *loop, stop func()) {
	t.Helper()
	settings, _, err := config.Parse([]config.Source{{Format: config.Flags, Name: "test", Pairs: []string{
		"node.id=1", "listeners=PLAINTEXT://127.0.0.1:9092", "log.dirs=/d1", "store.url=mem://", "offsets.topic.replication.factor=1",
	}}})
	if err != nil {
		t.Fatal(err)
	}
	l := newLoop()
	l.watch = watch
	l.engine, err = engine.Open(t.Context(), time.Now(), engine.Options{
		Config: settings, FS: vfs.NewMem(), Store: store, Incarnation: "run1", BootID: "boot",
		Advertised: []metadata.Listener{{Name: "PLAINTEXT", Host: "127.0.0.1", Port: 9092, Protocol: "PLAINTEXT"}},
		Rand:       rand.New(rand.NewPCG(1, 2)), Logger: slog.New(slog.DiscardHandler), Wake: l.Wake,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.run(ctx)
	}()
	return l, func() {
		cancel()
		<-done
	}
}

func TestTheLoopDrivesAnEngineUntilItServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := driven(t, memstore.New(time.Now), newSleepWatch(func() time.Duration { return 0 }))
		began := time.Now()
		<-l.engine.Served()
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
		l.engine.Stop()
		<-l.engine.Stopped()
		stop()
	})
}

// A loop that is cut short waits for the tasks that are out, and acts on none of them.
func TestTheLoopEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := faultstore.New(memstore.New(time.Now), func(faultstore.Call) faultstore.Fault {
			time.Sleep(time.Second)
			return faultstore.None
		})
		l, stop := driven(t, slow, newSleepWatch(func() time.Duration { return 0 }))
		began := time.Now()
		synctest.Wait() // the first request is out
		stop()
		if took := time.Since(began); took != time.Second {
			t.Errorf("it ended after %v, not with the request that was out", took)
		}
		if l.engine.Serving() {
			t.Error("it serves though it was cut short before the first answer of the store")
		}
	})
}

// Safety rule 12: a leader whose machine slept can't trust the time that it counts, and takes its lease anew.
func TestSafety12ALeaderThatSleptGivesUpItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asleep atomic.Int64
		l, stop := driven(t, memstore.New(time.Now), newSleepWatch(func() time.Duration { return time.Duration(asleep.Load()) }))
		defer stop()
		<-l.engine.Served()
		epoch := func() int32 { return int32(l.engine.Image().Controller().Epoch) }

		asleep.Add(int64(sleepMax / 2)) // a jitter of the clocks
		time.Sleep(10 * time.Second)
		if epoch() != 1 {
			t.Fatalf("epoch %d without a sleep", epoch())
		}
		asleep.Add(int64(time.Hour))
		time.Sleep(10 * time.Second)
		if epoch() != 2 {
			t.Errorf("epoch %d after a sleep", epoch())
		}
		time.Sleep(time.Minute)
		if epoch() != 2 || !l.engine.Serving() {
			t.Errorf("epoch %d, serving: %t", epoch(), l.engine.Serving())
		}
	})
}

// The clocks of this machine tell a plausible time asleep, and the same twice.
func TestTimeAsleep(t *testing.T) {
	first, second := timeAsleep(), timeAsleep()
	if drift := (second - first).Abs(); first < -sleepMax || drift > sleepMax/2 {
		t.Errorf("asleep for %v, then for %v", first, second)
	}
}

// num.recovery.threads.per.data.dir counts as it is at the moment: at a start and at a stop.
func TestLogsAreOpenedAndClosedByTheThreadsOfTheMoment(t *testing.T) {
	settings, _, err := config.Parse([]config.Source{{Format: config.Flags, Name: "test", Pairs: []string{
		"node.id=1", "log.dirs=/d1,/d2", "store.url=mem://", "num.recovery.threads.per.data.dir=1",
	}}})
	if err != nil {
		t.Fatal(err)
	}
	altered, err := settings.WithDynamic(map[string]string{"num.recovery.threads.per.data.dir": "3"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &Broker{}
	for _, step := range []struct {
		settings *config.Broker
		took     time.Duration
	}{{settings, 6 * time.Second}, {altered, 2 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			b.settings.Store(step.settings)
			began := time.Now()
			b.parallel(12, func(int) { time.Sleep(time.Second) })
			if took := time.Since(began); took != step.took {
				t.Errorf("12 logs of a second each took %v, not %v", took, step.took)
			}
		})
	}
}
