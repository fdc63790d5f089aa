package cache

import (
	"errors"
	"fmt"
	"io"
	"runtime"
)

// download brings in blocks of one object, which are in order: neighbours by one get, as far as RangeBytes lets it. More than that is
// cut at its multiples.
func (c *Cache) download(o Object, missing []*block) {
	perRange := int(c.o.RangeBytes / c.o.BlockBytes)
	for len(missing) > 0 {
		onDisk := c.disk != nil && c.disk.has(missing[0].id)
		n := 1
		for n < len(missing) && !onDisk {
			before, b := missing[n-1].id, missing[n].id
			if b.index != before.index+1 || c.disk != nil && c.disk.has(b) {
				break
			}
			n++
		}
		if n > perRange {
			n = perRange - int(missing[0].id.index%int64(perRange))
		}
		run := missing[:n:n]
		missing = missing[n:]
		c.o.Go(func() { c.bring(o, run, onDisk) })
	}
}

// bring fills a run of neighbouring blocks.
func (c *Cache) bring(o Object, run []*block, onDisk bool) {
	if onDisk && c.fromDisk(run[0]) {
		return
	}
	c.misses.Add(int64(len(run)))
	for len(run) > 0 {
		n, err := c.stream(o, run)
		run = run[n:]
		if err == nil || n > 0 {
			continue // the rest once more: a long answer may break off
		}
		for _, b := range run {
			c.finish(b, err, false)
		}
		return
	}
}

// fromDisk has a block read where it lies on the disk, if it is there and sound.
func (c *Cache) fromDisk(b *block) bool {
	s, verified, damaged := c.disk.hold(b.id, b.size)
	if damaged {
		c.damaged.Add(1)
	}
	if s == nil {
		return false
	}
	c.diskHits.Add(1)
	c.mu.Lock()
	b.slot, b.sound = s, verified
	b.loading = false
	c.inUse--
	c.count--
	c.readLocked(b)
	if b.at == windowed {
		b.at = lying
	}
	if !b.inUse() {
		c.leaveDiskLocked(b)
	}
	c.mu.Unlock()
	close(b.ready)
	c.units.Release(1)
	return true
}

// stream fills blocks by one get, and says how many. Each can be read as soon as it is full.
func (c *Cache) stream(o Object, run []*block) (filled int, err error) {
	first, last := run[0], run[len(run)-1]
	offset := first.id.index * c.o.BlockBytes
	length := last.id.index*c.o.BlockBytes + int64(last.size) - offset
	c.gets.Add(1)
	body, err := c.o.Get(c.ctx, o, offset, length)
	if err != nil {
		return 0, err
	}
	defer func() { _ = body.Close() }()
	defer func() { c.keep(run[:filled]) }()
	for _, b := range run {
		if b.buf == nil {
			if b.buf, err = c.buffer(b.size); err != nil {
				return filled, err
			}
		}
		n, err := io.ReadFull(body, b.buf)
		c.getBytes.Add(int64(n))
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: %s has %d bytes from %d on, not %d", ErrShort, o.Key, n, b.id.index*c.o.BlockBytes, b.size)
		}
		if err != nil {
			return filled, err
		}
		b.sums = sumPieces(b.buf)
		c.finish(b, nil, c.disk != nil)
		filled++
		runtime.Gosched() // the rest may be here, too: who waits for a processor comes in between
	}
	return filled, nil
}

// keep writes blocks that finish has pinned to the disk.
func (c *Cache) keep(run []*block) {
	if c.disk == nil {
		return
	}
	for _, b := range run {
		c.disk.write(b.id, b.buf)
	}
	c.unpin(run)
}

// finish lets those who wait for a block go on. With pin it stays pinned.
func (c *Cache) finish(b *block, err error, pin bool) {
	b.err = err
	release := false
	c.mu.Lock()
	b.loading = false
	if err != nil {
		c.detachLocked(b)
	}
	if pin {
		b.pins++
	}
	if !b.inUse() {
		c.restLocked(b)
		release = true
	}
	c.mu.Unlock()
	close(b.ready)
	if release {
		c.units.Release(1)
	}
}
