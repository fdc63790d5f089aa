package coordinator

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

const commitTimeout = 5 * time.Second

var start = time.Unix(1_700_000_000, 0)

// register is a shard that keeps the last value of each key.
type register struct {
	values  map[string]string
	timer   time.Time
	due     Result
	owed    []func(error)
	loaded  time.Time
	advance int
}

func (r *register) Replay(rec Record) error {
	switch {
	case string(rec.Key) == "bad":
		return errors.New("bad key")
	case rec.Value == nil:
		delete(r.values, string(rec.Key))
	default:
		r.values[string(rec.Key)] = string(rec.Value)
	}
	return nil
}

func (r *register) Loaded(now time.Time) { r.loaded = now }

func (r *register) Advance(now time.Time) (Result, bool) {
	if r.timer.IsZero() || r.timer.After(now) {
		return Result{}, false
	}
	r.timer = time.Time{}
	r.advance++
	return r.due, true
}

func (r *register) NextWake() time.Time { return r.timer }

func (r *register) Unload() []func(error) { return r.owed }

// memoryLog is an internal topic in memory.
type memoryLog struct {
	batches map[int32][]record.Batch
	ends    map[int32]wire.Offset
	epochs  []wire.LeaderEpoch
	err     error
	onEnd   func(partition int32, end wire.Offset) // moves the high watermark, when set
	limit   int                                    // of a batch's size
}

func newMemoryLog() *memoryLog {
	return &memoryLog{batches: make(map[int32][]record.Batch), ends: make(map[int32]wire.Offset), limit: 100 << 20}
}

func (l *memoryLog) MaxBatchBytes() int { return l.limit }

func (l *memoryLog) Append(_ time.Time, partition int32, epoch wire.LeaderEpoch, batch record.Batch) (wire.Offset, error) {
	if l.err != nil {
		return 0, l.err
	}
	batch.SetBaseOffset(l.ends[partition])
	l.batches[partition] = append(l.batches[partition], batch)
	l.ends[partition] = batch.NextOffset()
	l.epochs = append(l.epochs, epoch)
	if l.onEnd != nil {
		l.onEnd(partition, batch.NextOffset())
	}
	return batch.NextOffset(), nil
}

func (l *memoryLog) read(partition int32) iter.Seq2[record.Batch, error] {
	return func(yield func(record.Batch, error) bool) {
		for _, b := range l.batches[partition] {
			if !yield(b, nil) {
				return
			}
		}
	}
}

type fixture struct {
	t      *testing.T
	log    *memoryLog
	r      *Runtime[*register]
	now    time.Time
	shards map[int32]*register

	mu    sync.Mutex // of wakes, which come from whoever calls the runtime
	wakes []time.Time
}

func (f *fixture) wake(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wakes = append(f.wakes, at)
}

// newFixture has a runtime over four partitions; the high watermark moves with the log end, unless hold is called.
func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t, log: newMemoryLog(), now: start, shards: make(map[int32]*register)}
	f.r = NewRuntime(Config[*register]{
		NewShard: func(p int32) *register {
			f.shards[p] = &register{values: make(map[string]string)}
			return f.shards[p]
		},
		Appender:      f.log,
		CommitTimeout: commitTimeout,
		Wake:          f.wake,
		Logger:        slog.New(slog.DiscardHandler),
	})
	f.r.SetPartitionCount(4)
	f.log.onEnd = f.r.HighWatermark
	return f
}

// hold leaves the high watermark where it is.
func (f *fixture) hold() { f.log.onEnd = nil }

func (f *fixture) load(partition int32, epoch wire.LeaderEpoch) {
	f.t.Helper()
	load := f.r.StartLoad(partition, epoch)
	if load == nil {
		f.t.Fatalf("nothing to load for epoch %d", epoch)
	}
	err := load.Replay(context.Background(), f.log.read(partition))
	f.r.FinishLoad(f.now, load, f.log.ends[partition], err)
}

// put sets a key and returns the outcomes of the reply so far.
func (f *fixture) put(partition int32, key, value string) *outcomes {
	o := new(outcomes)
	err := f.r.Handle(f.now, partition, func(*register) Result {
		return Result{Records: []Record{{Key: []byte(key), Value: []byte(value)}}, Replies: []func(error){o.add}}
	})
	if err != nil {
		o.add(err)
	}
	return o
}

func (f *fixture) values(partition int32) string {
	f.t.Helper()
	var list []string
	err := f.r.View(partition, func(r *register) {
		for _, k := range slices.Sorted(maps.Keys(r.values)) {
			list = append(list, k+"="+r.values[k])
		}
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.Join(list, " ")
}

// outcomes collects what a reply was called with; it must be once.
type outcomes []error

func (o *outcomes) add(err error) { *o = append(*o, err) }

func (o *outcomes) String() string {
	if len(*o) == 0 {
		return "waits"
	}
	return strings.Trim(fmt.Sprint([]error(*o)), "[]")
}

func check[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
