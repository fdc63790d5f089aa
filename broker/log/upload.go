package log

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// SealedSegment describes a segment to which nothing is appended any more.
type SealedSegment struct {
	Base wire.Offset
	Next wire.Offset // the next segment's base
	Size int64
	// LatestMs is what retention goes by: the largest timestamp, or where the records have none the file's time;
	// math.MaxInt64 where damage hides it.
	LatestMs int64
	Damaged  bool // a batch is unsound: it can't be uploaded
}

// SealedSegments describes the sealed segments that end behind from, oldest first. It may read the disk.
func (l *Log) SealedSegments(from wire.Offset) ([]SealedSegment, error) {
	if err := l.env.disk.check(); err != nil {
		return nil, err
	}
	segments := *l.segments.Load()
	var list []SealedSegment
	for i, s := range segments[:len(segments)-1] {
		next := segments[i+1].base
		if next <= from {
			continue
		}
		latest, err := s.latest()
		switch {
		case errors.Is(err, errGone):
			continue
		case errors.Is(err, errBatch):
			latest = math.MaxInt64
		case err != nil:
			return nil, l.readError(err)
		}
		list = append(list, SealedSegment{
			Base: s.base, Next: next, Size: s.size.Load(), LatestMs: latest, Damaged: err != nil || len(s.damages()) > 0,
		})
	}
	return list, nil
}

// UnsealedSince is when the oldest record of the active segment was appended; ok is false when it is empty. After a restart it
// is worked out from the record's timestamp, within what the times of the files allow and not behind now. It may read the disk.
func (l *Log) UnsealedSince(now time.Time) (since time.Time, ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return time.Time{}, false, errClosed
	}
	segments := *l.segments.Load()
	s := segments[len(segments)-1]
	if s.size.Load() == 0 {
		return time.Time{}, false, nil
	}
	if s.since.IsZero() {
		before := path.Join(l.dir, partitionFile)
		if len(segments) > 1 {
			before = segments[len(segments)-2].path(logSuffix)
		}
		if s.since, err = l.sinceLocked(s, before); err != nil {
			return time.Time{}, false, err
		}
	}
	if s.since.After(now) {
		return now, true, nil
	}
	return s.since, true, nil
}

// sinceLocked is the timestamp of a segment's first batch, but not before a file that was written before it, nor behind its own
// last write: what producers say of the time may be anything.
func (l *Log) sinceLocked(s *segment, before string) (time.Time, error) {
	first, err := l.firstTimeLocked(s)
	if err != nil {
		return time.Time{}, err
	}
	last, err := l.env.fs.Stat(s.path(logSuffix))
	if err != nil {
		return time.Time{}, l.env.fault("look at segment", err)
	}
	if info, err := l.env.fs.Stat(before); err == nil {
		first = max(first, info.ModTime)
	}
	return time.UnixMilli(min(first, last.ModTime)), nil
}

// Upload is a sealed segment held open, with all that goes to the object store beside it. Everything was verified and is durable
// here. Release must be called once.
type Upload struct {
	Base         wire.Offset
	Next         wire.Offset
	File         vfs.File // the segment is its first Size bytes
	Size         int64
	MinTimestamp int64 // of the batches' first records, -1 when there is none
	MaxTimestamp int64 // -1 when there is none

	OffsetIndex []byte       // an .index file, made from the batches
	TimeIndex   []byte       // a .timeindex file, likewise
	TxnIndex    []byte       // a .txnindex file; empty without aborted transactions
	Producers   []byte       // a .snapshot file as of Next
	Epochs      []EpochEntry // the log's, up to Next

	held *handle
}

// Release lets go of the file.
func (u *Upload) Release() { u.held.drop() }

// OpenUpload makes the sealed segment that begins at base durable, reads it whole, and holds it for an upload. Indexes that are
// missing or damaged here are no obstacle. What is read is written to also, in order, which spares whoever needs its checksum
// another pass; their errors do not count. It is ErrDamaged where a batch is unsound, and ErrOffsetOutOfRange where no
// sealed segment begins at base. It blocks on the disk for as long as it takes to read the segment.
func (l *Log) OpenUpload(base wire.Offset, also ...io.Writer) (*Upload, error) {
	s, next, err := l.sealedAt(base)
	if err != nil {
		return nil, err
	}
	if err := l.flushTo(next); err != nil {
		return nil, err
	}
	h, err := s.open()
	if err != nil {
		return nil, l.uploadError(base, err)
	}
	u := &Upload{Base: base, Next: next, File: h.file, Size: s.size.Load(), held: h}
	if err = l.fill(u, s, also); err == nil {
		// A segment that was cut meanwhile is another one.
		_, now, gone := l.sealedAt(base)
		if err = gone; err == nil && now != next {
			err = fmt.Errorf("%w: segment %d ends at %d, not %d", ErrOffsetOutOfRange, base, now, next)
		}
	}
	if err != nil {
		u.Release()
		return nil, l.uploadError(base, err)
	}
	return u, nil
}

// uploadError tells the disk's errors from those of a segment.
func (l *Log) uploadError(base wire.Offset, err error) error {
	switch {
	case errors.Is(err, errGone), errors.Is(err, ErrOffsetOutOfRange):
		return fmt.Errorf("%w: no sealed segment at %d", ErrOffsetOutOfRange, base)
	case errors.Is(err, ErrStorage):
		return err
	}
	return l.env.fault("read segment for its upload", err)
}

func (l *Log) sealedAt(base wire.Offset) (s *segment, next wire.Offset, err error) {
	segments := *l.segments.Load()
	i := floorSegment(segments, base)
	if segments[i].base != base || i+1 == len(segments) {
		return nil, 0, fmt.Errorf("%w: no sealed segment at %d", ErrOffsetOutOfRange, base)
	}
	return segments[i], segments[i+1].base, nil
}

// fill reads the segment whole, and gathers what goes with it.
func (l *Log) fill(u *Upload, s *segment, also []io.Writer) error {
	markers, err := l.scanUpload(u, s, also)
	if err != nil {
		return err
	}
	if u.TxnIndex, err = l.uploadTxnIndex(s, markers); err != nil {
		return err
	}
	if u.Producers, err = l.producersAt(u.Next); err != nil {
		return err
	}
	u.Epochs = slices.Clone(l.epochs.Load().truncateEnd(u.Next))
	for _, suffix := range []string{offsetSuffix, timeSuffix, txnSuffix} {
		if err := syncFile(l.env.fs, s.path(suffix)); err != nil {
			return err
		}
	}
	return nil
}

// scanUpload verifies every batch and makes the offset and the time index from them. It returns the abort markers.
func (l *Log) scanUpload(u *Upload, s *segment, also []io.Writer) (markers []AbortedTransaction, err error) {
	if d := s.damages(); len(d) > 0 {
		return nil, fmt.Errorf("%w: offsets %d to %d", ErrDamaged, d[0].First, d[0].Next-1)
	}
	l.env.scan.Lock()
	defer l.env.scan.Unlock()
	x := s.indexBuilder()
	in := l.env.yieldingScanner(u.File, 0, u.Size)
	limit := min(u.Next, s.base+math.MaxInt32+1)
	u.MinTimestamp = record.NoTimestamp
	for at := s.base; ; {
		pos := in.pos
		b, err := in.next(at, limit)
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, errBatch) {
			return nil, l.holdBack(s, in, at, limit)
		}
		if err != nil {
			return nil, err
		}
		for _, w := range also {
			_, _ = w.Write(b) // a checksum, as the doc comment says
		}
		at = b.NextOffset()
		x.add(b, pos)
		first := b.BaseTimestamp()
		if b.TimestampType() == record.LogAppendTime {
			first = b.MaxTimestamp()
		}
		if first >= 0 && (u.MinTimestamp < 0 || first < u.MinTimestamp) {
			u.MinTimestamp = first
		}
		if marker, ok, err := record.ReadEndTxnMarker(b); b.IsControl() && err == nil && ok && marker.Type == record.Abort {
			markers = append(markers, AbortedTransaction{ProducerID: b.ProducerID(), Last: b.LastOffset()})
		}
	}
	x.seal()
	u.OffsetIndex, u.TimeIndex, u.MaxTimestamp = x.offsets, x.times, x.sparse.maxTime
	u.MinTimestamp = min(u.MinTimestamp, u.MaxTimestamp)
	return markers, nil
}

// holdBack notes the damage that a scan has come upon.
func (l *Log) holdBack(s *segment, in *scanner, first, limit wire.Offset) error {
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	if l.moved {
		return errGone
	}
	d, err := in.damage(first, limit)
	if err != nil {
		return err
	}
	if _, known := s.damageAt(d.Position); !known {
		l.noteDamage(s, d)
		if err := l.writeDamage(*l.segments.Load()); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: offsets %d to %d", ErrDamaged, d.First, d.Next-1)
}

// uploadTxnIndex is the transaction index, made anew if it is damaged or does not name what the batches say.
func (l *Log) uploadTxnIndex(s *segment, markers []AbortedTransaction) ([]byte, error) {
	list, err := s.abortedList()
	if err != nil && !errors.Is(err, errTxnIndex) {
		return nil, err
	}
	same := func(a, b AbortedTransaction) bool { return a.ProducerID == b.ProducerID && a.Last == b.Last }
	if err != nil || !slices.EqualFunc(list, markers, same) {
		if list, err = l.rebuildAborted(s); err != nil {
			return nil, err
		}
	}
	var b []byte
	for _, t := range list {
		b = appendTxnEntry(b, t)
	}
	return b, nil
}

// producersAt is the producer snapshot as of a segment's end, which the batches say where the file is not there or unsound.
func (l *Log) producersAt(next wire.Offset) ([]byte, error) {
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	if l.moved {
		return nil, errGone
	}
	if _, found := slices.BinarySearchFunc(l.snapshotFiles, next, cmp.Compare[wire.Offset]); found {
		data, err := readFile(l.env.fs, l.snapshotPath(next))
		if err != nil {
			return nil, err
		}
		if _, err := DecodeProducerSnapshot(data); err == nil {
			return data, nil
		}
	}
	scratch, from, err := l.scratch(next)
	if err != nil {
		return nil, err
	}
	segments := *l.segments.Load()
	if err := scratch.replay(time.Time{}, segments, max(from, segments[0].base), next); err != nil {
		return nil, err
	}
	return scratch.producers.encode(), nil
}
