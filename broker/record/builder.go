package record

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// Header is a record's header.
type Header struct {
	Key   string
	Value []byte // nil for null
}

// Producer is the identity of an idempotent producer.
type Producer struct {
	ID       wire.ProducerID
	Epoch    wire.ProducerEpoch
	Sequence int32 // of the first record; NoSequence in control batches
}

// Builder makes batches. The zero value builds an uncompressed batch at base offset 0, without a producer. The exported
// fields are read by Build.
type Builder struct {
	BaseOffset    wire.Offset
	LeaderEpoch   wire.LeaderEpoch
	Compression   Compression
	TimestampType TimestampType
	AppendTime    int64 // the batch's maximum timestamp under LogAppendTime
	Transactional bool
	Control       bool
	Producer      *Producer // nil for none

	body     []byte // encoded records
	count    int32
	last     int32 // delta of the last record
	baseTime int64 // of the first record
	maxTime  int64
}

var errEmptyBatch = errors.New("batch without records")

// Append adds a record at the offset after the last one. A nil key or value is null.
func (w *Builder) Append(timestamp int64, key, value []byte, headers ...Header) {
	w.AppendAt(w.nextDelta(), timestamp, key, value, headers...)
}

// AppendAt adds a record at the base offset + delta; deltas must rise.
func (w *Builder) AppendAt(delta int32, timestamp int64, key, value []byte, headers ...Header) {
	var encoded []byte
	for _, h := range headers {
		encoded = binary.AppendVarint(encoded, int64(len(h.Key)))
		encoded = append(encoded, h.Key...)
		encoded = appendBytes(encoded, h.Value)
	}
	w.append(delta, timestamp, key, value, encoded, len(headers))
}

// AppendRecord adds a record of another batch at the offset after the last one.
func (w *Builder) AppendRecord(r *Record) {
	w.append(w.nextDelta(), r.Timestamp, r.Key, r.Value, r.headers, r.count)
}

func (w *Builder) nextDelta() int32 {
	if w.count == 0 {
		return 0
	}
	return w.last + 1
}

func (w *Builder) append(delta int32, timestamp int64, key, value, headers []byte, headerCount int) {
	if w.count == 0 {
		w.baseTime, w.maxTime = timestamp, NoTimestamp
	}
	w.maxTime = max(w.maxTime, timestamp)
	w.last = delta
	w.count++
	timeDelta := timestamp - w.baseTime
	size := 1 + varintSize(timeDelta) + varintSize(int64(delta)) + bytesSize(key) + bytesSize(value) +
		varintSize(int64(headerCount)) + len(headers)
	b := binary.AppendVarint(w.body, int64(size))
	b = append(b, 0) // attributes
	b = binary.AppendVarint(b, timeDelta)
	b = binary.AppendVarint(b, int64(delta))
	b = appendBytes(b, key)
	b = appendBytes(b, value)
	b = binary.AppendVarint(b, int64(headerCount))
	w.body = append(b, headers...)
}

// Count is the number of records so far.
func (w *Builder) Count() int { return int(w.count) }

// Size is how many bytes the batch would have now, before compression.
func (w *Builder) Size() int { return HeaderSize + len(w.body) }

// Reset forgets the records and keeps the settings.
func (w *Builder) Reset() { w.body, w.count, w.last = w.body[:0], 0, 0 }

// Build returns the finished batch in memory of its own.
func (w *Builder) Build() (Batch, error) {
	if w.count == 0 {
		return nil, errEmptyBatch
	}
	batch := make([]byte, HeaderSize, HeaderSize+len(w.body)/w.expectedRatio())
	batch, err := compress(batch, w.body, w.Compression)
	if err != nil {
		return nil, err
	}
	b := Batch(slices.Clip(batch))
	b.SetBaseOffset(w.BaseOffset)
	binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-SizePrefix))
	b.SetLeaderEpoch(w.LeaderEpoch)
	b[atMagic] = magic2
	attributes, maxTime := uint16(w.Compression.Codec), w.maxTime
	if w.TimestampType == LogAppendTime {
		attributes, maxTime = attributes|appendTimeBit, w.AppendTime
	}
	if w.Transactional {
		attributes |= txnBit
	}
	if w.Control {
		attributes |= controlBit
	}
	producer := Producer{ID: wire.NoProducerID, Epoch: NoProducerEpoch, Sequence: NoSequence}
	if w.Producer != nil {
		producer = *w.Producer
	}
	binary.BigEndian.PutUint16(b[atAttributes:], attributes)
	binary.BigEndian.PutUint32(b[atLastDelta:], uint32(w.last))
	binary.BigEndian.PutUint64(b[atBaseTime:], uint64(w.baseTime))
	binary.BigEndian.PutUint64(b[atMaxTime:], uint64(maxTime))
	binary.BigEndian.PutUint64(b[atProducerID:], uint64(producer.ID))
	binary.BigEndian.PutUint16(b[atProducerEpoch:], uint16(producer.Epoch))
	binary.BigEndian.PutUint32(b[atBaseSequence:], uint32(producer.Sequence))
	binary.BigEndian.PutUint32(b[atCount:], uint32(w.count))
	b.SetCRC()
	return b, nil
}

// expectedRatio guesses how much smaller compression makes the body.
func (w *Builder) expectedRatio() int {
	if w.Compression.Codec == None {
		return 1
	}
	return 2
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

func bytesSize(b []byte) int {
	if b == nil {
		return 1
	}
	return varintSize(int64(len(b))) + len(b)
}

func varintSize(v int64) int {
	n := 1
	for u := uint64(v)<<1 ^ uint64(v>>63); u >= 0x80; u >>= 7 {
		n++
	}
	return n
}
