package cache

import (
	"container/list"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/tidemark-io/tidemark/broker/vfs"
)

// The sizes that are used where Options say nothing.
const (
	DefaultBlockBytes = 256 << 10
	// pageBytes is what a smaller block is rounded down to, so that no two share a page of the disk level's file: PunchHole would not replace it.
	pageBytes = 64 << 10
	// blocksMin keeps the smallest cache able to hold a batch across blocks beside one that is being filled.
	blocksMin = 16
)

// The errors of this package; those of Options.Get come through as they are.
var (
	// ErrFull: all blocks are in use and the caller did not want to wait, or wants more than can ever be in use.
	ErrFull = errors.New("the cache is full of what is in use")
	// ErrClosed: the cache was closed.
	ErrClosed = errors.New("the cache is closed")
	// ErrShort: the object ends before its size.
	ErrShort = errors.New("object is shorter than it is said to be")
)

// Object names an immutable object of the store.
type Object struct {
	Key  string
	Size int64
	// Topic is for whom it is read; Options.Get gets it to label its requests.
	Topic string
}

// Options are what a Cache is made of.
type Options struct {
	// Get opens length bytes of an object from offset on. It is called on what Go starts, and gives up with ctx, which ends
	// when the cache is closed.
	Get func(ctx context.Context, o Object, offset, length int64) (io.ReadCloser, error)
	// Go runs a function beside the caller, or before it returns (then no read ever waits).
	Go func(func())

	MemoryBytes int64 // of all buffers together; at least blocksMin blocks are had whatever it says
	BlockBytes  int64 // of a block; if 0, DefaultBlockBytes, or about RangeBytes where that is less
	RangeBytes  int64 // most bytes of one get; where more is wanted gets begin at its multiples. 0: one block

	FS        vfs.FS // with DiskBytes: where the disk level lies
	Dir       string // in a file "blocks", which begins anew at each start
	DiskBytes int64  // 0: no disk level

	// Plain keeps blocks by least recent use alone, without ristretto: the same calls then always do the same.
	Plain bool
}

// Stats are counts since the cache was opened, and what it holds now.
type Stats struct {
	Gets       int64 // ranged gets
	GetBytes   int64 // that they brought
	Hits       int64 // blocks that were there, or on their way, when they were pinned
	DiskHits   int64 // blocks that the disk had
	Misses     int64 // blocks that had to be got
	Refused    int64 // pins that found no room
	Damaged    int64 // blocks that were not what they should be: on the disk, or by word of a reader (Drop)
	Bytes      int64 // of all buffers
	InUseBytes int64 // of those that are pinned or being filled
}

// Cache is the cache of one broker.
type Cache struct {
	o      Options
	window int                 // blocks that the window holds, and that may be in use
	units  *semaphore.Weighted // one for each block that is in use, but for those that lie on the disk
	blocks int                 // buffers that may be made
	main   mainPart
	disk   *disk // nil without
	ctx    context.Context
	cancel context.CancelFunc

	free  chan []byte    // buffers without a block
	moves sync.WaitGroup // calls that have to do with main, until closed

	gets, getBytes, hits, diskHits, misses, refused, damaged atomic.Int64

	mu      sync.Mutex // guards what follows and what blocks say it does; nothing blocks under it
	found   map[id]*block
	count   int       // blocks of the window, with detached ones that are still pinned
	idle    list.List // of *block: those of the window that are not in use and were read, least recently used first
	ahead   list.List // of *block: those that are not in use and were not read yet, oldest first
	brought int64     // blocks that were made
	made    int       // buffers
	inUse   int
	unread  int // blocks of the window that were brought in ahead and not pinned yet
	closed  bool
}

// Open makes a cache, and empties its disk level.
func Open(o Options) (*Cache, error) {
	if o.BlockBytes == 0 {
		o.BlockBytes = DefaultBlockBytes
		if o.RangeBytes > 0 {
			o.BlockBytes = max(min(o.BlockBytes, o.RangeBytes)/pageBytes, 1) * pageBytes
		}
	}
	o.RangeBytes = max(o.RangeBytes/o.BlockBytes, 1) * o.BlockBytes
	c := &Cache{o: o, blocks: max(int(o.MemoryBytes/o.BlockBytes), blocksMin), found: map[id]*block{}}
	c.window = (c.blocks + 1) / 2
	c.free = make(chan []byte, c.blocks)
	c.units = semaphore.NewWeighted(int64(c.window))
	if o.DiskBytes > 0 {
		d, err := openDisk(o.FS, o.Dir, o.DiskBytes, o.BlockBytes)
		if err != nil {
			return nil, err
		}
		c.disk = d
	}
	if o.Plain {
		c.main = newPlainPart(c.blocks-c.window, c.gone)
	} else {
		part, err := newRistrettoPart(c.blocks-c.window, c.gone)
		if err != nil {
			return nil, errors.Join(err, c.closeDisk())
		}
		c.main = part
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Close ends the downloads. Pins stay readable until they are released; nothing more is pinned.
func (c *Cache) Close() error {
	c.mu.Lock()
	again := c.closed
	c.closed = true
	c.mu.Unlock()
	if again {
		return nil
	}
	c.cancel()
	c.moves.Wait()
	c.main.close()
	return c.closeDisk()
}

func (c *Cache) closeDisk() error {
	if c.disk == nil {
		return nil
	}
	return c.disk.close()
}

// PinBytesMax is the most that one pin may hold whatever lies where: a batch that is larger is not for this cache.
func (c *Cache) PinBytesMax() int64 { return int64(c.window-1) * c.o.BlockBytes }

// RangeBytes is the size of the largest get, a multiple of the size of a block.
func (c *Cache) RangeBytes() int64 { return c.o.RangeBytes }

// BlockBytes is the size of a block.
func (c *Cache) BlockBytes() int64 { return c.o.BlockBytes }

// Stats counts.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	made, inUse := c.made, c.inUse
	c.mu.Unlock()
	return Stats{
		Gets: c.gets.Load(), GetBytes: c.getBytes.Load(), Hits: c.hits.Load(), DiskHits: c.diskHits.Load(),
		Misses: c.misses.Load(), Refused: c.refused.Load(), Damaged: c.damaged.Load(),
		Bytes: int64(made) * c.o.BlockBytes, InUseBytes: int64(inUse) * c.o.BlockBytes,
	}
}
