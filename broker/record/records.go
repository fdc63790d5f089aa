package record

import (
	"fmt"
	"iter"

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

var errRecord = fmt.Errorf("%w: broken record", ErrCorrupt)

// readRecord reads the first record of an unfolded body of b.
func (b Batch) readRecord(body []byte) (Record, []byte, error) {
	size, n := readVarint(body)
	if n == 0 || size < 0 || int(size) > len(body)-n {
		return Record{}, nil, errRecord
	}
	raw, rest := body[n:n+int(size)], body[n+int(size):]
	s, ok := skim(raw)
	if !ok {
		return Record{}, nil, errRecord
	}
	r := Record{
		Offset:    b.BaseOffset() + wire.Offset(s.offsetDelta),
		Timestamp: b.BaseTimestamp() + s.timeDelta,
		count:     int(s.headers),
	}
	if b.TimestampType() == LogAppendTime {
		r.Timestamp = b.MaxTimestamp()
	}
	raw = raw[s.keyAt:]
	r.Key, raw, _ = readBytes(raw)
	r.Value, raw, _ = readBytes(raw)
	_, n = readVarint(raw)
	r.headers = raw[n:]
	return r, rest, nil
}

// glance is what one look over a record tells.
type glance struct {
	timeDelta   int64
	offsetDelta int32
	headers     int32
	keyAt       int // where the key's length is
	hasKey      bool
}

// skim checks the structure of one record, given without its size, and must find its end where raw ends. It is the
// inner loop of produce: no allocation, no copy, a few nanoseconds, hence the long hand.
func skim(raw []byte) (g glance, ok bool) {
	at := 1 // past the attributes, which have no meaning yet
	u, n := readShort(raw, at)
	if g.timeDelta = int64(unzigzag(u)); n == 0 {
		if len(raw) == 0 {
			return g, false
		}
		if g.timeDelta, n = readLongVarlong(raw[at:]); n == 0 {
			return g, false
		}
	}
	at += n
	u, n = readShort(raw, at)
	if g.offsetDelta = unzigzag(u); n == 0 {
		if g.offsetDelta, n = readLongVarint(raw[at:]); n == 0 {
			return g, false
		}
	}
	at += n
	g.keyAt = at
	for i := range 2 { // key and value
		u, n = readShort(raw, at)
		size := unzigzag(u)
		if n == 0 {
			if size, n = readLongVarint(raw[at:]); n == 0 {
				return g, false
			}
		}
		at += n
		if size < 0 {
			continue // null, for Kafka at any negative length
		}
		if int(size) > len(raw)-at {
			return g, false
		}
		at += int(size)
		g.hasKey = g.hasKey || i == 0
	}
	if at == len(raw)-1 && raw[at] == 0 {
		return g, true // no headers
	}
	if g.headers, n = readVarint(raw[at:]); n == 0 {
		return g, false
	}
	return g, checkHeaders(raw[at+n:], g.headers)
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
