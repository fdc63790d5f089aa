package log

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// errBatch says that there is no whole, sound batch where one should be.
var errBatch = errors.New("no sound record batch")

// walkChunk is what a walk over headers reads at once: headers of small batches lie close together, those of large ones
// cost one read each.
const walkChunk = 2 << 10

var walkBuffers = sync.Pool{New: func() any { return new([walkChunk]byte) }}

// walker steps over the batches of a segment by their headers; bodies are not read. Damaged ranges are stepped over.
type walker struct {
	file    vfs.File
	pos     int64 // of the next batch
	end     int64 // of what may be looked at
	damaged []damage
	buf     *[walkChunk]byte
	at      int64 // buf holds the n bytes from here on
	n       int
}

// walk begins at a batch's position. The walker must be closed.
func walk(file vfs.File, pos, end int64, damaged []damage) walker {
	return walker{file: file, pos: pos, end: end, damaged: damaged, buf: walkBuffers.Get().(*[walkChunk]byte)}
}

func (w *walker) close() { walkBuffers.Put(w.buf) }

// next is the header of the next batch, valid until the next call, and the batch's position. It is io.EOF at the end,
// and errBatch where no batch can be.
func (w *walker) next() (header record.Batch, pos int64, err error) {
	for _, d := range w.damaged {
		if d.Position <= w.pos && w.pos < d.End {
			w.pos = d.End
		}
	}
	if w.pos >= w.end {
		return nil, w.pos, io.EOF
	}
	if w.end-w.pos < record.HeaderSize {
		return nil, w.pos, fmt.Errorf("%w: %d bytes at position %d", errBatch, w.end-w.pos, w.pos)
	}
	if w.pos < w.at || w.pos+record.HeaderSize > w.at+int64(w.n) {
		n := int(min(walkChunk, w.end-w.pos))
		if _, err := w.file.ReadAt(w.buf[:n], w.pos); err != nil {
			w.n = 0
			return nil, w.pos, err
		}
		w.at, w.n = w.pos, n
	}
	header = record.Batch(w.buf[w.pos-w.at:][:record.HeaderSize])
	size, err := record.SizeOf(header)
	if err != nil || header.Magic() != 2 || header.LastOffsetDelta() < 0 || int64(size) > w.end-w.pos {
		return nil, w.pos, fmt.Errorf("%w: size %d, magic %d at position %d", errBatch, size, header.Magic(), w.pos)
	}
	pos = w.pos
	w.pos += int64(size)
	return header, pos, nil
}

// scanBuffer is what a scan reads at once, little enough to be in the processor's cache when it is verified, and for nobody to wait for
// long; larger batches take a buffer of their own while they are looked at.
const scanBuffer = 128 << 10

// scanner reads the batches of a segment whole and verifies them.
type scanner struct {
	file     vfs.File
	pos, end int64
	buf      []byte
	at       int64  // buf holds the bytes from here on
	yield    func() // between two reads; nil: none
}

func newScanner(file vfs.File, pos, end int64) *scanner {
	return &scanner{file: file, pos: pos, end: end, buf: make([]byte, 0, min(scanBuffer, end-pos))}
}

// yieldingScanner is a scanner that lets others have the processor between two reads.
func (e *environment) yieldingScanner(file vfs.File, pos, end int64) *scanner {
	s := newScanner(file, pos, end)
	s.yield = e.yield
	return s
}

// window is the size bytes at pos.
func (s *scanner) window(size int64) ([]byte, error) {
	if s.pos < s.at || s.pos+size > s.at+int64(len(s.buf)) {
		if s.yield != nil && len(s.buf) > 0 {
			s.yield()
		}
		n := min(max(size, int64(cap(s.buf))), s.end-s.pos)
		if n > int64(cap(s.buf)) {
			s.buf = make([]byte, n)
		}
		s.buf = s.buf[:n]
		s.at = s.pos
		if _, err := s.file.ReadAt(s.buf, s.pos); err != nil {
			s.buf = s.buf[:0]
			return nil, err
		}
	}
	return s.buf[s.pos-s.at:][:size], nil
}

// next verifies the batch at pos and steps over it. Offsets must be at least least and below limit. It returns io.EOF at the
// end, errBatch where no sound batch is; any other error is the disk's.
func (s *scanner) next(least, limit wire.Offset) (record.Batch, error) {
	if s.pos == s.end {
		return nil, io.EOF
	}
	if s.end-s.pos < record.HeaderSize {
		return nil, errBatch
	}
	header, err := s.window(record.HeaderSize)
	if err != nil {
		return nil, err
	}
	size, ok := soundHeader(header, s.end-s.pos, least, limit)
	if !ok {
		return nil, errBatch
	}
	b, err := s.window(size)
	if err != nil {
		return nil, err
	}
	batch := record.Batch(b)
	if batch.Check() != nil {
		return nil, errBatch
	}
	s.pos += size
	return batch, nil
}

// torn tells whether the file ends inside the batch at pos, as after a write that was not finished.
func (s *scanner) torn() bool {
	if s.end-s.pos < record.HeaderSize {
		return true
	}
	header, err := s.window(record.HeaderSize)
	if err != nil {
		return false
	}
	size, err := record.SizeOf(header)
	return err == nil && int64(size) > s.end-s.pos
}

// soundHeader looks at what the checksum does not cover, and at the size before anything is allocated for it.
func soundHeader(b record.Batch, room int64, least, limit wire.Offset) (size int64, ok bool) {
	n, err := record.SizeOf(b)
	if err != nil || int64(n) > room || b.Magic() != 2 || b.LastOffsetDelta() < 0 {
		return 0, false
	}
	return int64(n), b.BaseOffset() >= least && b.LastOffset() >= b.BaseOffset() && b.LastOffset() < limit
}

// resync finds the next sound batch behind a damaged one, or returns io.EOF with pos at the end. The damaged batch's own length
// is tried first: its body may hold what looks like a batch.
func (s *scanner) resync(least, limit wire.Offset) error {
	if s.end-s.pos >= record.HeaderSize {
		header, err := s.window(record.HeaderSize)
		if err != nil {
			return err
		}
		if size, err := record.SizeOf(header); err == nil && int64(size) < s.end-s.pos {
			if found, err := s.sound(s.pos+int64(size), least, limit); found || err != nil {
				return err
			}
		}
	}
	for at := s.pos + 1; s.end-at >= record.HeaderSize; at++ {
		if found, err := s.sound(at, least, limit); found || err != nil {
			return err
		}
	}
	s.pos = s.end
	return io.EOF
}

// sound moves to a position if a sound batch begins there.
func (s *scanner) sound(at int64, least, limit wire.Offset) (bool, error) {
	before := s.pos
	s.pos = at
	_, err := s.next(least, limit)
	if err == nil {
		s.pos = at
		return true, nil
	}
	s.pos = before
	if errors.Is(err, errBatch) || errors.Is(err, io.EOF) {
		return false, nil
	}
	return false, err
}
