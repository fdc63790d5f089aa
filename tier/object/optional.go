package object

import (
	"context"
	"time"
)

// What only some stores have. A store that wraps another passes it on.

// Dated is a Store with a clock of its own. A store that is not Dated keeps this machine's time.
type Dated interface {
	// Skew compares the clocks, as of the last answer of the store. ok is false while it has not answered yet.
	Skew() (skew Skew, ok bool)
}

// Skew is the difference between the store's clock and this machine's. S3 tells its time in whole seconds.
type Skew struct {
	Ahead time.Duration // how far the store's clock is ahead of ours; negative: behind
	At    time.Time     // when it was seen, by our clock
}

// SkewOf compares the store's clock with ours. ok is false for a store that has a clock and has not answered yet.
func SkewOf(s Store, now time.Time) (skew Skew, ok bool) {
	if d, is := s.(Dated); is {
		return d.Skew()
	}
	return Skew{At: now}, true
}

// UploadSweeper is a Store where a put that was cut off by a crash may leave behind what List does not show and what costs
// money all the same: the parts of an upload that nobody completes.
type UploadSweeper interface {
	// SweepUploads removes what puts under prefix have left behind that began before a time of the store's clock, and
	// counts them. A put that is still at work since then fails.
	SweepUploads(ctx context.Context, prefix string, before time.Time) (int, error)
}

// SweepUploads is that of the store, and nothing where it has none.
func SweepUploads(ctx context.Context, s Store, prefix string, before time.Time) (int, error) {
	if u, is := s.(UploadSweeper); is {
		return u.SweepUploads(ctx, prefix, before)
	}
	return 0, nil
}
