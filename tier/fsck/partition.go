package fsck

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/sidecar"
)

// partition is a partition while it is checked.
type partition struct {
	*checker
	*group
	m     *manifest.Manifest
	state *manifest.State
	named map[string]bool // keys that the manifest names
	whole bool            // the whole manifest was read: what is not named is nobody's
	gone  missing
	prior *manifest.Segment // the one that was checked before
	at    wire.Offset       // all before it was seen
}

func (c *checker) checkGroup(ctx context.Context, g *group) error {
	for _, info := range g.foreign {
		f := g.finding(KindForeign, false, "a key that is none of a partition's")
		f.Key, f.Count, f.Bytes, f.Advice = info.Key, 1, info.Size, "nobody reads it; delete it if nobody wants it"
		c.found(f)
	}
	if !g.ok {
		return nil
	}
	c.sum.Partitions++
	if removing, err := c.checkTopic(ctx, g); err != nil || removing {
		return err
	}
	p := &partition{checker: c, group: g, named: map[string]bool{}, whole: true}
	m, err := manifest.Open(ctx, c.Store, g.prefix, manifest.Options{Pages: c.pages, Logger: c.Logger})
	switch {
	case errors.Is(err, chain.ErrHalt):
		f := g.finding(KindChain, true, err.Error())
		f.Advice = "the partition's tier stands still; stop its leader, then `tidemark tier rebuild-manifest` writes a manifest anew from the objects"
		c.found(f)
		return nil
	case err != nil:
		return err
	}
	p.m, p.state = m, m.State()
	return p.check(ctx)
}

// checkTopic compares the topic with the metadata. One that is on its way out is left alone.
func (c *checker) checkTopic(ctx context.Context, g *group) (removing bool, err error) {
	if c.topics == nil {
		return false, nil
	}
	t, known := c.topics[g.id]
	if !known { // it may have been created since the metadata was read
		if err := c.checkMetadata(ctx); err != nil {
			return false, err
		}
		t, known = c.topics[g.id]
	}
	switch {
	case !known:
		g.unknown = true
		f := g.finding(KindTopic, false, "the cluster's metadata does not know the topic, nor that it was deleted")
		f.Count = len(g.objects)
		f.Advice = "make sure that the metadata is the right one before anything is deleted by hand"
		c.found(f)
	case t.Removing:
		return true, nil
	case t.Name != g.tp.Topic || g.tp.Partition >= t.Partitions:
		c.found(g.finding(KindTopic, false, fmt.Sprintf("in the cluster's metadata the topic is %s, with %d partitions", t.Name, t.Partitions)))
	}
	return false, nil
}

func (p *partition) check(ctx context.Context) error {
	p.sum.Dropped += len(p.state.Dropped)
	p.gone.tell = func(f Finding) { p.found(f) }
	p.gone.group = p.group
	p.at = p.state.LogStart
	for _, page := range p.state.Pages {
		if err := p.checkPage(ctx, page); err != nil {
			return err
		}
	}
	for _, s := range p.state.Tail {
		if err := p.checkSegment(ctx, s); err != nil {
			return err
		}
	}
	p.gone.end()
	p.checkJoin(p.state.End, p.state.End)
	p.checkDropped()
	return p.checkUnnamed(ctx)
}

// checkPage checks a page and the segments in it.
func (p *partition) checkPage(ctx context.Context, page manifest.Page) error {
	p.named[p.m.Key(page.Name, manifest.PageObject)] = true
	segments, err := p.m.Load(ctx, page)
	if errors.Is(err, manifest.ErrPage) {
		if p.moved(ctx, func(s *manifest.State) bool { return !slices.Contains(s.Pages, page) }) {
			return nil
		}
		p.whole = false
		p.at = page.End
		f := p.finding(KindPage, true, err.Error())
		f.Key, f.Count, f.Start, f.End = p.m.Key(page.Name, manifest.PageObject), page.Segments, page.Start, page.End
		f.Advice = "its segments may be there all the same; stop the partition's leader, then `tidemark tier rebuild-manifest --force`"
		p.found(f)
		return nil
	} else if err != nil {
		return err
	}
	for _, s := range segments {
		if err := p.checkSegment(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// moved tells whether the manifest has gone on meanwhile in such a way that what was found is none of its affair any more (safety
// rule 27). An error counts as no: what was found stays found.
func (p *partition) moved(ctx context.Context, over func(*manifest.State) bool) bool {
	s, err := p.m.Refresh(ctx)
	return err == nil && over(s)
}

func (p *partition) checkSegment(ctx context.Context, s manifest.Segment) error {
	p.sum.Segments++
	p.sum.Bytes += s.Size
	p.checkJoin(s.Start, s.End)
	p.checkEpochs(s)
	logKey, auxKey := p.m.Key(s.Name, manifest.LogObject), p.m.Key(s.Name, manifest.AuxObject)
	p.named[logKey], p.named[auxKey] = true, true
	prior := p.prior
	p.prior = &s
	log, err := p.checkObject(ctx, s, logKey, s.Size)
	if err != nil {
		return err
	}
	if log == isGone {
		p.gone.add(s, logKey, s.Size)
	}
	aux, err := p.checkObject(ctx, s, auxKey, s.AuxSize)
	if err != nil {
		return err
	}
	if aux == isGone {
		if p.Repair && log == isThere {
			if aux, err = p.restoreSidecar(ctx, s, auxKey, prior); err != nil {
				return err
			}
		}
		if aux == isGone {
			p.gone.add(s, auxKey, s.AuxSize)
		}
	}
	return p.checkContents(ctx, s, log == isThere, aux == isThere)
}

// checkContents reads what the level asks for of the objects that are there.
func (p *partition) checkContents(ctx context.Context, s manifest.Segment, hasLog, hasAux bool) error {
	var aux *sidecar.Sidecar
	if hasAux && p.Level >= Aux {
		var err error
		if aux, err = p.checkSidecar(ctx, s, p.m.Key(s.Name, manifest.AuxObject)); err != nil {
			return err
		}
	}
	if !hasLog || p.Level < Sample || p.Level == Sample && !p.chosen(s) {
		return nil
	}
	return p.checkData(ctx, s, aux)
}

// chosen tells whether a segment is in the sample.
func (p *partition) chosen(s manifest.Segment) bool {
	h := fnv.New64a()
	fmt.Fprint(h, p.Seed, s.Key(manifest.LogObject))
	return h.Sum64()%100 < uint64(max(p.SamplePercent, 0))
}

// checkJoin makes sure that nothing is missing between the segments.
func (p *partition) checkJoin(start, end wire.Offset) {
	if start > p.at && p.state.SkipLost(p.at) < start {
		f := p.finding(KindLineage, true, "no segment serves these offsets, and the manifest does not call them lost")
		f.Start, f.End = p.at, start
		p.found(f)
	}
	p.at = max(p.at, end)
}

// checkEpochs compares a segment's leader epochs with the manifest's.
func (p *partition) checkEpochs(s manifest.Segment) {
	from := max(s.Start, p.state.LogStart)
	if from >= s.End {
		return
	}
	ours := manifest.Lineage(p.state.Epochs, from, s.End)
	if theirs := manifest.Lineage(s.Epochs, from, s.End); !slices.Equal(ours, theirs) {
		f := p.segmentFinding(s, KindLineage, fmt.Sprintf("the segment's leader epochs are %v, the manifest's %v", theirs, ours))
		p.found(f)
	}
}

func (p *partition) segmentFinding(s manifest.Segment, kind Kind, text string) Finding {
	f := p.finding(kind, true, text)
	f.Key, f.Start, f.End = p.m.Key(s.Name, manifest.LogObject), s.Start, s.End
	return f
}

// presence is what became of an object.
type presence int8

const (
	isThere presence = iota
	isGone           // and it was not deleted by somebody who may
	isOther          // of another size, which was reported, or its segment is not served any more
)

// checkObject compares an object with what the manifest says of its size. That a list does not show it proves nothing.
func (p *partition) checkObject(ctx context.Context, s manifest.Segment, key string, size int64) (presence, error) {
	info, listed := p.objects[key]
	if !listed || info.Size != size {
		var err error
		info, err = p.Store.Head(ctx, key)
		if errors.Is(err, object.ErrNotExist) {
			if p.moved(ctx, func(now *manifest.State) bool { return now.LogStart >= s.End || now.End < s.End }) {
				return isOther, nil
			}
			return isGone, nil
		} else if err != nil {
			return isOther, err
		}
	}
	if info.Size != size {
		f := p.segmentFinding(s, KindSize, fmt.Sprintf("the object has %d bytes, the manifest says %d", info.Size, size))
		f.Key, f.Advice = key, adviceDamaged
		p.found(f)
		return isOther, nil
	}
	return isThere, nil
}

const (
	adviceDamaged = "reads of these offsets fail; put the object back from a copy or an older version in the bucket, under the same key"
	adviceLost    = "reads of these offsets fail; put the objects back from a copy or an older version in the bucket, under the same keys"
)

// missing gathers objects that are not there, so that a thousand of them in a row are one finding.
type missing struct {
	group *group
	tell  func(Finding)
	run   Finding
}

func (m *missing) add(s manifest.Segment, key string, size int64) {
	if m.run.Count > 0 && m.run.End < s.Start {
		m.end()
	}
	if m.run.Count == 0 {
		m.run = m.group.finding(KindMissing, true, "")
		m.run.Key, m.run.Start = key, s.Start
	}
	m.run.Count++
	m.run.Bytes += size
	m.run.End = s.End
}

func (m *missing) end() {
	if m.run.Count == 0 {
		return
	}
	m.run.Text = fmt.Sprintf("%d objects that the manifest names are not there", m.run.Count)
	m.run.Advice = adviceLost
	m.tell(m.run)
	m.run = Finding{}
}

// overdueAfter is how long after the grace a dropped object may wait for its leader.
const overdueAfter = 24 * time.Hour

func (p *partition) checkDropped() {
	overdue := p.finding(KindOverdue, false, "")
	for _, d := range p.state.Dropped {
		if d.Page {
			p.named[p.m.Key(d.Name, manifest.PageObject)] = true
		} else {
			p.named[p.m.Key(d.Name, manifest.LogObject)] = true
			p.named[p.m.Key(d.Name, manifest.AuxObject)] = true
		}
		if p.now.Sub(time.UnixMilli(d.TimeMs)) > p.grace()+overdueAfter {
			overdue.Count++
			overdue.Bytes += d.Size + d.AuxSize
		}
	}
	if overdue.Count > 0 {
		overdue.Text = fmt.Sprintf("%d uploads were dropped, and are not deleted long after the grace", overdue.Count)
		overdue.Advice = "the partition's leader deletes them; see whether it runs and may delete"
		p.found(overdue)
	}
}
