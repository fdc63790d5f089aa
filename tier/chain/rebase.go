package chain

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
)

// rebaseLeap is how far Rebase goes beyond the highest number that is left of a chain: no writer can have come so far with entries
// that are lost.
const rebaseLeap = 1_000_000_000

// Rebase makes the chain go on from a state that was worked out in another way, after the chain itself was lost or damaged. It
// overwrites and deletes nothing: the state becomes a snapshot of a number that no entry has reached, and a boundary of that
// number puts all that was before behind it, whatever it is. Former writers, which would go on from a lower number, are told
// by the boundary; their epoch is to be epoch or lower, and the next writer's above it. Nothing but this function may
// be at work on the chain.
func Rebase(
	ctx context.Context, s object.Store, prefix string, now time.Time, w Writer, nonce func() string, epoch int64, state []byte,
) (Position, error) {
	l := location{s, prefix}
	p, err := l.rebase(ctx, now, w, nonce, epoch, state)
	if err != nil {
		return Position{}, fmt.Errorf("begin chain %s anew: %w", prefix, err)
	}
	return p, nil
}

func (l location) rebase(ctx context.Context, now time.Time, w Writer, nonce func() string, epoch int64, state []byte) (Position, error) {
	var highest int64
	for o, err := range l.list(ctx, 0) {
		if err != nil {
			return Position{}, err
		}
		highest = max(highest, o.number)
	}
	p := Position{Number: highest + rebaseLeap, Epoch: epoch, Writer: w, Hash: sha256.Sum256([]byte(nonce()))}
	p.NextRecord = p.Number // nor has a record reached it
	body, err := encodeSnapshot(now, p, state)
	if err != nil {
		return Position{}, err
	}
	if err := l.create(ctx, l.snapshot(p.Number), body, snapshotBytesMax); err != nil {
		return Position{}, err
	}
	snap, err := l.readSnapshot(ctx, p.Number)
	if err != nil {
		return Position{}, err
	}
	if snap.Position != p || !bytes.Equal(snap.State, bytes.TrimSpace(state)) {
		return Position{}, halt(p.Number, fmt.Errorf("the snapshot reads back as another one"))
	}
	body, err = json.Marshal(boundaryBody{formatVersion, p, snap.StateHash, w, nonce(), now.UnixMilli()})
	if err != nil {
		return Position{}, fmt.Errorf("encode boundary: %w", err)
	}
	return p, l.create(ctx, l.boundary(p.Number), seal(body[:len(body)-1]), EntryBytesMax)
}

// create puts an object that nobody else may have made.
func (l location) create(ctx context.Context, key string, body []byte, limit int64) error {
	settled, err := object.Settle(ctx, l.store, key, body, object.IfAbsent(), limit)
	if err == nil && settled.Outcome != object.Done {
		err = fmt.Errorf("%w: %s is somebody else's", ErrFenced, key)
	}
	return err
}
