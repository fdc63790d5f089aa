package record

import (
	"errors"
	"io"
)

// visitCompressed visits the records of the batch while its body unfolds through the workspace's window: a body that
// unfolds to a gigabyte takes time, but no more memory than one of a kilobyte.
func (v *validator) visitCompressed(codec Codec) *Error {
	w := takeWorkspace()
	defer w.release()
	var refused *Error
	err := w.unfold(codec, v.batch.body(), func(r io.Reader) error {
		s := stream{from: r, window: w.window[:], left: maxUnfolded}
		refused = v.visitStream(&s)
		return s.failure()
	})
	switch {
	case err == nil:
		return refused
	case errors.Is(err, ErrTooLarge):
		return errInvalid
	}
	return errUnreadable
}

func (v *validator) visitStream(s *stream) *Error {
	for i := range v.batch.Count() {
		size, ok := s.varint()
		if !ok || size < 0 || int(size) > v.MaxDecompressed {
			return errInvalid
		}
		g, ok := s.record(int(size))
		if !ok {
			return errInvalid
		}
		if !v.expects(i, g) {
			v.inspect(i, g)
		}
	}
	if s.fill(1) {
		return errInvalid
	}
	return v.errors.refusal()
}

// stream reads records from a reader through a window.
type stream struct {
	from   io.Reader
	window []byte
	lo, hi int // what is read and not used is window[lo:hi]
	total  int // bytes read
	left   int // bytes that may yet be read
	err    error
}

// failure is why the stream broke off, nil where it came to its end.
func (s *stream) failure() error {
	if errors.Is(s.err, io.EOF) {
		return nil
	}
	return s.err
}

// broken is why there is no record where one should be.
func (s *stream) broken() error {
	if err := s.failure(); err != nil {
		return err
	}
	return errRecord
}

// fill sees to it that n bytes, at most a window, can be used; false says that the stream ends first.
func (s *stream) fill(n int) bool {
	if s.hi-s.lo >= n {
		return true
	}
	s.hi = copy(s.window, s.window[s.lo:s.hi])
	s.lo = 0
	for s.hi < n && s.err == nil {
		var got int
		got, s.err = s.from.Read(s.window[s.hi:])
		s.hi += got
		s.total += got
		if s.left -= got; s.left < 0 {
			s.err = ErrTooLarge
		}
	}
	return s.hi >= n
}

func (s *stream) skip(n int) bool {
	for n > s.hi-s.lo {
		n -= s.hi - s.lo
		s.lo = s.hi
		if !s.fill(1) {
			return false
		}
	}
	s.lo += n
	return true
}

func (s *stream) varint() (int32, bool) {
	s.fill(maxVarint)
	v, n := readVarint(s.window[s.lo:s.hi])
	s.lo += n
	return v, n > 0
}

// record reads the record of size bytes that comes next.
func (s *stream) record(size int) (glance, bool) {
	if size > len(s.window) {
		return s.bigRecord(size)
	}
	if !s.fill(size) {
		return glance{}, false
	}
	raw := s.window[s.lo : s.lo+size]
	s.lo += size
	g, _, ok := skim(raw)
	return g, ok
}

// bigRecord reads a record that is larger than the window, whose key, value and headers pass by unseen.
func (s *stream) bigRecord(size int) (g glance, ok bool) {
	start := s.used()
	if !s.fill(1) {
		return g, false
	}
	s.lo++ // attributes
	s.fill(maxVarlong)
	var n int
	if g.timeDelta, n = readVarlong(s.window[s.lo:s.hi]); n == 0 {
		return g, false
	}
	s.lo += n
	if g.offsetDelta, ok = s.varint(); !ok {
		return g, false
	}
	if g.hasKey, ok = s.skipBytes(); !ok {
		return g, false
	}
	if _, ok = s.skipBytes(); !ok {
		return g, false
	}
	headers, ok := s.varint()
	if !ok || headers < 0 {
		return g, false
	}
	for range headers {
		name, ok := s.skipBytes()
		if !ok || !name {
			return g, false
		}
		if _, ok = s.skipBytes(); !ok {
			return g, false
		}
	}
	return g, s.used()-start == size
}

// skipBytes passes bytes after their length by; there are none when the length is negative.
func (s *stream) skipBytes() (present, ok bool) {
	size, ok := s.varint()
	if !ok || size < 0 {
		return false, ok
	}
	return true, s.skip(int(size))
}

// used is how many bytes of the stream were used.
func (s *stream) used() int { return s.total - (s.hi - s.lo) }
