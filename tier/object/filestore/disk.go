package filestore

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
)

// errNotDir is what the file system says where a parent of the name is a file.
const errNotDir = syscall.ENOTDIR

// disk is what puts and deletes ask of the file system, in one place, so that a test sees the order.
type disk interface {
	createTemp(dir string) (*os.File, error)
	sync(f *os.File) error
	link(from, to string) error
	rename(from, to string) error
	remove(name string) error
	mkdir(name string) error
	syncDir(name string) error
}

type osDisk struct{}

// createTemp makes a temporary file and locks it, which tells the next Open that it is in use.
func (osDisk) createTemp(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "put-")
	if err != nil {
		return nil, err
	}
	if err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return f, nil
}

func (osDisk) sync(f *os.File) error        { return f.Sync() }
func (osDisk) link(from, to string) error   { return os.Link(from, to) }
func (osDisk) rename(from, to string) error { return os.Rename(from, to) }
func (osDisk) remove(name string) error     { return os.Remove(name) }
func (osDisk) mkdir(name string) error      { return os.Mkdir(name, 0o755) }

func (osDisk) syncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// removeAbandoned removes the temporary files of processes that have died: their locks died with them.
func removeAbandoned(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		if flock(f, syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			err = os.Remove(name)
		}
		f.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// lockShards is how many keys can be replaced at once at best.
const lockShards = 64

// locks makes compare and rename one step, within the process by a channel of one place and between processes by flock.
// Nobody waits without looking at ctx: a process that is stopped in here must not stop the others' deadlines.
type locks struct {
	dir    string
	places [lockShards]chan struct{}
}

func newLocks(dir string) locks {
	l := locks{dir: dir}
	for i := range l.places {
		l.places[i] = make(chan struct{}, 1)
	}
	return l
}

// The pauses between tries for a lock that another process holds, for as long as it takes to sync a small file.
const (
	firstPause = time.Millisecond
	lastPause  = 50 * time.Millisecond
)

func (l *locks) lock(ctx context.Context, path string) (unlock func(), err error) {
	h := fnv.New32a()
	h.Write([]byte(path))
	shard := int(h.Sum32() % lockShards)
	select {
	case l.places[shard] <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: wait for lock: %w", object.ErrUnavailable, ctx.Err())
	}
	f, err := l.lockFile(ctx, filepath.Join(l.dir, strconv.Itoa(shard)))
	if err != nil {
		<-l.places[shard]
		return nil, err
	}
	return func() {
		f.Close() // gives the lock up
		<-l.places[shard]
	}, nil
}

func (l *locks) lockFile(ctx context.Context, name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("%w: wait for lock: %w", object.ErrUnavailable, ctx.Err())
		}
	}
}

// flock is flock(2), made again when a signal interrupts it.
func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); err != syscall.EINTR {
			return err
		}
	}
}
