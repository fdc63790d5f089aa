package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// HeaderSize is the length of a batch's header, from the base offset to the record count.
const HeaderSize = 61

// SizePrefix is how many bytes SizeOf needs.
const SizePrefix = atLeaderEpoch

// NoTimestamp stands for "none" in records and batches.
const NoTimestamp int64 = -1

// NoSequence is the base sequence of a batch without idempotence.
const NoSequence int32 = -1

// NoProducerEpoch is the producer epoch of a batch without idempotence.
const NoProducerEpoch wire.ProducerEpoch = -1

// Positions in the header (DefaultRecordBatch).
const (
	atBaseOffset    = 0
	atLength        = 8
	atLeaderEpoch   = 12
	atMagic         = 16
	atCRC           = 17
	atAttributes    = 21
	atLastDelta     = 23
	atBaseTime      = 27
	atMaxTime       = 35
	atProducerID    = 43
	atProducerEpoch = 51
	atBaseSequence  = 53
	atCount         = 57
)

const magic2 = 2

// The bits of the attributes.
const (
	codecMask       = 0x07
	appendTimeBit   = 0x08
	txnBit          = 0x10
	controlBit      = 0x20
	deleteHorizon   = 0x40
	knownAttributes = 0x7f
)

// ErrShort says that a slice ends before the batch does. In a file it is a torn tail, in a fetch answer a cut batch.
var ErrShort = errors.New("record batch is cut short")

// ErrCorrupt says that bytes are no batch: an impossible length, another magic, a wrong checksum.
var ErrCorrupt = errors.New("record batch is corrupt")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is one whole record batch of magic 2. Next and Build make batches; the accessors need HeaderSize bytes and so serve
// on a header that was read alone. Methods that change the header say whether the checksum stays right.
type Batch []byte

// SizeOf reads the size in bytes of the whole batch that begins with prefix, which needs SizePrefix bytes. The size is
// at least HeaderSize; what it may be at most is for the caller to say.
func SizeOf(prefix []byte) (int, error) {
	if len(prefix) < SizePrefix {
		return 0, ErrShort
	}
	length := int32(binary.BigEndian.Uint32(prefix[atLength:]))
	if length < HeaderSize-SizePrefix {
		return 0, fmt.Errorf("%w: length %d", ErrCorrupt, length)
	}
	return int(length) + SizePrefix, nil
}

// Next splits the first batch off b, without a copy. It checks the length alone: call Check before trusting the content.
// It returns ErrShort when b ends first, with the bytes that b holds as rest.
func Next(b []byte) (batch Batch, rest []byte, err error) {
	size, err := SizeOf(b)
	if err != nil {
		return nil, b, err
	}
	if size > len(b) {
		return nil, b, ErrShort
	}
	return Batch(b[:size:size]), b[size:], nil
}

// Check verifies magic and checksum of a whole batch, as followers and recovery do. It returns ErrCorrupt.
func (b Batch) Check() error {
	if len(b) < HeaderSize {
		return ErrShort
	}
	if b.Magic() != magic2 {
		return fmt.Errorf("%w: magic %d", ErrCorrupt, b.Magic())
	}
	if stored, computed := b.CRC(), b.ComputeCRC(); stored != computed {
		return fmt.Errorf("%w: stored checksum %08x, computed %08x", ErrCorrupt, stored, computed)
	}
	return nil
}

// BaseOffset is the offset of the first record; in a cleaned batch that record may be gone.
func (b Batch) BaseOffset() wire.Offset {
	return wire.Offset(binary.BigEndian.Uint64(b[atBaseOffset:]))
}

// SetBaseOffset patches the base offset; the checksum does not cover it.
func (b Batch) SetBaseOffset(offset wire.Offset) {
	binary.BigEndian.PutUint64(b[atBaseOffset:], uint64(offset))
}

// Length is the size of the whole batch in bytes, as its header states it.
func (b Batch) Length() int {
	return int(int32(binary.BigEndian.Uint32(b[atLength:]))) + SizePrefix
}

// LeaderEpoch is the epoch of the leader that appended the batch.
func (b Batch) LeaderEpoch() wire.LeaderEpoch {
	return wire.LeaderEpoch(binary.BigEndian.Uint32(b[atLeaderEpoch:]))
}

// SetLeaderEpoch patches the leader epoch; the checksum does not cover it.
func (b Batch) SetLeaderEpoch(epoch wire.LeaderEpoch) {
	binary.BigEndian.PutUint32(b[atLeaderEpoch:], uint32(epoch))
}

// Magic is the format's version: 2 in all that Kafka 4 writes.
func (b Batch) Magic() int8 { return int8(b[atMagic]) }

// CRC is the stored CRC-32C over everything from the attributes on.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[atCRC:]) }

// ComputeCRC is what CRC should be.
func (b Batch) ComputeCRC() uint32 { return crc32.Checksum(b[atAttributes:], castagnoli) }

// SetCRC stores what ComputeCRC gives.
func (b Batch) SetCRC() { binary.BigEndian.PutUint32(b[atCRC:], b.ComputeCRC()) }

// Attributes are the raw attribute bits.
func (b Batch) Attributes() uint16 { return binary.BigEndian.Uint16(b[atAttributes:]) }

// Codec is the compression of the body. It may be a number that no codec has.
func (b Batch) Codec() Codec { return Codec(b.Attributes() & codecMask) }

// TimestampType says who set the timestamps.
func (b Batch) TimestampType() TimestampType {
	if b.Attributes()&appendTimeBit != 0 {
		return LogAppendTime
	}
	return CreateTime
}

// IsTransactional tells whether the batch is visible to read_committed only after its transaction's commit.
func (b Batch) IsTransactional() bool { return b.Attributes()&txnBit != 0 }

// IsControl tells whether the batch holds a transaction marker in place of records for consumers.
func (b Batch) IsControl() bool { return b.Attributes()&controlBit != 0 }

// HasDeleteHorizon tells whether BaseTimestamp holds the delete horizon that the cleaner set (KIP-534).
func (b Batch) HasDeleteHorizon() bool { return b.Attributes()&deleteHorizon != 0 }

// LastOffsetDelta is the offset of the last record, counted from the base offset.
func (b Batch) LastOffsetDelta() int32 { return int32(binary.BigEndian.Uint32(b[atLastDelta:])) }

// LastOffset is the offset of the last record.
func (b Batch) LastOffset() wire.Offset {
	return b.BaseOffset() + wire.Offset(b.LastOffsetDelta())
}

// NextOffset is the offset that follows the batch.
func (b Batch) NextOffset() wire.Offset { return b.LastOffset() + 1 }

// BaseTimestamp is what the records' timestamp deltas are counted from.
func (b Batch) BaseTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[atBaseTime:])) }

// MaxTimestamp is the largest timestamp of the records, or the append time.
func (b Batch) MaxTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[atMaxTime:])) }

// SetMaxTimestamp states who set the timestamps and the largest of them. When that changes anything, the checksum is
// computed anew and attribute bits without a meaning are cleared, as Kafka does.
func (b Batch) SetMaxTimestamp(kind TimestampType, largest int64) {
	if b.TimestampType() == kind && b.MaxTimestamp() == largest {
		return
	}
	attributes := b.Attributes() & knownAttributes &^ appendTimeBit
	if kind == LogAppendTime {
		attributes |= appendTimeBit
	}
	binary.BigEndian.PutUint16(b[atAttributes:], attributes)
	binary.BigEndian.PutUint64(b[atMaxTime:], uint64(largest))
	b.SetCRC()
}

// ProducerID is the idempotent producer, or wire.NoProducerID.
func (b Batch) ProducerID() wire.ProducerID {
	return wire.ProducerID(binary.BigEndian.Uint64(b[atProducerID:]))
}

// HasProducerID tells whether the batch takes part in the sequence check. Kafka takes any negative id for none.
func (b Batch) HasProducerID() bool { return b.ProducerID() > wire.NoProducerID }

// ProducerEpoch is the epoch of the producer id.
func (b Batch) ProducerEpoch() wire.ProducerEpoch {
	return wire.ProducerEpoch(binary.BigEndian.Uint16(b[atProducerEpoch:]))
}

// BaseSequence is the sequence number of the first record, or NoSequence.
func (b Batch) BaseSequence() int32 { return int32(binary.BigEndian.Uint32(b[atBaseSequence:])) }

// LastSequence is the sequence number of the last record, wrapping from 2147483647 to 0; NoSequence where there is none.
func (b Batch) LastSequence() int32 {
	base := b.BaseSequence()
	if base == NoSequence {
		return NoSequence
	}
	return AddSequence(base, b.LastOffsetDelta())
}

// AddSequence counts delta on from a sequence number, wrapping from 2147483647 to 0.
func AddSequence(sequence, delta int32) int32 {
	if sequence > math.MaxInt32-delta {
		return delta - (math.MaxInt32 - sequence) - 1
	}
	return sequence + delta
}

// Count is how many records the header promises.
func (b Batch) Count() int32 { return int32(binary.BigEndian.Uint32(b[atCount:])) }

// body is the records, compressed by Codec.
func (b Batch) body() []byte { return b[HeaderSize:] }

// TimestampType says who sets the timestamps of a topic's records (message.timestamp.type).
type TimestampType int8

// The timestamp types.
const (
	CreateTime TimestampType = iota
	LogAppendTime
)
