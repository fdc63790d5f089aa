package replica

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// DeleteRecordsRequest wants the log to start at offsets not below those given.
type DeleteRecordsRequest struct {
	Timeout    time.Duration
	Partitions []DeleteRecordsPartition
}

// DeleteRecordsPartition is one partition's new log start offset; -1 is the high watermark.
type DeleteRecordsPartition struct {
	Topic     string
	Partition int32
	Offset    wire.Offset
}

// DeleteRecordsResult has the low watermark: the lowest log start offset of the live replicas; -1 with an error.
type DeleteRecordsResult struct {
	Code         wire.Code
	LowWatermark wire.Offset
}

// DeleteRecords moves log start offsets, and calls done with a result for each partition in their order when all live
// replicas have followed and the bucket has those of tiered partitions (safety.md 23), or r.Timeout is over. done runs once, before or after DeleteRecords returns.
func (m *Manager) DeleteRecords(now time.Time, r *DeleteRecordsRequest, done func([]DeleteRecordsResult)) {
	s := m.state.Load()
	op := &delayedDelete{results: make([]DeleteRecordsResult, len(r.Partitions)), done: done}
	waits := map[*partition]int{} // indexes in op.waits
	for i := range r.Partitions {
		p, offset, code := s.deleteRecords(&r.Partitions[i])
		if code != wire.None {
			op.results[i] = DeleteRecordsResult{Code: code, LowWatermark: wire.NoOffset}
			continue
		}
		at, again := waits[p]
		if !again {
			at = len(op.waits)
			waits[p] = at
			op.waits = append(op.waits, deleteWait{partition: p})
		}
		w := &op.waits[at]
		w.rows, w.offset = append(w.rows, i), max(w.offset, offset)
	}
	m.keepDeleted(op)
	m.recordStarts(now, op, now.Add(r.Timeout))
	keys := make([]*partition, len(op.waits))
	for i := range op.waits {
		keys[i] = op.waits[i].partition
	}
	m.park(now, &m.deletes, op, keys, now.Add(r.Timeout))
}

// keepDeleted makes the new log start offsets durable: what is answered stays deleted after a kill. Where that fails, the answer
// is an error, and whoever asks again moves nothing but finds the disk as it is then.
func (m *Manager) keepDeleted(op *delayedDelete) {
	if len(op.waits) == 0 {
		return
	}
	err := m.logs.Checkpoint()
	if err != nil {
		m.logger.Error("log start offsets can't be written", "err", err)
	}
	op.waits = slices.DeleteFunc(op.waits, func(w deleteWait) bool {
		l := w.partition.role.Load().log
		failed := err != nil || l == nil || l.Err() != nil
		if failed {
			op.refuse(w, wire.KafkaStorageError)
		}
		return failed
	})
}

// recordStarts has the new log starts of tiered partitions written to the bucket.
func (m *Manager) recordStarts(now time.Time, op *delayedDelete, deadline time.Time) {
	for i := range op.waits {
		w := &op.waits[i]
		r := w.partition.role.Load()
		if r.log == nil || !r.settings.topic.RemoteStorageEnable && r.log.TieredEndOffset() == wire.NoOffset {
			continue // the bucket has nothing of it; a topic that was switched off may have left something there
		}
		w.record = &startRecord{}
		op.unsettled.Add(1)
	}
	for _, w := range op.waits {
		if w.record == nil {
			continue
		}
		m.tier.RecordStart(now, w.partition.tp, w.offset, deadline, func(now time.Time, err error) {
			w.record.settled.Store(&err)
			if op.unsettled.Add(-1) == 0 { // none of the others would complete it
				m.deletes.Fire(now, w.partition)
			}
		})
	}
}

// startRecord is a log start on its way to the bucket.
type startRecord struct {
	settled atomic.Pointer[error] // nil until it is known what became of it
}

// deleteRecords moves the log start offset of one partition, and returns where all replicas are to follow.
func (s *state) deleteRecords(asked *DeleteRecordsPartition) (*partition, wire.Offset, wire.Code) {
	p, code := s.find(asked.Topic, asked.Partition)
	if code != wire.None {
		return nil, 0, code
	}
	r := p.role.Load()
	if p.internal {
		return nil, 0, wire.InvalidTopic
	}
	if code := r.checkLeader(); code != wire.None {
		return nil, 0, code
	}
	if t := &r.settings.topic; t.CleanupCompact && !t.CleanupDelete {
		return nil, 0, wire.PolicyViolation
	}
	offset := asked.Offset
	if offset == wire.NoOffset {
		offset = r.log.HighWatermark()
	}
	if offset < 0 {
		return nil, 0, wire.OffsetOutOfRange
	}
	if err := r.log.AdvanceStart(offset); err != nil {
		return nil, 0, wire.CodeOf(err)
	}
	return p, offset, wire.None
}

// delayedDelete waits for followers to raise their log start offsets.
type delayedDelete struct {
	results   []DeleteRecordsResult
	waits     []deleteWait // of a partition each
	unsettled atomic.Int64 // records of log starts that are on their way
	done      func([]DeleteRecordsResult)
}

type deleteWait struct {
	rows      []int // that name the partition
	partition *partition
	offset    wire.Offset  // the highest that is asked for
	record    *startRecord // nil where the partition is not tiered
}

// recorded tells whether the bucket has the log start, or that it will not get there now.
func (w *deleteWait) recorded() (bool, wire.Code) {
	if w.record == nil {
		return true, wire.None
	}
	err := w.record.settled.Load()
	if err == nil {
		return false, wire.None
	}
	return true, wire.CodeOf(*err)
}

func (d *delayedDelete) refuse(w deleteWait, code wire.Code) {
	d.settle(w, DeleteRecordsResult{Code: code, LowWatermark: wire.NoOffset})
}

func (d *delayedDelete) settle(w deleteWait, result DeleteRecordsResult) {
	for _, row := range w.rows {
		d.results[row] = result
	}
}

// TryComplete settles the partitions whose replicas have all followed and tells whether that was all.
func (d *delayedDelete) TryComplete(time.Time) bool {
	left := d.waits[:0]
	for _, w := range d.waits {
		low, code := w.partition.lowWatermark()
		recorded, failed := w.recorded()
		if failed != wire.None && code == wire.None {
			low, code = wire.NoOffset, failed
		}
		if code == wire.None && (low < w.offset || !recorded) {
			left = append(left, w)
			continue
		}
		d.settle(w, DeleteRecordsResult{Code: code, LowWatermark: low})
	}
	d.waits = left
	return len(left) == 0
}

// lowWatermark is the lowest log start offset of the live replicas.
func (p *partition) lowWatermark() (wire.Offset, wire.Code) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.role.Load()
	if code := r.checkLeader(); code != wire.None {
		return wire.NoOffset, code
	}
	return p.isr.LowWatermark(r.log.StartOffset()), wire.None
}

// Complete answers.
func (d *delayedDelete) Complete(time.Time) { d.done(d.results) }

// Expire answers; where replicas have not followed in time, that is what is said.
func (d *delayedDelete) Expire(time.Time) {
	for _, w := range d.waits {
		d.refuse(w, wire.RequestTimedOut)
	}
	d.done(d.results)
}
