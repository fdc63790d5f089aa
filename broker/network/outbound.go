package network

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/vfs"
)

const (
	// gatherMax is how many pieces go into one system call at most (IOV_MAX is 1024).
	gatherMax = 64
	// answersMax and answerBytesMax end the collecting of small answers for one write.
	answersMax     = 32
	answerBytesMax = 64 << 10
	// copyBytes is the piece in which files are read that do not go by sendfile: a TLS record, and never refused.
	copyBytes = smallMax
)

// outbound is the answers of one connection that are on their way to its socket, in order. Each range is released once:
// when it was sent, or by drop.
type outbound struct {
	answers  [][]api.Part
	current  int   // index in answers
	part     int   // index in the current answer
	done     int64 // bytes of the current part that are sent
	size     int64 // bytes of all that are not sent
	files    bool  // some of it is in files
	resident bool  // some of it lies in memory of the cache
}

// add puts an answer at the end.
func (o *outbound) add(parts []api.Part) {
	o.answers = append(o.answers, parts)
	for i := range parts {
		o.size += partSize(&parts[i])
		o.files = o.files || parts[i].Range.File != nil
		o.resident = o.resident || inMemory(parts[i].Range)
	}
	o.settle()
}

// inMemory tells whether some of a range lies in memory of the cache, and not in a file.
func inMemory(r vfs.Range) bool {
	if _, ok := r.File.(vfs.Resident); !ok {
		return false
	}
	source, ok := r.File.(vfs.Scattered)
	for ok && r.Length > 0 {
		piece := source.Piece(r.Offset, r.Length)
		if piece.File == nil {
			return true
		}
		r.Offset, r.Length = r.Offset+piece.Length, r.Length-piece.Length
	}
	return !ok
}

// dueWithin is when the client must have taken something more, of what must all be out when it is due.
func (o *outbound) dueWithin(due time.Time, hold time.Duration) time.Time {
	if next := time.Now().Add(hold); o.resident && next.Before(due) {
		return next
	}
	return due
}

func partSize(p *api.Part) int64 {
	if p.Range.File != nil {
		return p.Range.Length
	}
	return int64(len(p.Bytes))
}

// full tells that no more answers should be collected before a write.
func (o *outbound) full() bool {
	return o.files || len(o.answers) >= answersMax || o.size >= answerBytesMax
}

// settle moves past parts that are sent.
func (o *outbound) settle() {
	for ; o.current < len(o.answers); o.current, o.part = o.current+1, 0 {
		for ; o.part < len(o.answers[o.current]); o.part, o.done = o.part+1, 0 {
			p := &o.answers[o.current][o.part]
			if o.done < partSize(p) {
				return
			}
			release(p)
		}
	}
	o.reset()
}

// reset forgets what was sent. Little is kept for the next time: an idle connection should be small.
func (o *outbound) reset() {
	clear(o.answers)
	if o.answers = o.answers[:0]; cap(o.answers) > 4 {
		o.answers = nil
	}
	*o = outbound{answers: o.answers}
}

// advance takes note of n bytes sent.
func (o *outbound) advance(n int64) {
	o.size -= n
	for n > 0 {
		left := partSize(&o.answers[o.current][o.part]) - o.done
		step := min(left, n)
		o.done += step
		n -= step
		o.settle()
	}
}

// file is what is left of the range that is next; its File is nil if bytes are next.
func (o *outbound) file() vfs.Range {
	r := o.answers[o.current][o.part].Range
	return vfs.Range{File: r.File, Offset: r.Offset + o.done, Length: r.Length - o.done}
}

// gather appends to pieces the bytes that are next, up to a file; more tells that something follows them.
func (o *outbound) gather(pieces [][]byte) (_ [][]byte, more bool) {
	done := o.done
	part := o.part
	for i := o.current; i < len(o.answers); i, part = i+1, 0 {
		for ; part < len(o.answers[i]); part, done = part+1, 0 {
			p := &o.answers[i][part]
			switch {
			case partSize(p) == 0:
			case p.Range.File != nil || len(pieces) == gatherMax:
				return pieces, true
			default:
				pieces = append(pieces, p.Bytes[done:])
			}
		}
	}
	return pieces, false
}

// drop gives up what is not sent.
func (o *outbound) drop() {
	for ; o.current < len(o.answers); o.current, o.part = o.current+1, 0 {
		releaseAll(o.answers[o.current][o.part:])
	}
	o.reset()
}

func release(p *api.Part) {
	if p.Range.Release != nil {
		p.Range.Release()
	}
}

func releaseAll(parts []api.Part) {
	for i := range parts {
		release(&parts[i])
	}
}

// errFile marks a failure of a file, not of the socket.
var errFile = errors.New("file for an answer")

// readRange reads from the front of r into b. A file that ends early breaks the frame that was announced.
func readRange(r vfs.Range, b []byte) (int, error) {
	n, err := r.File.ReadAt(b[:min(int64(len(b)), r.Length)], r.Offset)
	if n > 0 {
		return n, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return 0, fmt.Errorf("read %w: %w", errFile, err)
}
