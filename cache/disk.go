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

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// diskName is the file that holds the blocks of the disk level.
const diskName = "blocks"

// disk keeps blocks in one file, least recently used first to leave. What is read back is believed only if its checksum is
// the one that was remembered. Nothing of it outlives the process.
type disk struct {
	file       vfs.File
	blockBytes int64

	mu     sync.Mutex           // guards what follows; a leaf; no I/O under it
	at     map[id]*list.Element // of slot
	order  list.List            // oldest first
	free   []int64              // slots that hold nothing
	failed bool                 // the disk has refused a write: it is left alone from there on
}

type slot struct {
	id    id
	index int64
	size  int
	crc   uint32
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

// read fills buf with a block. damaged tells that the disk has something else than was written.
func (d *disk) read(i id, buf []byte) (ok, damaged bool) {
	d.mu.Lock()
	e, there := d.at[i]
	if !there {
		d.mu.Unlock()
		return false, false
	}
	d.order.MoveToBack(e)
	s := e.Value.(slot)
	d.mu.Unlock()

	if s.size != len(buf) {
		return false, false
	}
	n, err := d.file.ReadAt(buf, s.index*d.blockBytes)
	whole := n == len(buf) && (err == nil || errors.Is(err, io.EOF))
	if whole && crc32.Checksum(buf, castagnoli) == s.crc {
		return true, false
	}
	return false, d.forget(i, e)
}

// forget frees a block's place. It is false if that had happened before.
func (d *disk) forget(i id, e *list.Element) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at[i] != e {
		return false
	}
	delete(d.at, i)
	d.free = append(d.free, d.order.Remove(e).(slot).index)
	return true
}

// drop forgets a block, if it is there.
func (d *disk) drop(i id) {
	d.mu.Lock()
	e, ok := d.at[i]
	d.mu.Unlock()
	if ok {
		d.forget(i, e)
	}
}

// write keeps a block, in place of the oldest.
func (d *disk) write(i id, data []byte) {
	index, ok := d.place(i)
	if !ok {
		return
	}
	_, err := d.file.WriteAt(data, index*d.blockBytes)
	crc := crc32.Checksum(data, castagnoli)

	d.mu.Lock()
	defer d.mu.Unlock()
	_, again := d.at[i]
	if err != nil || again {
		d.failed = d.failed || err != nil
		d.free = append(d.free, index)
		return
	}
	d.at[i] = d.order.PushBack(slot{id: i, index: index, size: len(data), crc: crc})
}

// place finds a slot that nobody else writes to.
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
	e := d.order.Front()
	if e == nil {
		return 0, false // all slots are being written to
	}
	s := d.order.Remove(e).(slot)
	delete(d.at, s.id)
	return s.index, true
}

func (d *disk) close() error { return d.file.Close() }
