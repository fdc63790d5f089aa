package cache

import (
	"container/list"
	"fmt"
	"hash/maphash"

	"github.com/dgraph-io/ristretto/v2"
)

// mainPart keeps blocks that nobody uses. It calls gone, with no lock of the cache held, for each block that it does not keep, or
// no longer.
type mainPart interface {
	// find returns the block if it is there. It does not block.
	find(id) *block
	// put takes a block. What that costs another its place, or the block itself, has been told to gone when it returns.
	put(*block)
	// remove forgets a block that was found.
	remove(id)
	close()
}

// ristrettoPart is ristretto, with one unit of cost a block.
type ristrettoPart struct {
	cache *ristretto.Cache[uint64, *block]
	seed  maphash.Seed
	gone  func(*block)
}

func newRistrettoPart(blocks int, gone func(*block)) (*ristrettoPart, error) {
	p := &ristrettoPart{seed: maphash.MakeSeed(), gone: gone}
	c, err := ristretto.NewCache(&ristretto.Config[uint64, *block]{
		NumCounters: int64(blocks) * 10, MaxCost: int64(blocks), BufferItems: 64, IgnoreInternalCost: true,
		OnExit: func(b *block) {
			if b != nil {
				gone(b)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make cache: %w", err)
	}
	p.cache = c
	return p, nil
}

// key may be that of two blocks: then one takes the other's place.
func (p *ristrettoPart) key(i id) uint64 { return maphash.Comparable(p.seed, i) }

func (p *ristrettoPart) find(i id) *block {
	if b, ok := p.cache.Get(p.key(i)); ok && b.id == i {
		return b
	}
	return nil
}

func (p *ristrettoPart) put(b *block) {
	if !p.cache.Set(p.key(b.id), b, 1) {
		p.gone(b)
		return
	}
	p.cache.Wait()
}

func (p *ristrettoPart) remove(i id) { p.cache.Del(p.key(i)) }
func (p *ristrettoPart) close()      { p.cache.Close() }

// plainPart keeps what was put last. It is guarded by nothing: who wants the same calls to do the same makes them one by one.
type plainPart struct {
	blocks int
	at     map[id]*list.Element // of *block
	order  list.List            // oldest first
	gone   func(*block)
}

func newPlainPart(blocks int, gone func(*block)) *plainPart {
	return &plainPart{blocks: blocks, at: map[id]*list.Element{}, gone: gone}
}

func (p *plainPart) find(i id) *block {
	if e, ok := p.at[i]; ok {
		return e.Value.(*block)
	}
	return nil
}

func (p *plainPart) put(b *block) {
	if e, ok := p.at[b.id]; ok {
		p.drop(e)
	}
	p.at[b.id] = p.order.PushBack(b)
	if p.order.Len() > p.blocks {
		p.drop(p.order.Front())
	}
}

func (p *plainPart) drop(e *list.Element) {
	b := p.order.Remove(e).(*block)
	delete(p.at, b.id)
	p.gone(b)
}

func (p *plainPart) remove(i id) {
	if e, ok := p.at[i]; ok {
		p.drop(e)
	}
}

func (p *plainPart) close() {}
