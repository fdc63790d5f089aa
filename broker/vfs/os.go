package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OS is the operating system's file system. The zero value is ready.
type OS struct{}

var _ FS = OS{}

// Create implements FS; the file is readable by everybody, writable by its owner.
func (OS) Create(name string) (File, error) {
	return openOS(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

// Open implements FS.
func (OS) Open(name string) (File, error) { return openOS(name, os.O_RDWR) }

// OpenRead implements FS.
func (OS) OpenRead(name string) (File, error) { return openOS(name, os.O_RDONLY) }

func openOS(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o644)
	if err != nil {
		return nil, spaceError(err)
	}
	return osFile{f}, nil
}

// Rename implements FS.
func (OS) Rename(oldName, newName string) error { return spaceError(os.Rename(oldName, newName)) }

// Remove implements FS.
func (OS) Remove(name string) error { return os.Remove(name) }

// RemoveAll implements FS.
func (OS) RemoveAll(name string) error { return os.RemoveAll(name) }

// MkdirAll implements FS.
func (OS) MkdirAll(name string) error { return spaceError(os.MkdirAll(name, 0o755)) }

// SyncDir implements FS.
func (OS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// List implements FS.
func (OS) List(name string) ([]string, error) {
	d, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	if err := errors.Join(err, d.Close()); err != nil {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

// Stat implements FS.
func (OS) Stat(name string) (Info, error) {
	info, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return Info{Size: info.Size(), ModTime: info.ModTime().UnixMilli(), IsDir: info.IsDir()}, nil
}

// Lock implements FS by flock on the file name, which is created and stays.
func (OS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, spaceError(err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close() // nothing was written
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("lock %s: %w", name, ErrLocked)
	}
	return nil, &os.PathError{Op: "flock", Path: name, Err: err}
}

// Usage implements FS; what is kept for the superuser does not count as free.
func (OS) Usage(name string) (Usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(name, &st); err != nil {
		return Usage{}, &os.PathError{Op: "statfs", Path: name, Err: err}
	}
	block := uint64(st.Bsize)
	return Usage{Total: int64(st.Blocks * block), Free: int64(st.Bavail * block)}, nil
}

type osFile struct{ f *os.File }

func (o osFile) ReadAt(p []byte, off int64) (int, error) { return o.f.ReadAt(p, off) }

func (o osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := o.f.WriteAt(p, off)
	return n, spaceError(err)
}

func (o osFile) Close() error { return o.f.Close() }

func (o osFile) Truncate(size int64) error { return spaceError(o.f.Truncate(size)) }

func (o osFile) Reserve(from, to int64) { reserve(o.f, from, to) }

func (o osFile) PunchHole(from, to int64) error { return punchHole(o.f, from, to) }

func (o osFile) ReadNoFurther() error { return readNoFurther(o.f) }

func (o osFile) Sync() error { return spaceError(syncData(o.f)) }

func (o osFile) Size() (int64, error) {
	info, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (o osFile) Fd() (uintptr, bool) { return o.f.Fd(), true }

// Map goes around unix.Mmap, which keeps all mappings of a process behind one mutex.
func (o osFile) Map(maxSize int64) (Mapping, error) {
	if maxSize == 0 {
		return &osMapping{}, nil
	}
	p, err := unix.MmapPtr(int(o.f.Fd()), 0, nil, uintptr(maxSize), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, &os.PathError{Op: "mmap", Path: o.f.Name(), Err: err}
	}
	return &osMapping{bytes: unsafe.Slice((*byte)(p), maxSize)}, nil
}

type osMapping struct{ bytes []byte }

func (m *osMapping) Bytes() []byte { return m.bytes }

func (m *osMapping) Close() error {
	if m.bytes == nil {
		return nil
	}
	p, size := unsafe.Pointer(unsafe.SliceData(m.bytes)), uintptr(len(m.bytes))
	m.bytes = nil
	return os.NewSyscallError("munmap", unix.MunmapPtr(p, size))
}

// spaceError makes a full disk or quota recognisable as ErrNoSpace and keeps the text.
func spaceError(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return noSpaceError{err}
	}
	return err
}

type noSpaceError struct{ error }

func (e noSpaceError) Unwrap() error        { return e.error }
func (e noSpaceError) Is(target error) bool { return target == ErrNoSpace }
