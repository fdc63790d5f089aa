package sim

import (
	"bytes"
	"context"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	layout "github.com/tidemark-io/tidemark/tier/object/cluster"
)

// history is the metadata chain as it was seen so far, with all that it says folded into an image.
type history struct {
	c     *cluster
	tail  chain.Position
	image *metadata.Image
}

func newHistory(c *cluster) history { return history{c: c, image: metadata.Empty()} }

// check reads the chain past all faults: what was there once must be there as it was, and the broker's image must be what the
// chain says at its offset.
func (h *history) check() {
	seen := h.tail.Number == 0
	for e, err := range chain.Read(context.Background(), h.c.bucket.inner, layout.MetadataPrefix, max(h.tail.Number, 1)) {
		if err != nil {
			h.c.fail("the metadata chain can't be read: %v", err)
			return
		}
		if e.Number == h.tail.Number {
			if seen = e.Position() == h.tail; !seen {
				h.c.fail("entry %d of the metadata chain was %s and is %s", e.Number, h.tail.Hash, e.Position().Hash)
				return
			}
			h.compare()
			continue
		}
		if !h.follow(e) {
			return
		}
		h.compare()
	}
	if !seen {
		h.c.fail("entry %d of the metadata chain is gone", h.tail.Number)
	}
}

// follow takes in the next entry.
func (h *history) follow(e chain.Entry) bool {
	var records []metadata.Record
	for _, raw := range e.Records {
		r, err := metadata.UnmarshalRecord(raw)
		if err != nil {
			h.c.fail("entry %d of the metadata chain: %v", e.Number, err)
			return false
		}
		records = append(records, r)
	}
	image, _, err := h.image.Apply(wire.Offset(e.FirstRecord), records)
	if err != nil {
		h.c.fail("entry %d of the metadata chain does not follow: %v", e.Number, err)
		return false
	}
	h.image, h.tail = image, e.Position()
	return true
}

// compare holds the broker's image against the chain's, where they are of one offset.
func (h *history) compare() {
	e := h.c.node.engine
	if e != nil && e.Image().Offset() == h.image.Offset() && !bytes.Equal(e.Image().Snapshot(), h.image.Snapshot()) {
		h.c.fail("at offset %d the broker's metadata is not what the chain says", h.image.Offset())
	}
}
