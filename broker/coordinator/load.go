package coordinator

import (
	"context"
	"fmt"
	"iter"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// maxUnfoldedBytes bounds what a compressed batch of an internal topic may unfold to. A coordinator's own batches are
// smaller by far.
const maxUnfoldedBytes = 64 << 20

// Load is a partition on its way from the log into memory.
type Load struct {
	partition int32
	shard     Shard
	end       wire.Offset // the offset after the last batch
	skipped   int         // records that the shard could not read
	reason    error       // of the first of them
}

// Partition is the partition that is loaded.
func (l *Load) Partition() int32 { return l.partition }

// Replay reads the partition's batches from the log start offset to the log end offset into memory. It takes no locks and may
// run beside everything else. The bytes of a batch need to be valid only until the next one is asked for.
func (l *Load) Replay(ctx context.Context, batches iter.Seq2[record.Batch, error]) error {
	for batch, err := range batches {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = l.replay(batch)
		}
		if err != nil {
			return fmt.Errorf("load partition %d after offset %d: %w", l.partition, l.end, err)
		}
		l.end = batch.NextOffset()
	}
	return nil
}

func (l *Load) replay(batch record.Batch) error {
	if err := batch.Check(); err != nil {
		return err
	}
	if batch.IsControl() || batch.IsTransactional() {
		return nil // of a transaction that nobody here can have committed
	}
	for r, err := range record.Records(batch, maxUnfoldedBytes) {
		if err != nil {
			return err
		}
		if err := l.shard.Replay(Record{Key: r.Key, Value: r.Value}); err != nil {
			if l.skipped++; l.reason == nil {
				l.reason = fmt.Errorf("offset %d: %w", r.Offset, err)
			}
		}
	}
	return nil
}
