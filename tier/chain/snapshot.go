package chain

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/tidemark-io/tidemark/tier/object"
)

// Bounds of snapshots, as stored and unpacked. The metadata of 10,000 partitions takes about 2 MB.
const (
	snapshotBytesMax = 64 << 20
	stateBytesMax    = 512 << 20
	windowBytes      = 8 << 20 // of the compression: what a reader needs beside the state
)

// snapshot is a state of the caller's, and the place in the chain that it belongs to.
type snapshot struct {
	Version   int             `json:"version"`
	Position  Position        `json:"position"`
	CreatedMs int64           `json:"created_ms"` // for people
	StateHash Hash            `json:"state_hash"` // of the bytes of State
	State     json.RawMessage `json:"state"`
}

// Snapshot stores state, which is what the fold's State returned at that position, so that readers need not begin at the
// first entry. If there is one of that number already, that one stays.
func (c *Chain) Snapshot(ctx context.Context, now time.Time, at Position, state []byte) error {
	body, err := encodeSnapshot(now, at, state)
	if err == nil {
		_, err = object.Settle(ctx, c.at.store, c.at.snapshot(at.Number), body, object.IfAbsent(), snapshotBytesMax)
	}
	if err != nil {
		return fmt.Errorf("snapshot %d of chain %s: %w", at.Number, c.at.prefix, err)
	}
	return nil
}

func encodeSnapshot(now time.Time, at Position, state []byte) ([]byte, error) {
	state = bytes.TrimSpace(state) // as decoding will see it
	if at.Number < 1 || !json.Valid(state) || len(state) > stateBytesMax {
		return nil, fmt.Errorf("state of %d bytes at %d: not JSON, too large, or of no entry", len(state), at.Number)
	}
	position, err := json.Marshal(at)
	if err != nil {
		return nil, fmt.Errorf("encode position: %w", err)
	}
	b := fmt.Appendf(nil, `{"version":%d,"position":%s,"created_ms":%d,"state_hash":"%s","state":`,
		formatVersion, position, now.UnixMilli(), Hash(sha256.Sum256(state)))
	b = seal(append(b, state...)) // as it is: json.Marshal would rewrite it
	// One encoder and no concurrency: the library would start goroutines otherwise.
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(windowBytes))
	if err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	defer z.Close()
	return z.EncodeAll(b, nil), nil
}

func decodeSnapshot(body []byte, number int64) (snapshot, error) {
	// Streamed, since DecodeAll believes the size that the object claims; without concurrency no goroutine is started.
	z, err := zstd.NewReader(bytes.NewReader(body), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(windowBytes))
	if err != nil {
		return snapshot{}, fmt.Errorf("decompress: %w", err)
	}
	defer z.Close()
	b, err := io.ReadAll(io.LimitReader(z, stateBytesMax+EntryBytesMax))
	if err != nil {
		return snapshot{}, fmt.Errorf("decompress: %w", err)
	}
	var s snapshot
	if err := unseal(b, &s); err != nil {
		return snapshot{}, err
	}
	if s.Position.Number != number || len(s.State) == 0 {
		return snapshot{}, fmt.Errorf("has number %d, %d bytes of state", s.Position.Number, len(s.State))
	}
	if got := Hash(sha256.Sum256(s.State)); got != s.StateHash {
		return snapshot{}, fmt.Errorf("state hash is %s, not %s", got, s.StateHash)
	}
	return s, nil
}

// errDamaged marks an object that was read and is not right.
var errDamaged = errors.New("damaged")

func (l location) readSnapshot(ctx context.Context, number int64) (snapshot, error) {
	body, _, err := object.Read(ctx, l.store, l.snapshot(number), snapshotBytesMax)
	if err != nil && !errors.Is(err, object.ErrTooLarge) {
		return snapshot{}, fmt.Errorf("snapshot %d: %w", number, err)
	}
	var s snapshot
	if err == nil {
		s, err = decodeSnapshot(body, number)
	}
	switch {
	case errors.Is(err, errVersion):
		return snapshot{}, fmt.Errorf("%w: snapshot %d: %w", ErrHalt, number, err)
	case err != nil:
		return snapshot{}, fmt.Errorf("snapshot %d: %w: %w", number, errDamaged, err)
	}
	return s, nil
}

// reloads bounds how often one call begins again because the boundary has overtaken it.
const reloads = 5

// update reads on behind the tail, or anew from the newest snapshot where that is not possible.
func (c *Chain) update(ctx context.Context) (u Update, tail Position, err error) {
	tail, err = c.tail, errTrimmed
	if c.loaded {
		u.Entries, u.More, err = c.at.follow(ctx, tail)
	}
	for i := 0; errors.Is(err, errTrimmed); i++ {
		if i == reloads {
			return Update{}, tail, fmt.Errorf("%w: the boundary has moved %d times meanwhile", object.ErrUnavailable, i)
		}
		if u.State, tail, err = c.newestSnapshot(ctx); err == nil {
			u.Entries, u.More, err = c.at.follow(ctx, tail)
		}
	}
	if err != nil {
		return Update{}, tail, err
	}
	if n := len(u.Entries); n > 0 {
		tail = u.Entries[n-1].Position()
	}
	return u, tail, nil
}

// newestSnapshot finds the state to begin with, nil for the beginning of the chain. A damaged snapshot is passed over for
// the one before: the entries between them are still there, and lead to the same state.
func (c *Chain) newestSnapshot(ctx context.Context) (state []byte, at Position, err error) {
	s, err := c.at.surveyed(ctx, 0)
	if err != nil {
		return nil, Position{}, err
	}
	slices.Sort(s.snapshots)
	for _, number := range slices.Backward(s.snapshots) {
		if number < s.boundary {
			break
		}
		snap, err := c.at.readSnapshot(ctx, number)
		if err == nil && number > s.boundary {
			err = c.at.belongs(ctx, snap)
		}
		switch {
		case errors.Is(err, errDamaged):
			c.opts.Logger.Error("snapshot is damaged, an older one is used", "chain", c.at.prefix, "number", number, "err", err)
		case errors.Is(err, object.ErrNotExist):
			return nil, Position{}, c.at.goneBehindBoundary(ctx, number, err)
		default:
			return snap.State, snap.Position, err
		}
	}
	if s.boundary > 0 {
		return nil, Position{}, halt(s.boundary, errors.New("deleted, and there is no usable snapshot at or above the boundary"))
	}
	return nil, Position{}, nil
}

// goneBehindBoundary tells what it means that something of snapshot number is gone: either the boundary has overtaken it,
// or it was not Trim that deleted it.
func (l location) goneBehindBoundary(ctx context.Context, number int64, cause error) error {
	s, err := l.surveyed(ctx, number)
	if err == nil && s.boundary >= number {
		return errTrimmed
	}
	return cmp.Or(err, halt(number, cause))
}

// belongs compares a snapshot with the entry that it was made after. Above the boundary that entry is there.
func (l location) belongs(ctx context.Context, snap snapshot) error {
	body, _, err := object.Read(ctx, l.store, l.entry(snap.Position.Number), EntryBytesMax)
	if err != nil {
		return fmt.Errorf("entry of snapshot %d: %w", snap.Position.Number, err)
	}
	if sha256.Sum256(body) != snap.Position.Hash {
		return fmt.Errorf("snapshot %d: %w: it belongs to another entry", snap.Position.Number, errDamaged)
	}
	return nil
}

// mustHold halts if a chain that ends at tail does not reach to what was seen before, or holds something else there: a
// bucket that was rolled back, or a fork (safety rule 8).
func (l location) mustHold(ctx context.Context, tail, seen Position) error {
	switch {
	case seen.Number == 0:
		return nil
	case tail.Epoch < seen.Epoch:
		return halt(tail.Number, fmt.Errorf("the chain ends with epoch %d, and %d was seen before", tail.Epoch, seen.Epoch))
	}
	body, _, readErr := object.Read(ctx, l.store, l.entry(seen.Number), EntryBytesMax)
	if readErr != nil && !errors.Is(readErr, object.ErrNotExist) {
		return readErr
	}
	s, err := l.surveyed(ctx, tail.Number)
	switch {
	case err != nil:
		return err
	case s.boundary >= seen.Number:
		return nil // deleted, or rubbish that has landed there
	case sha256.Sum256(body) != seen.Hash: // that of nothing is another one too
		return halt(seen.Number, fmt.Errorf("not the one that was seen before; the chain ends at %d", tail.Number))
	}
	return nil
}
