package engine

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/cluster"
)

// ReadImage reads the cluster's metadata out of its store, as a broker does that starts.
func ReadImage(ctx context.Context, store object.Store) (*metadata.Image, error) {
	fold := &imageFold{image: metadata.Empty()}
	_, err := chain.Open(ctx, store, cluster.MetadataPrefix, chain.Options{}, fold)
	return fold.image, err
}

// metadataLog is the chain with the metadata's records in it. Its methods return tasks: catchUp and append for LaneChain, of
// which one runs at a time, snapshot for LaneSnapshot.
type metadataLog struct {
	chain     *chain.Chain
	retention time.Duration
	logger    *slog.Logger

	// What follows belongs to whoever calls Step.
	epoch     int64          // of the entries that are appended
	tail      chain.Position // behind the last entry that is in the image
	entries   int            // since the last snapshot
	bytes     int            // of their records
	firstSeen time.Time      // of the first of them
}

// When a snapshot is due: whichever comes first.
const (
	snapshotEntries = 1000
	snapshotBytes   = 4 << 20 // about 24,000 partitions: a start replays them in less than half a second
	snapshotAge     = 10 * time.Minute
)

// imageFold folds entries into an image.
type imageFold struct {
	image   *metadata.Image
	entries int // since the last snapshot
	bytes   int // of their records
}

// Restore implements chain.Fold.
func (f *imageFold) Restore(state []byte) error {
	image, err := metadata.DecodeSnapshot(state)
	if err != nil {
		return err
	}
	*f = imageFold{image: image}
	return nil
}

// Apply implements chain.Fold.
func (f *imageFold) Apply(entry chain.Entry) error {
	records := make([]metadata.Record, 0, len(entry.Records))
	f.entries++
	for _, raw := range entry.Records {
		f.bytes += len(raw)
		r, err := metadata.UnmarshalRecord(raw)
		if err != nil {
			return err
		}
		records = append(records, r)
	}
	image, _, err := f.image.Apply(wire.Offset(entry.FirstRecord), records)
	if err != nil {
		return err
	}
	f.image = image
	return nil
}

// State implements chain.Fold.
func (f *imageFold) State() ([]byte, error) { return f.image.Snapshot(), nil }

// catchUp reads what was added to the chain since. done gets the image at its end, or as far as it was read before an error.
func (l *metadataLog) catchUp(
	image func() *metadata.Image, done func(time.Time, *metadata.Image, error),
) func(context.Context) Completion {
	return func(ctx context.Context) Completion {
		fold := &imageFold{image: image()} // as of now: an entry that was in flight may have come before
		err := l.refresh(ctx, fold)
		tail := l.chain.Tail()
		return func(now time.Time) {
			l.tail = tail
			l.replayed(now, fold)
			done(now, fold.image, err)
		}
	}
}

// replayed counts what was read of the chain: the next reader would have to read it, too.
func (l *metadataLog) replayed(now time.Time, fold *imageFold) {
	if l.entries == 0 {
		l.firstSeen = now
	}
	l.entries += fold.entries
	l.bytes += fold.bytes
}

func (l *metadataLog) refresh(ctx context.Context, fold chain.Fold) error {
	for {
		update, err := l.chain.Refresh(ctx)
		if err != nil {
			return err
		}
		if err := update.ApplyTo(fold); err != nil {
			return fmt.Errorf("%w: %w", chain.ErrHalt, err)
		}
		if !update.More {
			return nil
		}
	}
}

// append commits an entry. done gets nil only if it is in the chain for good.
func (l *metadataLog) append(now time.Time, entry entryPart, done func(time.Time, error)) func(context.Context) Completion {
	epoch := l.epoch
	return func(ctx context.Context) Completion {
		appended, outcome, err := l.chain.Append(ctx, now, epoch, entry.raw)
		if outcome != object.Done {
			return func(now time.Time) { done(now, fmt.Errorf("append a metadata entry: %s: %w", outcome, err)) }
		}
		return func(now time.Time) {
			l.tail = appended.Position()
			if l.entries == 0 {
				l.firstSeen = now
			}
			l.entries++
			l.bytes += entry.bytes
			done(now, nil)
		}
	}
}

// trim deletes what lies too far behind the snapshots: one snapshot's worth at a time, until there is no more.
func (l *metadataLog) trim(ctx context.Context, now time.Time) error {
	last := int64(-1)
	for {
		boundary, err := l.chain.Trim(ctx, now, l.retention, func() chain.Fold { return &imageFold{image: metadata.Empty()} })
		if err != nil || boundary <= last {
			return err
		}
		last = boundary
	}
}

// snapshotDue tells whether the entries since the last snapshot are many, large or old.
func (l *metadataLog) snapshotDue(now time.Time) bool {
	return l.entries >= snapshotEntries || l.bytes >= snapshotBytes || l.entries > 0 && now.Sub(l.firstSeen) >= snapshotAge
}

// snapshot stores image, which is the state at the chain's tail, and trims what lies too far behind it. Commits go on meanwhile.
func (l *metadataLog) snapshot(now time.Time, image *metadata.Image) func(context.Context) Completion {
	l.entries, l.bytes = 0, 0
	at := l.tail
	return func(ctx context.Context) Completion {
		err := l.chain.Snapshot(ctx, now, at, image.Snapshot())
		if err == nil {
			err = l.trim(ctx, now)
		}
		if err != nil {
			l.logger.Warn("metadata snapshot or trim is left for the next time", "err", err)
		}
		return nil
	}
}
