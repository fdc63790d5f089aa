package cache

import (
	"container/list"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"sync"

	"github.com/tidemark-io/tidemark/broker/vfs"
)

// diskName is the file that holds the blocks of the disk level.
const diskName = "blocks"

// disk keeps blocks in one file, least recently used first to leave. What is read back is believed only if its checksum is
// the one that was remembered. Nothing of it outlives the process.
type disk struct {
	file       vfs.File
	blockBytes int64

	mu     sync.Mutex           // guards what follows and what slots say it does; a leaf; no I/O under it
	at     map[id]*list.Element // of *slot
	order  list.List            // oldest first
	free   []int64              // places that hold nothing
	failed bool                 // the disk has refused a write: it is left alone from there on
}

// slot is a block in the file.
type slot struct {
	id    id
	index int64
	size  int
	crc   uint32

	// What follows is guarded by disk.mu.
	users int  // who read it where it lies
	gone  bool // nobody finds it any more; its place is free when the last user is gone
	sound span // what readers have verified
}

// openDisk empties the directory and makes the file.
func openDisk(fs vfs.FS, dir string, total, blockBytes int64) (*disk, error) {
	slots := total / blockBytes
	if slots == 0 {
		return nil, fmt.Errorf("open disk cache in %s: %d bytes are less than a block of %d", dir, total, blockBytes)
	}
	if err := errors.Join(fs.RemoveAll(path.Join(dir, diskName)), fs.MkdirAll(dir)); err != nil {
		return nil, fmt.Errorf("clean disk cache: %w", err)
	}
	f, err := fs.Create(path.Join(dir, diskName))
	if err != nil {
		return nil, fmt.Errorf("create disk cache: %w", err)
	}
	if err := errors.Join(f.PunchHole(0, blockBytes), f.ReadNoFurther()); err != nil {
		return nil, errors.Join(fmt.Errorf("disk cache in %s, which needs a file system whose files may have holes: %w", dir, err), f.Close())
	}
	d := &disk{file: f, blockBytes: blockBytes, at: map[id]*list.Element{}, free: make([]int64, slots)}
	for i := range d.free {
		d.free[i] = slots - 1 - int64(i)
	}
	return d, nil
}

func (d *disk) has(i id) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.at[i]
	return ok
}

// hold finds a block and compares it with its checksum, and keeps it where it is until release; nil if it is not there. verified is what
// readers have verified of it; damaged tells that the disk has something else than was written.
func (d *disk) hold(i id, size int) (s *slot, verified span, damaged bool) {
	d.mu.Lock()
	e, there := d.at[i]
	if !there {
		d.mu.Unlock()
		return nil, span{}, false
	}
	d.order.MoveToBack(e)
	s = e.Value.(*slot)
	s.users++
	verified = s.sound
	d.mu.Unlock()
	if s.size == size && d.whole(s) {
		return s, verified, false
	}
	damaged = d.drop(i)
	d.release(s)
	return nil, span{}, damaged
}

// whole reads a block and compares it with its checksum.
func (d *disk) whole(s *slot) bool {
	p := peeks.Get().(*peek)
	defer peeks.Put(p)
	sum := uint32(0)
	for at := 0; at < s.size; at += len(p) {
		b := p[:min(len(p), s.size-at)]
		if !d.readAt(s, b, int64(at)) {
			return false
		}
		sum = crc32.Update(sum, castagnoli, b)
	}
	return sum == s.crc
}

// readAt fills b with what a block that is held has from a place on.
func (d *disk) readAt(s *slot, b []byte, at int64) bool {
	n, err := d.file.ReadAt(b, s.index*d.blockBytes+at)
	return n == len(b) && (err == nil || errors.Is(err, io.EOF))
}

// release lets go of a block that was held.
func (d *disk) release(s *slot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.users--
	d.freeLocked(s)
}

func (d *disk) freeLocked(s *slot) {
	if s.gone && s.users == 0 {
		d.free = append(d.free, s.index)
	}
}

// drop forgets a block. It is false if that had happened before.
func (d *disk) drop(i id) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.at[i]
	if ok {
		s := d.removeLocked(e)
		d.freeLocked(s)
	}
	return ok
}

func (d *disk) removeLocked(e *list.Element) *slot {
	s := d.order.Remove(e).(*slot)
	delete(d.at, s.id)
	s.gone = true
	return s
}

// markSound notes what readers have verified of a block, if it is there.
func (d *disk) markSound(i id, verified span) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e, ok := d.at[i]; ok {
		e.Value.(*slot).sound = verified
	}
}

// write keeps a block, in place of the oldest.
func (d *disk) write(i id, data []byte) {
	index, ok := d.place(i)
	if !ok {
		return
	}
	// Of what was here before some may be in the sockets of slow clients.
	err := d.file.PunchHole(index*d.blockBytes, (index+1)*d.blockBytes)
	if err == nil {
		_, err = d.file.WriteAt(data, index*d.blockBytes)
	}
	crc := crc32.Checksum(data, castagnoli)

	d.mu.Lock()
	defer d.mu.Unlock()
	_, again := d.at[i]
	if err != nil || again {
		d.failed = d.failed || err != nil
		d.free = append(d.free, index)
		return
	}
	d.at[i] = d.order.PushBack(&slot{id: i, index: index, size: len(data), crc: crc})
}

// place finds a place that nobody reads and nobody else writes to.
func (d *disk) place(i id) (index int64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, there := d.at[i]; there || d.failed {
		return 0, false
	}
	if n := len(d.free); n > 0 {
		index, d.free = d.free[n-1], d.free[:n-1]
		return index, true
	}
	for e := d.order.Front(); e != nil; e = e.Next() {
		if e.Value.(*slot).users == 0 {
			return d.removeLocked(e).index, true
		}
	}
	return 0, false // all places are being read or written to
}

// peek is a piece of a block on the disk in memory, as long as somebody looks at it.
type peek [64 << 10]byte

var peeks = sync.Pool{New: func() any { return new(peek) }}

func (d *disk) close() error { return d.file.Close() }
