package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// unknownTime says that nobody has looked yet.
const unknownTime int64 = math.MinInt64

// errGone says that a segment was deleted after its reader found it; the reader looks again.
var errGone = errors.New("segment was deleted")

// segment is Kafka's LogSegment: a piece of the log with its indexes. Its files are opened when they are needed and closed
// by openFiles when they were not for a while.
type segment struct {
	env  *environment
	dir  string
	base wire.Offset
	// config is the log's, for the interval of the indexes.
	config     *atomic.Pointer[config.Topic]
	indexBytes int // how large an index may grow: what it was when the segment was made, since a map does not grow

	sealed  atomic.Bool  // nothing is appended any more
	size    atomic.Int64 // bytes of whole batches in the file
	offsets index
	times   index
	maxTime atomic.Int64 // largest timestamp; record.NoTimestamp when there is none, unknownTime until looked up
	damaged atomic.Pointer[[]damage]

	files atomic.Pointer[handle]
	used  atomic.Bool // since the last sweep of openFiles

	listed bool // among openFiles, which guards it

	// mu guards opening files and maps, the check and rebuild of indexes, and the fields below. Rank: below Log.mu.
	mu      sync.Mutex
	gone    bool
	aborted []AbortedTransaction // the transaction index, unless it is on disk only
	txnFile bool                 // there is a .txnindex file that was not read yet

	// finished: its indexes and its end were brought to disk since it was sealed. Also what was flushed before needs that: a write
	// that a full disk cut short was undone since. Under Log.maintenance.
	finished bool

	// The rest belongs to the appender, under Log.mu.
	sparse    sparse
	firstTime int64 // of the first batch; unknownTime until looked up
	created   time.Time
	since     time.Time // of the first append; zero until somebody looked, where that was before a restart
	reserved  int64     // where the room ends that was reserved for the file; 0 without
}

// newSegment is a segment without content.
func newSegment(env *environment, cfg *atomic.Pointer[config.Topic], dir string, base wire.Offset, now time.Time) *segment {
	s := &segment{
		env: env, config: cfg, indexBytes: cfg.Load().SegmentIndexBytes,
		dir: dir, base: base, created: now, firstTime: unknownTime, sparse: newSparse(base),
	}
	s.offsets.width, s.times.width = offsetEntrySize, timeEntrySize
	s.maxTime.Store(record.NoTimestamp)
	return s
}

func (s *segment) path(suffix string) string { return path.Join(s.dir, fileName(s.base, suffix)) }

// sparse says which batches the two indexes note (Kafka's LogSegment.append).
type sparse struct {
	since     int         // bytes since the last entry
	maxTime   int64       // largest timestamp so far
	maxOffset wire.Offset // last offset of the batch that has it
	lastTime  int64       // of the last time index entry
}

func newSparse(base wire.Offset) sparse {
	return sparse{maxTime: record.NoTimestamp, maxOffset: base, lastTime: record.NoTimestamp}
}

// add takes the next batch; it tells whether the offset index and the time index get an entry.
func (p *sparse) add(b record.Batch, interval int) (offsetDue, timeDue bool) {
	if t := b.MaxTimestamp(); t > p.maxTime {
		p.maxTime, p.maxOffset = t, b.LastOffset()
	}
	if p.since > interval {
		offsetDue, p.since = true, 0
		timeDue = p.timeDue()
	}
	p.since += b.Length()
	return offsetDue, timeDue
}

// timeDue tells whether an entry for the largest timestamp is missing, and takes it for written.
func (p *sparse) timeDue() bool {
	due := p.maxTime > p.lastTime
	p.lastTime = p.maxTime
	return due
}

// note takes a batch that was appended at position into the indexes. An index file that can't be written leaves the index
// sparser than it should be.
func (s *segment) note(b record.Batch, position int64) error {
	if s.firstTime == unknownTime && position == 0 {
		s.firstTime = b.MaxTimestamp()
	}
	offsetDue, timeDue := s.sparse.add(b, s.config.Load().IndexIntervalBytes)
	s.maxTime.Store(s.sparse.maxTime)
	if !offsetDue {
		return nil
	}
	var e entry
	err := s.offsets.append(s, appendOffsetEntry(e[:0], s.base, b.LastOffset(), position))
	if timeDue {
		err = errors.Join(err, s.appendTime())
	}
	return err
}

func (s *segment) appendTime() error {
	var e entry
	return s.times.append(s, appendTimeEntry(e[:0], s.base, s.sparse.maxTime, s.sparse.maxOffset))
}

// A segment reserves room once it has reserveFrom bytes, as much as it has, up to reserveStep at once: a third of the cost of a
// large write is finding blocks for it. An idle partition never reserves more than it holds.
const (
	reserveFrom = 1 << 20
	reserveStep = 16 << 20
)

// reserve sees to it that a write of n bytes at position finds its blocks there, where much is written.
func (s *segment) reserve(h *handle, position, n int64) {
	if position < reserveFrom || position+n <= s.reserved {
		return
	}
	end := position + n + min(position, reserveStep)
	h.file.Reserve(max(position, s.reserved), end)
	s.reserved = end
}

// trim gives back what was reserved and not used. Nothing is appended any more. What a crash keeps it from giving back goes with
// the segment.
func (s *segment) trim(h *handle) error {
	if s.reserved == 0 {
		return nil
	}
	s.reserved = 0
	return h.file.Truncate(s.size.Load())
}

// full tells whether an index has no room for another entry; the time index keeps one for the end of the segment.
func (s *segment) full() bool {
	return s.offsets.entries() >= int64(s.indexBytes/offsetEntrySize) || s.times.entries() >= int64(s.indexBytes/timeEntrySize)-1
}

// handle is an open segment. It lives until its last user has let go; the segment itself is one.
type handle struct {
	refs    atomic.Int64
	file    vfs.File
	maps    [2]atomic.Pointer[vfs.Mapping] // of the offset and the time index
	release func()                         // made once, so that a read allocates nothing
}

const (
	offsetMap = iota
	timeMap
)

// retain takes a reference; it fails when the last one is gone.
func (h *handle) retain() bool {
	for {
		n := h.refs.Load()
		if n == 0 {
			return false
		}
		if h.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (h *handle) drop() {
	if h.refs.Add(-1) != 0 {
		return
	}
	for i := range h.maps {
		if m := h.maps[i].Load(); m != nil {
			_ = (*m).Close() // read-only: nothing is lost
		}
	}
	_ = h.file.Close() // written bytes are the page cache's already; Flush reports what goes wrong with them
}

// open returns the segment's files with a reference taken; release lets go.
func (s *segment) open() (*handle, error) {
	if !s.used.Load() {
		s.used.Store(true)
	}
	for {
		h := s.files.Load()
		if h == nil {
			var err error
			if h, err = s.reopen(); err != nil {
				return nil, err
			}
		}
		if h.retain() {
			return h, nil
		}
	}
}

func (s *segment) reopen() (*handle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.files.Load(); h != nil {
		return h, nil
	}
	if s.gone {
		return nil, errGone
	}
	f, err := s.env.fs.Open(s.path(logSuffix))
	if err != nil {
		return nil, err
	}
	return s.publish(f), nil
}

// publish makes an open file the segment's.
func (s *segment) publish(f vfs.File) *handle {
	h := &handle{file: f}
	h.refs.Store(1)
	h.release = h.drop
	s.files.Store(h)
	s.env.files.add(s)
	return h
}

// takeUsed tells whether the segment was used since the last call.
func (s *segment) takeUsed() bool { return s.used.Swap(false) }

// closeFiles lets go of the segment's files; users keep them until they are done.
func (s *segment) closeFiles() {
	if h := s.files.Swap(nil); h != nil {
		h.drop()
	}
}

// discard renames the segment's files to .deleted and leaves them to the trash. Readers that have them open go on. As long as its log
// file could not be renamed the segment is there.
func (s *segment) discard(due time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, suffix := range []string{logSuffix, offsetSuffix, timeSuffix, txnSuffix, snapshotSuffix} {
		name := s.path(suffix)
		err := s.env.fs.Rename(name, name+deletedSuffix)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil {
			s.env.trash.add(name+deletedSuffix, due)
		}
		if suffix == logSuffix {
			s.gone = true
			s.closeFiles()
		}
	}
	return nil
}

// isGone tells whether the segment was discarded.
func (s *segment) isGone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// abandon closes the segment's files for good; its directory is about to be renamed.
func (s *segment) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	s.closeFiles()
}

// damages are the segment's damaged ranges.
func (s *segment) damages() []damage {
	if p := s.damaged.Load(); p != nil {
		return *p
	}
	return nil
}

// seek finds the first batch that ends at offset or behind it, below position end. It returns its header, copied into buf,
// and its position; io.EOF where there is none.
func (s *segment) seek(h *handle, offset wire.Offset, end int64, buf *[record.HeaderSize]byte) (record.Batch, int64, error) {
	start, indexed, err := s.floor(h, offset)
	if err != nil {
		return nil, 0, err
	}
	header, pos, err := s.walkTo(h, start, indexed, offset, end, buf)
	if !errors.Is(err, errIndex) {
		return header, pos, err
	}
	s.rebuildIndexes(h, err)
	return s.walkTo(h, 0, wire.NoOffset, offset, end, buf)
}

// floor is a position from which a walk finds offset: that of an indexed batch, whose last offset is indexed, or the start
// of the segment (indexed is NoOffset).
func (s *segment) floor(h *handle, offset wire.Offset) (pos int64, indexed wire.Offset, err error) {
	if err := s.ready(h); err != nil {
		return 0, 0, err
	}
	e, ok, err := s.offsets.floor(int64(offset-s.base), func() ([]byte, error) { return s.mapped(h, offsetMap) })
	if err != nil {
		s.rebuildIndexes(h, err)
		return 0, wire.NoOffset, nil
	}
	if !ok {
		return 0, wire.NoOffset, nil
	}
	return e.position(), s.base + wire.Offset(e.offsetKey()), nil
}

// walkTo walks from start to the batch that seek looks for. It is errIndex if the first one does not end at indexed.
func (s *segment) walkTo(
	h *handle, start int64, indexed, offset wire.Offset, end int64, buf *[record.HeaderSize]byte,
) (record.Batch, int64, error) {
	w := walk(h.file, start, s.size.Load(), s.damages())
	defer w.close()
	for {
		header, pos, err := w.next()
		if indexed != wire.NoOffset && (err != nil || header.LastOffset() != indexed) {
			return nil, 0, fmt.Errorf("%w: no batch that ends at %d at position %d", errIndex, indexed, start)
		}
		indexed = wire.NoOffset
		if err != nil {
			return nil, 0, err
		}
		if pos >= end {
			return nil, 0, io.EOF
		}
		if header.LastOffset() >= offset {
			copy(buf[:], header)
			return buf[:], pos, nil
		}
	}
}
