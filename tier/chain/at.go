package chain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
)

// ErrTooOld: what the chain held at that time was deleted behind a snapshot.
var ErrTooOld = errors.New("the chain does not reach back that far")

// clockSlack is how far a writer's clock may be apart from the store's for ReadAt to look at the right snapshots first.
const clockSlack = 10 * time.Minute

// ReadAt folds the chain as it was at a time: up to the last entry before the first that was made later, by its writer's
// clock. It returns the place of that entry, the zero Position where the chain began later.
func ReadAt(ctx context.Context, s object.Store, prefix string, at time.Time, fold Fold) (Position, error) {
	l := location{s, prefix}
	err := errTrimmed
	var p Position
	for i := 0; i < reloads && errors.Is(err, errTrimmed); i++ {
		p, err = l.readAt(ctx, at, fold)
	}
	if err != nil {
		return Position{}, fmt.Errorf("read chain %s as of %s: %w", prefix, at.UTC().Format(time.RFC3339), err)
	}
	return p, nil
}

func (l location) readAt(ctx context.Context, at time.Time, fold Fold) (Position, error) {
	state, p, err := l.snapshotAt(ctx, at)
	if err != nil {
		return Position{}, err
	}
	if state != nil {
		if err := fold.Restore(state); err != nil {
			return Position{}, fmt.Errorf("restore snapshot: %w", err)
		}
	}
	for more := true; more; {
		var entries []Entry
		if entries, more, err = l.follow(ctx, p); err != nil {
			return Position{}, err
		}
		for _, e := range entries {
			if e.CreatedMs > at.UnixMilli() {
				return p, nil
			}
			if err := fold.Apply(e); err != nil {
				return Position{}, fmt.Errorf("apply entry %d: %w", e.Number, err)
			}
			p = e.Position()
		}
	}
	return p, nil
}

// snapshotAt is the newest snapshot that was made until then; none for the beginning of the chain.
func (l location) snapshotAt(ctx context.Context, at time.Time) (state []byte, p Position, err error) {
	var boundary int64
	var snapshots []listed
	for o, err := range l.list(ctx, 0) {
		switch {
		case err != nil:
			return nil, Position{}, err
		case o.kind == boundaryKey:
			boundary = max(boundary, o.number)
		case o.kind == snapshotKey && !o.modTime.After(at.Add(clockSlack)):
			snapshots = append(snapshots, o)
		}
	}
	slices.SortFunc(snapshots, func(a, b listed) int { return int(b.number - a.number) })
	for _, o := range snapshots {
		if o.number < boundary {
			break
		}
		snap, err := l.readSnapshot(ctx, o.number)
		if err == nil && snap.CreatedMs > at.UnixMilli() {
			continue
		}
		if err == nil && o.number > boundary {
			err = l.belongs(ctx, snap)
		}
		switch {
		case errors.Is(err, object.ErrNotExist):
			return nil, Position{}, l.goneBehindBoundary(ctx, o.number, err)
		case errors.Is(err, errDamaged):
			continue // the entries since the one before lead to the same state
		}
		return snap.State, snap.Position, err
	}
	if boundary > 0 {
		return nil, Position{}, ErrTooOld
	}
	return nil, Position{}, nil
}
