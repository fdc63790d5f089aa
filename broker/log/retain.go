package log

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// AdvanceStart raises the log start offset (DeleteRecords). It is ErrOffsetOutOfRange above the high watermark, and changes
// nothing below the start. It survives a crash after Manager.Checkpoint; the segments go by the next Retain.
func (l *Log) AdvanceStart(offset wire.Offset) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if hw := l.HighWatermark(); offset > hw {
		return fmt.Errorf("%w: %d is above the high watermark %d", ErrOffsetOutOfRange, offset, hw)
	}
	l.raiseStartLocked(offset)
	return nil
}

func (l *Log) raiseStartLocked(offset wire.Offset) {
	if offset <= l.StartOffset() {
		return
	}
	l.start.Store(int64(offset))
	l.setEpochsLocked(l.epochs.Load().truncateStart(offset))
	markChanged(&l.env.disk.startChanged)
}

// Retain deletes the oldest segments as long as they lie below the high watermark and the log start offset has passed them
// or, where cleanup.policy contains delete, retention.bytes or retention.ms has. If that is all of them, the active one is
// sealed first. It tells how many went.
//
// Of a tiered log it deletes sealed segments that the log start has passed, and such that lie below the tiered end and that
// local.retention.* has passed; the log start stays where it is. Internal topics keep what is above the log start.
func (l *Log) Retain(now time.Time) (int, error) {
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	if err := l.env.disk.check(); err != nil || l.moved {
		return 0, err
	}
	cfg := l.config.Load() // one for all: what goes by one rule must not be forgotten by another
	end := l.EndOffset()
	count, all, err := l.deletable(now, cfg)
	if err != nil || count == 0 {
		return 0, err
	}
	if all {
		var sealed bool
		if sealed, err = l.rollAt(now, end); err != nil && !errors.Is(err, vfs.ErrNoSpace) {
			return 0, err
		}
		if !sealed || err != nil { // nobody has looked at what was appended meanwhile, or there is no room for a new one
			count--
		}
	}
	if count == 0 {
		return 0, err
	}
	// What is left, the newest producer snapshot above all, must be on disk before they go.
	err = l.flushMaintained(l.EndOffset())
	if errors.Is(err, vfs.ErrNoSpace) {
		count, err = l.flushWithoutRoom(count, err)
	}
	if err != nil {
		return 0, err
	}
	if cfg.RemoteStorageEnable {
		if err := l.saveStart(); err != nil {
			return 0, err
		}
	}
	if segments := *l.segments.Load(); cfg.RemoteStorageEnable && segments[count].base > l.StartOffset() {
		if err := l.noteRemote(); err != nil {
			return 0, l.env.fault("note that the log begins in the object store", err)
		}
	}
	gone := l.unlinkOldest(count, !cfg.RemoteStorageEnable)
	for i, s := range gone {
		if err := s.discard(now.Add(l.deleteDelay())); err != nil {
			l.relink(gone[i:])
			return i, l.env.fault("delete segment", err)
		}
		l.snapshotFiles = slices.DeleteFunc(l.snapshotFiles, func(at wire.Offset) bool { return at == s.base })
	}
	// From here on the first segment says where the log starts, and no checkpoint does: it must not come back.
	if err := l.syncDir(); err != nil {
		return 0, l.env.fault("delete segment", err)
	}
	if !cfg.RemoteStorageEnable {
		if err := l.forgetRemote(); err != nil {
			return len(gone), l.env.fault("note that the log begins here", err)
		}
	}
	return len(gone), nil
}

// flushWithoutRoom is for a disk so full that a flush can't write what it writes anew: it would stay so. It makes the data durable, and says
// how many of the count oldest segments may go: those up to a producer snapshot that is there, from which a recovery goes on. If there
// are none, it returns why the flush failed.
func (l *Log) flushWithoutRoom(count int, full error) (int, error) {
	segments := *l.segments.Load()
	for count > 0 && !slices.Contains(l.snapshotFiles, segments[count].base) {
		count--
	}
	if count == 0 {
		return 0, full
	}
	for _, s := range segments[count:] {
		if err := s.sync(false); err != nil {
			return 0, l.env.fault("flush", err)
		}
	}
	if err := l.syncDir(); err != nil {
		return 0, l.env.fault("flush", err)
	}
	return count, nil
}

// unlinkOldest publishes the log without its count oldest segments; raise tells whether it starts behind them.
func (l *Log) unlinkOldest(count int, raise bool) []*segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	segments := *l.segments.Load()
	kept := slices.Clone(segments[count:])
	l.recallFromLocked(kept[0].base)
	if raise {
		l.raiseStartLocked(kept[0].base)
	}
	l.segments.Store(&kept)
	return segments[:count]
}

// relink takes segments back that could not be deleted: the next Retain tries again. Nobody reads them, the log starts behind them.
func (l *Log) relink(oldest []*segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Concat(slices.DeleteFunc(slices.Clone(oldest), (*segment).isGone), *l.segments.Load())
	l.segments.Store(&all)
}

// deletable counts the oldest segments that may go; all says that the active one, not empty, is among them.
func (l *Log) deletable(now time.Time, cfg *config.Topic) (count int, all bool, err error) {
	limits := l.limits(cfg)
	segments := *l.segments.Load()
	hw, start, size := l.HighWatermark(), l.StartOffset(), l.Size()
	for i, s := range segments {
		next, last := l.nextBase(segments, i), i+1 == len(segments)
		if next > hw || last && s.size.Load() == 0 {
			break
		}
		due := !last && next <= start
		limited := next <= limits.end && (!last || limits.active)
		if !due && limited && limits.bytes >= 0 {
			due = size-s.size.Load() >= limits.bytes
		}
		if !due && limited && limits.ms >= 0 {
			if due, err = s.expired(now, limits.ms); err != nil {
				return 0, false, l.readError(err)
			}
		}
		if !due {
			break
		}
		size -= s.size.Load()
		count++
	}
	return count, count == len(segments), nil
}

// expired tells whether the segment's latest is older than the limit.
func (s *segment) expired(now time.Time, limitMs int64) (bool, error) {
	latest, err := s.latest()
	if errors.Is(err, errBatch) {
		return false, nil // damage: nothing is known of its age
	}
	return err == nil && now.UnixMilli()-latest > limitMs, err
}

// latest is the segment's largest timestamp, or its file's where it has none.
func (s *segment) latest() (int64, error) {
	largest, err := s.largestTime()
	if err != nil || largest != record.NoTimestamp {
		return largest, err
	}
	info, err := s.env.fs.Stat(s.path(logSuffix))
	if errors.Is(err, fs.ErrNotExist) && s.isGone() {
		err = errGone
	}
	return info.ModTime, err
}
