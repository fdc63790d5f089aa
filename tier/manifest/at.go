package manifest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/object"
)

// errPast: a manifest of the past can't be changed.
var errPast = errors.New("the manifest was opened as of a past time")

// OpenAt reads the manifest as it was at a time, by its writers' clocks: chain.ErrTooOld where that was trimmed away. The handle stays
// there: Refresh finds nothing new, and Commit is refused. What was dropped since is there for as long as its grace lasts.
func OpenAt(ctx context.Context, s object.Store, prefix string, at time.Time, o Options) (*Manifest, error) {
	m := newManifest(s, prefix, o)
	p, err := chain.ReadAt(ctx, s, prefix+chainFolder, at, &m.fold)
	if err != nil {
		return nil, fmt.Errorf("open manifest: %w", asHalt(err))
	}
	m.fold.state.Position = p
	m.state.Store(m.fold.state)
	return m, nil
}

// Rebuilt is what a manifest is made of anew when its chain is lost.
type Rebuilt struct {
	LogStart wire.Offset
	End      wire.Offset // the last segment's, if it is not above that
	Segments []Segment   // oldest first; what lies between two of them, and between the last one and End, is lost
}

// Rebuild replaces the manifest under prefix, whatever is left of it, by one that is made anew, as its writer under a leader epoch:
// former leaders up to that epoch can't commit any more, and the next one needs a higher one. Nothing is overwritten or
// deleted (see chain.Rebase). ErrIllegal where the segments don't make a manifest.
func Rebuild(ctx context.Context, now time.Time, s object.Store, prefix string, o Options, epoch wire.LeaderEpoch, r Rebuilt) (*State, error) {
	state := &State{LogStart: r.LogStart, End: r.LogStart}
	loseUpTo := func(end wire.Offset) {
		if end > state.End {
			state.Lost = append(state.Lost, Range{state.End, end})
			state.End = end
		}
	}
	for _, t := range r.Segments {
		if t.End <= r.LogStart {
			return nil, fmt.Errorf("rebuild manifest: %w", illegal("segment [%d, %d) lies below the log start %d", t.Start, t.End, r.LogStart))
		}
		loseUpTo(t.Start)
		state.Tail = append(state.Tail, t)
		state.Epochs = extend(state.Epochs, Lineage(t.Epochs, max(t.Start, r.LogStart), t.End))
		state.End = t.End
	}
	loseUpTo(r.End)
	state.count()
	err := state.check()
	if err == nil && epoch < 0 {
		err = illegal("leader epoch %d", epoch)
	}
	if err != nil {
		return nil, fmt.Errorf("rebuild manifest: %w", err)
	}
	data, err := state.encode()
	if err != nil {
		return nil, err
	}
	state.Position, err = chain.Rebase(ctx, s, prefix+chainFolder, now, o.Writer, o.Nonce, int64(epoch)+1, data)
	if err != nil {
		return nil, fmt.Errorf("rebuild manifest: %w", err)
	}
	return state, nil
}
