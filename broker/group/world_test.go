package group

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/tidemark-io/tidemark/broker/coordinator"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

var start = time.UnixMilli(1_700_000_000_000)

// memoryLog is __consumer_offsets in memory, with one partition.
type memoryLog struct {
	batches []record.Batch
	end     wire.Offset
	err     error
	moved   func(partition int32, end wire.Offset) // moves the high watermark
	held    bool                                   // leaves it where it is
}

// maxBatchBytes is max.message.bytes by default.
const maxBatchBytes = 1_048_588

func (l *memoryLog) MaxBatchBytes() int { return maxBatchBytes }

func (l *memoryLog) Append(_ time.Time, partition int32, _ wire.LeaderEpoch, batch record.Batch) (wire.Offset, error) {
	if l.err != nil {
		return 0, l.err
	}
	if len(batch) > maxBatchBytes {
		return 0, wire.MessageTooLarge
	}
	batch.SetBaseOffset(l.end)
	l.batches = append(l.batches, batch)
	l.end = batch.NextOffset()
	if !l.held {
		l.moved(partition, l.end)
	}
	return l.end, nil
}

func (l *memoryLog) read() iter.Seq2[record.Batch, error] {
	return func(yield func(record.Batch, error) bool) {
		for _, b := range l.batches {
			if !yield(b, nil) {
				return
			}
		}
	}
}

func (l *memoryLog) records(yield func(record.Record) bool) {
	for _, b := range l.batches {
		for r, err := range record.Records(b, 1<<20) {
			if err != nil {
				panic(err)
			}
			if !yield(r) {
				return
			}
		}
	}
}

// world is a coordinator of one partition on virtual time.
type world struct {
	*Coordinator
	log   *memoryLog
	now   time.Time
	epoch wire.LeaderEpoch
}

// newWorld has the settings of the reference rig: no delay of the first rebalance.
func newWorld(change func(*Config)) *world {
	w := &world{log: new(memoryLog), now: start}
	ids := 0
	cfg := Config{
		MinSessionTimeout:      6 * time.Second,
		MaxSessionTimeout:      30 * time.Minute,
		MaxSize:                1 << 30,
		OffsetMetadataMaxBytes: 4096,
		OffsetsRetention:       7 * 24 * time.Hour,
		OffsetsRetentionCheck:  10 * time.Minute,
		OffsetsCommitTimeout:   5 * time.Second,
		Appender:               w.log,
		Logger:                 slog.New(slog.DiscardHandler),
		UUID: func() (u [16]byte) {
			ids++
			u[14], u[15] = byte(ids>>8), byte(ids)
			return u
		},
	}
	if change != nil {
		change(&cfg)
	}
	w.Coordinator = New(cfg)
	w.SetPartitionCount(1)
	w.log.moved = w.HighWatermark
	w.load()
	return w
}

// load makes the broker leader of the partition, again if it was.
func (w *world) load() {
	w.Unload(0, w.epoch+1)
	w.epoch += 2
	load := w.StartLoad(0, w.epoch)
	err := load.Replay(context.Background(), w.log.read())
	w.FinishLoad(w.now, load, w.log.end, err)
}

// control changes what the log does: fail, work, hold (the high watermark), release. It tells whether there is such a thing.
func (w *world) control(what string) bool {
	switch what {
	case "fail":
		w.log.err = wire.NotEnoughReplicas
	case "work":
		w.log.err = nil
	case "hold":
		w.log.held = true
	case "release":
		w.log.held = false
		w.HighWatermark(0, w.log.end)
	default:
		return false
	}
	return true
}

// pass lets time go by, stopping wherever something is due.
func (w *world) pass(d time.Duration) {
	end := w.now.Add(d)
	for {
		next := w.NextWake()
		if next.IsZero() || next.After(end) {
			break
		}
		if next.After(w.now) {
			w.now = next
		}
		w.Advance(w.now)
	}
	w.now = end
}

var _ coordinator.Appender = (*memoryLog)(nil)
