package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// Record is one record of a batch. Its slices alias the batch or a pooled buffer: copy what must outlive the iteration.
type Record struct {
	Offset    wire.Offset // absolute
	Timestamp int64       // the batch's MaxTimestamp under LogAppendTime
	Key       []byte      // nil for null
	Value     []byte      // nil for null
	headers   []byte      // encoded and checked
	count     int         // of headers
}

// HeaderCount is how many headers the record has.
func (r *Record) HeaderCount() int { return r.count }

// Headers walks the headers in order. Names may be empty and may repeat; a value is nil for null.
func (r *Record) Headers() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		b := r.headers
		for range r.count {
			var name, value []byte
			name, b, _ = readBytes(b)
			value, b, _ = readBytes(b)
			if !yield(string(name), value) {
				return
			}
		}
	}
}

// Records walks the records of a whole batch in order. It yields an error once, as the last thing, when the body is damaged
// (ErrCorrupt) or would unfold to more than limit bytes (ErrTooLarge). An uncompressed batch costs no allocation a
// record; a compressed one is unfolded into a pooled buffer that goes back when the loop ends. The checksum is not
// looked at.
func Records(b Batch, limit int) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		body := b.body()
		if codec := b.Codec(); codec != None {
			buffer, err := decompress(codec, body, limit)
			if err != nil {
				yield(Record{}, err)
				return
			}
			defer recycle(buffer)
			body = *buffer
		}
		for range b.Count() {
			record, rest, err := b.readRecord(body)
			if err != nil {
				yield(Record{}, err)
				return
			}
			if !yield(record, nil) {
				return
			}
			body = rest
		}
		if len(body) > 0 {
			yield(Record{}, fmt.Errorf("%w: %d bytes after the last record", ErrCorrupt, len(body)))
		}
	}
}

// Time is what Times tells of a record.
type Time struct {
	Offset    wire.Offset // absolute
	Timestamp int64       // the batch's MaxTimestamp under LogAppendTime
}

// Times is Records for those who want no more than offsets and timestamps: keys and values pass by, so that a body which unfolds
// to a gigabyte takes no more memory than one of a kilobyte. As for Validate the limit is that of one record of a compressed batch. What
// the loop does must not take long, nor unfold another batch.
func Times(b Batch, limit int) iter.Seq2[Time, error] {
	return func(yield func(Time, error) bool) {
		if b.Codec() == None {
			limit = math.MaxInt32
		}
		w := takeWorkspace()
		defer w.release()
		stopped := false
		err := w.unfold(b.Codec(), b.body(), func(r io.Reader) error {
			s := stream{from: r, window: w.window[:], left: max(maxUnfolded, len(b.body()))}
			for range b.Count() {
				size, ok := s.varint()
				if ok && int(size) > limit {
					return ErrTooLarge
				}
				var g glance
				if ok && size >= 0 {
					g, ok = s.record(int(size))
				}
				if !ok || size < 0 {
					return s.broken()
				}
				t := Time{Offset: b.BaseOffset() + wire.Offset(g.offsetDelta), Timestamp: b.BaseTimestamp() + g.timeDelta}
				if b.TimestampType() == LogAppendTime {
					t.Timestamp = b.MaxTimestamp()
				}
				if stopped = !yield(t, nil); stopped {
					return nil
				}
			}
			if s.fill(1) {
				return errRecord
			}
			return s.failure()
		})
		if err == nil || stopped {
			return
		}
		if !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrCorrupt) {
			err = fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		yield(Time{}, err)
	}
}

var errRecord = fmt.Errorf("%w: broken record", ErrCorrupt)

// readRecord reads the first record of an unfolded body of b.
func (b Batch) readRecord(body []byte) (Record, []byte, error) {
	size, n := readVarint(body)
	if n == 0 || size < 0 || int(size) > len(body)-n {
		return Record{}, nil, errRecord
	}
	raw, rest := body[n:n+int(size)], body[n+int(size):]
	s, keyAt, ok := skim(raw)
	if !ok {
		return Record{}, nil, errRecord
	}
	r := Record{
		Offset:    b.BaseOffset() + wire.Offset(s.offsetDelta),
		Timestamp: b.BaseTimestamp() + s.timeDelta,
	}
	if b.TimestampType() == LogAppendTime {
		r.Timestamp = b.MaxTimestamp()
	}
	r.Key, raw, _ = readBytes(raw[keyAt:])
	r.Value, raw, _ = readBytes(raw)
	count, n := readVarint(raw)
	r.count, r.headers = int(count), raw[n:]
	return r, rest, nil
}

// glance is what one look over a record tells. It is small enough to travel in registers.
type glance struct {
	timeDelta   int64
	offsetDelta int32
	hasKey      bool
}

// skim checks the structure of one record, given without its size, and must find its end where raw ends; keyAt is where the
// key's length is. It is the inner loop of produce. What stands before the key is eight bytes in all but odd records, so one load
// serves four fields; the odd ones go to skimLong.
func skim(raw []byte) (g glance, keyAt int, ok bool) {
	if len(raw) < 8 {
		return skimLong(raw)
	}
	head := binary.LittleEndian.Uint64(raw) >> 8 // past the attributes, which have no meaning yet
	time, n1 := shortVarint(head)
	head >>= 8 * n1
	delta, n2 := shortVarint(head)
	head >>= 8 * n2
	key, n3 := shortVarint(head)
	valueAt := int(1+n1+n2+n3) + int(max(key, 0)) // null at any negative length, for Kafka
	if n1 == 0 || n2 == 0 || n3 == 0 || valueAt > len(raw)-2 {
		return skimLong(raw)
	}
	value, n4 := shortVarint(uint64(binary.LittleEndian.Uint16(raw[valueAt:])))
	if end := valueAt + int(n4) + int(max(value, 0)); n4 == 0 || end != len(raw)-1 || raw[end] != 0 {
		return skimLong(raw) // has headers, too
	}
	return glance{int64(time), delta, key >= 0}, int(1 + n1 + n2), true
}

// skimLong is skim for any record.
func skimLong(raw []byte) (g glance, keyAt int, ok bool) {
	if len(raw) == 0 {
		return g, 0, false
	}
	at := 1
	var n int
	if g.timeDelta, n = readVarlong(raw[at:]); n == 0 {
		return g, 0, false
	}
	at += n
	if g.offsetDelta, n = readVarint(raw[at:]); n == 0 {
		return g, 0, false
	}
	at += n
	key, rest, ok := readBytes(raw[at:])
	if !ok {
		return g, 0, false
	}
	g.hasKey = key != nil
	if _, rest, ok = readBytes(rest); !ok {
		return g, 0, false
	}
	headers, n := readVarint(rest)
	return g, at, n > 0 && checkHeaders(rest[n:], headers)
}

// checkHeaders tells whether b is exactly count headers.
func checkHeaders(b []byte, count int32) bool {
	if count < 0 || int(count) > len(b) {
		return false
	}
	for range count {
		name, rest, ok := readBytes(b)
		if !ok || name == nil {
			return false
		}
		if _, b, ok = readBytes(rest); !ok {
			return false
		}
	}
	return len(b) == 0
}

// readBytes reads bytes after their length, nil for a negative one.
func readBytes(b []byte) (value, rest []byte, ok bool) {
	size, n := readVarint(b)
	if n == 0 || int(size) > len(b)-n {
		return nil, nil, false
	}
	b = b[n:]
	if size < 0 {
		return nil, b, true
	}
	return b[:size:size], b[size:], true
}
