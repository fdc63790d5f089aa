package log

import (
	"errors"
	"io"
	"math"

	"github.com/tidemark-io/tidemark/broker/record"
)

// Scrub verifies about budget bytes of sealed segments, at least one batch, and goes on where it stopped the last time. done
// says that it has come to the end; the next call begins at the start again. Damage makes its offsets answer ErrStorage
// from then on, over restarts too.
func (l *Log) Scrub(budget int) (checked int, done bool, err error) {
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	if err := l.env.disk.check(); err != nil || l.moved {
		return 0, true, err
	}
	segments := *l.segments.Load()
	for i := floorSegment(segments, l.scrubAt); i+1 < len(segments); i++ {
		n, err := l.scrubSegment(segments, i, budget-checked)
		checked += n
		if err != nil {
			return checked, true, l.readError(err)
		}
		if checked >= budget {
			return checked, false, nil
		}
		l.scrubAt = segments[i+1].base
	}
	l.scrubAt = 0
	return checked, true, nil
}

// scrubSegment verifies batches of segment i from scrubAt on.
func (l *Log) scrubSegment(segments []*segment, i, budget int) (int, error) {
	s := segments[i]
	h, err := s.open()
	if err != nil {
		return 0, err
	}
	defer h.drop()
	next := max(l.scrubAt, s.base)
	position := int64(0)
	if next > s.base {
		var buf [record.HeaderSize]byte
		b, pos, err := s.seek(h, next, s.size.Load(), &buf)
		if errors.Is(err, io.EOF) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		next, position = b.BaseOffset(), pos
	}
	in := l.env.yieldingScanner(h.file, position, s.size.Load())
	limit := min(segments[i+1].base, s.base+math.MaxInt32+1)
	for {
		if d, ok := s.damageAt(in.pos); ok {
			in.pos, next = d.End, d.Next
		}
		b, err := in.next(next, limit)
		switch {
		case errors.Is(err, io.EOF):
			return int(in.pos - position), nil
		case err == nil:
			next = b.NextOffset()
		case errors.Is(err, errBatch):
			d, err := in.damage(next, limit)
			if err != nil {
				return int(in.pos - position), err
			}
			l.noteDamage(s, d)
			next = d.Next
			if err := l.writeDamage(segments); err != nil {
				return int(in.pos - position), err
			}
		default:
			return int(in.pos - position), err
		}
		if int(in.pos-position) >= budget {
			l.scrubAt = next
			return int(in.pos - position), nil
		}
	}
}
