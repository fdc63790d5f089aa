package log

import (
	"slices"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// recallOffsets is how far before a snapshot the earlier batches of its producers are looked for. What was in flight when the broker
// stopped was sent within moments of each other; and no more than so many headers are read, a tenth of a second at worst.
const recallOffsets = 1 << 18

// duplicateLocked finds the earlier append of a batch that came again. A snapshot holds a producer's last batch alone, and what was
// in flight at the stop may be older: where the sequence does not go on from there, the log is asked, once for all producers.
func (l *Log) duplicateLocked(b record.Batch) (producerBatch, bool, error) {
	known, ok := l.producers.duplicate(b)
	if ok {
		return known, true, nil
	}
	e := l.producers.entries[b.ProducerID()]
	if e == nil || !e.restored || b.ProducerEpoch() != e.epoch || e.checkSequence(b) == nil {
		return known, false, nil
	}
	if err := l.recallLocked(); err != nil {
		return known, false, l.env.fault("look for a producer's batches", err)
	}
	known, ok = l.producers.duplicate(b)
	return known, ok, nil
}

// recallLocked puts in front of what is known of the producers of a snapshot the batches that the log holds before it.
func (l *Log) recallLocked() error {
	s := &l.producers
	segments := *l.segments.Load()
	earlier := map[wire.ProducerID][]producerBatch{}
	err := l.eachHeader(segments, max(s.restoredAt-recallOffsets, segments[0].base), s.restoredAt, func(_ *handle, b record.Batch, _ int64) error {
		id := b.ProducerID()
		e := s.entries[id]
		if e == nil || !e.restored || b.ProducerEpoch() != e.epoch || b.IsControl() || e.kept > 0 && b.BaseOffset() >= e.batches[0].first() {
			return nil
		}
		all := append(earlier[id], batchOf(b))
		earlier[id] = all[max(0, len(all)-batchesKept):]
		return nil
	})
	if err != nil {
		return err
	}
	for id, e := range s.entries {
		if e.restored {
			all := slices.Concat(earlier[id], e.batches[:e.kept])
			e.kept = int8(copy(e.batches[:], all[max(0, len(all)-batchesKept):]))
			e.restored = false
		}
	}
	s.restoredAt = wire.NoOffset
	return nil
}

// recallFromLocked is for when the log is about to begin at an offset: what goes may be asked for.
func (l *Log) recallFromLocked(offset wire.Offset) {
	if at := l.producers.restoredAt; at != wire.NoOffset && offset > at-recallOffsets {
		_ = l.recallLocked() // what can't be read goes all the same
	}
}
