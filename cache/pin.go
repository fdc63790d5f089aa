package cache

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
)

// errNotPinned: a reader looked beyond what it has pinned, or at bytes that it has not waited for.
var errNotPinned = errors.New("bytes are not pinned or have not come")

// Want says what is to be pinned.
type Want struct {
	Object   Object
	From, To int64 // bytes to pin, To exclusive; what lies beyond the object's end is left off
	Ahead    int64 // bytes up to here are brought in, too, as far as there is room for what nobody has read yet, and not pinned
	Wait     bool  // for room, as long as the context lets it; else ErrFull
}

// Pin keeps blocks where they are. It belongs to one goroutine at a time; its file may be read by several.
type Pin struct {
	cache  *Cache
	object Object
	first  int64 // number of the first block
	blocks []*block

	// The piece of a block on the disk that was looked at last.
	peek   *peek
	peeked []byte // of peek
	of     *block
	at     int64 // in the block, of the first byte of peeked
}

// Pin pins the blocks of a range, and begins to download those that are missing. It waits for room at most, and not for bytes:
// Pin.Wait does. Where no wait is needed a context that is over is no obstacle.
func (c *Cache) Pin(ctx context.Context, w Want) (*Pin, error) {
	size := c.o.BlockBytes
	to := min(w.To, w.Object.Size)
	if w.From < 0 || w.From >= to {
		return nil, fmt.Errorf("pin [%d, %d) of %s: it has %d bytes", w.From, w.To, w.Object.Key, w.Object.Size)
	}
	first, end := w.From/size, (to+size-1)/size
	if err := c.reserve(ctx, end-first, w.Wait); err != nil {
		return nil, err
	}
	pinned, missing, err := c.attach(w.Object, first, end, (min(w.Ahead, w.Object.Size)+size-1)/size)
	if err != nil {
		return nil, err
	}
	c.download(w.Object, missing)
	return &Pin{cache: c, object: w.Object, first: first, blocks: pinned}, nil
}

// Load begins to bring in the blocks of a range as far as there is room, and pins nothing.
func (c *Cache) Load(o Object, from, to int64) {
	size := c.o.BlockBytes
	from, to = max(from, 0), min(to, o.Size)
	if from >= to {
		return
	}
	if _, missing, err := c.attach(o, from/size, from/size, (to+size-1)/size); err == nil {
		c.download(o, missing)
	}
}

// Has tells whether the block with a byte of the object is in memory, on its way there, or pinned on the disk.
func (c *Cache) Has(o Object, at int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, _ := c.findLocked(id{o.Key, at / c.o.BlockBytes}, false)
	return b != nil
}

// AheadBytes is how much room there is for what is brought in ahead, and how much there is in an empty cache.
func (c *Cache) AheadBytes() (left, most int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(max(c.unreadMax()-c.unread, 0)) * c.o.BlockBytes, int64(c.unreadMax()) * c.o.BlockBytes
}

// Object is what is pinned of.
func (p *Pin) Object() Object { return p.object }

// number is that of the block that holds the byte, counted within the pin.
func (p *Pin) number(at int64) int { return int(at/p.cache.o.BlockBytes - p.first) }

// within are the pinned blocks that hold a range; nil when it is not pinned.
func (p *Pin) within(from, to int64) []*block {
	i, j := p.number(from), p.number(to-1)
	if from >= to || from < p.first*p.cache.o.BlockBytes || j >= len(p.blocks) || to > p.object.Size {
		return nil
	}
	return p.blocks[i : j+1]
}

// Ready tells whether Wait would return at once.
func (p *Pin) Ready(from, to int64) bool {
	for _, b := range p.within(from, to) {
		if !b.isReady() {
			return false
		}
	}
	return true
}

// Wait waits until the bytes have come. It returns the context's error, or that of the download; after the latter the next Pin
// begins anew.
func (p *Pin) Wait(ctx context.Context, from, to int64) error {
	blocks := p.within(from, to)
	if blocks == nil {
		return errNotPinned
	}
	for _, b := range blocks {
		if !b.isReady() {
			select {
			case <-b.ready:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if b.err != nil {
			return b.err
		}
	}
	return nil
}

// View is n bytes that have come, without a copy when they lie in one block in memory; else they are put into buf, which is grown as
// needed. They must not be changed, and not be used after Release.
func (p *Pin) View(at, n int64, buf []byte) ([]byte, error) {
	size := p.cache.o.BlockBytes
	if i, in := p.number(at), at%size; at >= p.first*size && i < len(p.blocks) && in+n <= int64(p.blocks[i].size) {
		if b := p.blocks[i]; b.isReady() && b.err == nil && b.slot == nil {
			return b.buf[in : in+n : in+n], nil
		}
	}
	buf = buf[:0]
	for part, err := range p.parts(at, at+n) {
		if err != nil {
			return nil, err
		}
		for piece, err := range p.pieces(part) {
			if err != nil {
				return nil, err
			}
			buf = append(buf, piece...)
		}
	}
	return buf, nil
}

// Checksum is the CRC32C of bytes that have come. Most of those in memory were summed up as they came.
func (p *Pin) Checksum(from, to int64) (crc uint32, err error) {
	for part, err := range p.parts(from, to) {
		if err != nil {
			return 0, err
		}
		if part.block.slot == nil {
			crc = part.block.updated(crc, part.from, part.to)
			continue
		}
		for piece, err := range p.pieces(part) {
			if err != nil {
				return 0, err
			}
			crc = crc32.Update(crc, castagnoli, piece)
		}
	}
	return crc, nil
}

// pieces yields the bytes of a part: as they lie in memory, or from the disk by pieces that are good until the next one. An error ends the
// sequence.
func (p *Pin) pieces(part part) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if part.block.slot == nil {
			yield(part.block.buf[part.from:part.to], nil)
			return
		}
		for at := part.from; at < part.to; {
			piece, err := p.look(part.block, at)
			piece = piece[:min(int64(len(piece)), part.to-at)]
			if !yield(piece, err) || err != nil {
				return
			}
			at += int64(len(piece))
		}
	}
}

// part is a range of a block.
type part struct {
	block    *block
	from, to int64 // within the block
}

// parts yields where bytes that have come lie.
func (p *Pin) parts(from, to int64) iter.Seq2[part, error] {
	return func(yield func(part, error) bool) {
		blocks := p.within(from, to)
		if blocks == nil {
			yield(part{}, errNotPinned)
			return
		}
		for _, b := range blocks {
			begin := b.id.index * p.cache.o.BlockBytes
			err := errNotPinned
			if b.isReady() {
				err = b.err
			}
			if !yield(part{b, max(from-begin, 0), min(to-begin, int64(b.size))}, err) || err != nil {
				return
			}
		}
	}
}

// look reads on in a block on the disk, mostly further than is asked for: batches are looked at one after the other.
func (p *Pin) look(b *block, at int64) ([]byte, error) {
	if p.of != b || at < p.at || at >= p.at+int64(len(p.peeked)) {
		if p.peek == nil {
			p.peek = peeks.Get().(*peek)
		}
		p.of, p.at, p.peeked = b, at, p.peek[:min(int64(len(p.peek)), int64(b.size)-at)]
		if !p.cache.disk.readAt(b.slot, p.peeked, at) {
			p.peeked = nil
			return nil, fmt.Errorf("%w: %s from %d on", errDisk, b.id.object, b.id.index*p.cache.o.BlockBytes+at)
		}
	}
	return p.peeked[at-p.at:], nil
}

// errDisk: what was sound on the disk when it was pinned can't be read any more.
var errDisk = errors.New("block on the disk can't be read")

// lookAway lets go of what was looked at.
func (p *Pin) lookAway() {
	if p.peek != nil {
		peeks.Put(p.peek)
		p.peek, p.peeked, p.of = nil, nil, nil
	}
}

// SoundTo is how far from a position on the bytes are known to be sound since they were loaded.
func (p *Pin) SoundTo(at int64) int64 {
	size := p.cache.o.BlockBytes
	p.cache.mu.Lock()
	defer p.cache.mu.Unlock()
	for i := p.number(at); i >= 0 && i < len(p.blocks); i++ {
		b := p.blocks[i]
		if at < b.sound.from || at >= b.sound.to {
			break
		}
		if at = b.sound.to; at < (b.id.index+1)*size {
			break
		}
	}
	return at
}

// MarkSound notes that bytes were verified.
func (p *Pin) MarkSound(from, to int64) {
	size := p.cache.o.BlockBytes
	p.cache.mu.Lock()
	defer p.cache.mu.Unlock()
	for _, b := range p.within(from, to) {
		begin := b.id.index * size
		b.sound = b.sound.joined(span{max(from, begin), min(to, begin+size)})
		if p.cache.disk != nil {
			p.cache.disk.markSound(b.id, b.sound)
		}
	}
}

// Drop has the blocks of a range forgotten, as they are not what they should be: the next Pin downloads them again.
func (p *Pin) Drop(from, to int64) {
	for _, b := range p.within(from, to) {
		p.cache.damaged.Add(1)
		if p.cache.disk != nil {
			p.cache.disk.drop(b.id)
		}
		p.cache.mu.Lock()
		p.cache.detachLocked(b)
		p.cache.mu.Unlock()
	}
}

// Trim lets go of what lies outside of a range.
func (p *Pin) Trim(from, to int64) {
	p.lookAway()
	low := min(max(p.number(from), 0), len(p.blocks))
	high := max(min(p.number(to-1)+1, len(p.blocks)), low)
	p.cache.unpin(p.blocks[:low])
	p.cache.unpin(p.blocks[high:])
	p.first, p.blocks = p.first+int64(low), p.blocks[low:high]
}

// Release lets go of all. It may be called again, to no effect.
func (p *Pin) Release() {
	p.lookAway()
	p.cache.unpin(p.blocks)
	p.blocks = nil
}
