package cold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/cache"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
)

// cursorBytes is what a look-up pins at a time: the time index points within a few KiB of the answer.
const cursorBytes = 128 << 10

// OffsetForTime is the first record of [from, upTo), in offset order, with a timestamp of ts or later; log.NoTimestampOffset where
// the tier has none, or where it is not below upTo. It reads a page of the manifest, a sidecar and a batch or two of what is
// not in memory. An error is wire.KafkaStorageError, wire.RequestTimedOut, or that of a cancelled context.
func (r *Reader) OffsetForTime(ctx context.Context, p Partition, ts int64, from, upTo wire.Offset) (log.TimestampOffset, error) {
	return r.lookUp(ctx, p, func() (log.TimestampOffset, error) { return r.offsetForTime(ctx, p, ts, from, upTo) })
}

// MaxTimestamp is the first record of [from, upTo) with the largest timestamp of them; log.NoTimestampOffset where the tier has
// none. Errors as OffsetForTime.
func (r *Reader) MaxTimestamp(ctx context.Context, p Partition, from, upTo wire.Offset) (log.TimestampOffset, error) {
	return r.lookUp(ctx, p, func() (log.TimestampOffset, error) { return r.maxTimestamp(ctx, p, from, upTo) })
}

// lookUp tries once more where the manifest may have moved on or bytes were damaged.
func (r *Reader) lookUp(ctx context.Context, p Partition, find func() (log.TimestampOffset, error)) (log.TimestampOffset, error) {
	var err error
	for range 2 {
		var found log.TimestampOffset
		if found, err = find(); err == nil {
			return found, nil
		}
		if errors.Is(err, object.ErrNotExist) { // safety rule 27
			if _, err := p.Manifest.Refresh(ctx); err != nil {
				break
			}
		}
		if !lasting(err) {
			break
		}
	}
	over := ctx.Err()
	if over == nil && lasting(err) {
		r.alarms.raise(p, p.Manifest.Prefix(), err)
	}
	switch err = cmp.Or(over, err); {
	case errors.Is(err, context.DeadlineExceeded):
		return log.NoTimestampOffset, wire.RequestTimedOut
	case over != nil:
		return log.NoTimestampOffset, over
	}
	return log.NoTimestampOffset, fmt.Errorf("%w: %w", wire.KafkaStorageError, err)
}

func (r *Reader) offsetForTime(ctx context.Context, p Partition, ts int64, from, upTo wire.Offset) (log.TimestampOffset, error) {
	for segment, err := range p.Manifest.FindTime(ctx, ts) {
		switch {
		case err != nil:
			return log.NoTimestampOffset, err
		case segment.End <= from:
			continue
		case segment.Start >= upTo:
			return log.NoTimestampOffset, nil
		}
		found, err := r.firstAtOrAfter(ctx, p, segment, ts, from)
		if err != nil {
			return log.NoTimestampOffset, err
		}
		if found.Offset != wire.NoOffset {
			return below(found, upTo), nil
		}
	}
	return log.NoTimestampOffset, nil
}

func below(found log.TimestampOffset, upTo wire.Offset) log.TimestampOffset {
	if found.Offset >= upTo {
		return log.NoTimestampOffset
	}
	return found
}

func (r *Reader) maxTimestamp(ctx context.Context, p Partition, from, upTo wire.Offset) (log.TimestampOffset, error) {
	state := p.Manifest.State()
	m := maximum{reader: r, partition: p, from: max(from, state.LogStart), upTo: upTo, time: record.NoTimestamp}
	// The newest first: they most often have the largest, and then no page is read that can't have a larger one.
	for _, segment := range slices.Backward(state.Tail) {
		if err := m.compare(ctx, segment); err != nil {
			return log.NoTimestampOffset, err
		}
	}
	for _, page := range slices.Backward(state.Pages) {
		if page.End <= m.from || page.Start >= upTo || page.MaxTimestamp < m.time {
			continue
		}
		segments, err := p.Manifest.Load(ctx, page)
		if err != nil {
			return log.NoTimestampOffset, err
		}
		for _, segment := range slices.Backward(segments) {
			if err := m.compare(ctx, segment); err != nil {
				return log.NoTimestampOffset, err
			}
		}
	}
	if m.time == record.NoTimestamp {
		return log.NoTimestampOffset, nil
	}
	return r.firstAtOrAfter(ctx, p, m.holder, m.time, m.from)
}

// maximum looks for the first segment with the largest timestamp of a range of offsets.
type maximum struct {
	reader     *Reader
	partition  Partition
	from, upTo wire.Offset
	holder     manifest.Segment
	time       int64
}

// compare takes a segment that is older than those before. The manifest knows the largest timestamp of an object; where only a
// part of it counts, that part has to be looked at.
func (m *maximum) compare(ctx context.Context, s manifest.Segment) error {
	if s.End <= m.from || s.Start >= m.upTo || s.MaxTimestamp < m.time {
		return nil
	}
	t := s.MaxTimestamp
	if s.Start > s.Base || s.Clipped || s.Start < m.from || s.End > m.upTo {
		var err error
		if t, err = m.reader.largestIn(ctx, m.partition, s, m.from, m.upTo); err != nil {
			return err
		}
	}
	if t >= m.time {
		m.holder, m.time = s, t
	}
	return nil
}

// largestIn is the largest timestamp of the records of a range that a segment serves.
func (r *Reader) largestIn(ctx context.Context, p Partition, segment manifest.Segment, from, upTo wire.Offset) (int64, error) {
	from, upTo = max(from, segment.Start), min(upTo, segment.End)
	largest := record.NoTimestamp
	err := r.visit(ctx, p, segment, from, math.MinInt64, func(c *cursor, b record.Batch) (bool, error) {
		switch {
		case b.BaseOffset() >= upTo:
			return true, nil
		case b.BaseOffset() >= from && b.LastOffset() < upTo:
			largest = max(largest, b.MaxTimestamp())
			return false, nil
		}
		return false, c.times(ctx, func(x record.Time) bool {
			if x.Offset >= from && x.Offset < upTo {
				largest = max(largest, x.Timestamp)
			}
			return false
		})
	})
	return largest, err
}

// firstAtOrAfter is the first record that a segment serves at or behind an offset with a timestamp of ts or later.
func (r *Reader) firstAtOrAfter(ctx context.Context, p Partition, segment manifest.Segment, ts int64, from wire.Offset) (log.TimestampOffset, error) {
	from = max(from, segment.Start)
	found := log.NoTimestampOffset
	err := r.visit(ctx, p, segment, from, ts, func(c *cursor, b record.Batch) (bool, error) {
		if b.MaxTimestamp() < ts {
			return false, nil
		}
		epoch := b.LeaderEpoch()
		err := c.times(ctx, func(x record.Time) bool {
			if x.Timestamp < ts || x.Offset < from || x.Offset >= segment.End {
				return false
			}
			found = log.TimestampOffset{Timestamp: x.Timestamp, Offset: x.Offset, LeaderEpoch: epoch}
			return true
		})
		return found.Offset != wire.NoOffset, err
	})
	return found, err
}

// visit goes over the headers of the batches of a segment that end at or behind an offset, from where the time index knows of
// none before with a timestamp of ts or later.
func (r *Reader) visit(ctx context.Context, p Partition, segment manifest.Segment, from wire.Offset, ts int64, each func(*cursor, record.Batch) (done bool, err error)) error {
	index, err := r.sidecars.get(ctx, p, segment)
	if err != nil {
		return err
	}
	c := &cursor{reader: r, object: p.segmentOf(segment)}
	defer c.release()
	c.next = max(index.Position(from), index.PositionForTime(ts))
	for {
		b, err := c.header(ctx)
		if err != nil || b == nil || b.BaseOffset() >= segment.End {
			return err
		}
		if b.LastOffset() < from {
			continue
		}
		if done, err := each(c, b); done || err != nil {
			return err
		}
	}
}

// cursor goes over the batches of an object.
type cursor struct {
	reader  *Reader
	object  cache.Object
	pin     *cache.Pin
	from    int64 // what is pinned
	to      int64
	at      int64 // of the batch whose header was returned last
	next    int64
	scratch [record.HeaderSize]byte // for a header that lies in two blocks
}

func (c *cursor) release() {
	if c.pin != nil {
		c.pin.Release()
	}
}

// bytes are n bytes of the object; they are good until the next call.
func (c *cursor) bytes(ctx context.Context, at, n int64) ([]byte, error) {
	if c.pin == nil || at < c.from || at+n > c.to {
		c.release()
		c.pin = nil
		to := min(max(at+n, at+cursorBytes), c.object.Size)
		pin, err := c.reader.cache.Pin(ctx, cache.Want{Object: c.object, From: at, To: to, Wait: true})
		if err != nil {
			return nil, err
		}
		c.pin, c.from, c.to = pin, at, to
	}
	if err := c.pin.Wait(ctx, at, at+n); err != nil {
		return nil, err
	}
	return c.pin.View(at, n, c.scratch[:0])
}

// header is that of the next batch; nil at the end.
func (c *cursor) header(ctx context.Context) (record.Batch, error) {
	c.at = c.next
	if c.at >= c.object.Size {
		return nil, nil
	}
	if c.at+record.HeaderSize > c.object.Size {
		return nil, fmt.Errorf("%w: %s ends within a header", errDamaged, c.object.Key)
	}
	b, err := c.bytes(ctx, c.at, record.HeaderSize)
	if err != nil {
		return nil, err
	}
	size, err := record.SizeOf(b)
	if err != nil || c.at+int64(size) > c.object.Size || record.Batch(b).Magic() != 2 {
		return nil, c.damage(c.at, c.at+record.HeaderSize)
	}
	c.next = c.at + int64(size)
	return b, nil
}

// times visits the records of the batch whose header was returned last, until one is the last to be seen.
func (c *cursor) times(ctx context.Context, each func(record.Time) (done bool)) error {
	b, err := c.bytes(ctx, c.at, c.next-c.at)
	if err != nil {
		return err
	}
	if record.Batch(b).Check() != nil {
		return c.damage(c.at, c.next)
	}
	for x, err := range record.Times(b, c.reader.o.Config().MaxDecompressedBytes) {
		if err != nil {
			return fmt.Errorf("%w: records at position %d of %s: %w", errDamaged, c.at, c.object.Key, err)
		}
		if each(x) {
			return nil
		}
	}
	return nil
}

func (c *cursor) damage(from, to int64) error {
	c.pin.Drop(from, to)
	return fmt.Errorf("%w: %s has no sound batch at position %d", errDamaged, c.object.Key, from)
}
