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
	for piece, err := range f.pin.Pieces(off, to) {
		if err != nil {
			return n, err
		}
		n += copy(b[n:], piece)
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// Bytes implements vfs.Resident.
func (f file) Bytes(off, n int64) []byte {
	to := min(off+n, f.pin.object.Size)
	if off < 0 || off >= to {
		return nil
	}
	for piece, err := range f.pin.Pieces(off, to) {
		if err != nil {
			return nil
		}
		return piece
	}
	return nil
}

func (f file) WriteAt([]byte, int64) (int, error) { return 0, errReadOnly }
func (f file) Truncate(int64) error               { return errReadOnly }
func (f file) Reserve(_, _ int64)                 {}
func (f file) Sync() error                        { return errReadOnly }
func (f file) Close() error                       { return nil }
func (f file) Size() (int64, error)               { return f.pin.object.Size, nil }
func (f file) Fd() (uintptr, bool)                { return 0, false }
func (f file) Map(n int64) (vfs.Mapping, error) {
	return nil, fmt.Errorf("map %d bytes: %w", n, errReadOnly)
}
