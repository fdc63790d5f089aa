package log

import (
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// recovery brings a log into order after an unclean stop: it verifies every batch from the segment of the recovery point on,
// cuts what is torn, marks what is damaged, and makes indexes, epochs and producer state anew.
//
// What is cut: in the last segment a batch that the file's end cuts short, and an unsound one that no sound one follows, flushed or not, as
// in Kafka: a disk that has forgotten what it was told to keep leaves the same. After a power loss also everything above the recovery
// point from the first unsound batch on, in any segment, or from a gap between two of them: the log must be a prefix. Damage elsewhere
// happened to data that was complete once: it is marked and never cut.
type recovery struct {
	l        *Log
	now      time.Time
	stop     Stop
	point    wire.Offset
	segments []*segment
	next     wire.Offset // the log's end as far as it was scanned
	state    wire.Offset // producer state holds everything below
	marked   bool
}

func (r *recovery) run() error {
	l := r.l
	first := floorSegment(r.segments, r.point)
	if err := l.loadEpochs(r.segments[:first+1], r.segments[first].base); err != nil {
		return err
	}
	// Entries behind may be those of a history that was cut off since; the batches say how it is.
	l.setEpochsLocked(l.epochs.Load().truncateEnd(r.segments[first].base))
	if err := r.epochsBefore(first); err != nil {
		return err
	}
	var err error
	if r.state, err = l.loadSnapshot(r.now, r.point); err != nil {
		return err
	}
	if err := l.replay(r.now, r.segments[:first+1], max(r.state, r.segments[0].base), r.segments[first].base); err != nil {
		return err
	}
	r.state = max(r.state, r.segments[first].base)
	for i := first; i < len(r.segments); i++ {
		cut, err := r.scan(i)
		if err != nil {
			return err
		}
		if cut || r.hole(i) {
			if err := r.drop(i + 1); err != nil {
				return err
			}
			break
		}
		if i+1 < len(r.segments) && r.state <= r.next {
			l.snapshots = append(l.snapshots, pendingSnapshot{r.segments[i+1].base, l.producers.encode()})
		}
	}
	if err := l.removeSnapshots(func(at wire.Offset) bool { return at > r.next }); err != nil {
		return err
	}
	if r.state > r.next { // the producers know batches that are gone
		from, err := l.loadSnapshot(r.now, r.next)
		if err != nil {
			return err
		}
		if err := l.replay(r.now, r.segments, max(from, r.segments[0].base), r.next); err != nil {
			return err
		}
	}
	if r.marked {
		return l.writeDamage(r.segments)
	}
	return nil
}

// epochsBefore puts the epochs of the first batches before those that are known: the log start may have risen, and the file have been
// written, when the crash left the batches behind it in place.
func (r *recovery) epochsBefore(first int) error {
	l := r.l
	known := *l.epochs.Load()
	base, end := r.segments[0].base, r.segments[first].base
	if len(known) > 0 {
		end = known[0].Start
	}
	if end <= base {
		return nil
	}
	l.setEpochsLocked(nil)
	err := l.eachHeader(r.segments[:first+1], base, end, func(_ *handle, b record.Batch, _ int64) error {
		l.assignEpochLocked(max(b.LeaderEpoch(), l.epochs.Load().latest()), b.BaseOffset())
		return nil
	})
	for _, e := range known {
		l.assignEpochLocked(e.Epoch, e.Start)
	}
	return err
}

// hole tells whether a power loss took the end of segment i and left a later one.
func (r *recovery) hole(i int) bool {
	return r.stop == StopPowerLoss && i+1 < len(r.segments) && r.next >= r.point && r.next != r.segments[i+1].base
}

// drop gives up the segments from number from on, the newest first, so that a crash leaves a prefix.
func (r *recovery) drop(from int) error {
	if from >= len(r.segments) {
		return nil
	}
	for i := len(r.segments) - 1; i >= from; i-- {
		s := r.segments[i]
		r.l.env.logger.Warn("segment behind the end of the log is dropped", "dir", r.l.dir, "offset", int64(s.base))
		if err := s.discard(r.now.Add(r.l.deleteDelay())); err != nil {
			return err
		}
	}
	r.segments = slices.Clip(r.segments[:from])
	return r.l.env.fs.SyncDir(r.l.dir)
}

// scan verifies one segment. cut tells that its end was cut off.
func (r *recovery) scan(i int) (cut bool, err error) {
	s := r.segments[i]
	r.next = s.base
	if s.size.Load() == 0 {
		return false, nil
	}
	h, err := s.open()
	if err != nil {
		return false, err
	}
	defer s.closeFiles()
	defer h.drop()
	last := i+1 == len(r.segments)
	limit := s.base + math.MaxInt32 + 1
	if !last {
		limit = min(limit, r.segments[i+1].base)
	}
	kept, err := s.abortedBelow(r.state)
	if err != nil {
		return false, err
	}
	x := s.indexBuilder()
	in := newScanner(h.file, 0, s.size.Load())
	for {
		if d, ok := s.damageAt(in.pos); ok {
			in.pos, r.next = d.End, d.Next
		}
		pos := in.pos
		b, err := in.next(r.next, limit)
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, errBatch) {
			if r.next >= r.point && (r.stop == StopPowerLoss || last && in.torn()) {
				cut = true
			} else if cut, err = r.mark(s, in, limit, last); err != nil {
				return false, err
			}
			if cut {
				if err := r.cutAt(s, h, pos); err != nil {
					return false, err
				}
				break
			}
			continue
		}
		if err != nil {
			return false, err
		}
		x.add(b, pos)
		kept = r.take(b, kept)
	}
	if !last {
		x.seal()
	}
	return cut, errors.Join(s.adoptIndexes(&x), s.setAborted(kept))
}

// mark notes a damaged range. In the last segment, where nothing sound follows, it is a torn end after all: end is true.
func (r *recovery) mark(s *segment, in *scanner, limit wire.Offset, last bool) (end bool, err error) {
	d, err := in.damage(r.next, limit)
	if err != nil || last && d.End == in.end {
		return true, err
	}
	r.next, r.marked = d.Next, true
	r.l.noteDamage(s, d)
	return false, nil
}

func (r *recovery) cutAt(s *segment, h *handle, pos int64) error {
	r.l.env.logger.Warn("log is cut at the last whole batch", "dir", r.l.dir, "offset", int64(r.next), "bytes", s.size.Load()-pos)
	s.size.Store(pos)
	// Synced, so that nothing behind the cut comes back after a further crash.
	return errors.Join(h.file.Truncate(pos), syncData(h.file))
}

// take brings epochs and producers up to a sound batch; it returns the aborted transactions with that which it ended.
func (r *recovery) take(b record.Batch, aborted []AbortedTransaction) []AbortedTransaction {
	r.next = b.NextOffset()
	if epoch := b.LeaderEpoch(); epoch > r.l.epochs.Load().latest() {
		r.l.assignEpochLocked(epoch, b.BaseOffset())
	}
	if b.HasProducerID() && b.BaseOffset() >= r.state {
		if t, ok := r.l.producers.follow(b, r.now.UnixMilli()); ok {
			return append(aborted, t)
		}
	}
	return aborted
}

// abortedBelow are the entries of the transaction index that a scan from offset on does not find itself.
func (s *segment) abortedBelow(offset wire.Offset) ([]AbortedTransaction, error) {
	list, err := s.abortedList()
	if errors.Is(err, errTxnIndex) {
		s.env.logger.Warn("transaction index is rebuilt", "dir", s.dir, "offset", int64(s.base), "err", err)
		err = nil
	}
	end := slices.IndexFunc(list, func(t AbortedTransaction) bool { return t.Last >= offset })
	if end < 0 {
		end = len(list)
	}
	return slices.Clone(list[:end]), err
}

// rebuildAborted makes a segment's transaction index anew from the producer snapshot before it.
func (l *Log) rebuildAborted(s *segment) ([]AbortedTransaction, error) {
	l.env.logger.Warn("transaction index is rebuilt", "dir", l.dir, "offset", int64(s.base))
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	if s.isGone() {
		return nil, errGone
	}
	segments := *l.segments.Load()
	at := floorSegment(segments, s.base)
	next := l.nextBase(segments, at)
	scratch, from, err := l.scratch(s.base)
	if err != nil {
		return nil, err
	}
	var list []AbortedTransaction
	err = l.eachHeader(segments, max(from, segments[0].base), next, func(h *handle, b record.Batch, pos int64) error {
		if !b.HasProducerID() {
			return nil
		}
		if b.IsControl() {
			if b, err = readBatch(h, b, pos); err != nil {
				return err
			}
		}
		if t, ok := scratch.producers.follow(b, 0); ok && b.BaseOffset() >= s.base {
			list = append(list, t)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, s.setAborted(list)
}

// scratch is a log for working out the producer state at an offset, with the newest snapshot that is not above it; batches have to
// be replayed from there on. It needs maintenance.
func (l *Log) scratch(at wire.Offset) (scratch *Log, from wire.Offset, err error) {
	scratch = &Log{tp: l.tp, dir: l.dir, env: l.env, snapshotFiles: l.snapshotFiles}
	from, err = scratch.loadSnapshot(time.Time{}, at)
	l.snapshotFiles = scratch.snapshotFiles // those that are unsound have gone
	return scratch, from, err
}
