package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/tidemark-io/tidemark/broker/wire"
)

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
	ZstdAllowed     bool         // Produce v7 and later
	MaxMessageBytes int          // max.message.bytes: of the batch, as it came and as it is stored
	MaxDecompressed int          // max.decompressed.message.bytes: of one record of a compressed batch
	Compacted       bool         // cleanup.policy contains compact: every record needs a key
	AppendTime      bool         // message.timestamp.type is LogAppendTime
	BeforeMaxMs     int64        // message.timestamp.before.max.ms
	AfterMaxMs      int64        // message.timestamp.after.max.ms
	Target          *Compression // what is stored (compression.type); nil keeps the producer's
	HeaderOnly      bool         // trust the header of a compressed batch where that is possible (compressed.batch.validation)
}

// Result is a batch that may be appended.
type Result struct {
	Batch         Batch // the bytes that came, corrected in place; memory of its own if it was compressed anew
	Full          bool  // every record was visited
	LogAppendTime int64 // the time stamped on the batch; NoTimestamp under CreateTime
}

// RecordError names a record that was refused.
type RecordError struct {
	Index   int32 // in the batch
	Message string
}

// Error is why a batch was refused. It unwraps to its wire.Code.
type Error struct {
	Code    wire.Code
	Message string        // for Produce v8 and later; empty for null
	Records []RecordError // for Produce v8 and later
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

// The refusals without a text of their own.
var (
	errInvalidEarly = &Error{Code: wire.InvalidRecord, Early: true}
	errCorruptEarly = &Error{Code: wire.CorruptMessage, Early: true}
	errZstdVersion  = &Error{Code: wire.UnsupportedCompressionType, Early: true}
	errBatchTooBig  = &Error{Code: wire.MessageTooLarge, Early: true}
	errInvalid      = &Error{Code: wire.InvalidRecord}
	// errUnreadable is Kafka's answer wherever its code runs into an exception that it does not expect.
	errUnreadable = &Error{Code: wire.UnknownServerError}
)

const (
	// maxRewritten bounds the memory for a batch that is compressed anew; what unfolds to more is too large.
	maxRewritten = 128 << 20
	// maxUnfolded bounds the work that one batch can ask for when its records are only visited.
	maxUnfolded = 1 << 30
)

// Validate checks the records field of one partition of a Produce request (or a coordinator's batch) as the leader and
// brings the batch into the form in which it is stored: what is left is to set base offset and leader epoch. The error is
// always an *Error. batches is changed in place, so it must be the caller's; null records are an empty slice.
func Validate(batches []byte, policy Policy, nowMs int64) (Result, error) {
	b, refused := only(batches, policy.ZstdAllowed)
	if refused == nil {
		refused = policy.admit(b)
	}
	if refused != nil {
		return Result{}, refused
	}
	v := validator{Policy: policy, now: nowMs, batch: b}
	result, refused := v.run()
	if refused != nil {
		return Result{}, refused
	}
	return result, nil
}

// only finds the one batch of the field as Kafka's reader of the formats 0 to 2 does: what follows the batch and is not
// whole is dropped in silence.
func only(field []byte, zstdAllowed bool) (Batch, *Error) {
	size, refused := sizeOfAny(field)
	if refused != nil {
		return nil, refused
	}
	if size == 0 {
		return nil, errInvalidEarly
	}
	if field[atMagic] != magic2 {
		return nil, errInvalidEarly
	}
	if size < HeaderSize {
		return nil, errCorruptEarly
	}
	b := Batch(field[:size:size])
	if b.Codec() == Zstd && !zstdAllowed {
		return nil, errZstdVersion
	}
	more, refused := sizeOfAny(field[size:])
	if refused != nil {
		return nil, errCorruptEarly
	}
	if more != 0 {
		return nil, errInvalidEarly
	}
	return b, nil
}

// oldOverhead is the size of the smallest message of format 0 behind its length.
const oldOverhead = 14

// sizeOfAny is the size of the batch or old message at the start of b; 0 when b does not hold all of it.
func sizeOfAny(b []byte) (int, *Error) {
	if len(b) < SizePrefix {
		return 0, nil
	}
	length := int32(binary.BigEndian.Uint32(b[atLength:]))
	if length < oldOverhead {
		return 0, &Error{
			Code: wire.CorruptMessage, Early: true,
			Message: fmt.Sprintf("Record size %d is less than the minimum record overhead (%d)", length, oldOverhead),
		}
	}
	if len(b) <= atMagic {
		return 0, nil
	}
	if magic := int8(b[atMagic]); magic < 0 || magic > magic2 {
		return 0, &Error{
			Code: wire.CorruptMessage, Early: true,
			Message: fmt.Sprintf("Invalid magic found in record: %d", magic),
		}
	}
	if int64(length)+SizePrefix > int64(len(b)) {
		return 0, nil
	}
	return int(length) + SizePrefix, nil
}

// admit checks what does not need the records, in Kafka's order.
func (p *Policy) admit(b Batch) *Error {
	client := p.Origin == FromClient
	switch {
	case client && b.BaseOffset() != 0:
		return errInvalid
	case len(b) > p.MaxMessageBytes:
		return errBatchTooBig
	case b.CRC() != b.ComputeCRC():
		return errCorruptEarly
	case !b.Codec().known():
		return errUnreadable
	case b.Count() < 0:
		return errInvalid
	}
	if !client {
		return nil
	}
	switch {
	case b.LastOffsetDelta() < 0, b.Count() == 0, int64(b.LastOffsetDelta())+1 != int64(b.Count()):
		return errInvalid
	case b.IsControl():
		return errInvalid
	case b.HasProducerID() && b.BaseSequence() < 0:
		return errInvalid
	}
	return nil
}

// validator carries one batch through the checks of its records.
type validator struct {
	Policy
	now   int64
	batch Batch

	baseTime         int64
	earliest, latest int64 // timestamps between them are right
	maxTime          int64 // of the records visited
	misplaced        bool  // an offset delta differs from the record's place
	errors           recordErrors
}

func (v *validator) run() (Result, *Error) {
	source := v.batch.Codec()
	target := v.target(source)
	v.expect()
	if source == None && target.Codec == None {
		if refused := v.visitPlain(v.batch.body(), math.MaxInt32); refused != nil {
			return Result{}, refused
		}
		return v.stamped(v.batch, v.maxTime, true), nil
	}
	if source != target.Codec {
		return v.rewrite(source, target)
	}
	if v.HeaderOnly && v.headerSuffices() {
		return v.stamped(v.batch, v.batch.MaxTimestamp(), false), nil
	}
	if refused := v.visitCompressed(source); refused != nil {
		return Result{}, refused
	}
	if v.misplaced {
		// Kafka rebuilds such a batch from records whose keys and values it has skipped, and fails.
		return Result{}, errUnreadable
	}
	return v.stamped(v.batch, v.maxTime, true), nil
}

// target is what the batch is to be stored with. Markers are not compressed.
func (v *validator) target(source Codec) Compression {
	if v.Target == nil || v.batch.IsControl() && source == None {
		return Compression{Codec: source}
	}
	return *v.Target
}

// stamped finishes a batch that is stored as it came.
func (v *validator) stamped(b Batch, maxTime int64, full bool) Result {
	if v.AppendTime {
		b.SetMaxTimestamp(LogAppendTime, v.now)
		return Result{Batch: b, Full: full, LogAppendTime: v.now}
	}
	b.SetMaxTimestamp(CreateTime, maxTime)
	return Result{Batch: b, Full: full, LogAppendTime: NoTimestamp}
}

// headerSuffices tells whether the batch can be taken on its header's word. Where the header itself looks wrong, the
// records are visited after all, so that the answer names them.
func (v *validator) headerSuffices() bool {
	b := v.batch
	if v.Compacted || b.TimestampType() == LogAppendTime {
		return false
	}
	return v.AppendTime || b.MaxTimestamp() >= b.BaseTimestamp() && v.inTime(b.BaseTimestamp()) && v.inTime(b.MaxTimestamp())
}

// visitPlain visits the records of an unfolded body, none of which may be larger than recordMax.
func (v *validator) visitPlain(body []byte, recordMax int) *Error {
	at := 0
	for i := range v.batch.Count() {
		size, n := readVarint(body[at:])
		if at += n; n == 0 || size < 0 || int(size) > min(recordMax, len(body)-at) {
			return errInvalid
		}
		end := at + int(size)
		g, _, ok := skim(body[at:end])
		if !ok {
			return errInvalid
		}
		if !v.expects(i, g) {
			v.inspect(i, g)
		}
		at = end
	}
	if at != len(body) {
		return errInvalid
	}
	return v.errors.refusal()
}

// expects takes in a record whose time and key are as they should be. The others are for inspect.
func (v *validator) expects(index int32, g glance) bool {
	timestamp := v.baseTime + g.timeDelta
	if timestamp < v.earliest || timestamp > v.latest || v.Compacted && !g.hasKey {
		return false
	}
	v.maxTime = max(v.maxTime, timestamp)
	v.misplaced = v.misplaced || g.offsetDelta != index
	return true
}

// expect sets the range of timestamps that need no closer look: all that is surely within the topic's bounds, nothing where
// the producer claims LogAppendTime.
func (v *validator) expect() {
	v.baseTime, v.maxTime = v.batch.BaseTimestamp(), NoTimestamp
	switch {
	case v.batch.TimestampType() == LogAppendTime:
		v.earliest, v.latest = math.MaxInt64, math.MinInt64
	case v.AppendTime:
		v.earliest, v.latest = math.MinInt64, math.MaxInt64
	default:
		v.earliest, v.latest = 0, v.now
		if v.BeforeMaxMs < v.now {
			v.earliest = v.now - v.BeforeMaxMs
		}
		if v.AfterMaxMs <= math.MaxInt64-v.now {
			v.latest = v.now + v.AfterMaxMs
		}
	}
}

// inspect finds out what is wrong with a record, if anything, and takes it in.
func (v *validator) inspect(index int32, g glance) {
	timestamp := v.baseTime + g.timeDelta
	stampedByProducer := v.batch.TimestampType() == LogAppendTime
	if stampedByProducer {
		timestamp = v.batch.MaxTimestamp()
	}
	switch {
	case v.Compacted && !g.hasKey:
		v.errors.add(index, wire.InvalidRecord, "Compacted topic cannot accept message without key in topic partition %s",
			v.Partition)
	case !v.AppendTime && timestamp != NoTimestamp:
		if !v.inTime(timestamp) {
			v.errors.add(index, wire.InvalidTimestamp,
				"Timestamp %d of message with offset %d is out of range. The timestamp should be within [%d, %d]",
				timestamp, g.offsetDelta, v.now-v.BeforeMaxMs, v.now+v.AfterMaxMs)
		}
	case stampedByProducer:
		v.errors.add(index, wire.InvalidTimestamp,
			"Invalid timestamp type in message with offset %d. Producer should not set timestamp type to LogAppendTime.",
			g.offsetDelta)
	}
	v.maxTime = max(v.maxTime, timestamp)
	v.misplaced = v.misplaced || g.offsetDelta != index
}

// inTime tells whether a timestamp is within the topic's bounds; the arithmetic wraps as Kafka's does.
func (v *validator) inTime(timestamp int64) bool {
	age := v.now - timestamp
	if age > 0 {
		return age <= v.BeforeMaxMs
	}
	return -age <= v.AfterMaxMs
}

// rewrite stores the records with another codec. Offsets become dense; timestamps, producer and transaction stay.
func (v *validator) rewrite(source Codec, target Compression) (Result, *Error) {
	body, recordMax := v.batch.body(), math.MaxInt32
	if source != None {
		unfoldMax := maxRewritten
		if target.Codec == None {
			unfoldMax = min(unfoldMax, v.MaxMessageBytes) // more could not be stored
		}
		buffer, err := decompress(source, body, unfoldMax)
		switch {
		case errors.Is(err, ErrTooLarge):
			return Result{}, errBatchTooBig
		case err != nil:
			return Result{}, errUnreadable
		}
		defer recycle(buffer)
		body, recordMax = *buffer, v.MaxDecompressed
	}
	if refused := v.visitPlain(body, recordMax); refused != nil {
		return Result{}, refused
	}
	w := Builder{
		LeaderEpoch:   v.batch.LeaderEpoch(),
		Compression:   target,
		Transactional: v.batch.IsTransactional(),
		Control:       v.batch.IsControl(),
		Producer: &Producer{
			ID:       v.batch.ProducerID(),
			Epoch:    v.batch.ProducerEpoch(),
			Sequence: v.batch.BaseSequence(),
		},
	}
	for range v.batch.Count() {
		r, rest, err := v.batch.readRecord(body)
		if err != nil {
			return Result{}, errInvalid
		}
		w.AppendRecord(&r)
		body = rest
	}
	b, err := w.Build()
	if err != nil {
		return Result{}, errUnreadable
	}
	if len(b) > v.MaxMessageBytes {
		return Result{}, errBatchTooBig
	}
	return v.stamped(b, w.maxTime, true), nil
}

// recordErrors collects what is wrong with single records.
type recordErrors struct {
	list  []RecordError
	total int
	times bool // a timestamp is among them
}

// maxRecordErrors bounds the answer; Kafka lists every record, which makes answers many times larger than requests.
const maxRecordErrors = 1000

func (e *recordErrors) add(index int32, code wire.Code, format string, args ...any) {
	e.total++
	e.times = e.times || code == wire.InvalidTimestamp
	if len(e.list) < maxRecordErrors {
		e.list = append(e.list, RecordError{Index: index, Message: fmt.Sprintf(format, args...)})
	}
}

// refusal is the batch's error, nil when no record is refused.
func (e *recordErrors) refusal() *Error {
	if e.total == 0 {
		return nil
	}
	if e.times {
		return &Error{
			Code: wire.InvalidTimestamp, Records: e.list,
			Message: "One or more records have been rejected due to invalid timestamp",
		}
	}
	var shown []string
	for _, r := range e.list[:min(len(e.list), 3)] {
		shown = append(shown, fmt.Sprintf("RecordError(batchIndex=%d, message='%s')", r.Index, r.Message))
	}
	return &Error{Code: wire.InvalidRecord, Records: e.list, Message: fmt.Sprintf("One or more records have been "+
		"rejected due to %d record errors in total, and only showing the first three errors at most: [%s]",
		e.total, strings.Join(shown, ", "))}
}
