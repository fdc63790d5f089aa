package manifest

import (
	"container/list"
	"context"
	"sync"
)

// PageCache keeps the pages that were used last, for many manifests. Of those who want a page at the same time one reads it.
type PageCache struct {
	max int

	mu      sync.Mutex // guards what follows; held for work in memory only
	pages   map[pageKey]*list.Element
	order   *list.List // of cachedPage, the last used first
	flights map[pageKey]*flight
}

// pageKey names a page of any manifest.
type pageKey struct {
	prefix string // of the partition
	name   Name
}

type cachedPage struct {
	key  pageKey
	page *packed
}

// flight is a page that somebody is reading.
type flight struct {
	done chan struct{} // closed when the rest is known
	page *packed
	err  error
	own  bool // the reader's own context has ended: others try for themselves
}

// NewPageCache keeps at most that many pages, one at least; one takes some 60 KB.
func NewPageCache(pages int) *PageCache {
	return &PageCache{max: max(1, pages), pages: map[pageKey]*list.Element{}, order: list.New(), flights: map[pageKey]*flight{}}
}

func (c *PageCache) get(ctx context.Context, key pageKey, read func(context.Context) (*packed, error)) (*packed, error) {
	for {
		page, f, first := c.begin(key)
		switch {
		case page != nil:
			return page, nil
		case first:
			f.page, f.err = read(ctx)
			f.own = ctx.Err() != nil
			c.end(key, f)
			return f.page, f.err
		}
		select {
		case <-f.done:
			if f.err == nil || !f.own {
				return f.page, f.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// begin finds a page, or who reads it; first tells that the caller has to.
func (c *PageCache) begin(key pageKey) (page *packed, f *flight, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.pages[key]; ok {
		c.order.MoveToFront(e)
		return e.Value.(cachedPage).page, nil, false
	}
	if f, ok := c.flights[key]; ok {
		return nil, f, false
	}
	f = &flight{done: make(chan struct{})}
	c.flights[key] = f
	return nil, f, true
}

func (c *PageCache) end(key pageKey, f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.flights, key)
	close(f.done)
	if f.err != nil {
		return
	}
	c.pages[key] = c.order.PushFront(cachedPage{key, f.page})
	if c.order.Len() > c.max {
		oldest := c.order.Back()
		delete(c.pages, c.order.Remove(oldest).(cachedPage).key)
	}
}
