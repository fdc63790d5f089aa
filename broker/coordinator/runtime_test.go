package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func TestRepliesWaitForTheHighWatermark(t *testing.T) {
	f := newFixture(t)
	f.load(0, 1)
	f.hold()
	first, second := f.put(0, "a", "1"), f.put(0, "b", "2")
	check(t, "state after the append", f.values(0), "a=1 b=2")
	check(t, "first", first.String(), "waits")
	f.r.HighWatermark(0, 1)
	check(t, "first at 1", first.String(), "<nil>")
	check(t, "second at 1", second.String(), "waits")
	f.r.HighWatermark(0, 2)
	check(t, "second at 2", second.String(), "<nil>")
	f.r.HighWatermark(0, 1) // overtaken on its way here
	read := new(outcomes)
	if err := f.r.Handle(f.now, 0, func(*register) Result { return Result{Barrier: true, Replies: []func(error){read.add}} }); err != nil {
		t.Fatal(err)
	}
	check(t, "read", read.String(), "<nil>")
}

func TestBarrierWaitsForWhatTheShardHasSeen(t *testing.T) {
	f := newFixture(t)
	f.load(0, 1)
	ask := func(barrier bool) *outcomes {
		o := new(outcomes)
		if err := f.r.Handle(f.now, 0, func(*register) Result { return Result{Barrier: barrier, Replies: []func(error){o.add}} }); err != nil {
			t.Fatal(err)
		}
		return o
	}
	check(t, "barrier over nothing", ask(true).String(), "<nil>")
	f.hold()
	f.put(0, "a", "1")
	plain, barrier := ask(false), ask(true)
	check(t, "plain", plain.String(), "<nil>")
	check(t, "barrier", barrier.String(), "waits")
	f.r.HighWatermark(0, 1)
	check(t, "barrier when committed", barrier.String(), "<nil>")
}

func TestRepliesGiveUpAfterTheCommitTimeout(t *testing.T) {
	f := newFixture(t)
	f.load(0, 1)
	f.hold()
	o := f.put(0, "a", "1")
	check(t, "next wake", f.r.NextWake(), start.Add(commitTimeout))
	f.r.Advance(start.Add(commitTimeout - 1))
	check(t, "just before", o.String(), "waits")
	f.r.Advance(start.Add(commitTimeout))
	check(t, "at the deadline", o.String(), "COORDINATOR_NOT_AVAILABLE")
	f.r.HighWatermark(0, 1)
	check(t, "replies", len(*o), 1)
	check(t, "state", f.values(0), "a=1")
	check(t, "next wake", f.r.NextWake(), time.Time{})
}

func TestFailedAppendChangesNothing(t *testing.T) {
	for _, row := range []struct {
		err  error
		want wire.Code
	}{
		{wire.NotLeaderOrFollower, wire.NotCoordinator},
		{wire.FencedLeaderEpoch, wire.NotCoordinator},
		{fmt.Errorf("append: %w", wire.KafkaStorageError), wire.NotCoordinator},
		{wire.NotEnoughReplicas, wire.CoordinatorNotAvailable},
		{wire.NotEnoughReplicasAfterAppend, wire.CoordinatorNotAvailable},
		{wire.UnknownTopicOrPartition, wire.CoordinatorNotAvailable},
		{wire.RequestTimedOut, wire.CoordinatorNotAvailable},
		{wire.MessageTooLarge, wire.UnknownServerError},
		{wire.RecordListTooLarge, wire.UnknownServerError},
		{wire.InvalidFetchSize, wire.UnknownServerError},
		{errors.New("something else"), wire.UnknownServerError},
		{wire.PolicyViolation, wire.PolicyViolation},
	} {
		f := newFixture(t)
		f.load(0, 1)
		f.put(0, "a", "1")
		f.log.err = row.err
		o, after := new(outcomes), new(outcomes)
		err := f.r.Handle(f.now, 0, func(*register) Result {
			return Result{
				Records:  []Record{{Key: []byte("a"), Value: []byte("2")}},
				Replies:  []func(error){o.add},
				Rejected: func() Result { return Result{Replies: []func(error){after.add}} },
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		check(t, row.err.Error(), (*o)[0], error(row.want))
		check(t, "reply of Rejected", after.String(), "<nil>")
		check(t, "state", f.values(0), "a=1")
	}
}

func TestNobodyIsAnsweredByTheWrongCoordinator(t *testing.T) {
	f := newFixture(t)
	check(t, "not led", f.put(0, "a", "1").String(), "NOT_COORDINATOR")
	load := f.r.StartLoad(0, 1)
	check(t, "loading", f.put(0, "a", "1").String(), "COORDINATOR_LOAD_IN_PROGRESS")
	check(t, "loading, View", f.r.View(0, func(*register) {}), error(wire.CoordinatorLoadInProgress))
	f.r.FinishLoad(f.now, load, 0, errors.New("disk gone"))
	check(t, "failed", f.put(0, "a", "1").String(), "NOT_COORDINATOR")
	f.load(0, 1) // the engine tries again under the same epoch
	check(t, "loaded", f.put(0, "a", "1").String(), "<nil>")
	f.r.Unload(0, 1)
	check(t, "unloaded as of its own epoch", f.put(0, "a", "1").String(), "<nil>")
	f.r.Unload(0, 2)
	check(t, "unloaded", f.put(0, "a", "1").String(), "NOT_COORDINATOR")
	check(t, "partitions", len(f.r.Partitions()), 0)

	f.r.SetPartitionCount(0)
	_, err := f.r.PartitionFor("g")
	check(t, "no internal topic yet (BO-051)", err, error(wire.CoordinatorNotAvailable))
}

func TestUnloadAnswersWhoeverWaits(t *testing.T) {
	f := newFixture(t)
	f.load(0, 1)
	f.hold()
	waits, parked := f.put(0, "a", "1"), new(outcomes)
	f.shards[0].owed = []func(error){parked.add}
	f.shards[0].timer = start
	f.r.Unload(0, 2)
	check(t, "waiting for the high watermark", waits.String(), "NOT_COORDINATOR")
	check(t, "parked in the shard", parked.String(), "NOT_COORDINATOR")
	f.r.HighWatermark(0, 1)
	f.r.Advance(start.Add(time.Hour))
	check(t, "replies", len(*waits)+len(*parked), 2)
	check(t, "timers of an unloaded shard", f.shards[0].advance, 0)
}

func TestLeaderEpochs(t *testing.T) {
	f := newFixture(t)
	f.load(0, 4)
	f.put(0, "a", "1")
	if f.r.StartLoad(0, 4) != nil || f.r.StartLoad(0, 3) != nil {
		t.Error("loads again for an epoch that it has")
	}
	if f.r.StartLoad(0, 5) != nil {
		t.Error("loads again although nobody else can have led")
	}
	f.put(0, "a", "2")
	check(t, "epochs of the appends", fmt.Sprint(f.log.epochs), "[4 5]")
	waits := new(outcomes)
	f.shards[0].owed = []func(error){waits.add}
	f.load(0, 7) // somebody led under 6
	check(t, "waiting when the leader changed and came back", waits.String(), "NOT_COORDINATOR")
	check(t, "state", f.values(0), "a=2")
}

func TestOvertakenLoadHasNoEffect(t *testing.T) {
	f := newFixture(t)
	old := f.r.StartLoad(0, 1)
	current := f.r.StartLoad(0, 3)
	f.r.FinishLoad(f.now, old, 0, nil)
	check(t, "after the old one", f.put(0, "a", "1").String(), "COORDINATOR_LOAD_IN_PROGRESS")
	f.r.FinishLoad(f.now, current, 0, nil)
	check(t, "after the current one", f.put(0, "a", "1").String(), "<nil>")
	f.r.FinishLoad(f.now, current, 0, errors.New("late"))
	check(t, "finished twice", f.put(0, "a", "1").String(), "<nil>")
	f.r.Unload(0, 4)
	f.r.FinishLoad(f.now, current, 0, nil)
	check(t, "finished after unload", f.put(0, "a", "1").String(), "NOT_COORDINATOR")
}

func TestLoadedStateIsNotAnsweredBeforeItIsCommitted(t *testing.T) {
	f := newFixture(t)
	f.load(0, 1)
	f.hold()
	f.put(0, "a", "1")
	f.r.Unload(0, 2)
	load := f.r.StartLoad(0, 3)
	if err := load.Replay(context.Background(), f.log.read(0)); err != nil {
		t.Fatal(err)
	}
	f.r.FinishLoad(f.now, load, 0, nil) // the high watermark is still behind
	o := new(outcomes)
	if err := f.r.Handle(f.now, 0, func(*register) Result { return Result{Barrier: true, Replies: []func(error){o.add}} }); err != nil {
		t.Fatal(err)
	}
	check(t, "read", o.String(), "waits")
	f.r.HighWatermark(0, 1)
	check(t, "read when committed", o.String(), "<nil>")
	check(t, "loaded at", f.shards[0].loaded, start)
}

func TestLoadLeavesOutWhatItCannotRead(t *testing.T) {
	f := newFixture(t)
	var batch record.Builder
	batch.Append(0, []byte("a"), []byte("1"))
	batch.Append(0, []byte("bad"), []byte("x"))
	batch.Append(0, []byte("b"), []byte("2"))
	plain, err := batch.Build()
	if err != nil {
		t.Fatal(err)
	}
	open := record.Builder{Transactional: true, Producer: &record.Producer{ID: 7}}
	open.Append(0, []byte("a"), []byte("uncommitted"))
	transactional, err := open.Build()
	if err != nil {
		t.Fatal(err)
	}
	marker := record.NewEndTxnMarker(7, 0, 0, record.EndTxnMarker{Type: record.Abort})
	for _, b := range []record.Batch{plain, transactional, marker} {
		if _, err := f.log.Append(start, 0, 0, b); err != nil {
			t.Fatal(err)
		}
	}
	f.load(0, 1)
	check(t, "state", f.values(0), "a=1 b=2")
}

func TestLoadFailsOnADamagedLog(t *testing.T) {
	f := newFixture(t)
	load := f.r.StartLoad(2, 1)
	check(t, "partition", load.Partition(), 2)
	broken := errors.New("read error")
	err := load.Replay(context.Background(), func(yield func(record.Batch, error) bool) { yield(nil, broken) })
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	f.put(2, "a", "1")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := f.log.Append(start, 2, 0, must(t, "a")); err != nil {
		t.Fatal(err)
	}
	if err := load.Replay(ctx, f.log.read(2)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v from a cancelled load", err)
	}
	last := f.log.batches[2][0]
	last[len(last)-1] ^= 1
	if err := load.Replay(context.Background(), f.log.read(2)); !errors.Is(err, record.ErrCorrupt) {
		t.Errorf("got %v for a flipped bit", err)
	}
}

func must(t *testing.T, key string) record.Batch {
	t.Helper()
	var b record.Builder
	b.Append(0, []byte(key), nil)
	batch, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

// A reply may use the runtime again, even while another Append of the same partition has just moved the high watermark.
func TestRepliesRunWithoutLocks(t *testing.T) {
	f := newFixture(t)
	f.load(0, 1)
	f.hold()
	var order []string
	again := func(name string) []func(error) {
		return []func(error){func(error) {
			order = append(order, name)
			f.put(0, name, "again")
			f.r.Advance(f.now)
		}}
	}
	add := func(name string) {
		err := f.r.Handle(f.now, 0, func(*register) Result {
			return Result{Records: []Record{{Key: []byte(name), Value: []byte("1")}}, Replies: again(name)}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	add("first")
	f.log.onEnd = f.r.HighWatermark
	add("second")
	check(t, "order", strings.Join(order, " "), "first second")
	check(t, "state", f.values(0), "first=again second=again")
}

func TestTimers(t *testing.T) {
	f := newFixture(t)
	f.load(0, 1)
	f.load(1, 1)
	check(t, "idle", f.r.NextWake(), time.Time{})
	arm := func(partition int32, at time.Time) {
		err := f.r.Handle(f.now, partition, func(r *register) Result {
			r.timer, r.due = at, Result{Records: []Record{{Key: []byte("timer"), Value: []byte("ran")}}}
			return Result{}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	arm(0, start.Add(20))
	arm(1, start.Add(10))
	check(t, "next wake", f.r.NextWake(), start.Add(10))
	arm(0, start.Add(30)) // later: nobody needs to know
	arm(0, start.Add(15)) // sooner than the partition's last, but not than what the shell waits for: may be told, or not
	check(t, "told", fmt.Sprint(f.wakes[:2]), fmt.Sprint([]time.Time{start.Add(20), start.Add(10)}))
	f.r.Advance(start.Add(10))
	check(t, "partition 0 early", f.values(0), "")
	check(t, "partition 1", f.values(1), "timer=ran")
	check(t, "next wake", f.r.NextWake(), start.Add(15))
	told := len(f.wakes)
	arm(1, start.Add(12))
	check(t, "told again", len(f.wakes), told+1)
}

func TestDivisibleResultsBecomeSeveralBatches(t *testing.T) {
	f := newFixture(t)
	f.load(0, 1)
	var records []Record
	for i := range 10 {
		records = append(records, Record{Key: fmt.Append(nil, i), Value: make([]byte, divisibleBytes/4)})
	}
	run := func(divisible bool) *outcomes {
		o := new(outcomes)
		if err := f.r.Handle(f.now, 0, func(*register) Result {
			return Result{Records: records, Divisible: divisible, Replies: []func(error){o.add}}
		}); err != nil {
			t.Fatal(err)
		}
		return o
	}
	check(t, "reply", run(false).String(), "<nil>")
	check(t, "batches of one piece", len(f.log.batches[0]), 1)
	check(t, "reply", run(true).String(), "<nil>")
	check(t, "batches of a divisible one", len(f.log.batches[0]), 1+4)
	check(t, "records", f.log.ends[0], 20)
}

func TestPartitionForIsJavas(t *testing.T) {
	for _, row := range []struct {
		key  string
		hash int32
		n    int32
		want int32
	}{
		{"", 0, 50, 0},
		{"a", 97, 50, 47},
		{"polygenelubricants", -2147483648, 50, 0}, // has no absolute value
		{"my-group", -1906497762, 50, 12},
		{"gruppe-ä", 673522898, 50, 48},
		{"😀", 1772899, 50, 49},
	} {
		check(t, row.key+" hash", StringHash(row.key), row.hash)
		check(t, row.key, PartitionFor(row.key, row.n), row.want)
	}
}

// Whatever is asked, and whenever the leader changes: what was answered is there afterwards, nothing else than what was
// written is, and every reply runs once.
func TestReloadFindsWhatWasAnswered(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := newFixture(t)
		f.load(0, 1)
		epoch := wire.LeaderEpoch(1)
		model := make(map[string]string)
		var pending []*outcomes
		steps := rapid.IntRange(1, 40).Draw(rt, "steps")
		for i := range steps {
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0:
				f.log.err = wire.NotEnoughReplicas
			case 1:
				f.log.err = nil
			case 2:
				f.hold()
			case 3:
				f.log.onEnd = f.r.HighWatermark
				f.r.HighWatermark(0, f.log.ends[0])
			case 4:
				epoch += 2
				f.r.Unload(0, epoch-1)
				f.load(0, epoch)
			default:
				key, value := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key"), fmt.Sprint(i)
				o := f.put(0, key, value)
				if f.log.err == nil {
					model[key] = value
				}
				pending = append(pending, o)
			}
		}
		f.r.Unload(0, epoch+1)
		for _, o := range pending {
			if len(*o) != 1 {
				rt.Fatalf("reply ran %d times", len(*o))
			}
		}
		f.load(0, epoch+2)
		var want []string
		for _, k := range slices.Sorted(maps.Keys(model)) {
			want = append(want, k+"="+model[k])
		}
		if got := f.values(0); got != strings.Join(want, " ") {
			rt.Fatalf("got %s, want %s", got, want)
		}
	})
}

// Requests, high watermarks, timers and changes of the leader from all sides at once: each reply runs once.
func TestManyGoroutines(t *testing.T) {
	f := newFixture(t)
	f.hold()
	f.load(0, 1)
	var asked, answered, refused atomic.Int64
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 300 {
				asked.Add(1)
				err := f.r.Handle(start, 0, func(r *register) Result {
					result := Result{Replies: []func(error){func(error) { answered.Add(1) }}, Barrier: i%3 == 0}
					if i%2 == 0 {
						result.Records = []Record{{Key: []byte("k"), Value: []byte("v")}}
					}
					return result
				})
				if err != nil {
					refused.Add(1)
				}
				switch worker {
				case 0:
					f.r.HighWatermark(0, wire.Offset(i))
				case 1:
					f.r.Advance(start.Add(time.Duration(i) * time.Second))
					f.r.NextWake()
				case 2:
					if i%50 == 49 {
						epoch := wire.LeaderEpoch(2 * i)
						f.r.Unload(0, epoch)
						if load := f.r.StartLoad(0, epoch); load != nil {
							f.r.FinishLoad(start, load, 0, nil)
						}
					}
				}
			}
		})
	}
	wg.Wait()
	f.r.Unload(0, 1000)
	check(t, "answers", answered.Load()+refused.Load(), asked.Load())
}

// A batch that the log would refuse for its size is refused before it is there.
func TestTooLargeBatchesAreNotMade(t *testing.T) {
	f := newFixture(t)
	f.load(0, 1)
	f.log.limit = 2 << 20
	state := f.put(0, "a", "1")
	check(t, "reply", state.String(), "<nil>")
	for records, want := range map[int]string{7: "<nil>", 9: wire.UnknownServerError.Error()} {
		o := new(outcomes)
		if err := f.r.Handle(f.now, 0, func(*register) Result {
			value := make([]byte, f.log.limit/8)
			return Result{Records: slices.Repeat([]Record{{Key: []byte("k"), Value: value}}, records), Replies: []func(error){o.add}}
		}); err != nil {
			t.Fatal(err)
		}
		check(t, "reply", o.String(), want)
	}
	check(t, "batches", len(f.log.batches[0]), 2)
}

// The memory of a large batch is not kept for the next one, whether the log took it or not.
func TestLargeBatchesLeaveNoMemory(t *testing.T) {
	f := newFixture(t)
	f.load(0, 1)
	p, _ := f.r.find(0)
	for _, err := range []error{nil, wire.NotEnoughReplicas} {
		f.log.err = err
		f.put(0, "large", strings.Repeat("x", 2*keptBytes))
		check(t, "bytes kept", p.builder.Size(), new(record.Builder).Size())
	}
	f.log.err = nil
	f.put(0, "small", "1")
	check(t, "a small batch is kept", p.builder.Count(), 1)
}
