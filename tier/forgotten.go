package tier

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/sidecar"
)

// nothingForgotten is an error where what a sweep would take may be all that there is of a range: neither the manifest nor the log has it.
// Where nothing is copied any more, no plan notices.
func (p *partition) nothingForgotten(ctx context.Context) error {
	local := p.Log.LocalStartOffset() // first: what retention takes from here meanwhile, it takes as the log start has moved
	from := max(p.m.State().End, p.Log.StartOffset())
	if local <= from {
		return nil
	}
	return p.forgotten(ctx, from, local)
}

// forgotten is an error where the bucket has objects of a range that the manifest says nothing of: it was lost or rolled back, and can be
// made anew of them. The next entries would make them orphans.
func (p *partition) forgotten(ctx context.Context, from, to wire.Offset) error {
	ctx = p.cause(ctx, object.CauseManifest)
	unnamed, err := p.m.Unnamed(ctx)
	if err != nil {
		return fmt.Errorf("look for what is to be given up: %w", err)
	}
	for _, name := range slices.Backward(unnamed) {
		if name.Base >= to {
			continue
		}
		end, err := p.uploadedEnd(ctx, name)
		switch {
		case errors.Is(err, object.ErrNotExist): // its upload came to no end
		case err != nil:
			return fmt.Errorf("look for what is to be given up: %w", err)
		case end > from:
			return fmt.Errorf("%w: it does not know of %s, which is in the bucket: it has to be rebuilt", errHistory, name.Key(manifest.LogObject))
		default:
			return nil // what begins before ends before
		}
	}
	return nil
}

// uploadedEnd is where a segment ended when it was uploaded.
func (p *partition) uploadedEnd(ctx context.Context, n manifest.Name) (wire.Offset, error) {
	data, _, err := object.Read(ctx, p.o.Store, p.key(n, manifest.AuxObject), sidecar.BytesMax)
	if err != nil {
		return 0, err
	}
	aux, err := sidecar.Decode(data)
	if err != nil {
		return 0, err
	}
	return aux.Segment().End, nil
}
