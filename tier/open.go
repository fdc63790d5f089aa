package tier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
)

// open reads the manifest, once in a leadership, and makes sure that it and the log tell one history before anybody relies on
// either. It returns what is to be said of a partition that was held.
func (p *partition) open(ctx context.Context, now time.Time) (*Release, error) {
	if p.settled {
		return nil, nil
	}
	ctx = p.cause(ctx, object.CauseManifest)
	var s *manifest.State
	var err error
	if p.m == nil {
		p.m, err = manifest.Open(ctx, p.o.Store, p.prefix, manifest.Options{
			Writer: p.writer(), Nonce: p.o.Nonce, Pages: p.pages, Logger: p.logger, PageSegments: p.o.PageSegments,
		})
		if err == nil {
			s = p.m.State()
		}
	} else {
		s, err = p.m.Refresh(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	p.reached = true
	p.at(pointOpened)
	if p.fencedBy(s) {
		return nil, p.fenced(s)
	}
	release := &Release{TopicPartition: p.TopicPartition, Epoch: p.Epoch}
	if err := p.settle(ctx, now, release); err != nil {
		return nil, err
	}
	if p.Start != StartHere {
		if err := p.Log.Verified(); err != nil {
			return nil, err
		}
	}
	p.settled = true
	p.manifest.Store(p.m)
	p.tell()
	return release, nil
}

func (p *partition) writer() chain.Writer {
	return chain.Writer{Broker: int32(p.o.Broker), Incarnation: p.o.Incarnation}
}

// fencedBy tells whether a manifest has an entry of a later leader, or of another one that thinks it has this epoch.
func (p *partition) fencedBy(s *manifest.State) bool {
	return s.LeaderEpoch() > p.Epoch || s.LeaderEpoch() == p.Epoch && s.Position.Writer != p.writer()
}

func (p *partition) fenced(s *manifest.State) error {
	return fmt.Errorf("%w: epoch %d, broker %d", errFenced, s.LeaderEpoch(), s.Position.Writer.Broker)
}

// settle makes log and manifest one history, as far as Start says that they may differ.
func (p *partition) settle(ctx context.Context, now time.Time, release *Release) error {
	if p.Start == StartRecovered {
		if err := p.recover(ctx, now, release); err != nil {
			return err
		}
		release.Restarted = true
		return p.restart(ctx, now)
	}
	if p.Start != StartHere { // what the log may lack has to show in the manifest
		if err := complete(ctx, p.o.Store, p.m); err != nil {
			return err
		}
	}
	s := p.m.State()
	common := s.CommonEnd(p.lineage(), p.Log.EndOffset())
	switch {
	case common >= s.End:
		return nil
	case p.Start == StartVerified:
		p.logger.Warn("the log lacks what the bucket has: it starts anew from there",
			"end", p.Log.EndOffset(), "tiered_end", s.End, "common_end", common)
		release.Restarted = true
		return p.restart(ctx, now)
	case p.Start == StartUnclean:
		return p.cut(ctx, now, common)
	}
	return fmt.Errorf("%w: it ends at %d, the log at %d, and they agree up to %d", errHistory, s.End, p.Log.EndOffset(), common)
}

// recover fences former leaders off and moves the end over the offsets that may have been acknowledged and are lost with every
// replica (safety rule 19), in one entry: that it was created says that nobody has moved the end meanwhile. That its manifest is closed
// says nothing: it may have been led since. Where a leader of this same recovery has moved the end and was killed before it served, nothing
// was acknowledged above it.
func (p *partition) recover(ctx context.Context, now time.Time, release *Release) error {
	s := p.m.State()
	if s.LeaderEpoch() < p.Epoch || s.Position.Number == 0 {
		var record manifest.Record
		gap := wire.Offset(p.o.Config().RecoveryGap)
		if gap > 0 && !p.recovered(s) {
			record = &manifest.LostRecord{Start: s.End, End: s.End + gap}
		}
		if err := p.commit(ctx, now, pointRecover, record); err != nil {
			return err
		}
		s = p.m.State()
	}
	if lost, ok := s.LostAtEnd(); ok {
		release.LostFirst, release.LostNext = lost.Start, lost.End
		p.logger.Error("records may be lost", "first_offset", release.LostFirst, "next_offset", release.LostNext)
	}
	return nil
}

// recovered tells whether the manifest says what this recovery has lost. Its own broker must have written last: a manifest that was rebuilt
// meanwhile has the epoch of the metadata, and may end with what an earlier recovery has lost.
func (p *partition) recovered(s *manifest.State) bool {
	_, lost := s.LostAtEnd()
	return lost && p.RecoverySince > 0 && s.LeaderEpoch() >= p.RecoverySince && s.Position.Writer.Broker == int32(p.o.Broker)
}

// cut takes the manifest back to what the log has, after an unclean election (safety rule 18).
func (p *partition) cut(ctx context.Context, now time.Time, end wire.Offset) error {
	for {
		record, err := p.m.MakeCut(ctx, now, end)
		if err != nil {
			return fmt.Errorf("cut the manifest: %w", err)
		}
		if record == nil {
			return nil
		}
		if err := p.commit(ctx, now, pointCut, record); err != nil {
			return err
		}
	}
}

// restart drops the local log and starts it at the manifest's end. A crash on the way leaves a log that ends below.
func (p *partition) restart(ctx context.Context, now time.Time) error {
	s := p.m.State()
	replay, before, err := p.replayed(ctx, s)
	if err != nil {
		return err
	}
	var snapshot []byte
	if before != nil {
		aux, err := p.sidecar(ctx, *before)
		if err != nil {
			return fmt.Errorf("producers at %d: %w", before.End, err)
		}
		snapshot, _ = aux.ProducerSnapshot()
	}
	logStart := s.ReadStart()
	at, start, epochs := s.End, logStart, epochsOf(s.Epochs)
	if len(replay) > 0 {
		at = replay[0].Start
		start = min(start, at) // a batch may hold the log start inside
	}
	p.at(pointRestart)
	if err := p.Log.StartFromTier(now, at, start, epochs, snapshot); err != nil {
		return fmt.Errorf("start the log at %d: %w", at, err)
	}
	p.at(pointRestarted)
	for _, segment := range replay {
		if err := p.refill(ctx, now, segment); err != nil {
			return fmt.Errorf("bring segment %d back: %w", segment.Base, err)
		}
	}
	if err := p.refillGap(now, s.End); err != nil {
		return fmt.Errorf("pass over lost offsets: %w", err)
	}
	p.Log.UpdateHighWatermark(s.End)
	return errors.Join(p.Log.AdvanceStart(logStart), p.Log.Flush())
}

// replayed are the segments whose batches are brought back: of an internal topic all, since its data is read here (safety rule 25),
// and one that was clipped, whose sidecar knows the producers behind the cut only. before is the segment with the producers
// as of the first of them, or of the end; nil where there are none.
func (p *partition) replayed(ctx context.Context, s *manifest.State) (replay []manifest.Segment, before *manifest.Segment, err error) {
	if p.Internal {
		for segment, err := range p.m.All(ctx) {
			if err != nil {
				return nil, nil, err
			}
			replay = append(replay, segment)
		}
		return replay, nil, nil
	}
	newest, err := p.newest(ctx, s)
	if err != nil || len(newest) == 0 {
		return nil, nil, err
	}
	last := len(newest) - 1
	if newest[last].End < s.LogStart {
		// What came after it was removed before it got here: of the producers that wrote it, their last sequences are unknown.
		return nil, nil, nil
	}
	if !newest[last].Clipped {
		return nil, &newest[last], nil
	}
	if last > 0 {
		before = &newest[last-1]
	}
	return newest[last:], before, nil
}

// newest are live segments up to the last one, two of them if there are.
func (p *partition) newest(ctx context.Context, s *manifest.State) ([]manifest.Segment, error) {
	list := s.Tail
	if len(list) < 2 && len(s.Pages) > 0 {
		page, err := p.m.Load(ctx, s.Pages[len(s.Pages)-1])
		if err != nil {
			return nil, err
		}
		list = append(slices.Clip(page), list...)
	}
	return list, nil
}

func epochsOf(lineage []manifest.EpochStart) []log.EpochEntry {
	epochs := make([]log.EpochEntry, len(lineage))
	for i, e := range lineage {
		epochs[i] = log.EpochEntry{Epoch: e.Epoch, Start: e.Start}
	}
	return epochs
}

// tell lets the log know what the manifest holds, which has been read back: local retention ends there.
func (p *partition) tell() {
	p.at(pointTell)
	p.Log.SetTiered(p.m.State().End)
}

// commit appends one entry to the manifest. An outcome that is not Done is looked into at once: another leader's entry ends this
// leadership, anything else is an error after which the caller looks at the manifest anew.
func (p *partition) commit(ctx context.Context, now time.Time, point string, record manifest.Record) error {
	ctx = p.cause(ctx, object.CauseManifest)
	p.at(point + pointCommit)
	var records []manifest.Record
	if record != nil {
		records = append(records, record)
	}
	outcome, err := p.m.Commit(ctx, now, p.Epoch, records...)
	if outcome == object.Done {
		p.reached = true
		p.at(point + pointCommitted)
		return nil
	}
	s, readErr := p.m.Refresh(ctx)
	if readErr == nil && p.fencedBy(s) {
		return p.fenced(s)
	}
	return fmt.Errorf("entry for %s is %s: %w", point, outcome, errors.Join(err, readErr))
}
