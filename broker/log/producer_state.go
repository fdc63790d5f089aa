package log

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// batchesKept is how many batches of a producer are remembered: the most that an idempotent producer has in flight.
const batchesKept = 5

// maxProducers bounds the producers remembered in a partition, at about 170 bytes each: anybody who may produce can make up
// ids. It is three new ones a second over a day.
const maxProducers = 1 << 18

// producerBatch is what is remembered of a batch.
type producerBatch struct {
	last         wire.Offset
	timestamp    int64
	lastSequence int32
	delta        int32 // last offset minus first
}

func batchOf(b record.Batch) producerBatch {
	return producerBatch{last: b.LastOffset(), timestamp: b.MaxTimestamp(), lastSequence: b.LastSequence(), delta: b.LastOffsetDelta()}
}

func (b producerBatch) first() wire.Offset { return b.last - wire.Offset(b.delta) }

// firstSequence counts back from the last, wrapping below 0.
func (b producerBatch) firstSequence() int32 {
	if b.delta > b.lastSequence {
		return math.MaxInt32 - (b.delta - b.lastSequence) + 1
	}
	return b.lastSequence - b.delta
}

// producerEntry is the state of one producer id.
type producerEntry struct {
	lastTimestamp    int64
	seen             int64       // when it was heard of last, by the broker's clock: expiry counts from here
	txnStart         wire.Offset // of the open transaction, or NoOffset
	coordinatorEpoch int32
	epoch            wire.ProducerEpoch
	kept             int8
	restored         bool                       // from a snapshot: the log may hold batches before those that are kept
	batches          [batchesKept]producerBatch // the first kept ones, oldest first
}

const noCoordinatorEpoch int32 = -1

func newProducerEntry() *producerEntry {
	return &producerEntry{epoch: record.NoProducerEpoch, txnStart: wire.NoOffset, coordinatorEpoch: noCoordinatorEpoch, lastTimestamp: record.NoTimestamp}
}

// lastSequence is the sequence after which the next batch must begin, or record.NoSequence.
func (e *producerEntry) lastSequence() int32 {
	if e.kept == 0 {
		return record.NoSequence
	}
	return e.batches[e.kept-1].lastSequence
}

func (e *producerEntry) setEpoch(epoch wire.ProducerEpoch) {
	if e.epoch != epoch {
		e.epoch, e.kept, e.restored = epoch, 0, false
	}
}

func (e *producerEntry) add(b producerBatch) {
	if e.kept == batchesKept {
		copy(e.batches[:], e.batches[1:])
		e.kept--
		e.restored = false
	}
	e.batches[e.kept] = b
	e.kept++
	e.lastTimestamp = b.timestamp
}

// transaction is one that is open, or that ended and whose end is not replicated yet.
type transaction struct {
	producer wire.ProducerID
	first    wire.Offset
	last     wire.Offset // of the marker; NoOffset while open
}

// producerState is Kafka's ProducerStateManager: sequences and transactions of the producers of one partition. The log's
// lock guards it.
type producerState struct {
	entries map[wire.ProducerID]*producerEntry
	open    []transaction // by first offset
	ended   []transaction // by first offset; the marker is not below the high watermark

	restoredAt wire.Offset // of the snapshot that entries come from; NoOffset once none of them has to be recalled
}

// duplicate finds the earlier append of a batch that came again.
func (s *producerState) duplicate(b record.Batch) (producerBatch, bool) {
	e := s.entries[b.ProducerID()]
	if e == nil || e.epoch != b.ProducerEpoch() {
		return producerBatch{}, false
	}
	for _, known := range e.batches[:e.kept] {
		if known.firstSequence() == b.BaseSequence() && known.lastSequence == b.LastSequence() {
			return known, true
		}
	}
	return producerBatch{}, false
}

// check says whether a batch may be appended: its epoch for clients and coordinators, its sequence for clients.
func (s *producerState) check(b record.Batch, origin Origin) error {
	e := s.entries[b.ProducerID()]
	if e == nil || origin == Replication {
		return nil
	}
	if b.ProducerEpoch() < e.epoch {
		return wire.NewError(wire.InvalidProducerEpoch, fmt.Sprintf("Epoch of producer %d is %d, which is smaller than the last seen epoch %d",
			b.ProducerID(), b.ProducerEpoch(), e.epoch))
	}
	if b.IsControl() {
		return s.checkMarker(b, e)
	}
	if origin == Client {
		if err := e.checkSequence(b); err != nil {
			return err
		}
	}
	if e.txnStart != wire.NoOffset && !b.IsTransactional() {
		return wire.NewError(wire.InvalidTxnState, fmt.Sprintf("Expected transactional write from producer %d", b.ProducerID()))
	}
	return nil
}

func (e *producerEntry) checkSequence(b record.Batch) error {
	first := b.BaseSequence()
	if b.ProducerEpoch() != e.epoch {
		if first != 0 && e.epoch != record.NoProducerEpoch {
			return wire.NewError(wire.OutOfOrderSequenceNumber, fmt.Sprintf(
				"Invalid sequence number for new epoch of producer %d: %d (request epoch), %d (seq. number), %d (current producer epoch)",
				b.ProducerID(), b.ProducerEpoch(), first, e.epoch))
		}
		return nil
	}
	last := e.lastSequence()
	if first == last+1 && last != math.MaxInt32 || first == 0 && last == math.MaxInt32 {
		return nil
	}
	return wire.NewError(wire.OutOfOrderSequenceNumber, fmt.Sprintf(
		"Out of order sequence number for producer %d: %d (incoming seq. number), %d (current end sequence number)", b.ProducerID(), first, last))
}

// checkMarker refuses the marker of a transaction coordinator that was replaced.
func (s *producerState) checkMarker(b record.Batch, e *producerEntry) error {
	marker, ok, err := record.ReadEndTxnMarker(b)
	if err != nil {
		return wire.NewError(wire.CorruptMessage, err.Error())
	}
	if ok && marker.CoordinatorEpoch < e.coordinatorEpoch {
		return wire.NewError(wire.TransactionCoordinatorFenced, fmt.Sprintf("Invalid coordinator epoch for producerId %d: %d (zombie), %d (current)",
			b.ProducerID(), marker.CoordinatorEpoch, e.coordinatorEpoch))
	}
	return nil
}

// apply takes a batch that was appended into the state. marker must be given for control batches that end a transaction.
// It returns the transaction that the marker ended, if there was one.
func (s *producerState) apply(b record.Batch, marker *record.EndTxnMarker, nowMs int64) (ended transaction, ok bool) {
	id := b.ProducerID()
	if b.IsControl() && marker == nil {
		return transaction{}, false
	}
	e := s.entries[id]
	if e == nil {
		e = newProducerEntry()
		if s.entries == nil {
			s.entries = map[wire.ProducerID]*producerEntry{}
		}
		if len(s.entries) >= maxProducers {
			s.makeRoom()
		}
		s.entries[id] = e
	}
	e.seen = nowMs
	e.setEpoch(b.ProducerEpoch())
	if marker != nil {
		e.coordinatorEpoch = marker.CoordinatorEpoch
		e.lastTimestamp = b.MaxTimestamp()
		return s.end(id, e, b.LastOffset())
	}
	e.add(batchOf(b))
	if b.IsTransactional() && e.txnStart == wire.NoOffset {
		e.txnStart = b.BaseOffset()
		s.open = append(s.open, transaction{producer: id, first: b.BaseOffset(), last: wire.NoOffset})
	}
	return transaction{}, false
}

// end closes the open transaction of a producer, if any, with the marker at last.
func (s *producerState) end(id wire.ProducerID, e *producerEntry, last wire.Offset) (transaction, bool) {
	if e.txnStart == wire.NoOffset {
		return transaction{}, false
	}
	t := transaction{producer: id, first: e.txnStart, last: last}
	e.txnStart = wire.NoOffset
	s.open = slices.DeleteFunc(s.open, func(o transaction) bool { return o.producer == id })
	at, _ := slices.BinarySearchFunc(s.ended, t, compareTransactions)
	s.ended = slices.Insert(s.ended, at, t)
	return t, true
}

func compareTransactions(a, b transaction) int { return cmp.Compare(a.first, b.first) }

// lastStable is where read_committed stops once the marker at last is there.
func (s *producerState) lastStable(last wire.Offset) wire.Offset {
	if len(s.open) > 0 {
		return s.open[0].first
	}
	return last + 1
}

// replicated forgets ended transactions whose marker lies below the high watermark.
func (s *producerState) replicated(hw wire.Offset) {
	s.ended = slices.DeleteFunc(s.ended, func(t transaction) bool { return t.last < hw })
}

// firstUnstable is the first offset of the oldest transaction that is open or not replicated whole, or NoOffset.
func (s *producerState) firstUnstable() wire.Offset {
	first := wire.NoOffset
	if len(s.open) > 0 {
		first = s.open[0].first
	}
	if len(s.ended) > 0 && (first == wire.NoOffset || s.ended[0].first < first) {
		first = s.ended[0].first
	}
	return first
}

// expire forgets producers without an open transaction that were not heard of for limitMs.
func (s *producerState) expire(nowMs, limitMs int64) {
	maps.DeleteFunc(s.entries, func(_ wire.ProducerID, e *producerEntry) bool {
		return e.txnStart == wire.NoOffset && nowMs-e.seen >= limitMs
	})
}

// makeRoom forgets the quarter of the producers that was silent longest, but for those with an open transaction. One that
// writes again is taken for new.
func (s *producerState) makeRoom() {
	type silent struct {
		id   wire.ProducerID
		seen int64
	}
	all := make([]silent, 0, len(s.entries))
	for id, e := range s.entries {
		all = append(all, silent{id, e.seen})
	}
	slices.SortFunc(all, func(a, b silent) int { return cmp.Or(cmp.Compare(a.seen, b.seen), cmp.Compare(a.id, b.id)) })
	for _, p := range all[:len(all)/4] {
		if s.entries[p.id].txnStart == wire.NoOffset {
			delete(s.entries, p.id)
		}
	}
}

// list describes the producers, by id.
func (s *producerState) list() []Producer {
	list := make([]Producer, 0, len(s.entries))
	for _, id := range slices.Sorted(maps.Keys(s.entries)) {
		e := s.entries[id]
		list = append(list, Producer{
			ID: id, Epoch: e.epoch, LastSequence: e.lastSequence(), LastTimestamp: e.lastTimestamp,
			CoordinatorEpoch: e.coordinatorEpoch, TxnStart: e.txnStart,
		})
	}
	return list
}
