// Package vfs is the file system as the log sees it: every call states what it makes durable, so that one code base runs
// over the operating system (OS), over memory (Mem), over memory that loses what was not synced (Mem.CrashClone), and
// over injected faults (Fault).
//
// Paths are slash-separated; Mem takes them from its root. Nothing here starts a goroutine or reads a clock. Errors wrap
// fs.ErrNotExist, fs.ErrExist, fs.ErrClosed, fs.ErrPermission or ErrNoSpace where they mean that.
package vfs

import (
	"errors"
	"io"
)

// ErrNoSpace is what a write returns when the disk is full. Part of the write may have landed.
var ErrNoSpace = errors.New("no space left on device")

// FS is a file system. It is safe for use by several goroutines at once.
type FS interface {
	// Create opens a file for reading and writing, made empty if it exists. Its directory entry is durable after SyncDir.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// OpenRead opens an existing file for reading.
	OpenRead(name string) (File, error)
	// Rename replaces newName; durable after SyncDir of both directories.
	Rename(oldName, newName string) error
	// Remove deletes a file or an empty directory.
	Remove(name string) error
	// RemoveAll deletes a tree; a missing one is no error.
	RemoveAll(name string) error
	// MkdirAll makes a directory and its parents.
	MkdirAll(name string) error
	// SyncDir makes the entries of a directory durable: created, renamed and removed names.
	SyncDir(name string) error
	// List names the entries of a directory, sorted.
	List(name string) ([]string, error)
	// Stat describes a file or directory.
	Stat(name string) (Info, error)
	// Lock takes an exclusive lock that dies with the process; a second holder gets ErrLocked.
	Lock(name string) (io.Closer, error)
	// Usage gives the size and the free bytes of the disk that holds name.
	Usage(name string) (Usage, error)
}

// ErrLocked is what Lock returns while somebody else holds the lock.
var ErrLocked = errors.New("locked by another process")

// Info is what Stat tells.
type Info struct {
	Size    int64
	ModTime int64 // milliseconds since the epoch
	IsDir   bool
}

// Usage is the room on a disk, in bytes.
type Usage struct {
	Total int64
	Free  int64
}

// File is an open file. Reads may run beside each other and beside one writer.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Truncate sets the size. Room that was reserved beyond it is given back.
	Truncate(size int64) error
	// Reserve asks for room on the disk for bytes from to to, which makes writing them cheaper. The size stays, nothing is
	// promised, and nothing happens where the disk is full or can't do it.
	Reserve(from, to int64)
	// PunchHole makes bytes from to to zeros that take no room on the disk; the size stays. What of them sendfile has put into a socket, which
	// refers to the pages of the file for as long as its client takes, stays what it was: a later write has other pages.
	PunchHole(from, to int64) error
	// ReadNoFurther says that what lies behind a read is not to be read with it, which would be into larger pages than those of a write:
	// PunchHole zeroes the part of such a page that it is told of, and a socket may refer to it.
	ReadNoFurther() error
	// Sync makes contents and size durable (fdatasync). After an error nothing may be assumed of the file: never sync again.
	Sync() error
	// Size is the current size in bytes.
	Size() (int64, error)
	// Map maps the first maxSize bytes read-only, whatever the file's size now: what is appended later is seen through
	// the mapping, and what lies beyond the end of the file must not be touched.
	Map(maxSize int64) (Mapping, error)
	// Fd is the descriptor for sendfile; ok is false where there is none, and the bytes are read by ReadAt.
	Fd() (fd uintptr, ok bool)
}

// Resident is a File whose bytes lie in memory, from where they go to a socket without a copy on the way.
type Resident interface {
	// Bytes are those from off on that lie together, at most n of them; none where off can't be read. They stay what they are
	// until the Range that they were asked for through is released.
	Bytes(off, n int64) []byte
}

// Scattered is a File of which some bytes lie in another file, from where they go to a socket without a copy on the way.
type Scattered interface {
	// Piece is where those from off on lie that lie together, at most n of them; a zero Range where that is in no file. It needs no Release:
	// it stays as it is until the Range that it was asked for through is released.
	Piece(off, n int64) Range
}

// Mapping is a read-only view of a file. Bytes must not be used after Close.
type Mapping interface {
	Bytes() []byte
	Close() error
}

// Range is a piece of a file on its way to a socket. Release must be called once when it is sent or given up; the file
// stays open and in place until then. A zero Range is empty and needs no Release.
type Range struct {
	File    File
	Offset  int64
	Length  int64
	Release func()
}
