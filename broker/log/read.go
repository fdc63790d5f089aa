package log

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// ReadRequest asks for a range of the log.
type ReadRequest struct {
	From     wire.Offset
	UpTo     wire.Offset // exclusive: high watermark, last stable offset or, for replicas, EndOffset
	MaxBytes int
	// MinOneBatch lets the first batch through whole even if it is larger than MaxBytes.
	MinOneBatch bool
}

// ReadResult is a piece of one segment. Range.Release must be called once if Range.Length is positive.
type ReadResult struct {
	Range       vfs.Range
	First       wire.Offset // base offset of the first batch of the range; From when it is empty
	FirstBatch  int         // size of the first batch; larger than Range.Length when it is cut
	SegmentBase wire.Offset // of the segment that the range lies in
}

// Read finds the range that begins with the batch that holds r.From, or with the next one where From lies in a gap. It lies
// in one segment, ends before the batch that holds UpTo, and may end inside a batch, as MaxBytes says. It is empty only if
// no batch begins at or behind From and ends before UpTo, or if MaxBytes is 0 without MinOneBatch. It takes no lock.
// ErrOffsetOutOfRange outside [StartOffset, EndOffset], ErrNotLocal below LocalStartOffset; ErrStorage where From is damaged or
// the directory is offline.
func (l *Log) Read(r ReadRequest) (ReadResult, error) {
	if err := l.env.disk.check(); err != nil {
		return ReadResult{}, err
	}
	for {
		segments := l.segments.Load()
		result, err := l.read(*segments, r)
		if err == nil {
			return result, nil
		}
		same := l.segments.Load() == segments
		switch gone := errors.Is(err, errGone); {
		case gone && same:
			return ReadResult{}, fmt.Errorf("%w: log is closed", ErrStorage)
		case !gone && (same || !errors.Is(err, ErrNotLocal)):
			return result, err
		}
	}
}

func (l *Log) read(segments []*segment, r ReadRequest) (ReadResult, error) {
	end, activeBase, activeSize := l.end.get()
	if r.From < l.StartOffset() || r.From > end {
		return ReadResult{}, fmt.Errorf("%w: %d is not in [%d, %d]", ErrOffsetOutOfRange, r.From, l.StartOffset(), end)
	}
	if r.From < segments[0].base {
		return ReadResult{}, fmt.Errorf("%w: %d is below %d", ErrNotLocal, r.From, segments[0].base)
	}
	upTo := min(r.UpTo, end)
	empty := ReadResult{First: r.From, SegmentBase: activeBase}
	if r.From >= upTo {
		return empty, nil
	}
	for i := floorSegment(segments, r.From); i < len(segments); i++ {
		s := segments[i]
		if s.base >= upTo {
			break
		}
		size, next := s.size.Load(), wire.Offset(math.MaxInt64)
		if i+1 < len(segments) {
			next = segments[i+1].base
		} else if s.base == activeBase {
			size, next = activeSize, end
		}
		result, err := s.read(r, upTo, size, next)
		if !errors.Is(err, io.EOF) {
			return result, l.readError(err)
		}
	}
	return empty, nil
}

// readError sorts out what went wrong in a read: only the disk's errors take the directory offline.
func (l *Log) readError(err error) error {
	switch {
	case err == nil, errors.Is(err, errGone), errors.Is(err, ErrStorage):
		return err
	case errors.Is(err, errBatch), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: %w", ErrStorage, err) // damage that the scrub has not found yet
	}
	return l.env.fault("read", err)
}

// read looks into one segment, whose size bytes end before the offset next; io.EOF when From lies behind it all.
func (s *segment) read(r ReadRequest, upTo wire.Offset, size int64, next wire.Offset) (ReadResult, error) {
	h, err := s.open()
	if err != nil {
		return ReadResult{}, err
	}
	result, err := s.find(h, r, upTo, size, next)
	if err != nil || result.Range.Length == 0 {
		h.drop()
	}
	return result, err
}

func (s *segment) find(h *handle, r ReadRequest, upTo wire.Offset, size int64, next wire.Offset) (ReadResult, error) {
	for _, d := range s.damages() {
		if d.First <= r.From && r.From < d.Next {
			return ReadResult{}, fmt.Errorf("%w: offsets %d to %d are damaged", ErrStorage, d.First, d.Next-1)
		}
	}
	var buf [record.HeaderSize]byte
	first, from, err := s.seek(h, r.From, size, &buf)
	if err != nil {
		return ReadResult{}, err
	}
	result := ReadResult{First: first.BaseOffset(), FirstBatch: first.Length(), SegmentBase: s.base}
	if upTo < next {
		_, to, err := s.seek(h, upTo, size, &buf)
		if err == nil {
			size = to
		} else if !errors.Is(err, io.EOF) {
			return ReadResult{}, err
		}
	}
	for _, d := range s.damages() {
		if d.Position >= from {
			size = min(size, d.Position)
		}
	}
	length := min(int64(r.MaxBytes), size-from)
	if r.MinOneBatch {
		length = max(length, min(int64(result.FirstBatch), size-from))
	}
	if length <= 0 {
		result.First = r.From
		return result, nil
	}
	result.Range = vfs.Range{File: h.file, Offset: from, Length: length, Release: h.release}
	return result, nil
}

// UpperOffset bounds the offsets in a range that Read returned: all records in it lie below.
func (l *Log) UpperOffset(r ReadResult) wire.Offset {
	segments := *l.segments.Load()
	i := floorSegment(segments, r.SegmentBase)
	s, next := segments[i], l.nextBase(segments, i)
	h, err := s.open()
	if err != nil {
		return next
	}
	defer h.drop()
	w := walk(h.file, r.Range.Offset, s.size.Load(), s.damages())
	defer w.close()
	for {
		b, pos, err := w.next()
		if err != nil {
			return next
		}
		if pos >= r.Range.Offset+r.Range.Length {
			return b.BaseOffset()
		}
	}
}

// ReadBatches reads whole batches from the one that holds from on, up to the batch that holds upTo, into buf, which is grown
// if the first one needs it. It returns what it read, nothing where there is nothing; the next call begins at the
// NextOffset of the last batch. Errors as Read.
func (l *Log) ReadBatches(from, upTo wire.Offset, buf []byte) ([]byte, error) {
	r, err := l.Read(ReadRequest{From: from, UpTo: upTo, MaxBytes: cap(buf), MinOneBatch: true})
	if err != nil || r.Range.Length == 0 {
		return nil, err
	}
	defer r.Range.Release()
	if r.Range.Length > int64(cap(buf)) {
		buf = make([]byte, r.Range.Length)
	}
	buf = buf[:r.Range.Length]
	if n, err := r.Range.File.ReadAt(buf, r.Range.Offset); err != nil && !(errors.Is(err, io.EOF) && n == len(buf)) {
		return nil, l.readError(err)
	}
	whole := 0
	for rest := buf; ; {
		b, after, err := record.Next(rest)
		if errors.Is(err, record.ErrShort) {
			return buf[:whole], nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: batch behind offset %d: %w", ErrStorage, from, err)
		}
		whole, rest = whole+len(b), after
	}
}
