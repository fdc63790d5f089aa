// Package manifest says what of a partition is in the bucket. A manifest is a chain (package chain) of records, folded into an
// immutable State that readers get without a lock; nothing else makes an object part of the log. Its rules are 18 to 23 of
// docs/safety.md; docs/format/manifest.md has the bytes.
//
// What lies under a partition's prefix:
//
//	manifest/...                                 the chain
//	pages/<20 digits>-<leader epoch>-<nonce>.json   pages: up to 1,000 older segments each
//	<20 digits>-<leader epoch>-<nonce>.log       segments, byte for byte
//	<20 digits>-<leader epoch>-<nonce>.aux       their sidecars
//
// The chain's epoch is the leader epoch and 1. A new leader's first Commit fences the former one.
//
// Methods that take a context block on the store, may be called from several goroutines at once, and give up with the context.
// The package starts no goroutine and reads no clock.
package manifest

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/object"
)

// The errors of this package; those of chain and object come through as they are.
var (
	// ErrIllegal: a correct leader would not commit these records. From Commit: nothing was written. From a chain that is
	// read: it is damaged.
	ErrIllegal = errors.New("records don't fit the manifest")
	// ErrPage: a page object is missing or is not what its record says. The segments in it are known to be there.
	ErrPage = errors.New("page of the manifest is unreadable")
)

// Options of a handle.
type Options struct {
	Writer chain.Writer   // who commits; a reader needs none
	Nonce  func() string  // gives a value that nobody has ever used, as Name.Nonce wants it
	Seen   chain.Position // the highest position that this broker remembers; Open halts if the chain lacks it
	Pages  *PageCache     // shared by many manifests; nil: one of its own
	Logger *slog.Logger
	// PageSegments is how many segments a page holds: 1,000 where it is 0. Tests make it smaller.
	PageSegments int
}

// Manifest is a handle on a partition's manifest.
type Manifest struct{}

// Open reads the manifest of the partition under prefix (see Prefix) to its tail. One that was never written is empty.
func Open(ctx context.Context, s object.Store, prefix string, o Options) (*Manifest, error) {
	return nil, nil
}

// State is the manifest as this handle knows it.
func (m *Manifest) State() *State { return nil }

// Prefix is the one that Open was called with.
func (m *Manifest) Prefix() string { return "" }

// Commit appends records as one entry under a leader epoch; without records it only fences former leaders off. Done means that
// State has them. Lost means that they are not in the manifest and never will be, Unknown that they may be, now or later: after
// both, Refresh says what the manifest holds now, and only then another Commit is tried. ErrIllegal, chain.ErrFenced (somebody
// else leads), chain.ErrTooLarge and chain.ErrHalt come with Lost.
func (m *Manifest) Commit(ctx context.Context, now time.Time, epoch wire.LeaderEpoch, records ...Record) (object.Outcome, error) {
	return object.Unknown, nil
}

// Refresh reads what others have added and returns the State after it. With an error State stays as it was.
func (m *Manifest) Refresh(ctx context.Context) (*State, error) { return nil, nil }

// SnapshotDue tells whether enough entries have come since the last snapshot.
func (m *Manifest) SnapshotDue() bool { return false }

// Snapshot stores the state, so that Open need not begin at the first entry.
func (m *Manifest) Snapshot(ctx context.Context, now time.Time) error { return nil }

// Trim deletes entries that are older than retention, a day at least, and that three snapshots cover. moved tells that there may
// be more.
func (m *Manifest) Trim(ctx context.Context, now time.Time, retention time.Duration) (moved bool, err error) {
	return false, nil
}

// PageDue tells whether the tail is long enough for MakePage.
func (s *State) PageDue() bool { return false }

// MakePage puts the oldest segments of the tail into a page object and returns the record that names it, for Commit.
func (m *Manifest) MakePage(ctx context.Context, epoch wire.LeaderEpoch) (*PageRecord, error) {
	return nil, nil
}

// MakeDrop returns the record that drops the oldest segments wholly below the log start, at most count of them; nil when there are
// none.
func (m *Manifest) MakeDrop(ctx context.Context, now time.Time, count int) (*DropRecord, error) {
	return nil, nil
}

// MakeCut returns the record that moves the end back to end, or part of the way when there is much to drop: it is asked for again
// until State.End is there; nil when it is.
func (m *Manifest) MakeCut(ctx context.Context, now time.Time, end wire.Offset) (*CutRecord, error) {
	return nil, nil
}

// Load returns the live segments of a page of the State. They must not be changed.
func (m *Manifest) Load(ctx context.Context, p Page) ([]Segment, error) { return nil, nil }

// Find is the live segment that contains the offset; false below the log start, at or above the end, and in a lost range.
func (m *Manifest) Find(ctx context.Context, offset wire.Offset) (Segment, bool, error) {
	return Segment{}, false, nil
}

// After is the live segment that follows s.
func (m *Manifest) After(ctx context.Context, s Segment) (Segment, bool, error) {
	return Segment{}, false, nil
}

// FindTime yields, in the order of offsets, the live segments that may hold records with a timestamp of ts or later at or above
// the log start. An error ends the sequence.
func (m *Manifest) FindTime(ctx context.Context, ts int64) iter.Seq2[Segment, error] { return nil }

// FindMaxTime is the first of the live segments with the largest timestamp.
func (m *Manifest) FindMaxTime(ctx context.Context) (Segment, bool, error) {
	return Segment{}, false, nil
}

// All yields the live segments, oldest first, of the State at the time of the call. An error ends the sequence.
func (m *Manifest) All(ctx context.Context) iter.Seq2[Segment, error] { return nil }

// Orphans lists the partition's objects that no state names and, since their leader epoch is over, none ever will (safety rule
// 22). It lists first and reads the manifest to its tail afterwards.
func (m *Manifest) Orphans(ctx context.Context) ([]object.Info, error) { return nil, nil }

// PageCache keeps pages that were read, the last used ones, for many manifests.
type PageCache struct{}

// NewPageCache keeps at most that many pages, of up to 64 KB each.
func NewPageCache(pages int) *PageCache { return nil }
