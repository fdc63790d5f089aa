package log

import (
	"errors"
	"path"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// Flush makes everything appended so far durable and moves the recovery point.
func (l *Log) Flush() error { return l.flushTo(l.EndOffset()) }

// FlushDue finishes and flushes sealed segments, and everything if flush.ms has passed since the oldest append that is not
// flushed. On a full disk it returns ErrStorage and the work stays due.
func (l *Log) FlushDue(now time.Time) error {
	l.mu.Lock()
	base, from := l.active().base, l.unflushedFrom
	sealed := len(l.snapshots) > 0
	l.mu.Unlock()
	if !from.IsZero() && now.Sub(from).Milliseconds() >= l.config.Load().FlushMs {
		return l.Flush()
	}
	if sealed || base > l.RecoveryPoint() && len(*l.segments.Load()) > 1 {
		return l.flushTo(base)
	}
	return nil
}

// flushDone takes the log off the list of those with something to flush, if that is true of it.
func (l *Log) flushDone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dirty = !l.closed && (l.EndOffset() > l.RecoveryPoint() || len(l.snapshots) > 0)
	return !l.dirty
}

// flushTo flushes whole segments until everything below offset is durable. Those who wait for one flush find their work done.
func (l *Log) flushTo(offset wire.Offset) error {
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	l.mu.Lock()
	idle := l.RecoveryPoint() >= offset && len(l.snapshots) == 0
	l.mu.Unlock()
	if idle {
		return l.env.disk.check()
	}
	return l.flushMaintained(offset)
}

// flushMaintained does it with maintenance held. The recovery point moves last: whatever it vouches for is durable, data,
// transaction indexes, epochs, the newest producer snapshot, and the directory's entries. The offset and time index are
// not: a crash leaves what their checks find.
func (l *Log) flushMaintained(offset wire.Offset) error {
	if err := l.env.disk.check(); err != nil || l.moved {
		return err
	}
	l.mu.Lock()
	segments := *l.segments.Load()
	end := l.EndOffset()
	whole := offset > segments[len(segments)-1].base
	if !whole {
		end = segments[len(segments)-1].base
	}
	snapshots, newFiles, newDir, from := l.snapshots, l.newFiles, l.newDir, l.unflushedFrom
	l.snapshots, l.newFiles, l.newDir = nil, false, false
	if whole {
		l.unflushedFrom = time.Time{}
	}
	l.mu.Unlock()
	err := l.sync(segments, end, snapshots)
	if err == nil && newFiles {
		err = l.syncDir()
	}
	if err == nil && newDir {
		err = errors.Join(syncFile(l.env.fs, path.Join(l.dir, partitionFile)), l.env.fs.SyncDir(path.Dir(l.dir)))
	}
	if err != nil {
		l.mu.Lock()
		l.snapshots = append(snapshots, l.snapshots...)
		l.newFiles, l.newDir = l.newFiles || newFiles, newDir
		if !from.IsZero() {
			l.unflushedFrom = from
		}
		l.mu.Unlock()
		return l.env.fault("flush", err)
	}
	if end > l.RecoveryPoint() {
		l.recoveryPoint.Store(int64(end))
		markChanged(&l.env.disk.recoveryChanged)
	}
	return nil
}

func (l *Log) sync(segments []*segment, end wire.Offset, snapshots []pendingSnapshot) error {
	point := l.RecoveryPoint()
	for i, s := range segments {
		sealed := i+1 < len(segments)
		if sealed && s.finished && segments[i+1].base <= point || !sealed && s.base >= end {
			continue
		}
		if sealed {
			if err := s.finishIndexes(); err != nil {
				return err
			}
		}
		if err := s.sync(sealed || l.closed); err != nil {
			return err
		}
		s.finished = sealed
	}
	if err := l.writeSnapshots(segments, snapshots); err != nil {
		return err
	}
	return l.writeEpochs(end)
}

// sync makes the segment's data and transaction index durable. ended tells that nothing is appended to it any more.
func (s *segment) sync(ended bool) error {
	h, err := s.open()
	if errors.Is(err, errGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.drop()
	if ended {
		if err := s.trim(h); err != nil {
			return err
		}
	}
	if err := syncData(h.file); err != nil {
		return err
	}
	s.mu.Lock()
	txn := s.txnFile || len(s.aborted) > 0
	s.mu.Unlock()
	if !txn {
		return nil
	}
	return syncFile(s.env.fs, s.path(txnSuffix))
}

// writeSnapshots brings producer snapshots to disk and removes those that are neither the newest nor at a segment's base.
func (l *Log) writeSnapshots(segments []*segment, snapshots []pendingSnapshot) error {
	for i, p := range snapshots {
		if i+1 < len(snapshots) && !hasBase(segments, p.offset) {
			continue // its segment is gone already
		}
		if err := writeFile(l.env.fs, l.snapshotPath(p.offset), p.data); err != nil {
			return err
		}
		if at, found := slices.BinarySearch(l.snapshotFiles, p.offset); !found {
			l.snapshotFiles = slices.Insert(l.snapshotFiles, at, p.offset)
		}
	}
	if len(snapshots) == 0 {
		return nil
	}
	newest := l.snapshotFiles[len(l.snapshotFiles)-1]
	return l.removeSnapshots(func(at wire.Offset) bool { return at != newest && !hasBase(segments, at) })
}

func hasBase(segments []*segment, base wire.Offset) bool {
	return segments[floorSegment(segments, base)].base == base
}

func (l *Log) snapshotPath(offset wire.Offset) string {
	return path.Join(l.dir, fileName(offset, snapshotSuffix))
}

func (l *Log) removeSnapshots(gone func(wire.Offset) bool) error {
	var err error
	l.snapshotFiles = slices.DeleteFunc(l.snapshotFiles, func(at wire.Offset) bool {
		if !gone(at) {
			return false
		}
		err = errors.Join(err, removeFile(l.env.fs, l.snapshotPath(at)))
		return true
	})
	return err
}

// writeEpochs brings the epochs of everything below end to disk if they changed. Later ones are found in their batches.
func (l *Log) writeEpochs(end wire.Offset) error {
	epochs := l.epochs.Load().truncateEnd(end)
	if slices.Equal(epochs, l.epochsWritten) {
		return nil
	}
	if err := writeFile(l.env.fs, path.Join(l.dir, epochFile), formatEpochCheckpoint(epochs)); err != nil {
		return err
	}
	l.epochsWritten = epochs
	return nil
}

// Close flushes what is not flushed, finishes the indexes, writes the producer snapshot if there is none of the end, and closes
// the files. A log that did nothing since it was opened is left alone.
func (l *Log) Close(time.Time) error {
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	segments, end := *l.segments.Load(), l.EndOffset()
	newest := len(l.snapshotFiles) - 1
	if end > segments[0].base && (newest < 0 || l.snapshotFiles[newest] != end) {
		l.snapshots = append(l.snapshots, pendingSnapshot{end, l.producers.encode()})
	}
	active := l.active()
	work := end > l.RecoveryPoint() || len(l.snapshots) > 0 || active.reserved > 0 || active.offsets.pending() || active.times.pending()
	l.mu.Unlock()
	err := l.env.disk.check()
	if work && err == nil {
		if err = active.finishIndexes(); err == nil {
			err = l.flushMaintained(end)
		} else {
			err = l.env.fault("write index", err)
		}
	}
	for _, s := range segments {
		s.closeFiles()
	}
	return err
}
