package log

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/broker/vfs"
)

// environment is what the logs of one log directory share.
type environment struct {
	fs     vfs.FS
	logger *slog.Logger
	disk   *disk
	files  *openFiles
	trash  *trash
	dirty  *dirtyLogs
	sealed *dirtyLogs // logs that have sealed a segment since Manager.TakeSealed
	rolled *dirtyLogs // and since Manager.FlushSealed
	logs   int        // of a Manager, which guards it
	// scan is held while a segment is verified for its upload: several at a time would keep all cores busy, and let whoever wants an answer
	// wait, and none of them would be done sooner.
	scan  sync.Mutex
	yield func() // as that of Options
	// saveRecoveryPoints writes the directory's recovery points now; nil for a log of its own.
	saveRecoveryPoints func() error
	// saveStarts writes the directory's log starts now; nil for a log of its own.
	saveStarts func() error
}

// disk is the state of one log directory.
type disk struct {
	failure atomic.Pointer[error] // why it is offline

	// What the next checkpoint has to write.
	recoveryChanged, watermarkChanged, startChanged atomic.Bool
}

// check is nil while the directory is online.
func (d *disk) check() error {
	if p := d.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// fault turns an I/O error into one for callers. A full disk is no reason to give up the directory, nor is a segment that was deleted
// while somebody looked at it; after anything else nothing may be assumed of what was written (a failed sync above all), and the
// directory goes offline.
func (e *environment) fault(doing string, err error) error {
	if errors.Is(err, ErrStorage) {
		return err
	}
	err = fmt.Errorf("%s: %w: %w", doing, ErrStorage, err)
	if errors.Is(err, vfs.ErrNoSpace) || errors.Is(err, errGone) {
		return err
	}
	if e.disk.failure.CompareAndSwap(nil, &err) {
		e.logger.Error("log directory is offline", "err", err)
	}
	return err
}

// maxOpenSegments bounds the segments with open files and maps, well below the kernel's usual limit of 65,530 maps with
// two maps a segment.
const maxOpenSegments = 16 << 10

// openFiles are the segments with an open file, each once, in the order of opening, so that unused ones can be closed.
type openFiles struct {
	mu       sync.Mutex // guards segments, and what they say of being here; a leaf, nothing blocks under it
	segments []*segment
}

// add notes a segment that was opened. At the bound it closes the oldest one that was not used lately.
func (o *openFiles) add(s *segment) {
	var victim *segment
	o.mu.Lock()
	if s.listed { // its files were closed since, as when its indexes are made anew
		o.mu.Unlock()
		return
	}
	for range len(o.segments) {
		if len(o.segments) < maxOpenSegments {
			break
		}
		oldest := o.segments[0]
		o.segments = o.segments[1:]
		if !oldest.takeUsed() {
			victim = oldest
			victim.listed = false
			break
		}
		o.segments = append(o.segments, oldest)
	}
	s.listed = true
	o.segments = append(o.segments, s)
	o.mu.Unlock()
	if victim != nil {
		victim.closeFiles()
	}
}

// sweep closes what was not used since the last sweep.
func (o *openFiles) sweep() {
	var idle []*segment
	o.mu.Lock()
	kept := o.segments[:0]
	for _, s := range o.segments {
		if s.takeUsed() {
			kept = append(kept, s)
		} else {
			s.listed = false
			idle = append(idle, s)
		}
	}
	clear(o.segments[len(kept):])
	o.segments = kept
	o.mu.Unlock()
	for _, s := range idle {
		s.closeFiles()
	}
}

// trash holds the paths of files and directories that are to be removed once their time has come.
type trash struct {
	mu    sync.Mutex // guards items; a leaf
	items []trashItem
}

type trashItem struct {
	path string
	due  time.Time
}

func (t *trash) add(path string, due time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.items = append(t.items, trashItem{path, due})
}

// take hands out what is due.
func (t *trash) take(now time.Time) (paths []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.items[:0]
	for _, item := range t.items {
		if item.due.After(now) {
			kept = append(kept, item)
		} else {
			paths = append(paths, item.path)
		}
	}
	clear(t.items[len(kept):])
	t.items = kept
	return paths
}

// dirtyLogs are the logs with something to do, each once, in the order in which that came about.
type dirtyLogs struct {
	mu    sync.Mutex // guards what follows; a leaf
	logs  []*Log
	among map[*Log]struct{}
}

func (d *dirtyLogs) add(l *Log) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, again := d.among[l]; again {
		return
	}
	if d.among == nil {
		d.among = map[*Log]struct{}{}
	}
	d.among[l] = struct{}{}
	d.logs = append(d.logs, l)
}

func (d *dirtyLogs) take() []*Log {
	d.mu.Lock()
	defer d.mu.Unlock()
	logs := d.logs
	d.logs, d.among = nil, nil
	return logs
}
