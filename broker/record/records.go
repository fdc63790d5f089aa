package record

import (
	"iter"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// Record is one record of a batch. Its slices alias the batch or a pooled buffer: copy what must outlive the iteration.
type Record struct {
	Offset    wire.Offset // absolute
	Timestamp int64       // the batch's MaxTimestamp under LogAppendTime
	Key       []byte      // nil for null
	Value     []byte      // nil for null
	headers   []byte      // encoded, checked
	count     int32       // of headers
}

// HeaderCount is how many headers the record has.
func (r *Record) HeaderCount() int { return int(r.count) }

// Headers walks the headers in order; a value is nil for null, keys may repeat.
func (r *Record) Headers() iter.Seq2[string, []byte] { panic("soon") }

// Records walks the records of a whole batch in order. It yields an error once, as the last thing, when the body is damaged
// (ErrCorrupt) or would unfold to more than limit bytes (ErrTooLarge). An uncompressed batch costs no allocation a
// record; a compressed one is unfolded into a pooled buffer that goes back when the loop ends. The checksum is not
// looked at.
func Records(b Batch, limit int) iter.Seq2[Record, error] { panic("soon") }
