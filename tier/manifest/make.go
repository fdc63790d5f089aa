package manifest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/object"
)

// dropMax is how many segments a record drops at most: some 150 KB of an entry's 8 MiB.
const dropMax = 1000

// PageDue tells whether the tail is long enough for MakePage, as package plan has it: a page's worth of segments stays, so that what is
// appended and cut now and then is in the tail.
func (m *Manifest) PageDue() bool { return len(m.State().Tail) >= 2*m.opts.PageSegments }

// MakePage puts the oldest segments of the tail into a page object, reads it back, and returns the record that names it, for
// Commit under that leader epoch. A page that is not committed is an orphan.
func (m *Manifest) MakePage(ctx context.Context, epoch wire.LeaderEpoch) (*PageRecord, error) {
	tail := m.State().Tail
	segments := tail[:min(len(tail), m.opts.PageSegments)]
	if len(segments) == 0 {
		return nil, illegal("there is nothing to make a page of")
	}
	body, err := encodePage(segments)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	p := Page{
		Name: Name{Epoch: epoch, Nonce: m.opts.Nonce()},
		Size: int64(len(body)), CRC: Checksum(crc32.Checksum(body, castagnoli)), SHA256: hex.EncodeToString(sum[:]),
	}
	p.describe(segments)
	key := m.Key(p.Name, PageObject)
	settled, err := object.Settle(ctx, m.store, key, body, object.IfAbsent(), pageBytesMax)
	if err == nil && settled.Outcome != object.Done {
		err = fmt.Errorf("%w: %s is there already", object.ErrPrecondition, key)
	}
	if err != nil {
		return nil, fmt.Errorf("put page: %w", err)
	}
	return &PageRecord{p}, nil
}

// MakeDrop returns the record that drops the oldest segments wholly below the log start, count of them at most; nil when there are
// none.
func (m *Manifest) MakeDrop(ctx context.Context, now time.Time, count int) (*DropRecord, error) {
	s := m.State()
	r := &DropRecord{TimeMs: now.UnixMilli()}
	for segment, err := range m.all(ctx, s) {
		if err != nil {
			return nil, err
		}
		if segment.End > s.LogStart {
			break
		}
		r.Segments = append(r.Segments, rangeOf(segment))
		if len(r.Segments) >= min(count, dropMax) {
			break // before a page is read that is not needed
		}
	}
	if len(r.Segments) == 0 {
		return nil, nil
	}
	return r, nil
}

// MakeCut returns the record that moves the end back to end, or part of the way when there is much to drop: it is asked for again
// until State.End is there, and then nil. Below the log start nothing is cut: where end is, the log start takes its place.
func (m *Manifest) MakeCut(ctx context.Context, now time.Time, end wire.Offset) (*CutRecord, error) {
	s := m.State()
	r := &CutRecord{End: max(end, s.LogStart), TimeMs: now.UnixMilli()}
	if r.End >= s.End {
		return nil, nil
	}
	for segment, err := range m.backward(ctx, s) {
		if err != nil {
			return nil, err
		}
		if segment.Start < r.End {
			if segment.End > r.End {
				c := clip(segment, r.End)
				r.Clipped = &c
			}
			break
		}
		if len(r.Segments) == dropMax {
			r.End = r.Segments[dropMax-1].Start
			break
		}
		r.Segments = append(r.Segments, rangeOf(segment))
	}
	slices.Reverse(r.Segments)
	return r, nil
}
