package replica

import (
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
// replicas have followed, or r.Timeout is over. done runs once, before or after DeleteRecords returns.
func (m *Manager) DeleteRecords(now time.Time, r *DeleteRecordsRequest, done func([]DeleteRecordsResult)) {
	s := m.state.Load()
	op := &delayedDelete{results: make([]DeleteRecordsResult, len(r.Partitions)), done: done}
	var keys []*partition
	for i := range r.Partitions {
		p, offset, code := s.deleteRecords(&r.Partitions[i])
		if code != wire.None {
			op.results[i] = DeleteRecordsResult{Code: code, LowWatermark: wire.NoOffset}
			continue
		}
		op.waits = append(op.waits, deleteWait{row: i, partition: p, offset: offset})
		keys = append(keys, p)
	}
	if len(op.waits) > 0 {
		// What was answered stays deleted after a kill. A checkpoint that can't be written takes its directory offline.
		if err := m.logs.Checkpoint(); err != nil {
			m.logger.Error("log start offsets can't be written", "err", err)
		}
	}
	m.park(now, &m.deletes, op, keys, now.Add(r.Timeout))
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
	results []DeleteRecordsResult
	waits   []deleteWait
	done    func([]DeleteRecordsResult)
}

type deleteWait struct {
	row       int
	partition *partition
	offset    wire.Offset
}

// TryComplete settles the partitions whose replicas have all followed and tells whether that was all.
func (d *delayedDelete) TryComplete(time.Time) bool {
	left := d.waits[:0]
	for _, w := range d.waits {
		low, code := w.partition.lowWatermark()
		if code == wire.None && low < w.offset {
			left = append(left, w)
			continue
		}
		d.results[w.row] = DeleteRecordsResult{Code: code, LowWatermark: low}
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
		d.results[w.row] = DeleteRecordsResult{Code: wire.RequestTimedOut, LowWatermark: wire.NoOffset}
	}
	d.done(d.results)
}
