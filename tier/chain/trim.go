package chain

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
)

// MinRetention is the least time that entries stay behind a snapshot, whatever Trim is asked for: longer than any writer
// is believed to be stopped.
const MinRetention = 24 * time.Hour

// keptSnapshots stay however old they are, with all entries after the oldest of them.
const keptSnapshots = 3

// Trim moves the boundary up by one snapshot, if there is one that is older than retention by the store's clock and not
// among the three newest, and deletes what lies behind the boundary. It returns the boundary, 0 for none; whoever wants
// more calls until it stays. fresh makes an empty fold, in which the entries are replayed before the boundary is
// created: a snapshot whose state differs must not become the only copy (safety rule 4).
func (c *Chain) Trim(ctx context.Context, now time.Time, retention time.Duration, fresh func() Fold) (int64, error) {
	boundary, err := c.trim(ctx, now, max(retention, MinRetention), fresh)
	if err != nil {
		return boundary, fmt.Errorf("trim chain %s: %w", c.at.prefix, err)
	}
	return boundary, nil
}

func (c *Chain) trim(ctx context.Context, now time.Time, retention time.Duration, fresh func() Fold) (int64, error) {
	var all, snapshots []listed
	var boundary int64
	for o, err := range c.at.list(ctx, 0) {
		if err != nil {
			return 0, err
		}
		all = append(all, o)
		switch o.kind {
		case snapshotKey:
			snapshots = append(snapshots, o)
		case boundaryKey:
			boundary = max(boundary, o.number)
		}
	}
	skew, _ := object.SkewOf(c.at.store, now) // known: it has just answered
	next, err := c.nextBoundary(ctx, snapshots, boundary, now.Add(skew.Ahead-retention))
	if err != nil {
		return boundary, err
	}
	if next != nil {
		if err := c.moveBoundary(ctx, now, boundary, next, fresh()); err != nil {
			return boundary, err
		}
		boundary = next.Position.Number
	}
	return boundary, c.deleteBehind(ctx, all, boundary)
}

// nextBoundary reads the oldest snapshot above the boundary that may go behind it, nil for none. A damaged one is passed over: the entries
// from the boundary on are still there, and show that a later one is right. It is an error where no other is left.
func (c *Chain) nextBoundary(ctx context.Context, snapshots []listed, boundary int64, before time.Time) (*snapshot, error) {
	slices.SortFunc(snapshots, func(a, b listed) int { return cmp.Compare(a.number, b.number) })
	var damaged error
	for i, s := range snapshots {
		if i+keptSnapshots > len(snapshots) {
			break
		}
		if s.number <= boundary {
			continue
		}
		if s.modTime.IsZero() || !s.modTime.Before(before) {
			break
		}
		snap, err := c.at.readSnapshot(ctx, s.number)
		switch {
		case errors.Is(err, errDamaged):
			damaged = errors.Join(damaged, err)
			continue
		case err != nil:
			return nil, err
		case damaged != nil:
			c.opts.Logger.Error("snapshot is damaged, the boundary goes to a later one", "chain", c.at.prefix, "number", s.number, "err", damaged)
		}
		return &snap, nil
	}
	return nil, damaged
}

// boundaryBody is what a boundary says to people; to readers its key says all.
type boundaryBody struct {
	Version   int      `json:"version"`
	Position  Position `json:"position"`
	StateHash Hash     `json:"state_hash"`
	Writer    Writer   `json:"writer"`
	Nonce     string   `json:"nonce"`
	CreatedMs int64    `json:"created_ms"`
}

// moveBoundary creates the boundary at a snapshot that was read back, after that was found equal to a replay from where the old
// boundary is.
func (c *Chain) moveBoundary(ctx context.Context, now time.Time, from int64, snap *snapshot, fold Fold) error {
	to, position := snap.Position.Number, Position{}
	if from > 0 {
		base, err := c.at.readSnapshot(ctx, from)
		if err != nil {
			return err
		}
		if err := fold.Restore(base.State); err != nil {
			return fmt.Errorf("restore snapshot %d: %w", from, err)
		}
		position = base.Position
	}
	position, err := c.at.replay(ctx, position, to, fold)
	if err != nil {
		return fmt.Errorf("replay to snapshot %d: %w", to, err)
	}
	state, err := fold.State()
	if err != nil {
		return fmt.Errorf("replay to snapshot %d: %w", to, err)
	}
	if position != snap.Position || !bytes.Equal(bytes.TrimSpace(state), snap.State) {
		return fmt.Errorf("%w: snapshot %d differs from a replay of its entries", ErrHalt, to)
	}

	body, err := json.Marshal(boundaryBody{formatVersion, position, snap.StateHash, c.opts.Writer, c.opts.Nonce(), now.UnixMilli()})
	if err != nil {
		return fmt.Errorf("encode boundary: %w", err)
	}
	body = seal(body[:len(body)-1])
	// Lost is as good: somebody else has found the same.
	_, err = object.Settle(ctx, c.at.store, c.at.boundary(to), body, object.IfAbsent(), EntryBytesMax)
	return err
}

// replay applies the entries after p up to number last.
func (l location) replay(ctx context.Context, p Position, last int64, fold Fold) (Position, error) {
	for p.Number < last {
		e, damage, err := l.fetch(ctx, p.Number+1)
		if err = errors.Join(damage, err); err != nil {
			return p, fmt.Errorf("entry %d: %w", p.Number+1, err)
		}
		if err := p.check(e); err != nil {
			return p, fmt.Errorf("%w: entry %d: %w", ErrHalt, e.Number, err)
		}
		if err := fold.Apply(e); err != nil {
			return p, fmt.Errorf("apply entry %d: %w", e.Number, err)
		}
		p = e.Position()
	}
	return p, nil
}

// deleteBehind deletes what the boundary has made useless: entries up to it, snapshots and boundaries below it. It also
// finds what an earlier call has left, and what was put there late.
func (c *Chain) deleteBehind(ctx context.Context, all []listed, boundary int64) error {
	for _, o := range all {
		var key string
		switch {
		case o.kind == entryKey && o.number <= boundary:
			key = c.at.entry(o.number)
		case o.kind == snapshotKey && o.number < boundary:
			key = c.at.snapshot(o.number)
		case o.kind == boundaryKey && o.number < boundary:
			key = c.at.boundary(o.number)
		default:
			continue
		}
		if err := c.at.store.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}
