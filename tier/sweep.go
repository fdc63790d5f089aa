package tier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
)

// upkeep is what a leader does beside its plan: snapshots of the manifest, the end of its old entries, and objects that nothing
// names. What fails of it holds up no other part.
func (p *partition) upkeep(ctx context.Context, now time.Time, out *outcome) error {
	manifestCtx, sweepCtx := p.cause(ctx, object.CauseManifest), p.cause(ctx, object.CauseSweep)
	var failed error
	for _, part := range []func() error{
		func() error { return p.snapshot(manifestCtx, now) },
		func() error { return p.trim(manifestCtx, now) },
		func() error { return p.deleteGivenUp(sweepCtx) },
		func() error { return p.abortUploads(sweepCtx) },
		func() error { return p.sweep(sweepCtx, now) },
	} {
		err := part()
		failed = errors.Join(failed, err)
		if final(err) || ctx.Err() != nil {
			return failed
		}
	}
	if !p.swept && !p.sweepAt.IsZero() {
		out.wake = soonest(out.wake, p.sweepAt)
	}
	return failed
}

func (p *partition) snapshot(ctx context.Context, now time.Time) error {
	if !p.m.SnapshotDue() {
		return nil
	}
	p.at(pointSnapshot)
	if err := p.m.Snapshot(ctx, now); err != nil {
		return fmt.Errorf("store a snapshot: %w", err)
	}
	p.trimming = true
	return nil
}

func (p *partition) trim(ctx context.Context, now time.Time) error {
	if !p.trimming {
		return nil
	}
	p.at(pointTrim)
	more, err := p.m.Trim(ctx, now, p.o.Config().ManifestRetention)
	if err != nil {
		return fmt.Errorf("trim the manifest: %w", err)
	}
	p.trimming = more
	return nil
}

// deleteGivenUp removes the objects of uploads that failed under this epoch before an entry was tried for them.
func (p *partition) deleteGivenUp(ctx context.Context) error {
	for len(p.givenUp) > 0 {
		if err := p.deleteUpload(ctx, p.givenUp[0], false); err != nil {
			return fmt.Errorf("delete a failed upload: %w", err)
		}
		p.givenUp = p.givenUp[1:]
	}
	return nil
}

func (p *partition) deleteUpload(ctx context.Context, n manifest.Name, page bool) error {
	kinds := []manifest.Kind{manifest.AuxObject, manifest.LogObject}
	if page {
		kinds = []manifest.Kind{manifest.PageObject}
	}
	for _, kind := range kinds {
		p.at(pointDeleteObject)
		if err := p.o.Store.Delete(ctx, p.key(n, kind)); err != nil {
			return err
		}
	}
	return nil
}

// deletesMax bounds the dropped objects that one entry confirms.
const deletesMax = 128

// deleteDropped removes the objects of the first count dropped ones, and commits that they are gone. A crash between deletes them
// once more.
func (p *partition) deleteDropped(ctx context.Context, now time.Time, count int) error {
	dropped := p.m.State().Dropped
	var record manifest.DeletedRecord
	for _, d := range dropped[:min(count, deletesMax, len(dropped))] {
		if err := p.deleteUpload(p.cause(ctx, object.CauseSweep), d.Name, d.Page); err != nil {
			return err
		}
		if d.Page {
			record.Pages = append(record.Pages, d.Name)
		} else {
			record.Segments = append(record.Segments, d.Name)
		}
	}
	if len(record.Pages)+len(record.Segments) == 0 {
		return nil
	}
	return p.commit(ctx, now, pointDelete, &record)
}

// sweep removes what former leaders have left and no manifest names, a grace after it was put (safety rule 22). It begins with the
// first entry of this leadership, which nobody can slip anything under any more, and ends when nothing of them is left.
func (p *partition) sweep(ctx context.Context, now time.Time) error {
	readable := p.unread == nil // without its pages nobody can tell what a manifest names
	if !readable || p.swept || p.m.State().LeaderEpoch() != p.Epoch || now.Before(p.sweepAt) {
		return nil
	}
	skew, ok := object.SkewOf(p.o.Store, now)
	if !ok {
		return nil
	}
	p.at(pointSweep)
	orphans, err := p.m.Orphans(ctx)
	if err != nil {
		return fmt.Errorf("look for orphans: %w", err)
	}
	if p.fencedBy(p.m.State()) { // Orphans has read to the tail
		return p.fenced(p.m.State())
	}
	if err := p.nothingForgotten(ctx); err != nil {
		return err
	}
	grace, storeNow := p.o.Config().DeleteGrace, now.Add(skew.Ahead)
	p.swept, p.sweepAt = true, time.Time{}
	for _, o := range orphans {
		if due := o.ModTime.Add(grace); due.After(storeNow) {
			if p.swept || due.Add(-skew.Ahead).Before(p.sweepAt) {
				p.sweepAt = due.Add(-skew.Ahead)
			}
			p.swept = false
			continue
		}
		p.at(pointSweepObject)
		if err := p.o.Store.Delete(ctx, o.Key); err != nil {
			p.swept, p.sweepAt = false, time.Time{}
			return fmt.Errorf("delete orphan %s: %w", o.Key, err)
		}
		p.logger.Info("orphan is deleted", "key", o.Key)
	}
	return nil
}

// abortUploads ends what failed uploads have left unfinished, which costs money and is in no list. None of our own is under way: this
// is the one job of the partition. As the sweep, it begins with the first entry of this leadership, and not while another one leads,
// whose uploads would fail by it.
func (p *partition) abortUploads(ctx context.Context) error {
	if !p.unfinished || p.m.State().LeaderEpoch() != p.Epoch {
		return nil
	}
	p.steps.Add(1)
	s, err := p.m.Refresh(ctx)
	if err != nil {
		return fmt.Errorf("sweep unfinished uploads: %w", err)
	}
	if p.fencedBy(s) {
		return p.fenced(s)
	}
	if err := sweepUploads(ctx, p.o, p.prefix); err != nil {
		return err
	}
	p.unfinished = false
	return nil
}

// sweepUploads leaves them where this broker may not list or end them: nothing else waits for that right.
func sweepUploads(ctx context.Context, o *Options, prefix string) error {
	_, err := object.SweepUploads(ctx, o.Store, prefix+"/", anyTime)
	if errors.Is(err, object.ErrDenied) {
		o.Logger.Warn("unfinished uploads are left in the bucket, as this broker may not list or end them", "prefix", prefix, "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("sweep unfinished uploads: %w", err)
	}
	return nil
}

// anyTime is behind every time that a store can tell.
var anyTime = time.Unix(1<<40, 0)

// topicDeletes bounds the objects that one call of DeleteTopic removes.
const topicDeletes = 1000

// DeleteTopic removes what the bucket holds of a deleted topic, at most a bounded number of objects a call; more says that
// there is more to do. It may be called again at any time and by anybody, also beside a Manager that still leads a
// partition of the topic; what such a straggler adds is found by another call after the grace (safety rule 28).
func (m *Manager) DeleteTopic(ctx context.Context, topic string, id wire.TopicID) (more bool, err error) {
	ctx = object.WithCause(ctx, object.Cause{Kind: object.CauseSweep, Topic: topic})
	prefix := manifest.TopicPrefix(topic, id)
	var keys []string
	for info, err := range m.o.Store.List(ctx, prefix+"/", "") {
		if err != nil {
			return false, fmt.Errorf("delete topic %s: %w", topic, err)
		}
		if len(keys) == topicDeletes {
			more = true
			break
		}
		keys = append(keys, info.Key)
	}
	for _, key := range keys {
		m.point(pointDeleteTopic)
		if err := m.o.Store.Delete(ctx, key); err != nil {
			return false, fmt.Errorf("delete topic %s: %w", topic, err)
		}
	}
	if !more {
		if err := sweepUploads(ctx, &m.o, prefix); err != nil {
			return false, fmt.Errorf("delete topic %s: %w", topic, err)
		}
	}
	return more, nil
}

func (m *Manager) point(name string) {
	if m.o.Hook != nil {
		m.o.Hook(name)
	}
}
