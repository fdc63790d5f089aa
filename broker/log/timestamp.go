package log

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// TimestampOffset is the answer of a look-up by time.
type TimestampOffset struct {
	Timestamp   int64
	Offset      wire.Offset
	LeaderEpoch wire.LeaderEpoch
}

// NoTimestampOffset says that nothing was found.
var NoTimestampOffset = TimestampOffset{Timestamp: record.NoTimestamp, Offset: wire.NoOffset, LeaderEpoch: wire.NoLeaderEpoch}

// OffsetForTimestamp is the first record, in offset order and below upTo, with a timestamp of ts or later; NoTimestampOffset
// where there is none. It reads the disk, and looks at what is there: while StartOffset() < LocalStartOffset(), an earlier record may
// be in the object store.
func (l *Log) OffsetForTimestamp(ts int64, upTo wire.Offset) (TimestampOffset, error) {
	if err := l.env.disk.check(); err != nil {
		return NoTimestampOffset, err
	}
	start := l.StartOffset()
	segments := *l.segments.Load()
	for _, s := range segments[floorSegment(segments, start):] {
		if s.base >= upTo {
			break
		}
		largest, err := s.largestTime()
		if err == nil && largest < ts {
			continue
		}
		found := NoTimestampOffset
		if err == nil {
			found, err = s.firstAtOrAfter(ts, start, l.config.Load().MaxDecompressedBytes)
		}
		if err != nil && !errors.Is(err, errGone) {
			return NoTimestampOffset, l.readError(err)
		}
		if found.Offset != wire.NoOffset {
			return below(found, upTo), nil
		}
	}
	return NoTimestampOffset, nil
}

func below(found TimestampOffset, upTo wire.Offset) TimestampOffset {
	if found.Offset >= upTo {
		return NoTimestampOffset
	}
	return found
}

// OffsetOfMaxTimestamp is the first record with the largest timestamp of the log, which is the first of all where none has a
// timestamp; NoTimestampOffset if the log is empty or that record is not below upTo. It reads the disk, and looks at what is
// there, as OffsetForTimestamp.
func (l *Log) OffsetOfMaxTimestamp(upTo wire.Offset) (TimestampOffset, error) {
	if err := l.env.disk.check(); err != nil {
		return NoTimestampOffset, err
	}
	start, largest := l.StartOffset(), record.NoTimestamp
	segments := *l.segments.Load()
	segments = segments[floorSegment(segments, start):]
	holder := segments[0]
	for _, s := range segments {
		t, err := s.largestTime()
		if err == nil && t > largest && s.base < start {
			t, err = s.largestFrom(start, l.config.Load().MaxDecompressedBytes)
		}
		if err != nil && !errors.Is(err, errGone) {
			return NoTimestampOffset, l.readError(err)
		}
		if err == nil && t > largest {
			largest, holder = t, s
		}
	}
	found, err := holder.firstAtOrAfter(largest, start, l.config.Load().MaxDecompressedBytes)
	if errors.Is(err, errGone) {
		return NoTimestampOffset, nil
	}
	return below(found, upTo), l.readError(err)
}

// largestTime is the largest timestamp of the segment, record.NoTimestamp when it has none. The last entry of the time index
// says it, but for batches behind it.
func (s *segment) largestTime() (int64, error) {
	if t := s.maxTime.Load(); t != unknownTime {
		return t, nil
	}
	h, err := s.open()
	if err != nil {
		return 0, err
	}
	defer h.drop()
	start := s.base
	e, ok, err := s.lastTime(h)
	if err != nil {
		return 0, err
	}
	if ok {
		start = s.base + wire.Offset(e.timeOffset())
	}
	largest, err := s.scanLargest(h, start)
	if err != nil {
		return 0, err
	}
	if ok && largest < e.timestamp() { // the index says more than the log: it belongs to something else
		if largest, err = s.scanLargest(h, s.base); err != nil {
			return 0, err
		}
	}
	s.maxTime.CompareAndSwap(unknownTime, largest)
	return largest, nil
}

// scanLargest is the largest timestamp of the batches from an offset on.
func (s *segment) scanLargest(h *handle, from wire.Offset) (int64, error) {
	largest := record.NoTimestamp
	err := s.walkFrom(h, from, func(b record.Batch, _ int64) (bool, error) {
		largest = max(largest, b.MaxTimestamp())
		return false, nil
	})
	return largest, err
}

// largestFrom is the largest timestamp of the records from an offset on, record.NoTimestamp when there are none. No index knows
// it: DeleteRecords may have left off at any record.
func (s *segment) largestFrom(offset wire.Offset, maxDecompressed int) (int64, error) {
	h, err := s.open()
	if err != nil {
		return 0, err
	}
	defer h.drop()
	largest := record.NoTimestamp
	err = s.walkFrom(h, offset, func(header record.Batch, pos int64) (bool, error) {
		if header.BaseOffset() >= offset {
			largest = max(largest, header.MaxTimestamp())
			return false, nil
		}
		b, err := readBatch(h, header, pos)
		if err != nil {
			return true, err
		}
		for r, err := range record.Times(b, maxDecompressed) {
			if err != nil {
				return true, fmt.Errorf("%w: records of the batch at %d: %w", ErrStorage, b.BaseOffset(), err)
			}
			if r.Offset >= offset {
				largest = max(largest, r.Timestamp)
			}
		}
		return false, nil
	})
	return largest, err
}

// lastTime is the last entry of the time index.
func (s *segment) lastTime(h *handle) (entry, bool, error) {
	return s.floorTime(h, math.MaxInt64)
}

// floorTime is the last entry of the time index with a timestamp of at most ts.
func (s *segment) floorTime(h *handle, ts int64) (entry, bool, error) {
	if err := s.ready(h); err != nil {
		return entry{}, false, err
	}
	e, ok, err := s.times.floor(ts, func() ([]byte, error) { return s.mapped(h, timeMap) })
	if err != nil {
		s.rebuildIndexes(h, err)
		return entry{}, false, nil
	}
	return e, ok, nil
}

// walkFrom visits the headers of the batches from the one that holds offset on, until visit says that it is done.
func (s *segment) walkFrom(h *handle, offset wire.Offset, visit func(b record.Batch, pos int64) (done bool, err error)) error {
	var buf [record.HeaderSize]byte
	size := s.size.Load()
	_, pos, err := s.seek(h, offset, size, &buf)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	w := walk(h.file, pos, size, s.damages())
	defer w.close()
	for {
		b, at, err := w.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if done, err := visit(b, at); done || err != nil {
			return err
		}
	}
}

// firstAtOrAfter finds the first record at or behind start with a timestamp of ts or later. Batches before the time index's
// floor are all older; the entry is believed only if it names its batch.
func (s *segment) firstAtOrAfter(ts int64, start wire.Offset, maxDecompressed int) (TimestampOffset, error) {
	h, err := s.open()
	if err != nil {
		return NoTimestampOffset, err
	}
	defer h.drop()
	e, ok, err := s.floorTime(h, ts)
	if err != nil {
		return NoTimestampOffset, err
	}
	from := s.base
	if ok && s.timeEntryHolds(h, e) {
		from = s.base + wire.Offset(e.timeOffset())
	} else if ok {
		s.rebuildIndexes(h, fmt.Errorf("%w: time entry (%d, %d) names no batch", errIndex, e.timestamp(), e.timeOffset()))
	}
	found := NoTimestampOffset
	err = s.walkFrom(h, max(from, start), func(header record.Batch, pos int64) (bool, error) {
		if header.MaxTimestamp() < ts {
			return false, nil
		}
		b, err := readBatch(h, header, pos)
		if err != nil {
			return true, err
		}
		found, err = firstRecord(b, ts, start, maxDecompressed)
		return found.Offset != wire.NoOffset, err
	})
	return found, err
}

// timeEntryHolds tells whether a batch with the entry's timestamp ends at the entry's offset.
func (s *segment) timeEntryHolds(h *handle, e entry) bool {
	var buf [record.HeaderSize]byte
	offset := s.base + wire.Offset(e.timeOffset())
	b, _, err := s.seek(h, offset, s.size.Load(), &buf)
	return err == nil && b.LastOffset() == offset && b.MaxTimestamp() == e.timestamp()
}

// firstRecord finds the first record of a batch at or behind start with a timestamp of ts or later.
func firstRecord(b record.Batch, ts int64, start wire.Offset, maxDecompressed int) (TimestampOffset, error) {
	for r, err := range record.Times(b, maxDecompressed) {
		if err != nil {
			return NoTimestampOffset, fmt.Errorf("%w: records of the batch at %d: %w", ErrStorage, b.BaseOffset(), err)
		}
		if r.Timestamp >= ts && r.Offset >= start {
			return TimestampOffset{Timestamp: r.Timestamp, Offset: r.Offset, LeaderEpoch: b.LeaderEpoch()}, nil
		}
	}
	return NoTimestampOffset, nil
}
