package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"sync/atomic"

	"github.com/tidemark-io/tidemark/broker/vfs"
)

// Entry sizes of the two sparse indexes.
const (
	offsetEntrySize = 8  // relative offset 4, position 4
	timeEntrySize   = 12 // timestamp 8, relative offset 4
)

// tailEntries is how many entries an index gathers in memory before they go to the file in one write: 2 to 3 KiB, which
// at one entry per 4 KiB of log is a write per MiB.
const tailEntries = 256

// warmEntries is how many of the newest entries on disk are searched first: 8 KiB of an offset index, which consumers near
// the end keep in the cache.
const warmEntries = 1024

// errIndex says that an index file is not what the log asks for; it is rebuilt.
var errIndex = errors.New("index is damaged")

// index is the sparse offset or time index of one segment. Entries have a key (relative offset, timestamp) that rises. The
// newest entries are in tail, those before them in the file. One writer, under the log's lock, and any number of readers.
type index struct {
	width int // bytes an entry
	tail  atomic.Pointer[indexTail]
	disk  atomic.Int64 // entries in the file; unknownEntries until somebody looked
}

const unknownEntries = -1

// indexTail holds entries from number first on. Entries below n never change, so that readers need no lock. A segment that was
// loaded and whose index is small has it here whole.
type indexTail struct {
	first int64
	n     atomic.Int32
	bytes []byte
}

// entry is an entry of either index.
type entry [timeEntrySize]byte

func (e *entry) offsetKey() int64  { return int64(binary.BigEndian.Uint32(e[:])) }
func (e *entry) position() int64   { return int64(binary.BigEndian.Uint32(e[4:])) }
func (e *entry) timestamp() int64  { return int64(binary.BigEndian.Uint64(e[:])) }
func (e *entry) timeOffset() int64 { return int64(binary.BigEndian.Uint32(e[8:])) }

// key is what entries are sorted by.
func (x *index) key(b []byte) int64 {
	if x.width == offsetEntrySize {
		return int64(binary.BigEndian.Uint32(b))
	}
	return int64(binary.BigEndian.Uint64(b))
}

// entries is how many there are; the file must have been looked at.
func (x *index) entries() int64 {
	if t := x.tail.Load(); t != nil {
		return t.first + int64(t.n.Load())
	}
	return max(0, x.disk.Load())
}

// append adds an entry. When the tail is full it goes to the file first; where that fails the entry is left out: an index may
// be sparser than it should, never wrong.
func (x *index) append(s *segment, e []byte) error {
	t := x.tail.Load()
	if t == nil || int(t.n.Load())*x.width == len(t.bytes) {
		if x.pending() {
			if err := x.write(s); err != nil {
				return err
			}
		}
		t = &indexTail{first: max(0, x.disk.Load()), bytes: make([]byte, tailEntries*x.width)}
		x.tail.Store(t)
	}
	n := int(t.n.Load())
	copy(t.bytes[n*x.width:], e)
	t.n.Store(int32(n + 1))
	return nil
}

// pending tells whether the tail holds entries that are not in the file.
func (x *index) pending() bool {
	t := x.tail.Load()
	return t != nil && t.first+int64(t.n.Load()) != x.disk.Load()
}

// fits tells whether a whole index of so many bytes may stay in memory.
func (x *index) fits(size int64) bool { return size <= int64(tailEntries*x.width) }

// hold keeps a whole index in memory, onDisk entries of which are in the file.
func (x *index) hold(entries []byte, onDisk int64) {
	t := &indexTail{bytes: entries}
	t.n.Store(int32(len(entries) / x.width))
	x.tail.Store(t)
	x.disk.Store(onDisk)
}

// write brings the entries of the tail to the file, which is made if it is missing. They stay readable in the tail.
func (x *index) write(s *segment) error {
	t, disk := x.tail.Load(), x.disk.Load()
	if disk > 0 && !x.pending() {
		return nil
	}
	// With no entry on disk that counts, what the file holds is of former times.
	f, err := x.openFile(s, disk == 0)
	if err != nil {
		return err
	}
	if x.pending() {
		n := int(t.n.Load())
		_, err = f.WriteAt(t.bytes[:n*x.width], t.first*int64(x.width))
		disk = t.first + int64(n)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	x.disk.Store(disk)
	return nil
}

func (x *index) openFile(s *segment, anew bool) (vfs.File, error) {
	suffix := offsetSuffix
	if x.width == timeEntrySize {
		suffix = timeSuffix
	}
	if anew {
		return s.env.fs.Create(s.path(suffix))
	}
	return openOrCreate(s.env.fs, s.path(suffix))
}

func openOrCreate(fsys vfs.FS, name string) (vfs.File, error) {
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fsys.Create(name)
	}
	return f, err
}

// floor finds the last entry with a key of at most key; mapped gives the file's bytes when they are needed.
func (x *index) floor(key int64, mapped func() ([]byte, error)) (e entry, ok bool, err error) {
	t, n := x.tail.Load(), max(0, x.disk.Load())
	if t != nil {
		if count := int64(t.n.Load()); count > 0 && x.key(t.bytes) <= key {
			i := x.search(t.bytes, 0, count, key)
			copy(e[:x.width], t.bytes[i*int64(x.width):])
			return e, true, nil
		}
		n = t.first
	}
	if n == 0 {
		return e, false, nil
	}
	b, err := mapped()
	if err != nil {
		return e, false, err
	}
	return x.searchMapped(b, n, key)
}

// search finds the last of the entries [low, high) with a key of at most key, given that the first is one.
func (x *index) search(b []byte, low, high, key int64) int64 {
	width := int64(x.width)
	for high-low > 1 {
		middle := int64(uint64(low+high) >> 1)
		if x.key(b[middle*width:]) <= key {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// searchMapped looks into mapped memory. A page that can't be read, because the disk fails or the file was cut behind our
// back, is an error and no crash.
func (x *index) searchMapped(b []byte, n, key int64) (e entry, ok bool, err error) {
	defer recoverFault(debug.SetPanicOnFault(true), &err)
	width := int64(x.width)
	if int64(len(b)) < n*width {
		return e, false, fmt.Errorf("%w: %d bytes mapped for %d entries", errIndex, len(b), n)
	}
	low := int64(0)
	if warm := n - warmEntries; warm > 0 && x.key(b[warm*width:]) <= key {
		low = warm
	} else if x.key(b) > key {
		return e, false, nil
	}
	i := x.search(b, low, n, key)
	copy(e[:width], b[i*width:])
	return e, true, nil
}

// checkMapped verifies a file of n entries: keys rise, and second (position, offset) rises or stays, below limit.
func (x *index) checkMapped(b []byte, n int64, limit int64) (err error) {
	defer recoverFault(debug.SetPanicOnFault(true), &err)
	width := int64(x.width)
	lastKey, lastSecond := int64(-1), int64(-1)
	for i := range n {
		e := b[i*width : (i+1)*width]
		key, second := x.key(e), int64(binary.BigEndian.Uint32(e[width-4:]))
		if key <= lastKey || second <= lastSecond && (i > 0 && x.width == offsetEntrySize || second < lastSecond) || second >= limit {
			return fmt.Errorf("%w: entry %d (%d, %d) after (%d, %d), limit %d", errIndex, i, key, second, lastKey, lastSecond, limit)
		}
		lastKey, lastSecond = key, second
	}
	return nil
}

// recoverFault ends a look into mapped memory: it restores the goroutine's setting and turns a fault into an error.
func recoverFault(old bool, err *error) {
	debug.SetPanicOnFault(old)
	r := recover()
	if r == nil {
		return
	}
	fault, ok := r.(interface{ Addr() uintptr })
	if !ok {
		panic(r)
	}
	*err = fmt.Errorf("%w: page at %#x can't be read", errIndex, fault.Addr())
}
