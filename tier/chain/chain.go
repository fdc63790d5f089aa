// Package chain is Tidemark's one safety primitive: a gap-free sequence of numbered, immutable JSON objects in an object
// store, each created with put-if-absent. Creating number n+1 is the commit, and of those who try one wins. The metadata
// log and every partition's manifest are chains; no other safety rests on conditional writes. The rules are 1 to 4 of
// docs/safety.md.
//
// What lies under a chain's prefix:
//
//	<20 digits>.json               entries
//	<20 digits>.snapshot.json.zst  the caller's state after the entry of that number
//	boundary/<20 digits>           entries up to that number are deleted, or about to be; the highest counts
//
// A new writer takes an epoch above that of the tail and creates an entry with it. A paused former writer then finds its
// next number taken, and no entry of its own can follow. Readers halt on whatever a correct writer could not have written.
//
// Every method blocks on the store and gives up with ctx. The package starts no goroutine, reads no clock and has no
// randomness of its own: times are arguments, nonces come from the caller.
package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
)

// The errors of this package; those of the store come through as they are.
var (
	// ErrHalt: the chain is not what a correct writer has left, or is not the one that was seen before. It is final for
	// the handle: going on could hide a lost commit.
	ErrHalt = errors.New("the chain is damaged")
	// ErrFenced: this handle must not append, because an outcome was lost or unknown (until Refresh has reached the
	// tail), or because the epoch is not, or no longer, its own.
	ErrFenced = errors.New("fenced off the chain")
	// ErrTooLarge: the records don't fit into one entry. Nothing was written.
	ErrTooLarge = errors.New("entry is too large")

	errVersion = errors.New("format version")
	errTrimmed = errors.New("the next entry lies behind the boundary")
)

// Fold is the caller's state, into which entries are folded. Equal entries make equal states, byte for byte.
type Fold interface {
	// Restore replaces the state by one that State has returned.
	Restore(state []byte) error
	// Apply folds in the next entry. Its records must not be changed.
	Apply(Entry) error
	// State encodes the state as JSON, always the same way.
	State() ([]byte, error)
}

// Options of a handle.
type Options struct {
	Writer Writer        // who appends
	Nonce  func() string // gives a value that nobody has ever used; called by Append and Trim, maybe at once
	Seen   Position      // the highest position that this broker's disk remembers; Open halts if the chain lacks it
	Logger *slog.Logger  // for what was survived, as a damaged snapshot; nil: nobody hears of it
}

// Chain is a handle on a chain that has been read to its tail. One call at a time, but for Snapshot and Trim, which may run
// beside the others.
type Chain struct {
	at   location
	opts Options

	tail     Position // behind what Refresh and Append have returned
	loaded   bool     // tail is a place in the chain, not only where a new handle begins
	seen     Position // the highest place known to be in the chain
	compared bool     // seen is known to lie on the way to tail
	fenced   bool
	halted   error
}

// Open reads the chain under prefix to its tail: the newest snapshot goes to fold.Restore, the entries after it to
// fold.Apply. An empty chain leaves fold as it is. It also settles where the tail is (safety rule 3), so that the first
// Append may follow.
func Open(ctx context.Context, s object.Store, prefix string, opts Options, fold Fold) (*Chain, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Chain{at: location{s, prefix}, opts: opts, seen: opts.Seen}
	for {
		u, err := c.Refresh(ctx)
		if err == nil {
			err = u.ApplyTo(fold)
		}
		if err != nil {
			return nil, err
		}
		if !u.More {
			return c, nil
		}
	}
}

// Tail is the place behind the last entry that was read or appended.
func (c *Chain) Tail() Position { return c.tail }

// Update is what others have added to a chain.
type Update struct {
	State   []byte  // if not nil, the state begins anew from this snapshot: what lies between is deleted already
	Entries []Entry // to be applied after that
	More    bool    // the tail is not reached yet
}

// ApplyTo folds the update into a state that has followed the chain so far.
func (u Update) ApplyTo(fold Fold) error {
	if u.State != nil {
		if err := fold.Restore(u.State); err != nil {
			return fmt.Errorf("restore snapshot: %w", err)
		}
	}
	for _, e := range u.Entries {
		if err := fold.Apply(e); err != nil {
			return fmt.Errorf("apply entry %d: %w", e.Number, err)
		}
	}
	return nil
}

// Refresh reads what was added behind Tail, as much as one call may hold. When it has reached the tail it lifts the fence
// that a lost or unknown outcome has put up. With an error the handle stays where it was.
func (c *Chain) Refresh(ctx context.Context) (Update, error) {
	if c.halted != nil {
		return Update{}, c.halted
	}
	u, err := c.refresh(ctx)
	if err != nil {
		err = fmt.Errorf("read chain %s: %w", c.at.prefix, err)
	}
	if errors.Is(err, ErrHalt) {
		c.halted = err
	}
	return u, err
}

func (c *Chain) refresh(ctx context.Context) (Update, error) {
	u, tail, err := c.update(ctx)
	if err != nil {
		return Update{}, err
	}
	compared := c.compared && u.State == nil
	if !u.More && !compared {
		if err := c.at.mustHold(ctx, tail, c.seen); err != nil {
			return Update{}, err
		}
		compared = true
	}
	c.tail, c.loaded, c.compared, c.fenced = tail, true, compared, u.More
	if compared {
		c.seen = tail
	}
	return u, nil
}

// Append commits records as the next entry, under an epoch that is the handle's own: above the tail's, or equal to it
// where the handle's writer has written the tail.
//
// Done means that the entry is in the chain for good. Lost means that it is not and never will be. Unknown means that it
// may be, now or later. With Lost and Unknown the error says why, and the handle is fenced until Refresh has found out
// what the chain holds now; only errors that come before the write (ErrTooLarge, invalid records) leave it as it was.
func (c *Chain) Append(ctx context.Context, now time.Time, epoch int64, records []json.RawMessage) (Entry, object.Outcome, error) {
	e, outcome, err := c.append(ctx, now, epoch, records)
	if err != nil {
		err = fmt.Errorf("append to chain %s: %w", c.at.prefix, err)
	}
	return e, outcome, err
}

func (c *Chain) append(ctx context.Context, now time.Time, epoch int64, records []json.RawMessage) (Entry, object.Outcome, error) {
	if err := c.mayAppend(epoch); err != nil {
		return Entry{}, object.Lost, err
	}
	e := Entry{
		Number: c.tail.Number + 1, Epoch: epoch, Writer: c.opts.Writer, Nonce: c.opts.Nonce(),
		FirstRecord: c.tail.NextRecord, PrevHash: c.tail.Hash, CreatedMs: now.UnixMilli(), Records: records,
	}
	body, err := e.encode()
	if err != nil {
		return Entry{}, object.Lost, err
	}
	if len(body) > EntryBytesMax {
		return Entry{}, object.Lost, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(body))
	}

	c.fenced = true // until the outcome is known to be Done
	settled, err := object.Settle(ctx, c.at.store, c.at.entry(e.Number), body, object.IfAbsent(), EntryBytesMax)
	switch settled.Outcome {
	case object.Unknown:
		return Entry{}, object.Unknown, err
	case object.Lost:
		return Entry{}, object.Lost, fmt.Errorf("%w: entry %d is %s", ErrFenced, e.Number, describe(settled.Body, e.Number))
	}
	if err := c.aboveBoundary(ctx, e.Number); err != nil {
		return Entry{}, object.Unknown, err
	}
	c.fenced = false
	c.tail = e.Position()
	c.seen = c.tail
	return e, object.Done, nil
}

func (c *Chain) mayAppend(epoch int64) error {
	switch {
	case c.halted != nil:
		return c.halted
	case c.fenced:
		return fmt.Errorf("%w: the handle has not read to the tail since its last append", ErrFenced)
	case epoch < 1 || epoch < c.tail.Epoch:
		return fmt.Errorf("%w: epoch %d, the chain has %d", ErrFenced, epoch, c.tail.Epoch)
	case epoch == c.tail.Epoch && c.tail.Writer != c.opts.Writer:
		return fmt.Errorf("%w: epoch %d belongs to %+v", ErrFenced, epoch, c.tail.Writer)
	}
	return nil
}

// boundaryTries bounds how often a created entry is compared with the boundary: giving up costs the writer its role.
const boundaryTries = 3

// aboveBoundary makes sure that n was never won before: a number at or below the boundary may have been somebody else's,
// and deleted while this writer was stopped (safety rule 4).
func (c *Chain) aboveBoundary(ctx context.Context, n int64) error {
	var boundary int64
	var err error
	for range boundaryTries {
		if boundary, err = c.at.boundaryFrom(ctx, n); err == nil {
			break
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("entry %d is created, but not compared with the boundary: %w", n, err)
	case boundary > 0:
		return fmt.Errorf("%w: entry %d lies behind the boundary %d", ErrFenced, n, boundary)
	}
	return nil
}

// describe says for a person whose entry stands where ours should.
func describe(body []byte, number int64) string {
	e, err := decodeEntry(body, number)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("of epoch %d by %+v", e.Epoch, e.Writer)
}

// halt is the error of a chain that is not right at that number.
func halt(number int64, err error) error { return fmt.Errorf("%w: entry %d: %w", ErrHalt, number, err) }
