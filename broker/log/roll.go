package log

import (
	"math"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// pendingSnapshot is the producer state at a roll, on its way to a file.
type pendingSnapshot struct {
	offset wire.Offset
	data   []byte
}

// Roll begins a new segment if the active one holds something.
func (l *Log) Roll(now time.Time) error {
	_, err := l.rollAt(now, wire.NoOffset)
	return err
}

// rollAt is Roll of a log that ends at end; NoOffset: wherever it does. It tells whether it did.
func (l *Log) rollAt(now time.Time, end wire.Offset) (bool, error) {
	l.mu.Lock()
	if end != wire.NoOffset && l.EndOffset() != end {
		l.mu.Unlock()
		return false, nil
	}
	register := false
	err := l.writableLocked()
	if err == nil && l.active().size.Load() > 0 {
		end := l.EndOffset()
		err = l.rollLocked(now, end, end)
		register = !l.dirty
		l.dirty = true
	}
	l.mu.Unlock()
	if register {
		l.env.dirty.add(l)
	}
	return true, err
}

// rollLocked makes a new active segment for batches first to last. What is left to do for the sealed one (indexes, producer
// snapshot, sync) waits for the next flush, so that nothing slow is done here. A crash before it costs a longer recovery.
func (l *Log) rollLocked(now time.Time, first, last wire.Offset) error {
	segments := *l.segments.Load()
	old, end := segments[len(segments)-1], l.EndOffset()
	base := end
	if last-base > math.MaxInt32 {
		base = first // a leader's gap, too wide for the relative offsets
	}
	if base == old.base {
		return nil
	}
	s, err := l.createSegment(now, base)
	if err != nil {
		return l.env.fault("create segment", err)
	}
	kept := slices.Clip(segments)
	if old.size.Load() == 0 {
		if err := old.discard(now.Add(l.deleteDelay())); err != nil {
			return l.env.fault("drop an empty segment", err)
		}
		kept = slices.Clip(segments[:len(segments)-1])
	}
	old.sealed.Store(true)
	l.env.sealed.add(l)
	l.env.rolled.add(l)
	kept = append(kept, s)
	l.segments.Store(&kept)
	l.end.set(end, base, 0)
	l.snapshots = append(l.snapshots, pendingSnapshot{base, l.producers.encode()})
	l.newFiles = true
	return nil
}

// createSegment makes an empty segment's file and opens it.
func (l *Log) createSegment(now time.Time, base wire.Offset) (*segment, error) {
	s := newSegment(l.env, &l.config, l.dir, base, now)
	f, err := l.env.fs.Create(s.path(logSuffix))
	if err != nil {
		return nil, err
	}
	s.used.Store(true)
	s.publish(f)
	return s, nil
}

func (l *Log) deleteDelay() time.Duration {
	return time.Duration(l.config.Load().FileDeleteDelayMs) * time.Millisecond
}
