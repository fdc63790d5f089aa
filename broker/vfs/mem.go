package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// memDiskSize is what Usage tells of a Mem whose space was not set.
const memDiskSize = 1 << 40

// Mem is a file system in memory that knows which of its contents and entries were synced, so that a power loss can be
// played (CrashClone). It is deterministic: no clock but the one set, no random number but those passed in.
//
// What it takes for durable is the least that POSIX promises: File.Sync covers the contents and size of a file, SyncDir
// the entries of one directory; neither covers the other, and a new directory needs the SyncDir of its parent.
type Mem struct {
	mu    sync.RWMutex // guards all below and all nodes; a leaf, held for memory copies only
	root  *node
	locks map[string]bool
	space int64 // size of the disk
	used  int64 // sum of the sizes of all files that are linked or open
	clock func() time.Time
	steps int64 // changes of the name space so far, which gives them an order
}

var _ FS = (*Mem)(nil)

// NewMem makes an empty file system with a root directory, a disk of 1 TiB and a clock that stands at the epoch.
func NewMem() *Mem {
	return &Mem{root: newDir(), locks: map[string]bool{}, space: memDiskSize, clock: func() time.Time { return time.UnixMilli(0) }}
}

// SetSpace sets the size of the disk in bytes. Writes beyond it land in part and return ErrNoSpace; a size below what is
// used already leaves no room.
func (m *Mem) SetSpace(total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.space = total
}

// SetClock sets where modification times come from.
func (m *Mem) SetClock(now func() time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock = now
}

// node is a file or a directory, whatever its name. Directories have entries, files have data.
type node struct {
	entries map[string]*node // nil for a file
	pending []*entryChange   // of this directory, not durable yet, oldest first

	data    []byte
	unsync  []dataChange // of this file, not durable yet, oldest first
	modTime int64
	linked  bool // a directory names it
	handles int  // open files
}

func newDir() *node { return &node{entries: map[string]*node{}, linked: true} }

func (n *node) isDir() bool { return n.entries != nil }

// now reads the clock before the lock is taken: no callback runs under it.
func (m *Mem) now() int64 {
	m.mu.RLock()
	clock := m.clock
	m.mu.RUnlock()
	return clock().UnixMilli()
}

func clean(name string) string { return path.Clean("/" + name) }

func pathError(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

func (m *Mem) lookupLocked(name string) (*node, error) {
	n := m.root
	for part := range strings.SplitSeq(clean(name)[1:], "/") {
		if part == "" {
			break
		}
		if !n.isDir() {
			return nil, errNotDir
		}
		next, ok := n.entries[part]
		if !ok {
			return nil, fs.ErrNotExist
		}
		n = next
	}
	return n, nil
}

// parentLocked finds the directory that holds name, and name's last part.
func (m *Mem) parentLocked(name string) (*node, string, error) {
	dir, base := path.Split(clean(name))
	if base == "" {
		return nil, "", fs.ErrInvalid
	}
	n, err := m.lookupLocked(dir)
	if err == nil && !n.isDir() {
		err = errNotDir
	}
	return n, base, err
}

// Create implements FS. Emptying an existing file is a Truncate: durable after Sync.
func (m *Mem) Create(name string) (File, error) {
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.createLocked(name, now)
	if err != nil {
		return nil, pathError("create", name, err)
	}
	m.truncateLocked(n, 0, now)
	return n.open(m, name, true), nil
}

func (m *Mem) createLocked(name string, now int64) (*node, error) {
	dir, base, err := m.parentLocked(name)
	if err != nil {
		return nil, err
	}
	n, ok := dir.entries[base]
	switch {
	case !ok:
		n = &node{modTime: now, linked: true}
		m.changeLocked(entry{dir, base, n})
	case n.isDir():
		return nil, errIsDir
	}
	return n, nil
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) { return m.openExisting(name, true) }

// OpenRead implements FS.
func (m *Mem) OpenRead(name string) (File, error) { return m.openExisting(name, false) }

func (m *Mem) openExisting(name string, writable bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookupLocked(name)
	if err == nil && n.isDir() {
		err = errIsDir
	}
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return n.open(m, name, writable), nil
}

// Rename implements FS. It is one change: a crash shows it whole or not at all.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.renameLocked(oldName, newName); err != nil {
		return pathError("rename", oldName+" "+newName, err)
	}
	return nil
}

func (m *Mem) renameLocked(oldName, newName string) error {
	from, oldBase, err := m.parentLocked(oldName)
	if err != nil {
		return err
	}
	to, newBase, err := m.parentLocked(newName)
	if err != nil {
		return err
	}
	n, ok := from.entries[oldBase]
	if !ok {
		return fs.ErrNotExist
	}
	if n.isDir() && strings.HasPrefix(clean(newName)+"/", clean(oldName)+"/") && clean(newName) != clean(oldName) {
		return fs.ErrInvalid
	}
	old, ok := to.entries[newBase]
	switch {
	case old == n:
		return nil
	case !ok:
	case old.isDir() != n.isDir() || len(old.entries) > 0:
		return fs.ErrExist
	default:
		m.unlinkLocked(old)
	}
	m.changeLocked(entry{from, oldBase, nil}, entry{to, newBase, n})
	return nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parentLocked(name)
	if err != nil {
		return pathError("remove", name, err)
	}
	n, ok := dir.entries[base]
	switch {
	case !ok:
		return pathError("remove", name, fs.ErrNotExist)
	case len(n.entries) > 0:
		return pathError("remove", name, errNotEmpty)
	}
	m.unlinkLocked(n)
	m.changeLocked(entry{dir, base, nil})
	return nil
}

// RemoveAll implements FS. A crash may leave any part of the tree.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parentLocked(name)
	if err == nil && dir.entries[base] != nil {
		m.removeTreeLocked(dir, base)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pathError("removeall", name, err)
	}
	return nil
}

func (m *Mem) removeTreeLocked(dir *node, base string) {
	n := dir.entries[base]
	for _, child := range slices.Sorted(maps.Keys(n.entries)) {
		m.removeTreeLocked(n, child)
	}
	m.unlinkLocked(n)
	m.changeLocked(entry{dir, base, nil})
}

func (m *Mem) unlinkLocked(n *node) {
	n.linked = false
	if n.handles == 0 {
		m.used -= int64(len(n.data))
	}
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for part := range strings.SplitSeq(clean(name)[1:], "/") {
		if part == "" {
			break
		}
		next, ok := n.entries[part]
		if !ok {
			next = newDir()
			m.changeLocked(entry{n, part, next})
		}
		if !next.isDir() {
			return pathError("mkdir", name, errNotDir)
		}
		n = next
	}
	return nil
}

// SyncDir implements FS. A rename between two directories becomes durable, both halves, with either.
func (m *Mem) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.dirLocked(name)
	if err != nil {
		return pathError("sync", name, err)
	}
	n.settle(len(n.pending))
	return nil
}

func (m *Mem) dirLocked(name string) (*node, error) {
	n, err := m.lookupLocked(name)
	if err == nil && !n.isDir() {
		err = errNotDir
	}
	return n, err
}

// List implements FS.
func (m *Mem) List(name string) ([]string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.dirLocked(name)
	if err != nil {
		return nil, pathError("list", name, err)
	}
	return slices.Sorted(maps.Keys(n.entries)), nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (Info, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.lookupLocked(name)
	if err != nil {
		return Info{}, pathError("stat", name, err)
	}
	return Info{Size: int64(len(n.data)), ModTime: n.modTime, IsDir: n.isDir()}, nil
}

// Lock implements FS. As under the OS the file is created and stays. Clones start with all locks free.
func (m *Mem) Lock(name string) (io.Closer, error) {
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	key := clean(name)
	if m.locks[key] {
		return nil, fmt.Errorf("lock %s: %w", name, ErrLocked)
	}
	if _, err := m.createLocked(name, now); err != nil {
		return nil, pathError("lock", name, err)
	}
	m.locks[key] = true
	return &memLock{m: m, key: key}, nil
}

type memLock struct {
	m   *Mem
	key string // empty once released
}

func (l *memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.key == "" {
		return fs.ErrClosed
	}
	delete(l.m.locks, l.key)
	l.key = ""
	return nil
}

// Usage implements FS. Only file contents take room.
func (m *Mem) Usage(name string) (Usage, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if _, err := m.lookupLocked(name); err != nil {
		return Usage{}, pathError("usage", name, err)
	}
	return Usage{Total: m.space, Free: m.freeLocked()}, nil
}

func (m *Mem) freeLocked() int64 { return max(m.space-m.used, 0) }
