package readonly

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/cold"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
)

// errReadOnly: somebody wants to write.
var errReadOnly = errors.New("the bucket is served read-only")

// Reading is a store that nobody can write to.
func Reading(s object.Store) object.Store { return reading{s} }

// reading has the reading methods of the store inside, and none that only some stores have.
type reading struct{ object.Store }

// Put implements object.Store.
func (reading) Put(_ context.Context, key string, _ object.Body, _ object.Condition) (object.Token, error) {
	return "", fmt.Errorf("put %s: %w: %w", key, errReadOnly, object.ErrDenied)
}

// Delete implements object.Store.
func (reading) Delete(_ context.Context, key string) error {
	return fmt.Errorf("delete %s: %w: %w", key, errReadOnly, object.ErrDenied)
}

// remote implements replica.Tier: all reading, no writing.
type remote struct {
	o         *Options
	logs      *log.Manager
	reader    *cold.Reader
	manifests map[wire.TopicPartition]*manifest.Manifest // never changes once it serves
}

var _ replica.Tier = (*remote)(nil)

// Lead implements replica.Tier.
func (r *remote) Lead(time.Time, replica.Leadership) (held bool) { return false }

// Resign implements replica.Tier.
func (r *remote) Resign(wire.TopicPartition) {}

// Changed implements replica.Tier.
func (r *remote) Changed(wire.TopicPartition) {}

// SkipLost implements replica.Tier.
func (r *remote) SkipLost(tp wire.TopicPartition, offset wire.Offset) wire.Offset {
	if m := r.manifests[tp]; m != nil {
		return m.State().SkipLost(offset)
	}
	return offset
}

// RecordStart implements replica.Tier.
func (r *remote) RecordStart(now time.Time, _ wire.TopicPartition, _ wire.Offset, _ time.Time, done func(time.Time, error)) {
	done(now, wire.ClusterAuthorizationFailed)
}

func (r *remote) partition(tp wire.TopicPartition, id wire.TopicID) cold.Partition {
	return cold.Partition{TopicPartition: tp, TopicID: id, Manifest: r.manifests[tp]}
}

// Fetch implements replica.Tier.
func (r *remote) Fetch(now time.Time, f *replica.RemoteFetch, done func([]replica.RemoteResult)) {
	r.o.Go(func() {
		ctx, cancel := r.until(now, f.Deadline)
		defer cancel()
		request := &cold.Request{MaxBytes: f.MaxBytes, MinOneBatch: f.MinOneBatch, Committed: f.Committed}
		for _, p := range f.Partitions {
			request.Partitions = append(request.Partitions, cold.Fetch{
				Partition: r.partition(p.TopicPartition, p.TopicID), Offset: p.Offset, UpTo: p.UpTo, MaxBytes: p.MaxBytes,
			})
		}
		results := make([]replica.RemoteResult, len(f.Partitions))
		for i, got := range r.reader.Read(ctx, now, request) {
			if got.Code == wire.OffsetOutOfRange {
				r.deleted(f.Partitions[i].TopicPartition)
			}
			results[i] = replica.RemoteResult{Code: got.Code, Records: got.Records}
			for _, a := range got.Aborted {
				results[i].Aborted = append(results[i].Aborted, replica.AbortedTransaction{ProducerID: a.ProducerID, FirstOffset: a.First})
			}
		}
		done(results)
	})
}

// deleted moves a log start to where it is by now: the cluster goes on, and a read came upon what it has deleted. Else whoever begins
// anew would come there again.
func (r *remote) deleted(tp wire.TopicPartition) {
	l, ok := r.logs.Get(tp)
	if !ok {
		return
	}
	if err := l.AdvanceStart(min(r.manifests[tp].State().LogStart, l.HighWatermark())); err != nil {
		r.o.Logger.Warn("the log start can't follow the manifest's", "topic", tp.Topic, "partition", tp.Partition, "err", err)
	}
}

// OffsetForTimestamp implements replica.Tier.
func (r *remote) OffsetForTimestamp(now time.Time, t replica.RemoteTime, done func(log.TimestampOffset, error)) {
	r.o.Go(func() {
		ctx, cancel := r.until(now, t.Deadline)
		defer cancel()
		if p := r.partition(t.TopicPartition, t.TopicID); t.Timestamp == replica.MaxTimestamp {
			done(r.reader.MaxTimestamp(ctx, p, t.From, t.UpTo))
		} else {
			done(r.reader.OffsetForTime(ctx, p, t.Timestamp, t.From, t.UpTo))
		}
	})
}

func (r *remote) until(now, deadline time.Time) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), deadline.Sub(now))
}
