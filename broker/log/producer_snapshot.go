package log

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// A producer snapshot in Kafka's format (ProducerSnapshot.json, version 1): version, CRC-32C of all that follows it, count,
// entries. It holds one batch a producer.
const (
	snapshotVersion    = 1
	snapshotCRCAt      = 2
	snapshotCountAt    = 6
	snapshotHeaderSize = 10
	snapshotEntrySize  = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8
)

var (
	errSnapshot = errors.New("producer snapshot is damaged")
	castagnoli  = crc32.MakeTable(crc32.Castagnoli)
)

// ProducerSnapshotEntry is one producer of a .snapshot file.
type ProducerSnapshotEntry struct {
	Producer
	LastOffset  wire.Offset // of its last batch, or -1
	OffsetDelta int32
}

// DecodeProducerSnapshot reads a .snapshot file.
func DecodeProducerSnapshot(data []byte) ([]ProducerSnapshotEntry, error) {
	if len(data) < snapshotHeaderSize {
		return nil, fmt.Errorf("%w: %d bytes", errSnapshot, len(data))
	}
	if version := binary.BigEndian.Uint16(data); version != snapshotVersion {
		return nil, fmt.Errorf("%w: version %d", errSnapshot, version)
	}
	if crc32.Checksum(data[snapshotCountAt:], castagnoli) != binary.BigEndian.Uint32(data[snapshotCRCAt:]) {
		return nil, fmt.Errorf("%w: wrong checksum", errSnapshot)
	}
	count := int64(int32(binary.BigEndian.Uint32(data[snapshotCountAt:])))
	if count < 0 || count*snapshotEntrySize != int64(len(data)-snapshotHeaderSize) {
		return nil, fmt.Errorf("%w: %d bytes for %d producers", errSnapshot, len(data), count)
	}
	entries := make([]ProducerSnapshotEntry, count)
	for i := range entries {
		b := data[snapshotHeaderSize+i*snapshotEntrySize:]
		e := &entries[i]
		e.ID = wire.ProducerID(binary.BigEndian.Uint64(b))
		e.Epoch = wire.ProducerEpoch(binary.BigEndian.Uint16(b[8:]))
		e.LastSequence = int32(binary.BigEndian.Uint32(b[10:]))
		e.LastOffset = wire.Offset(binary.BigEndian.Uint64(b[14:]))
		e.OffsetDelta = int32(binary.BigEndian.Uint32(b[22:]))
		e.LastTimestamp = int64(binary.BigEndian.Uint64(b[26:]))
		e.CoordinatorEpoch = int32(binary.BigEndian.Uint32(b[34:]))
		e.TxnStart = wire.Offset(binary.BigEndian.Uint64(b[38:]))
	}
	return entries, nil
}

func (s *producerState) encode() []byte {
	b := make([]byte, snapshotHeaderSize, snapshotHeaderSize+len(s.entries)*snapshotEntrySize)
	binary.BigEndian.PutUint16(b, snapshotVersion)
	binary.BigEndian.PutUint32(b[snapshotCountAt:], uint32(len(s.entries)))
	for _, id := range slices.Sorted(maps.Keys(s.entries)) {
		e := s.entries[id]
		batch := producerBatch{last: wire.NoOffset, lastSequence: record.NoSequence}
		if e.kept > 0 {
			batch = e.batches[e.kept-1]
		}
		b = binary.BigEndian.AppendUint64(b, uint64(id))
		b = binary.BigEndian.AppendUint16(b, uint16(e.epoch))
		b = binary.BigEndian.AppendUint32(b, uint32(batch.lastSequence))
		b = binary.BigEndian.AppendUint64(b, uint64(batch.last))
		b = binary.BigEndian.AppendUint32(b, uint32(batch.delta))
		b = binary.BigEndian.AppendUint64(b, uint64(e.lastTimestamp))
		b = binary.BigEndian.AppendUint32(b, uint32(e.coordinatorEpoch))
		b = binary.BigEndian.AppendUint64(b, uint64(e.txnStart))
	}
	binary.BigEndian.PutUint32(b[snapshotCRCAt:], crc32.Checksum(b[snapshotCountAt:], castagnoli))
	return b
}

// restoreProducers makes the state of a snapshot, which is that at an offset. Its producers count as heard of now: a snapshot knows only their records'
// timestamps, which may lie far in the past.
func restoreProducers(entries []ProducerSnapshotEntry, at wire.Offset, nowMs int64) producerState {
	if len(entries) == 0 {
		return producerState{}
	}
	s := producerState{entries: make(map[wire.ProducerID]*producerEntry, len(entries)), restoredAt: at}
	for _, from := range entries {
		e := newProducerEntry()
		e.epoch, e.coordinatorEpoch, e.txnStart = from.Epoch, from.CoordinatorEpoch, from.TxnStart
		if from.LastOffset >= 0 {
			e.add(producerBatch{last: from.LastOffset, timestamp: from.LastTimestamp, lastSequence: from.LastSequence, delta: from.OffsetDelta})
		}
		e.lastTimestamp, e.seen, e.restored = from.LastTimestamp, nowMs, true
		s.entries[from.ID] = e
		if e.txnStart != wire.NoOffset {
			s.open = append(s.open, transaction{producer: from.ID, first: e.txnStart, last: wire.NoOffset})
		}
	}
	slices.SortFunc(s.open, func(a, b transaction) int {
		return cmp.Or(compareTransactions(a, b), cmp.Compare(a.producer, b.producer))
	})
	return s
}
