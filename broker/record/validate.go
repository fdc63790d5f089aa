package record

import "github.com/tidemark-io/tidemark/broker/wire"

// Origin says who asks a leader to append.
type Origin int8

// The origins.
const (
	FromClient      Origin = iota // Produce
	FromCoordinator               // group and transaction state, markers
)

// Policy is what a leader asks of a batch: the topic's settings and the request's circumstances.
type Policy struct {
	Partition       wire.TopicPartition // named in the texts of record errors
	Origin          Origin
	ZstdAllowed     bool // Produce v7 and later
	MaxMessageBytes int  // max.message.bytes: of the batch as it came and as it is stored
	MaxDecompressed int  // max.decompressed.message.bytes: of one record of a compressed batch
	Compacted       bool // every record needs a key; cleanup.policy contains compact
	AppendTime      bool // message.timestamp.type is LogAppendTime
	BeforeMaxMs     int64
	AfterMaxMs      int64
	Target          *Compression // what is stored; nil keeps the producer's (compression.type=producer)
	HeaderOnly      bool         // look only at the header of compressed batches (compressed.batch.validation)
}

// Result is a batch that may be appended.
type Result struct {
	Batch         Batch // the bytes that came, corrected in place; memory of its own if it was compressed anew
	Full          bool  // every record was visited (for compressed.batch.validation=first)
	LogAppendTime int64 // nowMs under LogAppendTime, else NoTimestamp
}

// RecordError names a record that was refused.
type RecordError struct {
	Index   int32 // in the batch
	Message string
}

// Error is why a batch was refused. It unwraps to its wire.Code.
type Error struct {
	Code    wire.Code
	Message string        // Produce v8 and later carry it; empty for null
	Records []RecordError // Produce v8 and later
	// Early says that the batch was refused before the log was looked at: the answer's log start offset is -1.
	Early bool
}

func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code.Error()
	}
	return e.Code.Error() + ": " + e.Message
}

// Unwrap makes errors.Is work with the code.
func (e *Error) Unwrap() error { return e.Code }

// Validate checks the records field of one partition of a Produce request (or a coordinator's batch) as the leader and
// brings the batch into the form in which it is stored: what is left is to set base offset and leader epoch. The error is
// always an *Error. batches is changed in place, so it must be the caller's; null records are an empty slice.
func Validate(batches []byte, policy Policy, nowMs int64) (Result, error) { panic("soon") }
