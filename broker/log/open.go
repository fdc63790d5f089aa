package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Open opens or creates a log, recovering it as o.Stop demands. After a clean stop it reads the directory, the small files
// and the end of the last segment; else everything from the recovery point on.
func Open(now time.Time, o Options) (*Log, error) {
	l := &Log{tp: o.TopicPartition, id: o.TopicID, dir: o.Dir, env: o.env}
	l.mayLack.Store(o.anew || o.Stop == StopPowerLoss && !o.fresh)
	if l.env == nil {
		logger := o.Logger
		if logger == nil {
			logger = slog.New(slog.DiscardHandler)
		}
		l.env = &environment{
			fs: o.FS, logger: logger, disk: &disk{}, files: &openFiles{}, trash: &trash{}, dirty: &dirtyLogs{}, sealed: &dirtyLogs{},
			rolled: &dirtyLogs{}, yield: o.Yield,
		}
	}
	l.config.Store(&o.Config)
	l.firstUnstable.Store(int64(wire.NoOffset))
	l.tieredEnd.Store(int64(wire.NoOffset))
	l.startSaved.Store(int64(o.LogStart))
	l.firstSynced.Store(int64(wire.NoOffset))
	l.startUnsaved()
	l.setEpochsLocked(nil)
	if err := l.load(now, o); err != nil {
		if errors.Is(err, errTopicID) {
			return nil, err
		}
		return nil, l.env.fault(fmt.Sprintf("open log %s", l.tp), err)
	}
	if l.dirty {
		l.env.dirty.add(l)
	}
	if len(l.snapshots) > 0 {
		l.env.rolled.add(l)
	}
	return l, nil
}

var errTopicID = errors.New("partition directory belongs to another topic id")

func (l *Log) load(now time.Time, o Options) error {
	names, err := l.env.fs.List(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		names, err = nil, l.env.fs.MkdirAll(l.dir)
		l.newDir = true
	}
	if err != nil {
		return err
	}
	segments, err := l.findSegments(now, names)
	if err != nil {
		return err
	}
	l.remote = slices.Contains(names, remoteFile)
	if err := l.loadUnverified(names); err != nil { // before the topic id says that the log is this partition's
		return err
	}
	if err := l.loadTopicID(o.TopicID); err != nil {
		return err
	}
	if len(segments) == 0 {
		return l.beginAt(now, nil, max(0, o.LogStart))
	}
	if err := l.loadDamage(segments); err != nil {
		return err
	}
	point := max(o.RecoveryPoint, segments[0].base)
	end, clean, err := l.loadEnd(segments, o.Stop)
	if err != nil {
		return err
	}
	// What was made before a crash, or before anything was flushed, may not be durable.
	l.newFiles = !clean || end == segments[0].base
	l.newDir = l.newFiles
	if clean {
		point = end
		err = l.loadState(now, segments, end)
	} else {
		stop := o.Stop
		if stop == StopClean {
			stop = StopProcessCrash // the marker says that nothing was lost, and yet something is wrong
		}
		r := recovery{l: l, now: now, stop: stop, point: point, segments: segments}
		err = r.run()
		segments, end, point = r.segments, r.next, min(point, r.next)
	}
	if err != nil {
		return err
	}
	if o.LogStart > end {
		return l.beginAt(now, segments, o.LogStart)
	}
	l.publishLoaded(now, segments, end, point, o)
	return nil
}

// beginAt begins a log that is new, or that a power loss has left with nothing above its start. From here on the first
// segment's name says where it starts, and no checkpoint does: offsets must not be used again, so it must not be lost.
func (l *Log) beginAt(now time.Time, segments []*segment, offset wire.Offset) error {
	err := l.startAnew(now, segments, beginning{at: offset, start: offset})
	if err == nil && offset > 0 {
		err = errors.Join(l.syncDir(), l.env.fs.SyncDir(path.Dir(l.dir)))
	}
	return err
}

// publishLoaded makes what was loaded the log's state.
func (l *Log) publishLoaded(now time.Time, segments []*segment, end, point wire.Offset, o Options) {
	start := segments[0].base
	switch {
	case o.LogStart > start, o.LogStart >= 0 && (o.Config.RemoteStorageEnable || l.remote):
		start = o.LogStart
	case l.remote:
		start = 0 // nobody knows here; what the manifest says is not below
	}
	for _, s := range segments[:len(segments)-1] {
		s.sealed.Store(true)
		s.finished = true // or above the recovery point
	}
	active := segments[len(segments)-1]
	active.sealed.Store(false)
	l.segments.Store(&segments)
	l.end.set(end, active.base, active.size.Load())
	l.start.Store(int64(start))
	if !l.newFiles || o.LogStart == wire.NoOffset { // else the checkpoint may know better than what a power loss leaves
		l.firstSynced.Store(int64(segments[0].base))
	}
	l.recoveryPoint.Store(int64(point))
	l.setEpochsLocked(l.epochs.Load().truncateEnd(end).truncateStart(start))
	hw := max(min(o.HighWatermark, end), start, segments[0].base) // what is in the object store alone was replicated
	l.watermark.Store(int64(hw))
	l.producers.replicated(hw)
	l.publishUnstableLocked()
	if end > point || len(l.snapshots) > 0 {
		l.dirty = true
		l.unflushedFrom = now
	}
}

// findSegments lists the log's files, clears away leftovers and makes the segments, with their sizes.
func (l *Log) findSegments(now time.Time, names []string) ([]*segment, error) {
	var segments []*segment
	others := map[string]bool{}
	for _, name := range names {
		switch base, suffix, ok := splitFileName(name); {
		case strings.HasSuffix(name, temporarySuffix):
			if err := removeFile(l.env.fs, path.Join(l.dir, name)); err != nil {
				return nil, err
			}
		case strings.HasSuffix(name, deletedSuffix):
			l.env.trash.add(path.Join(l.dir, name), now)
		case ok && suffix == logSuffix:
			s := newSegment(l.env, &l.config, l.dir, base, now)
			info, err := l.env.fs.Stat(s.path(logSuffix))
			if err != nil {
				return nil, err
			}
			s.size.Store(info.Size)
			if info.Size > 0 {
				s.maxTime.Store(unknownTime)
				s.offsets.disk.Store(unknownEntries)
			}
			segments = append(segments, s)
		case ok && suffix == snapshotSuffix:
			l.snapshotFiles = append(l.snapshotFiles, base)
		case ok:
			others[name] = true
		}
	}
	for _, s := range segments {
		s.txnFile = others[fileName(s.base, txnSuffix)]
		for _, suffix := range []string{offsetSuffix, timeSuffix, txnSuffix} {
			if s.size.Load() > 0 {
				delete(others, fileName(s.base, suffix))
			}
		}
	}
	// What is left are indexes of empty segments or of none: a crash during a roll or a deletion.
	for _, name := range names {
		if others[name] {
			if err := removeFile(l.env.fs, path.Join(l.dir, name)); err != nil {
				return nil, err
			}
		}
	}
	return segments, nil
}

// loadTopicID reads partition.metadata, or writes it where there is none.
func (l *Log) loadTopicID(want wire.TopicID) error {
	name := path.Join(l.dir, partitionFile)
	id, err := readCheckpoint(l.env.fs, name, parsePartitionMetadata)
	if err != nil && !errors.Is(err, errPartitionMetadata) {
		return err
	}
	if err != nil {
		l.env.logger.Warn("partition.metadata is damaged", "dir", l.dir, "err", err) // of a new log, after a power loss
	}
	switch {
	case id.IsZero() && want.IsZero():
		return nil
	case id.IsZero():
		l.newDir = true
		return replaceFile(l.env.fs, name, formatPartitionMetadata(want))
	case !want.IsZero() && id != want:
		return fmt.Errorf("%w: %s in %s, not %s", errTopicID, id, l.dir, want)
	}
	l.id = id
	return nil
}

func (l *Log) loadDamage(segments []*segment) error {
	ranges, err := readCheckpoint(l.env.fs, path.Join(l.dir, damageFile), parseDamage)
	if errors.Is(err, errCheckpoint) {
		l.env.logger.Warn("list of damaged ranges is damaged", "dir", l.dir, "err", err) // the scrub finds them again
		return nil
	}
	for _, s := range segments {
		if list := ranges[s.base]; len(list) > 0 {
			s.damaged.Store(&list)
		}
	}
	return err
}

// loadEnd finds the end of a log that was stopped cleanly: from the last index entry on. clean is false if it must be
// recovered.
func (l *Log) loadEnd(segments []*segment, stop Stop) (end wire.Offset, clean bool, err error) {
	s := segments[len(segments)-1]
	if stop != StopClean {
		return 0, false, nil
	}
	if s.size.Load() == 0 {
		return s.base, true, nil
	}
	defer s.closeFiles() // an idle partition keeps nothing open
	last, err := s.loadEnd()
	if errors.Is(err, errBatch) || err == nil && last.torn {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	s.sparse = last.sparse
	s.maxTime.Store(last.sparse.maxTime)
	return last.next, true, nil
}

// loadEnd finds the segment's end with the help of its indexes, or rebuilds them.
func (s *segment) loadEnd() (sparseEnd, error) {
	h, err := s.open()
	if err != nil {
		return sparseEnd{}, err
	}
	defer h.drop()
	s.mu.Lock()
	last, err := s.checkLocked(h)
	s.mu.Unlock()
	if err == nil {
		var largest int64
		if largest, err = s.largestTime(); err == nil && largest != last.sparse.maxTime {
			err = fmt.Errorf("%w: the largest timestamp is %d, not %d", errIndex, largest, last.sparse.maxTime)
		}
	}
	if !errors.Is(err, errIndex) {
		return last, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rebuildLocked(h, err)
}

// loadState reads epochs and producers of a log that was stopped cleanly.
func (l *Log) loadState(now time.Time, segments []*segment, end wire.Offset) error {
	if err := l.loadEpochs(segments, end); err != nil {
		return err
	}
	from, err := l.loadSnapshot(now, end)
	if err != nil {
		return err
	}
	if err := l.removeSnapshots(func(at wire.Offset) bool { return at > end }); err != nil {
		return err
	}
	return l.replay(now, segments, max(from, segments[0].base), end)
}

// loadEpochs reads leader-epoch-checkpoint. Where it is missing or damaged, the batches below end say what was in it.
func (l *Log) loadEpochs(segments []*segment, end wire.Offset) error {
	epochs, err := readCheckpoint(l.env.fs, path.Join(l.dir, epochFile), ParseEpochCheckpoint)
	if err != nil && !errors.Is(err, errCheckpoint) {
		return err
	}
	if err != nil {
		l.env.logger.Warn("leader-epoch-checkpoint is damaged", "dir", l.dir, "err", err)
	}
	l.epochsWritten = epochs
	l.setEpochsLocked(epochs)
	if len(epochs) > 0 {
		return nil
	}
	return l.eachHeader(segments, segments[0].base, end, func(_ *handle, b record.Batch, _ int64) error {
		l.assignEpochLocked(max(b.LeaderEpoch(), l.epochs.Load().latest()), b.BaseOffset())
		return nil
	})
}

// loadSnapshot loads the newest sound producer snapshot that is not above limit; unsound ones are removed. It returns the
// offset from which on batches must be replayed, 0 without a snapshot.
func (l *Log) loadSnapshot(now time.Time, limit wire.Offset) (from wire.Offset, err error) {
	for _, at := range slices.Backward(l.snapshotFiles) {
		if at > limit {
			continue
		}
		data, err := readFile(l.env.fs, l.snapshotPath(at))
		if err != nil {
			return 0, err
		}
		entries, err := DecodeProducerSnapshot(data)
		if err == nil {
			l.producers = restoreProducers(entries, at, now.UnixMilli())
			return at, nil
		}
		l.env.logger.Warn("producer snapshot is dropped", "dir", l.dir, "offset", int64(at), "err", err)
		if err := l.removeSnapshots(func(o wire.Offset) bool { return o == at }); err != nil {
			return 0, err
		}
	}
	l.producers = producerState{}
	return 0, nil
}

// replay brings the producer state from one offset to another. Damaged batches are passed over.
func (l *Log) replay(now time.Time, segments []*segment, from, to wire.Offset) error {
	return l.eachHeader(segments, from, to, func(h *handle, b record.Batch, pos int64) error {
		if !b.HasProducerID() {
			return nil
		}
		if b.IsControl() {
			whole, err := readBatch(h, b, pos)
			if err != nil {
				return err
			}
			b = whole
		}
		l.producers.follow(b, now.UnixMilli())
		return nil
	})
}

// readBatch reads the batch whose header was found at pos.
func readBatch(h *handle, header record.Batch, pos int64) (record.Batch, error) {
	b := make(record.Batch, header.Length())
	_, err := h.file.ReadAt(b, pos)
	return b, err
}

// eachHeader walks the headers of batches that lie in [from, to), wholly or in part.
func (l *Log) eachHeader(segments []*segment, from, to wire.Offset, visit func(h *handle, b record.Batch, pos int64) error) error {
	if from >= to {
		return nil
	}
	for _, s := range segments[floorSegment(segments, from):] {
		if s.base >= to {
			return nil
		}
		if err := s.eachHeader(from, to, visit); err != nil {
			return err
		}
	}
	return nil
}

func (s *segment) eachHeader(from, to wire.Offset, visit func(h *handle, b record.Batch, pos int64) error) error {
	if s.size.Load() == 0 {
		return nil
	}
	h, err := s.open()
	if err != nil {
		return err
	}
	defer h.drop()
	var buf [record.HeaderSize]byte
	_, pos, err := s.seek(h, from, s.size.Load(), &buf)
	w := walk(h.file, pos, s.size.Load(), s.damages())
	defer w.close()
	for err == nil {
		var b record.Batch
		var at int64
		if b, at, err = w.next(); err != nil {
			break
		}
		if b.BaseOffset() >= to {
			return nil
		}
		err = visit(h, b, at)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, errBatch) {
		return nil
	}
	return err
}

// beginning is what a log that begins anew knows of what lies below.
type beginning struct {
	at        wire.Offset // the first offset here
	start     wire.Offset // the log start
	epochs    epochCache  // below at
	producers producerState
	// prepare is called when what was here has gone and what shall be is not there yet; nil: nothing is to be done.
	prepare func() error
}

// startAt makes the first segment of an empty log.
func (l *Log) startAt(now time.Time, b beginning) error {
	s, err := l.createSegment(now, b.at)
	if err != nil {
		return err
	}
	s.closeFiles()
	segments := []*segment{s}
	// Whoever reads meanwhile must not find a start below the first segment, unless it stays so.
	l.start.Store(max(l.start.Load(), int64(b.start)))
	l.segments.Store(&segments)
	l.end.set(b.at, b.at, 0)
	l.start.Store(int64(b.start))
	l.watermark.Store(int64(b.at))
	l.recoveryPoint.Store(int64(b.at))
	l.tieredEnd.Store(int64(wire.NoOffset))
	l.newFiles = true
	return nil
}

// startAnew drops everything: what is on disk ends before the log start that was promised, or has another history.
func (l *Log) startAnew(now time.Time, segments []*segment, b beginning) error {
	for _, s := range slices.Backward(segments) {
		if err := s.discard(now.Add(l.deleteDelay())); err != nil {
			return err
		}
	}
	l.setEpochsLocked(b.epochs)
	l.producers, l.snapshots = b.producers, nil
	if err := l.removeSnapshots(func(wire.Offset) bool { return true }); err != nil {
		return err
	}
	if b.prepare != nil {
		if err := b.prepare(); err != nil {
			return err
		}
	}
	if err := l.startAt(now, b); err != nil || b.start < b.at {
		return err
	}
	return l.forgetRemote()
}
