package chain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/tier/object"
)

// Salvaged is what can be read of a chain that is damaged.
type Salvaged struct {
	State   []byte   // of the newest snapshot that is sound; nil without one
	At      Position // of State
	Entries []Entry  // in the order of their numbers; whether they follow each other is not checked
}

// Salvage reads what there is of a chain, for tools that make it anew: it passes over what is missing or damaged, and over what the
// boundary covers.
func Salvage(ctx context.Context, s object.Store, prefix string) (Salvaged, error) {
	found, err := location{s, prefix}.salvage(ctx)
	if err != nil {
		return Salvaged{}, fmt.Errorf("salvage chain %s: %w", prefix, err)
	}
	return found, nil
}

func (l location) salvage(ctx context.Context) (found Salvaged, err error) {
	var boundary int64
	var all []listed
	for o, err := range l.list(ctx, 0) {
		if err != nil {
			return found, err
		}
		if o.kind == boundaryKey {
			boundary = max(boundary, o.number)
		} else {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b listed) int { return cmp.Compare(a.number, b.number) })
	for _, o := range all {
		switch {
		case o.kind == entryKey && o.number > boundary:
			e, damage, err := l.fetch(ctx, o.number)
			if err != nil && !errors.Is(err, object.ErrNotExist) {
				return found, err
			}
			if err == nil && damage == nil {
				found.Entries = append(found.Entries, e)
			}
		case o.kind == snapshotKey && o.number >= boundary:
			snap, err := l.readSnapshot(ctx, o.number)
			switch {
			case err == nil:
				found.State, found.At = snap.State, snap.Position
			case !errors.Is(err, errDamaged) && !errors.Is(err, ErrHalt) && !errors.Is(err, object.ErrNotExist):
				return found, err
			}
		}
	}
	return found, nil
}
