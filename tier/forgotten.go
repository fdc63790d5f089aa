package tier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/sidecar"
)

// forgotten is an error where the bucket has objects of a range that the manifest says nothing of: it was lost or rolled back, and can be
// made anew of them. The next entries would make them orphans.
func (p *partition) forgotten(ctx context.Context, from, to wire.Offset) error {
	ctx = p.cause(ctx, object.CauseManifest)
	unnamed, err := p.unnamed(ctx)
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

// unnamed are the segments in the bucket that the manifest does not name, by their bases.
func (p *partition) unnamed(ctx context.Context) ([]manifest.Name, error) {
	named := map[manifest.Name]bool{}
	for _, d := range p.m.State().Dropped {
		named[d.Name] = true
	}
	for segment, err := range p.m.All(ctx) {
		if err != nil {
			return nil, err
		}
		named[segment.Name] = true
	}
	var unnamed []manifest.Name
	for info, err := range p.o.Store.List(ctx, p.prefix+"/", "") {
		if err != nil {
			return nil, err
		}
		name, kind, ok := manifest.ParseKey(strings.TrimPrefix(info.Key, p.prefix+"/"))
		if ok && kind == manifest.LogObject && !named[name] {
			unnamed = append(unnamed, name)
		}
	}
	slices.SortStableFunc(unnamed, func(a, b manifest.Name) int { return cmp.Compare(a.Base, b.Base) })
	return unnamed, nil
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
