package log

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// TruncateTo drops everything from offset on; a batch that offset splits goes whole. It tells whether something went. It is
// durable when it returns, so that no crash brings back what was cut.
//
// A tiered log that is cut below its local start begins there anew, empty: what the object store has below stays, and its producers
// are not known here (StartFromTier brings them).
func (l *Log) TruncateTo(now time.Time, offset wire.Offset) (bool, error) {
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	if err := l.inPlace(); err != nil {
		return false, err
	}
	if offset >= l.EndOffset() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.setEpochsLocked(l.epochs.Load().truncateEnd(offset))
		return false, nil
	}
	segments := *l.segments.Load()
	if offset <= segments[0].base {
		// What the object store holds below stays.
		return true, l.restartMaintained(now, beginning{at: offset, start: min(offset, l.StartOffset()), epochs: l.epochs.Load().truncateEnd(offset)})
	}
	c, err := findCut(segments, offset)
	if err != nil {
		return false, l.readError(err)
	}
	if err := l.lowerRecoveryPoint(c.end); err != nil {
		return false, err
	}
	l.mu.Lock()
	err = l.truncateLocked(now, c)
	l.mu.Unlock()
	if err == nil {
		err = l.syncDir()
	}
	if err != nil {
		return true, l.env.fault("truncate", err)
	}
	return true, nil
}

// cut is where a log is to end.
type cut struct {
	segment  int // number of the last segment
	position int64
	end      wire.Offset
}

func findCut(segments []*segment, offset wire.Offset) (cut, error) {
	c := cut{segment: floorSegment(segments, offset), end: offset}
	s := segments[c.segment]
	h, err := s.open()
	if err != nil {
		return c, err
	}
	defer h.drop()
	c.position = s.size.Load()
	var buf [record.HeaderSize]byte
	b, pos, err := s.seek(h, offset, c.position, &buf)
	if errors.Is(err, io.EOF) {
		return c, nil
	}
	if err == nil {
		c.position, c.end = pos, min(offset, b.BaseOffset())
	}
	return c, err
}

// lowerRecoveryPoint makes sure that no recovery trusts what is about to be written anew.
func (l *Log) lowerRecoveryPoint(offset wire.Offset) error {
	if l.RecoveryPoint() <= offset {
		return nil
	}
	l.recoveryPoint.Store(int64(offset))
	markChanged(&l.env.disk.recoveryChanged)
	if l.env.saveRecoveryPoints == nil {
		return nil
	}
	if err := l.env.saveRecoveryPoints(); err != nil {
		return l.env.fault("lower the recovery point", err)
	}
	return nil
}

func (l *Log) truncateLocked(now time.Time, c cut) error {
	segments := *l.segments.Load()
	s := segments[c.segment]
	h, err := s.open()
	if err != nil {
		return err
	}
	defer h.drop()
	s.sealed.Store(false)
	s.finished = false
	kept := slices.Clone(segments[:c.segment+1])
	l.segments.Store(&kept)
	l.end.set(c.end, s.base, c.position)
	s.size.Store(c.position)
	for i := len(segments) - 1; i > c.segment; i-- {
		if err := segments[i].discard(now.Add(l.deleteDelay())); err != nil {
			return err
		}
	}
	s.reserved = 0
	if err := errors.Join(h.file.Truncate(c.position), syncData(h.file)); err != nil {
		return err
	}
	if err := l.cutDamage(s, kept, c.position); err != nil {
		return err
	}
	if err := s.reindex(h, c.end); err != nil {
		return err
	}
	return l.forgetLocked(now, kept, c.end)
}

// cutDamage forgets damaged ranges that were cut off.
func (l *Log) cutDamage(s *segment, segments []*segment, position int64) error {
	ranges := s.damages()
	left := slices.DeleteFunc(slices.Clone(ranges), func(d damage) bool { return d.Position >= position })
	if len(left) == len(ranges) {
		return nil
	}
	s.damaged.Store(&left)
	return l.writeDamage(segments)
}

// reindex makes the indexes of a segment anew that was cut at the offset end.
func (s *segment) reindex(h *handle, end wire.Offset) error {
	x := s.indexBuilder()
	w := walk(h.file, 0, s.size.Load(), s.damages())
	defer w.close()
	for {
		b, pos, err := w.next()
		if errors.Is(err, io.EOF) || errors.Is(err, errBatch) {
			break
		}
		if err != nil {
			return err
		}
		x.add(b, pos)
	}
	s.firstTime = unknownTime
	kept, err := s.abortedBelow(end)
	if err != nil {
		return err
	}
	return errors.Join(s.adoptIndexes(&x), s.setAborted(kept))
}

// forgetLocked takes everything from end on out of what follows the log.
func (l *Log) forgetLocked(now time.Time, segments []*segment, end wire.Offset) error {
	l.setEpochsLocked(l.epochs.Load().truncateEnd(end))
	l.watermark.Store(min(l.watermark.Load(), int64(end)))
	if l.TieredEndOffset() > end {
		l.tieredEnd.Store(int64(wire.NoOffset)) // it was said of another history
	}
	l.start.Store(min(l.start.Load(), int64(end)))
	l.snapshots = slices.DeleteFunc(l.snapshots, func(p pendingSnapshot) bool { return p.offset > end })
	if err := l.removeSnapshots(func(at wire.Offset) bool { return at > end }); err != nil {
		return err
	}
	from, err := l.loadSnapshot(now, end)
	if err != nil {
		return err
	}
	if err := l.replay(now, segments, max(from, segments[0].base), end); err != nil {
		return err
	}
	l.producers.replicated(l.HighWatermark())
	l.publishUnstableLocked()
	return nil
}

// TruncateFullyAndStartAt drops everything and starts anew at offset.
func (l *Log) TruncateFullyAndStartAt(now time.Time, offset wire.Offset) error {
	if offset < 0 {
		return fmt.Errorf("%w: %d", ErrOffsetOutOfRange, offset)
	}
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	if err := l.inPlace(); err != nil {
		return err
	}
	return l.restartMaintained(now, beginning{at: offset, start: offset})
}

func (l *Log) restartMaintained(now time.Time, b beginning) error {
	if err := l.lowerRecoveryPoint(min(b.at, l.StartOffset())); err != nil {
		return err
	}
	l.mu.Lock()
	err := l.startAnew(now, *l.segments.Load(), b)
	l.publishUnstableLocked()
	l.mu.Unlock()
	if err == nil {
		err = l.syncDir()
	}
	if err != nil {
		return l.env.fault("start the log anew", err)
	}
	markChanged(&l.env.disk.startChanged)
	markChanged(&l.env.disk.recoveryChanged)
	return nil
}
