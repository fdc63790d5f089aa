package log

import (
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/tidemark-io/tidemark/broker/vfs"
)

// DirLocks are the locks of log directories: whoever holds them knows that no other process writes there, and that the one that
// did is dead.
type DirLocks struct {
	dirs  []string
	locks map[string]io.Closer // by cleaned path; without those that OpenManager has taken over
}

// LockDirs locks log directories, which it makes if they are missing, before anything in them is believed. It is vfs.ErrLocked if
// another process has one of them. A directory that fails otherwise is not among Dirs, and OpenManager will find it offline.
func LockDirs(fsys vfs.FS, dirs []string) (*DirLocks, error) {
	l := &DirLocks{locks: map[string]io.Closer{}}
	for _, dir := range dirs {
		lock, err := lockDir(fsys, path.Clean(dir))
		if errors.Is(err, vfs.ErrLocked) {
			l.Close()
			return nil, fmt.Errorf("lock log directory: %w", err)
		}
		if err == nil {
			l.dirs = append(l.dirs, dir)
			l.locks[path.Clean(dir)] = lock
		}
	}
	return l, nil
}

func lockDir(fsys vfs.FS, dir string) (io.Closer, error) {
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, err
	}
	return fsys.Lock(path.Join(dir, lockFile))
}

// Dirs are the directories that were locked, in the order in which they were named.
func (l *DirLocks) Dirs() []string { return l.dirs }

// Close gives up the locks that OpenManager has not taken over.
func (l *DirLocks) Close() {
	for dir, lock := range l.locks {
		_ = lock.Close() // dies with the process at the latest
		delete(l.locks, dir)
	}
}

// take hands over the lock of a directory, nil where there is none.
func (l *DirLocks) take(dir string) io.Closer {
	if l == nil {
		return nil
	}
	lock := l.locks[dir]
	delete(l.locks, dir)
	return lock
}
