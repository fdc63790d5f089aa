// Package manifest says what of a partition is in the bucket. A manifest is a chain (package chain) of records, folded into an
// immutable State that readers get without a lock; nothing else makes an object part of the log. Its rules are 18 to 23 of
// docs/safety.md; docs/format/manifest.md has the bytes.
//
// What lies under a partition's prefix:
//
//	manifest/...                                    the chain
//	pages/<20 digits>-<leader epoch>-<nonce>.json   pages: up to 1,000 older segments each
//	<20 digits>-<leader epoch>-<nonce>.log          segments, byte for byte
//	<20 digits>-<leader epoch>-<nonce>.aux          their sidecars
//
// The chain's epoch is the leader epoch and 1. A new leader's first Commit fences the former one.
//
// Methods that take a context block on the store, may be called by several goroutines at once, and give up with the context.
// The package starts no goroutine and reads no clock.
package manifest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/object"
)

// The errors of this package; those of chain and object come through as they are.
var (
	// ErrIllegal: a correct leader would not commit these records. From Commit: nothing was written. From a chain that is
	// read it comes with chain.ErrHalt.
	ErrIllegal = errors.New("records don't fit the manifest")
	// ErrPage: a page object is missing, or is not what its record says. What the segments in it hold is not lost by that.
	ErrPage = errors.New("page of the manifest is unreadable")
)

// Options of a handle.
type Options struct {
	Writer chain.Writer   // who commits; a reader needs none
	Nonce  func() string  // gives a value that nobody has ever used, as Name.Nonce wants it
	Seen   chain.Position // the highest position that this broker remembers; Open halts if the chain lacks it
	Pages  *PageCache     // shared by many manifests; nil: one of its own, of few pages
	Logger *slog.Logger   // for what was survived; nil: nobody hears of it
	// PageSegments is how many segments a page holds: 1,000 where it is 0.
	PageSegments int
}

// ownPages is how many pages a handle keeps that shares no cache.
const ownPages = 4

// Manifest is a handle on a partition's manifest.
type Manifest struct {
	store  object.Store
	prefix string
	opts   Options

	state      atomic.Pointer[State]
	snapshotAt atomic.Int64 // the newest snapshot that is known of
	trimmedTo  atomic.Int64 // the boundary that is known of

	// turn is held by whoever uses what follows, over calls of the store: it is a place in a queue, not a lock.
	turn   chan struct{}
	chain  *chain.Chain // nil: as of a past time
	fold   fold
	halted error
}

// Open reads the manifest of the partition under prefix (see Prefix) to its tail. One that was never written is empty.
func Open(ctx context.Context, s object.Store, prefix string, o Options) (*Manifest, error) {
	m := newManifest(s, prefix, o)
	c, err := chain.Open(ctx, s, prefix+chainFolder, chain.Options{Writer: o.Writer, Nonce: o.Nonce, Seen: o.Seen, Logger: o.Logger}, &m.fold)
	if err != nil {
		return nil, fmt.Errorf("open manifest: %w", asHalt(err))
	}
	m.chain = c
	m.publish(m.fold.state)
	return m, nil
}

func newManifest(s object.Store, prefix string, o Options) *Manifest {
	if o.Pages == nil {
		o.Pages = NewPageCache(ownPages)
	}
	if o.PageSegments <= 0 {
		o.PageSegments = defaultPageSegments
	}
	return &Manifest{store: s, prefix: prefix, opts: o, turn: make(chan struct{}, 1), fold: newFold()}
}

const chainFolder = "/manifest"

// asHalt makes of records that don't fit the error of a damaged chain, which they are once they are in it.
func asHalt(err error) error {
	if errors.Is(err, ErrIllegal) {
		return fmt.Errorf("%w: %w", chain.ErrHalt, err)
	}
	return err
}

// fold follows the chain.
type fold struct {
	state *State
	since int64 // entries since the snapshot that it began with
}

func newFold() fold { return fold{state: &State{}} }

// Restore implements chain.Fold.
func (f *fold) Restore(data []byte) error {
	s, err := decodeState(data)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrIllegal, err)
	}
	f.state, f.since = s, 0
	return nil
}

// Apply implements chain.Fold.
func (f *fold) Apply(e chain.Entry) error {
	next, err := f.state.apply(e.Epoch, e.Records)
	if err != nil {
		return err
	}
	next.Position = e.Position()
	f.state, f.since = next, f.since+1
	return nil
}

// State implements chain.Fold.
func (f *fold) State() ([]byte, error) { return f.state.encode() }

// publish lets readers see a state whose place is the chain's tail. A state from a snapshot does not know its own.
func (m *Manifest) publish(s *State) {
	s.Position = m.chain.Tail()
	m.fold.state = s
	m.snapshotIsAt(s.Position.Number - m.fold.since)
	m.state.Store(s)
}

func (m *Manifest) snapshotIsAt(number int64) {
	for at := m.snapshotAt.Load(); at < number && !m.snapshotAt.CompareAndSwap(at, number); at = m.snapshotAt.Load() {
	}
}

// State is the manifest as this handle knows it.
func (m *Manifest) State() *State { return m.state.Load() }

// Prefix is the one that Open was called with.
func (m *Manifest) Prefix() string { return m.prefix }

// Key is the whole key of one of an upload's objects.
func (m *Manifest) Key(n Name, kind Kind) string { return m.prefix + "/" + n.Key(kind) }

// begin waits for the caller's turn on the chain.
func (m *Manifest) begin(ctx context.Context) error {
	select {
	case m.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("manifest %s: %w: %w", m.prefix, object.ErrUnavailable, ctx.Err())
	}
}

func (m *Manifest) end() { <-m.turn }

// Commit appends records as one entry under a leader epoch; without records it only fences former leaders off. Done means that
// State has them. Lost means that they are not in the manifest and never will be, Unknown that they may be, now or later: after
// both, Refresh says what the manifest holds, and only then another Commit can succeed. ErrIllegal, chain.ErrFenced (somebody
// else leads, or Refresh is due), chain.ErrTooLarge and chain.ErrHalt come with Lost.
func (m *Manifest) Commit(ctx context.Context, now time.Time, epoch wire.LeaderEpoch, records ...Record) (object.Outcome, error) {
	raw := make([]json.RawMessage, len(records))
	for i, r := range records {
		b, err := MarshalRecord(r)
		if err != nil {
			return object.Lost, err
		}
		raw[i] = b
	}
	if err := m.begin(ctx); err != nil {
		return object.Lost, err
	}
	defer m.end()
	outcome, err := m.commit(ctx, now, int64(epoch)+1, raw)
	if err != nil {
		err = fmt.Errorf("commit to manifest %s: %w", m.prefix, err)
	}
	return outcome, err
}

func (m *Manifest) commit(ctx context.Context, now time.Time, epoch int64, records []json.RawMessage) (object.Outcome, error) {
	if m.halted != nil {
		return object.Lost, m.halted
	}
	if m.chain == nil {
		return object.Lost, errPast
	}
	// Told first, since a former leader's records don't fit either.
	if at := m.State().Position; epoch < at.Epoch || epoch == at.Epoch && at.Writer != m.opts.Writer {
		return object.Lost, fmt.Errorf("%w: leader epoch %d, the manifest has %d by %+v", chain.ErrFenced, epoch-1, at.Epoch-1, at.Writer)
	}
	next, err := m.State().apply(epoch, records)
	if err != nil {
		return object.Lost, err
	}
	_, outcome, err := m.chain.Append(ctx, now, epoch, records)
	if outcome == object.Done {
		m.fold.since++
		m.publish(next)
	}
	return outcome, err
}

// Refresh reads what others have added and returns the State after it. With an error State is an earlier one.
func (m *Manifest) Refresh(ctx context.Context) (*State, error) {
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	defer m.end()
	if err := m.refresh(ctx); err != nil {
		return nil, fmt.Errorf("refresh manifest: %w", err)
	}
	return m.State(), nil
}

func (m *Manifest) refresh(ctx context.Context) error {
	if m.halted != nil || m.chain == nil {
		return m.halted
	}
	for {
		u, err := m.chain.Refresh(ctx)
		if err != nil {
			return err
		}
		if err := u.ApplyTo(&m.fold); err != nil {
			m.halted = fmt.Errorf("%w: %w", chain.ErrHalt, err)
			return m.halted
		}
		if u.State != nil || len(u.Entries) > 0 {
			m.publish(m.fold.state)
		}
		if !u.More {
			return nil
		}
	}
}

// snapshotEntries is how many entries Open has to read one by one at most, about.
const snapshotEntries = 32

// SnapshotDue tells whether so many entries have come since the last snapshot that a new one is worth it.
func (m *Manifest) SnapshotDue() bool {
	return m.State().Position.Number-m.snapshotAt.Load() >= snapshotEntries
}

// Snapshot stores the state, so that Open need not begin at the first entry.
func (m *Manifest) Snapshot(ctx context.Context, now time.Time) error {
	s := m.State()
	if s.Position.Number == 0 {
		return nil
	}
	data, err := s.encode()
	if err != nil {
		return err
	}
	if err := m.chain.Snapshot(ctx, now, s.Position, data); err != nil {
		return err
	}
	m.snapshotIsAt(s.Position.Number)
	return nil
}

// Trim deletes entries that are older than retention, a day at least, and that three snapshots cover. moved tells that there may
// be more.
func (m *Manifest) Trim(ctx context.Context, now time.Time, retention time.Duration) (moved bool, err error) {
	boundary, err := m.chain.Trim(ctx, now, retention, func() chain.Fold { f := newFold(); return &f })
	if err != nil {
		return false, err
	}
	return m.trimmedTo.Swap(boundary) < boundary, nil
}
