package record

import "github.com/tidemark-io/tidemark/broker/wire"

// Header is a record's header.
type Header struct {
	Key   string
	Value []byte // nil for null
}

// Builder makes one batch. The zero value, or one after Reset, builds an uncompressed batch at base offset 0 without producer.
// Set the fields before the first Append.
type Builder struct {
	BaseOffset    wire.Offset
	LeaderEpoch   wire.LeaderEpoch
	Compression   Compression
	TimestampType TimestampType // LogAppendTime takes AppendTime for the batch's maximum
	AppendTime    int64
	Transactional bool
	Control       bool
	Producer      *Producer
}

// Producer is the identity of an idempotent producer.
type Producer struct {
	ID       wire.ProducerID
	Epoch    wire.ProducerEpoch
	Sequence int32 // of the first record
}

// Append adds a record at the next offset.
func (w *Builder) Append(timestamp int64, key, value []byte, headers ...Header) { panic("soon") }

// AppendAt adds a record at base offset + delta; deltas only rise.
func (w *Builder) AppendAt(delta int32, timestamp int64, key, value []byte, headers ...Header) {
	panic("soon")
}

// Count is the number of records so far.
func (w *Builder) Count() int { panic("soon") }

// Size is how many bytes the batch would have now, before compression.
func (w *Builder) Size() int { panic("soon") }

// Build returns the finished batch in memory of its own. The Builder can be used again after Reset.
func (w *Builder) Build() (Batch, error) { panic("soon") }

// Reset forgets the records and keeps the settings.
func (w *Builder) Reset() { panic("soon") }
