package cache

import (
	"container/list"
	"context"
	"fmt"
)

// What may be in use is counted in units, one a block with a buffer that is pinned or being filled: c.inUse of them are taken, and those that
// reserve has taken and attach has not spent yet. The window is never larger than there are units, so that
//
//	inUse + idle + ahead = count <= window,  count + main part + victims on their way there <= blocks

// reserve takes n units.
func (c *Cache) reserve(ctx context.Context, n int64, wait bool) error {
	if n > int64(c.window) {
		c.refused.Add(1)
		return fmt.Errorf("%w: %d blocks of %d", ErrFull, n, c.window)
	}
	if c.units.TryAcquire(n) {
		return nil
	}
	if wait {
		err := c.units.Acquire(ctx, n)
		if err == nil {
			return nil
		}
		c.refused.Add(1)
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	c.refused.Add(1)
	return ErrFull
}

// attach pins the blocks first to end, for which units were reserved, and makes those that are missing, and those up to ahead
// for which there is room. It returns what is pinned, and what has to be brought in, both in order.
func (c *Cache) attach(o Object, first, end, ahead int64) (pinned, missing []*block, err error) {
	var moved []id
	var victims []*block
	spare := end - first
	c.mu.Lock()
	if c.closed {
		err = ErrClosed
	} else {
		c.moves.Add(1)
		defer c.moves.Done()
	}
	for i := first; i < max(end, ahead) && err == nil; i++ {
		wanted := i < end
		if i == end && !c.roomAheadLocked(ahead-i) {
			break
		}
		b, from := c.findLocked(id{o.Key, i}, wanted)
		if b == nil && !wanted && c.disk != nil && c.disk.has(id{o.Key, i}) {
			continue // it is near enough
		}
		switch {
		case b == nil && (wanted || c.unread < c.unreadMax() && c.units.TryAcquire(1)):
			b = &block{
				id: id{o.Key, i}, size: int(min(c.o.BlockBytes, o.Size-i*c.o.BlockBytes)), ready: make(chan struct{}), loading: true,
			}
			c.found[b.id] = b
			c.count++
			c.inUse++
			c.brought++
			b.born = c.brought
			missing = append(missing, b)
			if wanted {
				spare--
			} else {
				b.unread = true
				c.unread++
			}
		case b == nil:
			ahead = i
			continue
		case from == resting && wanted:
			moved = append(moved, b.id)
		}
		if wanted {
			if !b.inUse() {
				spare--
				c.useLocked(b)
			}
			b.pins++
			pinned = append(pinned, b)
			c.readLocked(b)
		}
	}
	for c.count > c.window {
		victims = append(victims, c.evictLocked())
	}
	c.mu.Unlock()

	if spare > 0 {
		c.units.Release(spare)
	}
	for _, b := range victims {
		c.main.put(b)
	}
	for _, i := range moved {
		c.main.remove(i)
	}
	return pinned, missing, err
}

// staleWindows is after how many windows full of blocks one that nobody has read is taken for one that nobody will.
const staleWindows = 2

// unreadMax is how much of the window may hold what was brought in ahead. The other half is for what is pinned: an answer of many
// partitions pins tens of megabytes, and would else push out what the next one is about to ask for.
func (c *Cache) unreadMax() int { return c.window / 2 }

// roomAheadLocked tells whether there is room for enough of n blocks that bringing them in now is worth a get: where it is scarce,
// few large gets do more than many small ones.
func (c *Cache) roomAheadLocked(n int64) bool {
	return int64(c.unreadMax()-c.unread) >= min(n, c.o.RangeBytes/c.o.BlockBytes/2)
}

// readLocked notes that a block is no longer unread.
func (c *Cache) readLocked(b *block) {
	if b.unread {
		b.unread = false
		c.unread--
	}
}

// findLocked finds a block, and says where. One of the main part moves to the window if it is wanted.
func (c *Cache) findLocked(i id, wanted bool) (*block, where) {
	if b := c.found[i]; b != nil {
		switch {
		case wanted && b.at == lying:
			c.diskHits.Add(1)
		case wanted:
			c.hits.Add(1)
		}
		return b, windowed
	}
	b := c.main.find(i)
	if b == nil || b.at != resting { // or on its way out
		return nil, detached
	}
	if wanted {
		c.hits.Add(1)
		b.at = windowed
		c.found[i] = b
		c.count++
	}
	return b, resting
}

// useLocked counts a block as in use.
func (c *Cache) useLocked(b *block) {
	c.inUse++
	if b.order != nil {
		c.listOf(b).Remove(b.order)
		b.order = nil
	}
}

// listOf is the list of the idle blocks among which the block belongs.
func (c *Cache) listOf(b *block) *list.List {
	if b.unread {
		return &c.ahead
	}
	return &c.idle
}

// evictLocked takes the least recently used block out of the window; those that are still to be read come last, unless their
// reader has not come for so long that it may have gone. There is one while the window holds more than may be in use.
func (c *Cache) evictLocked() *block {
	from := &c.idle
	if e := c.ahead.Front(); e != nil && (from.Len() == 0 || c.brought-e.Value.(*block).born > staleWindows*int64(c.window)) {
		from = &c.ahead
	}
	b := from.Remove(from.Front()).(*block)
	b.order = nil
	delete(c.found, b.id)
	c.count--
	c.readLocked(b)
	b.at = resting
	return b
}

// detachLocked makes a block one that nobody finds.
func (c *Cache) detachLocked(b *block) {
	if c.found[b.id] == b {
		delete(c.found, b.id)
		b.at = detached
	}
}

// restLocked is called with a block that is no longer in use. Its unit is for the caller to release.
func (c *Cache) restLocked(b *block) {
	c.inUse--
	if b.at == detached {
		c.count--
		c.readLocked(b)
		c.discardLocked(b)
		return
	}
	b.order = c.listOf(b).PushBack(b)
}

// leaveDiskLocked lets go of a block on the disk, which nobody uses any more.
func (c *Cache) leaveDiskLocked(b *block) {
	c.detachLocked(b)
	c.discardLocked(b)
}

func (c *Cache) unpin(blocks []*block) {
	units := int64(0)
	c.mu.Lock()
	for _, b := range blocks {
		switch b.pins--; {
		case b.inUse():
		case b.slot != nil:
			c.leaveDiskLocked(b)
		default:
			c.restLocked(b)
			units++
		}
	}
	c.mu.Unlock()
	if units > 0 {
		c.units.Release(units)
	}
}

// gone is told by the main part that it does not keep a block.
func (c *Cache) gone(b *block) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.at == resting { // else it was found in the meantime and is in the window
		c.discardLocked(b)
	}
}

// discardLocked takes the buffer of a block that nobody finds and nobody uses.
func (c *Cache) discardLocked(b *block) {
	b.at = detached
	if b.buf != nil {
		c.free <- b.buf[:cap(b.buf)] // has room for all that there are
		b.buf = nil
	}
	if b.slot != nil {
		c.disk.release(b.slot)
		b.slot = nil
	}
}

// buffer is an empty buffer for a block. There is one for each block that the window has let in, once the victims of all have
// found their place, so the wait for those of others is short.
func (c *Cache) buffer(size int) ([]byte, error) {
	select {
	case b := <-c.free:
		return b[:size], nil
	default:
	}
	c.mu.Lock()
	more := c.made < c.blocks
	if more {
		c.made++
	}
	c.mu.Unlock()
	if more {
		return make([]byte, size, c.o.BlockBytes), nil
	}
	select {
	case b := <-c.free:
		return b[:size], nil
	case <-c.ctx.Done():
		return nil, ErrClosed
	}
}
