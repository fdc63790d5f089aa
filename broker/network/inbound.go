package network

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// sizeBytes is the length of the size in front of each frame.
const sizeBytes = 4

// inbound cuts what arrives on one connection into frames. It holds a buffer only while some of its bytes are waiting.
type inbound struct {
	memory *memory
	max    int // largest size of a frame

	buf        *buffer // nil while nothing is here
	start, end int     // what was received and not yet handed out
	expect     int     // bytes that the next read probably brings, which the next buffer is made for
	large      bool    // the last frame was large, and so is the next one, probably
	trusted    int     // size of the largest frame that was received whole
}

// errFrameSize refuses a frame by its size alone.
var errFrameSize = errors.New("bad frame size")

// pending is the number of bytes here that are not handed out.
func (in *inbound) pending() int { return in.end - in.start }

// size gives the length of the frame that has begun, with its size bytes; it is sizeBytes while that is unknown.
func (in *inbound) size() (int, error) {
	if in.pending() < sizeBytes {
		return sizeBytes, nil
	}
	n := int(int32(binary.BigEndian.Uint32(in.buf.b[in.start:])))
	if n < wire.MinRequestSize || n > in.max {
		return 0, fmt.Errorf("%w: %d", errFrameSize, n)
	}
	return sizeBytes + n, nil
}

// next hands out the next whole frame without its size, or nil if there is none. The frame aliases buf, on which the
// caller takes a reference if the frame has to outlive the next call of discard.
func (in *inbound) next() ([]byte, error) {
	size, err := in.size()
	if err != nil || size == sizeBytes || in.pending() < size {
		return nil, err
	}
	frame := in.buf.b[in.start+sizeBytes : in.start+size : in.start+size]
	in.start += size
	in.trusted = max(in.trusted, size)
	if size > togetherMax/2 {
		in.large, in.expect = true, min(size, expectMax)
	} else if in.large {
		in.large, in.expect = false, size
	}
	return frame, nil
}

// discard lets go of the buffer once all of it was handed out.
func (in *inbound) discard() {
	if in.buf != nil && in.start == in.end {
		in.memory.release(in.buf)
		in.buf, in.start, in.end = nil, 0, 0
	}
}

// share is the buffer of the frame that next handed out, held for one more.
func (in *inbound) share() *buffer {
	in.buf.refs.Add(1)
	return in.buf
}

// drop lets go of everything.
func (in *inbound) drop() {
	in.start = in.end
	in.discard()
}

// reserve makes sure that what has begun to arrive can go on. It is false when c has to wait for memory.
func (in *inbound) reserve(c *conn) bool {
	if in.buf == nil {
		return true // a buffer is taken once there is something to read
	}
	size, _ := in.size() // next has refused a bad one
	if size <= len(in.buf.b)-in.start || in.start == 0 && in.end < len(in.buf.b) {
		return true
	}
	// Room for a frame grows with what has come of it, or to what the client has shown before that it sends.
	want := min(size, max(2*in.pending(), in.trusted, smallMax))
	b := in.buf
	if want > len(b.b) || b.refs.Load() > 1 {
		if b = in.memory.grow(c, want, in.buf); b == nil {
			return false
		}
	}
	in.end = copy(b.b, in.buf.b[in.start:in.end])
	in.start = 0
	if b != in.buf {
		in.memory.release(in.buf)
		in.buf = b
	}
	return true
}

// space is where the next bytes go. A large frame is read to its end and no further, so that the next one need not be
// moved; small ones are read as many at once as there are.
func (in *inbound) space() []byte {
	if in.buf == nil {
		if in.buf = in.memory.try(in.expect); in.buf == nil {
			in.buf = in.memory.try(smallMax)
		}
		if in.large {
			return in.buf.b[:min(in.expect, len(in.buf.b))]
		}
		return in.buf.b
	}
	size, _ := in.size()
	if size > togetherMax/2 {
		return in.buf.b[in.end:min(in.start+size, len(in.buf.b))]
	}
	return in.buf.b[in.end:]
}

// received takes note of n bytes in the first n of space, which was room bytes long.
func (in *inbound) received(n, room int) {
	in.end += n
	switch {
	case in.large:
	case n == room:
		in.expect = min(2*in.expect, togetherMax)
	case n < in.expect/4:
		in.expect = max(in.expect/2, smallestBuffer)
	}
}
