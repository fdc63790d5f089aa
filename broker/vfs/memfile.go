package vfs

import (
	"io"
	"io/fs"
	"slices"
	"syscall"
)

const (
	errNotDir   = syscall.ENOTDIR
	errIsDir    = syscall.EISDIR
	errNotEmpty = syscall.ENOTEMPTY
)

// memFile is an open file of a Mem. It stays with its node when the name is removed.
type memFile struct {
	m        *Mem
	n        *node
	name     string // as opened, for errors
	writable bool
	closed   bool
}

func (n *node) open(m *Mem, name string, writable bool) File {
	n.handles++
	return &memFile{m: m, n: n, name: name, writable: writable}
}

func (f *memFile) checkLocked(op string, write bool) error {
	switch {
	case f.closed:
		return pathError(op, f.name, fs.ErrClosed)
	case write && !f.writable:
		return pathError(op, f.name, fs.ErrPermission)
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.RLock()
	defer f.m.mu.RUnlock()
	if err := f.checkLocked("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("read", f.name, fs.ErrInvalid)
	}
	n := copy(p, f.n.data[min(off, int64(len(f.n.data))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	now := f.m.now()
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.checkLocked("write", true); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("write", f.name, fs.ErrInvalid)
	}
	size := int64(len(f.n.data))
	room := size + f.m.freeLocked() - off
	var full error
	if int64(len(p)) > max(room, 0) && off+int64(len(p)) > size {
		p = p[:max(room, 0)]
		full = pathError("write", f.name, ErrNoSpace)
	}
	if len(p) > 0 {
		f.m.writeLocked(f.n, p, off, now)
	}
	return len(p), full
}

func (f *memFile) Truncate(size int64) error {
	now := f.m.now()
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.checkLocked("truncate", true); err != nil {
		return err
	}
	if size < 0 {
		return pathError("truncate", f.name, fs.ErrInvalid)
	}
	if size-int64(len(f.n.data)) > f.m.freeLocked() {
		return pathError("truncate", f.name, ErrNoSpace)
	}
	f.m.truncateLocked(f.n, size, now)
	return nil
}

func (f *memFile) Reserve(int64, int64) {}

func (f *memFile) ReadNoFurther() error { return nil }

func (f *memFile) PunchHole(from, to int64) error {
	size, err := f.Size()
	if err != nil || from >= size {
		return err
	}
	_, err = f.WriteAt(make([]byte, min(to, size)-from), from)
	return err
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.checkLocked("sync", false); err != nil {
		return err
	}
	f.n.unsync = nil
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.RLock()
	defer f.m.mu.RUnlock()
	if err := f.checkLocked("size", false); err != nil {
		return 0, err
	}
	return int64(len(f.n.data)), nil
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.checkLocked("close", false); err != nil {
		return err
	}
	f.closed = true
	f.n.handles--
	if f.n.handles == 0 && !f.n.linked {
		f.m.used -= int64(len(f.n.data))
	}
	return nil
}

func (f *memFile) Fd() (uintptr, bool) { return 0, false }

// Map reserves maxSize bytes behind the file, so that later appends land in the memory that the mapping shows.
func (f *memFile) Map(maxSize int64) (Mapping, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.checkLocked("map", false); err != nil {
		return nil, err
	}
	if maxSize < 0 {
		return nil, pathError("map", f.name, fs.ErrInvalid)
	}
	f.n.grow(maxSize)
	return &memMapping{f: f, size: maxSize}, nil
}

// memMapping looks its bytes up at each use: a file that grew past its mapping has moved in memory.
type memMapping struct {
	f    *memFile
	size int64
}

func (m *memMapping) Bytes() []byte {
	m.f.m.mu.RLock()
	defer m.f.m.mu.RUnlock()
	return m.f.n.data[:m.size:m.size]
}

func (m *memMapping) Close() error { return nil }

// dataChange is a write or a truncation that was not synced, with what it takes to undo it.
type dataChange struct {
	truncate bool
	at       int64  // where the write began; the new size of a truncation
	length   int64  // of the write
	oldSize  int64  // before
	old      []byte // the bytes written over from at, or those cut off
}

// grow makes room for size bytes of data without changing its length; the new room is zero.
func (n *node) grow(size int64) {
	if size > int64(cap(n.data)) {
		n.data = slices.Grow(n.data, int(size)-len(n.data))
	}
}

// resize sets the length of data; what is gained reads as zero.
func (n *node) resize(size int64) {
	old := int64(len(n.data))
	n.grow(size)
	n.data = n.data[:size]
	if size > old {
		clear(n.data[old:])
	}
}

func (m *Mem) writeLocked(n *node, p []byte, off, now int64) {
	size := int64(len(n.data))
	end := off + int64(len(p))
	change := dataChange{at: off, length: int64(len(p)), oldSize: size}
	if off < size {
		change.old = slices.Clone(n.data[off:min(end, size)])
	}
	n.record(change)
	if end > size {
		n.resize(end)
		m.used += end - size
	}
	copy(n.data[off:], p)
	n.modTime = now
}

// record notes a change; appends that follow each other are one, as the page cache has it.
func (n *node) record(c dataChange) {
	if len(n.unsync) > 0 && len(c.old) == 0 && c.at == c.oldSize {
		last := &n.unsync[len(n.unsync)-1]
		if !last.truncate && last.at+last.length == c.at {
			last.length += c.length
			return
		}
	}
	n.unsync = append(n.unsync, c)
}

func (m *Mem) truncateLocked(n *node, size, now int64) {
	old := int64(len(n.data))
	if size == old {
		return
	}
	change := dataChange{truncate: true, at: size, oldSize: old}
	if size < old {
		change.old = slices.Clone(n.data[size:])
	}
	n.unsync = append(n.unsync, change)
	n.resize(size)
	m.used += size - old
	n.modTime = now
}

// undo takes c back.
func (n *node) undo(c dataChange) {
	n.resize(c.oldSize)
	copy(n.data[c.at:], c.old)
}
