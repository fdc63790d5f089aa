package cache

import (
	"errors"
	"fmt"
	"io"

	"github.com/tidemark-io/tidemark/broker/vfs"
)

var errReadOnly = errors.New("blocks of the cache are read-only")

// File is the object as a file of which only what is pinned can be read. Closing it does nothing: Release does.
func (p *Pin) File() vfs.File { return file{p} }

type file struct{ pin *Pin }

// ReadAt implements io.ReaderAt. It does not wait: bytes that have not come are an error.
func (f file) ReadAt(b []byte, off int64) (int, error) {
	n := 0
	to := min(off+int64(len(b)), f.pin.object.Size)
	if off < 0 || off >= to {
		return 0, io.EOF
	}
	for part, err := range f.pin.parts(off, to) {
		if err != nil {
			return n, err
		}
		into := b[n:][:part.to-part.from]
		if part.block.slot == nil {
			copy(into, part.block.buf[part.from:])
		} else if !f.pin.cache.disk.readAt(part.block.slot, into, part.from) {
			return n, errDisk
		}
		n += len(into)
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// first is where the first of the bytes lie.
func (f file) first(off, n int64) (part, bool) {
	to := min(off+n, f.pin.object.Size)
	if off < 0 || off >= to {
		return part{}, false
	}
	for part, err := range f.pin.parts(off, to) {
		return part, err == nil
	}
	return part{}, false
}

// Bytes implements vfs.Resident.
func (f file) Bytes(off, n int64) []byte {
	if part, ok := f.first(off, n); ok && part.block.slot == nil {
		return part.block.buf[part.from:part.to]
	}
	return nil
}

// Piece implements vfs.Scattered: what lies on the disk is sent from there.
func (f file) Piece(off, n int64) vfs.Range {
	if part, ok := f.first(off, n); ok && part.block.slot != nil {
		d := f.pin.cache.disk
		return vfs.Range{File: d.file, Offset: part.block.slot.index*d.blockBytes + part.from, Length: part.to - part.from}
	}
	return vfs.Range{}
}

func (f file) WriteAt([]byte, int64) (int, error) { return 0, errReadOnly }
func (f file) Truncate(int64) error               { return errReadOnly }
func (f file) Reserve(_, _ int64)                 {}
func (f file) PunchHole(_, _ int64) error         { return errReadOnly }
func (f file) ReadNoFurther() error               { return nil }
func (f file) Sync() error                        { return errReadOnly }
func (f file) Close() error                       { return nil }
func (f file) Size() (int64, error)               { return f.pin.object.Size, nil }
func (f file) Fd() (uintptr, bool)                { return 0, false }
func (f file) Map(n int64) (vfs.Mapping, error) {
	return nil, fmt.Errorf("map %d bytes: %w", n, errReadOnly)
}
