package log

import (
	"slices"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// recallOffsets is how far behind a producer's last batch its earlier ones are looked for. What was in flight when the broker
// stopped was sent within moments of it; and no more than so many headers are read, a tenth of a second at worst.
const recallOffsets = 1 << 18

// duplicateLocked finds the earlier append of a batch that came again. A snapshot holds a producer's last batch alone, and what was
// in flight at the stop may be older: where the sequence does not go on from there, the log is asked, once a producer.
func (l *Log) duplicateLocked(b record.Batch) (producerBatch, bool, error) {
	known, ok := l.producers.duplicate(b)
	if ok {
		return known, true, nil
	}
	e := l.producers.entries[b.ProducerID()]
	if e == nil || !e.restored || b.ProducerEpoch() != e.epoch || e.checkSequence(b) == nil {
		return known, false, nil
	}
	if err := l.recallLocked(b.ProducerID(), e); err != nil {
		return known, false, l.env.fault("look for a producer's batches", err)
	}
	known, ok = l.producers.duplicate(b)
	return known, ok, nil
}

// recallLocked puts in front of what is known of a producer the batches that the log holds before it.
func (l *Log) recallLocked(id wire.ProducerID, e *producerEntry) error {
	oldest := l.EndOffset()
	if e.kept > 0 {
		oldest = e.batches[0].first()
	}
	segments := *l.segments.Load()
	from := max(oldest-recallOffsets, segments[0].base)
	var earlier []producerBatch
	err := l.eachHeader(segments, from, oldest, func(_ *handle, b record.Batch, _ int64) error {
		if b.ProducerID() == id && b.ProducerEpoch() == e.epoch && !b.IsControl() {
			earlier = append(earlier, batchOf(b))
			earlier = earlier[max(0, len(earlier)-batchesKept):]
		}
		return nil
	})
	if err != nil {
		return err
	}
	all := slices.Concat(earlier, e.batches[:e.kept])
	e.kept = int8(copy(e.batches[:], all[max(0, len(all)-batchesKept):]))
	e.restored = false
	return nil
}
