package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"runtime/debug"
	"slices"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// mapSuffix says which file is mapped.
var mapSuffix = [...]string{offsetMap: offsetSuffix, timeMap: timeSuffix}

// mapped is the file of an index as memory; it is mapped at the first call.
func (s *segment) mapped(h *handle, which int) ([]byte, error) {
	if m := h.maps[which].Load(); m != nil {
		return (*m).Bytes(), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mappedLocked(h, which)
}

func (s *segment) mappedLocked(h *handle, which int) ([]byte, error) {
	if m := h.maps[which].Load(); m != nil {
		return (*m).Bytes(), nil
	}
	f, err := s.env.fs.OpenRead(s.path(mapSuffix[which]))
	if err != nil {
		return nil, missingIndex(err)
	}
	defer f.Close() // a mapping outlives its descriptor
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	m, err := f.Map(max(int64(s.indexBytes), size))
	if err != nil {
		return nil, err
	}
	h.maps[which].Store(&m)
	return m.Bytes(), nil
}

func missingIndex(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", errIndex, err)
	}
	return err
}

// ready looks at the index files of a segment that was loaded from disk, once, and rebuilds what can't be right.
func (s *segment) ready(h *handle) error {
	if s.offsets.disk.Load() != unknownEntries {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.offsets.disk.Load() != unknownEntries {
		return nil
	}
	if s.gone {
		return errGone // its files have other names, and none may be made
	}
	_, err := s.checkLocked(h)
	if errors.Is(err, errIndex) {
		_, err = s.rebuildLocked(h, err)
	}
	return err
}

// checkLocked verifies both index files: that their entries rise (a file that a crash left filled up with zeros, cut short or
// without order is found so), that the last entries are true, and that no batch behind misses its entry, as it does when the
// file was cut between entries or comes from another segment. Then the entries count. It returns what the walk behind the
// last offset entry found.
func (s *segment) checkLocked(h *handle) (sparseEnd, error) {
	end := sparseEnd{next: s.base, sparse: newSparse(s.base)}
	times, err := s.loadIndexLocked(h, timeMap, math.MaxUint32)
	if err != nil {
		return end, err
	}
	offsets, err := s.loadIndexLocked(h, offsetMap, s.size.Load())
	if err != nil {
		return end, err
	}
	if err := s.checkTimes(h, &times, &offsets); err != nil {
		return end, err
	}
	largest, timed, err := times.last()
	if err != nil {
		return end, err
	}
	if timed {
		end.sparse.maxTime, end.sparse.maxOffset = largest.timestamp(), s.base+wire.Offset(largest.timeOffset())
		end.sparse.lastTime = end.sparse.maxTime
	}
	start, indexed := int64(0), wire.NoOffset
	if last, ok, err := offsets.last(); err != nil {
		return end, err
	} else if ok {
		start, indexed = last.position(), s.base+wire.Offset(last.offsetKey())
	}
	if err := s.walkEnd(h, start, indexed, &end); err != nil {
		return end, err
	}
	if end.sparse.maxTime > end.sparse.lastTime { // the last entry is made when a segment is finished
		return end, fmt.Errorf("%w: no entry for the largest timestamp, %d", errIndex, end.sparse.maxTime)
	}
	times.adopt()
	offsets.adopt() // last: its count says that all was looked at
	return end, nil
}

// checkTimes verifies the last entry, the first, and one in the middle: the index of another partition that was written in step with
// this one may have an entry that is true here.
func (s *segment) checkTimes(h *handle, times, offsets *loadedIndex) error {
	if times.n == 0 {
		return nil
	}
	for _, i := range slices.Compact([]int64{times.n - 1, times.n / 2, 0}) {
		e, err := times.at(i)
		if err != nil {
			return err
		}
		if err := s.checkTime(h, offsets, e); err != nil {
			return err
		}
	}
	return nil
}

// checkTime verifies that a time entry names the end of a batch and its largest timestamp.
func (s *segment) checkTime(h *handle, offsets *loadedIndex, e entry) error {
	at, ok, err := offsets.floor(e.timeOffset())
	if err != nil {
		return err
	}
	start := int64(0)
	if ok {
		start = at.position()
	}
	offset := s.base + wire.Offset(e.timeOffset())
	w := walk(h.file, start, s.size.Load(), s.damages())
	defer w.close()
	for {
		header, _, err := w.next()
		if err == nil && header.LastOffset() < offset {
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errBatch) {
			return err
		}
		if err != nil || header.LastOffset() != offset || header.MaxTimestamp() != e.timestamp() {
			return fmt.Errorf("%w: no batch that ends at %d has timestamp %d", errIndex, offset, e.timestamp())
		}
		return nil
	}
}

// sparseEnd is the end of a segment: its next offset, and where its indexes stand.
type sparseEnd struct {
	next   wire.Offset
	sparse sparse
	torn   bool // there is more, but no sound batch
}

// walkEnd walks from the last indexed batch to the end of the segment.
func (s *segment) walkEnd(h *handle, start int64, indexed wire.Offset, end *sparseEnd) error {
	interval := s.config.Load().IndexIntervalBytes
	w := walk(h.file, start, s.size.Load(), s.damages())
	defer w.close()
	for {
		header, _, err := w.next()
		if indexed != wire.NoOffset && (err != nil || header.LastOffset() != indexed) {
			return fmt.Errorf("%w: no batch that ends at %d at position %d", errIndex, indexed, start)
		}
		indexed = wire.NoOffset
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if due, _ := end.sparse.add(header, interval); due {
			return fmt.Errorf("%w: no entry for the batch at offset %d", errIndex, header.BaseOffset())
		}
		end.next = header.NextOffset()
	}
}

// loadedIndex is an index file, in memory of its own or mapped.
type loadedIndex struct {
	x      *index
	bytes  []byte
	n      int64 // entries
	mapped bool
}

// loadIndexLocked reads an index file whose entries must rise, with their second field below limit.
func (s *segment) loadIndexLocked(h *handle, which int, limit int64) (loadedIndex, error) {
	in := loadedIndex{x: &s.offsets}
	if which == timeMap {
		in.x = &s.times
	}
	name := s.path(mapSuffix[which])
	info, err := s.env.fs.Stat(name)
	if err != nil {
		return in, missingIndex(err)
	}
	if in.mapped = !in.x.fits(info.Size); in.mapped {
		in.bytes, err = s.mappedLocked(h, which)
	} else if info.Size > 0 {
		in.bytes, err = readFile(s.env.fs, name)
	}
	if err != nil {
		return in, missingIndex(err)
	}
	if info.Size%int64(in.x.width) != 0 || info.Size > int64(len(in.bytes)) {
		return in, fmt.Errorf("%w: %s has %d bytes", errIndex, mapSuffix[which], info.Size)
	}
	in.n = info.Size / int64(in.x.width)
	return in, in.x.checkMapped(in.bytes, in.n, limit)
}

// last is the last entry.
func (in *loadedIndex) last() (entry, bool, error) { return in.floor(math.MaxInt64) }

// at is entry number i.
func (in *loadedIndex) at(i int64) (e entry, err error) {
	defer recoverFault(debug.SetPanicOnFault(true), &err)
	width := int64(in.x.width)
	copy(e[:width], in.bytes[i*width:])
	return e, nil
}

// floor is the last entry with a key of at most key.
func (in *loadedIndex) floor(key int64) (entry, bool, error) {
	if in.n == 0 {
		return entry{}, false, nil
	}
	return in.x.searchMapped(in.bytes, in.n, key)
}

// adopt makes the entries count.
func (in *loadedIndex) adopt() {
	if in.mapped || in.n == 0 {
		in.x.disk.Store(in.n)
	} else {
		in.x.hold(in.bytes, in.n)
	}
}

// indexBuilder makes both indexes of a segment anew, in memory, from its batches in order.
type indexBuilder struct {
	base     wire.Offset
	interval int
	sparse   sparse
	offsets  []byte
	times    []byte
}

func (s *segment) indexBuilder() indexBuilder {
	return indexBuilder{base: s.base, interval: s.config.Load().IndexIntervalBytes, sparse: newSparse(s.base)}
}

func (x *indexBuilder) add(b record.Batch, position int64) {
	offsetDue, timeDue := x.sparse.add(b, x.interval)
	if offsetDue {
		x.offsets = appendOffsetEntry(x.offsets, x.base, b.LastOffset(), position)
	}
	if timeDue {
		x.addTime()
	}
}

func (x *indexBuilder) addTime() {
	x.times = appendTimeEntry(x.times, x.base, x.sparse.maxTime, x.sparse.maxOffset)
}

// seal adds the entry for the segment's largest timestamp.
func (x *indexBuilder) seal() {
	if x.sparse.timeDue() {
		x.addTime()
	}
}

// rebuildIndexes makes the indexes of a sealed segment anew because of what a look-up through h found. That look-up goes on
// without them, as do those in the active segment, whose indexes only its appender touches.
func (s *segment) rebuildIndexes(h *handle, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone || !s.sealed.Load() || s.files.Load() != h {
		return // somebody else has done it
	}
	if _, err := s.rebuildLocked(h, cause); err != nil {
		s.env.logger.Warn("index stays damaged", "dir", s.dir, "offset", int64(s.base), "err", err)
	}
}

// rebuildLocked walks the segment. Readers with the former files notice that these are no longer the segment's index.
func (s *segment) rebuildLocked(h *handle, cause error) (sparseEnd, error) {
	s.env.logger.Warn("index is rebuilt", "dir", s.dir, "offset", int64(s.base), "err", cause)
	x, next := s.indexBuilder(), s.base
	w := walk(h.file, 0, s.size.Load(), s.damages())
	defer w.close()
	for {
		header, pos, err := w.next()
		if errors.Is(err, io.EOF) || errors.Is(err, errBatch) {
			break // behind a damaged batch nothing can be found but by the scrub
		}
		if err != nil {
			return sparseEnd{}, err
		}
		x.add(header, pos)
		next = header.NextOffset()
	}
	x.seal()
	return sparseEnd{next: next, sparse: x.sparse, torn: w.pos < w.end}, s.renewIndexesLocked(&x)
}

// adoptIndexes takes over what recovery or a truncation made anew. Small ones stay in memory until a flush finishes the
// segment.
func (s *segment) adoptIndexes(x *indexBuilder) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sparse = x.sparse
	if s.offsets.fits(int64(len(x.offsets))) && s.times.fits(int64(len(x.times))) {
		s.times.hold(x.times, 0)
		s.offsets.hold(x.offsets, 0)
		s.maxTime.Store(x.sparse.maxTime)
		return nil
	}
	return s.renewIndexesLocked(x)
}

// renewIndexesLocked puts new index files in place. On a full disk the segment goes without, and nobody who reads is refused:
// look-ups walk it until a restart finds that the entries are missing.
func (s *segment) renewIndexesLocked(x *indexBuilder) error {
	err := s.replaceIndexesLocked(x)
	if !errors.Is(err, vfs.ErrNoSpace) {
		return err
	}
	s.closeFiles()
	s.offsets.tail.Store(nil)
	s.times.tail.Store(nil)
	s.maxTime.Store(x.sparse.maxTime)
	s.times.disk.Store(0)
	s.offsets.disk.Store(0)
	return errors.Join(removeFile(s.env.fs, s.path(offsetSuffix)), removeFile(s.env.fs, s.path(timeSuffix)))
}

// replaceIndexesLocked makes new index files. New inodes: a file that somebody has mapped is not cut.
func (s *segment) replaceIndexesLocked(x *indexBuilder) error {
	if err := replaceFile(s.env.fs, s.path(offsetSuffix), x.offsets); err != nil {
		return err
	}
	if err := replaceFile(s.env.fs, s.path(timeSuffix), x.times); err != nil {
		return err
	}
	s.closeFiles()
	s.offsets.tail.Store(nil)
	s.times.tail.Store(nil)
	s.maxTime.Store(x.sparse.maxTime)
	s.times.disk.Store(int64(len(x.times)) / timeEntrySize)
	s.offsets.disk.Store(int64(len(x.offsets)) / offsetEntrySize)
	return nil
}

// replaceFile is writeFile without making anything durable.
func replaceFile(fsys vfs.FS, name string, data []byte) error {
	f, err := fsys.Create(name + temporarySuffix)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return fsys.Rename(name+temporarySuffix, name)
}

// finishIndexes brings both indexes to their files, with an entry for the largest timestamp, so that the segment can be
// loaded without a scan. The caller keeps the appender away.
func (s *segment) finishIndexes() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.offsets.disk.Load() == unknownEntries {
		return nil
	}
	if s.sparse.maxTime > s.sparse.lastTime {
		if err := s.appendTime(); err != nil {
			return err
		}
		s.sparse.lastTime = s.sparse.maxTime
	}
	if err := s.offsets.write(s); err != nil {
		return err
	}
	return s.times.write(s)
}
