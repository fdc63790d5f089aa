package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData leaves out times and owner, which saves a journal commit where the size did not change.
func syncData(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err == nil {
			return nil
		}
		if err != unix.EINTR {
			return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
	}
}

// reserve allocates blocks and leaves the size alone. Errors are of no interest: the write that comes reports what is wrong.
func reserve(f *os.File, from, to int64) {
	_ = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, to-from)
}

func readNoFurther(f *os.File) error {
	return os.NewSyscallError("fadvise", unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM))
}

func punchHole(f *os.File, from, to int64) error {
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE, from, to-from)
	if err != nil {
		return &os.PathError{Op: "punch hole", Path: f.Name(), Err: err}
	}
	return nil
}
