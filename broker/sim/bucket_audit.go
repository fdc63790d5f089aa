package sim

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/tier/fsck"
	"github.com/tidemark-io/tidemark/tier/manifest"
)

// manifestOf reads a partition's manifest past all faults.
func (c *cluster) manifestOf(p *partition) (*manifest.State, error) {
	m, err := manifest.Open(context.Background(), c.bucket.inner, manifest.Prefix(p.topic.name, p.topic.id, p.index), manifest.Options{})
	if err != nil {
		return nil, err
	}
	return m.State(), nil
}

// see reads a partition's manifest, which goes one way only: nothing that it has said is unsaid.
func (c *cluster) see(p *partition) *manifest.State {
	s, err := c.manifestOf(p)
	if err != nil {
		c.fail("the manifest of %s can't be read: %v", p, err)
		return &manifest.State{}
	}
	if before := p.remote; before != nil {
		switch {
		case s.Position.Number < before.Position.Number, s.Position.Number == before.Position.Number && s.Position != before.Position:
			c.fail("the manifest of %s is at %v and was at %v", p, s.Position, before.Position)
		case s.End < before.End:
			c.fail("the manifest of %s ends at %d and has ended at %d", p, s.End, before.End)
		case s.LogStart < before.LogStart:
			c.fail("the manifest of %s begins at %d and has begun at %d", p, s.LogStart, before.LogStart)
		}
	}
	p.remote = s
	return s
}

// uploaded notes, at a power loss, what it can't take: what is in the bucket.
func (l *ledger) uploaded() {
	if !l.c.plan.tier.on {
		return
	}
	l.eachSettled(func(p *partition) { p.durable = max(p.durable, dataEnd(l.c.see(p))) })
}

// dataEnd is where a manifest's records end: what is lost at its end is none.
func dataEnd(s *manifest.State) int64 {
	if lost, ok := s.LostAtEnd(); ok {
		return int64(lost.Start)
	}
	return int64(s.End)
}

// eachSettled calls f with the partitions of all topics that nobody may have deleted by now.
func (l *ledger) eachSettled(f func(*partition)) {
	for _, t := range l.topics {
		if t.doubt {
			continue
		}
		for _, p := range t.partitions {
			f(p)
		}
	}
}

// checkBucket holds the bucket against itself, and the disk against the bucket.
func (a *audit) checkBucket(level fsck.Level) {
	c := a.c
	if !c.plan.tier.on {
		return
	}
	c.ledger.eachSettled(func(p *partition) {
		s := c.see(p)
		if s.Segments > 0 {
			c.stats.Uploaded = max(c.stats.Uploaded, s.Segments)
		}
		if base, ok := c.localBase(p); ok && base > max(int64(s.End), p.start) {
			c.fail("the disk begins with %d of %s: the bucket ends at %d, and the log starts at %d", base, p, s.End, p.start)
		}
	})
	_, err := fsck.Check(context.Background(), c.clock.now, fsck.Options{
		Store: c.bucket.inner, Metadata: c.ledger.chain.fsckTopics, Level: level, Grace: c.plan.tier.grace(),
	}, func(f fsck.Finding) {
		if f.Data {
			c.fail("the bucket: %s %s: %s", f.Kind, f.Key, f.Text)
		}
	})
	if err != nil {
		c.fail("the bucket can't be checked: %v", err)
	}
}

// fsckTopics are the topics that the metadata has as it was seen last.
func (h *history) fsckTopics(context.Context) ([]fsck.Topic, error) {
	var topics []fsck.Topic
	for t := range h.image.Topics("") {
		topics = append(topics, fsck.Topic{Name: t.Name, ID: t.ID, Partitions: int32(len(t.Partitions))})
	}
	for r := range h.image.Removals() {
		topics = append(topics, fsck.Topic{Name: r.Topic, ID: r.TopicID, Removing: true})
	}
	return topics, nil
}

// localBase is the base offset of the first segment on the disk; false if there is none.
func (c *cluster) localBase(p *partition) (int64, bool) {
	for _, dir := range c.plan.logDirs() {
		names, err := c.node.disk.mem.List(dir + "/" + p.String())
		if err != nil {
			continue
		}
		for _, name := range names { // in order
			if stem, ok := strings.CutSuffix(name, ".log"); ok {
				base, err := strconv.ParseInt(stem, 10, 64)
				return base, err == nil
			}
		}
	}
	return 0, false
}

// litter names something in the bucket that should be gone by now; empty: nothing.
func (c *cluster) litter() string {
	if c.plan.tier.graceMs < longGraceMs {
		return "" // what comes after the last look is found by nobody
	}
	c.ledger.chain.check()
	for r := range c.ledger.chain.image.Removals() {
		return fmt.Sprintf("topic %s is still to be removed from the bucket", r.Topic)
	}
	what := ""
	_, err := fsck.Check(context.Background(), c.clock.now.Add(anyAge), fsck.Options{
		Store: c.bucket.inner, Metadata: c.ledger.chain.fsckTopics,
	}, func(f fsck.Finding) {
		if f.Kind == fsck.KindTopic || f.Kind == fsck.KindOverdue || f.Kind == fsck.KindOrphan && c.swept(f) {
			what = fmt.Sprintf("%s %s: %s", f.Kind, f.Key, f.Text)
		}
	})
	if err != nil {
		return err.Error()
	}
	return what
}

// litterLimit is how long something may lie about in the bucket: a topic's objects go again after the grace, orphans after it, and then
// somebody has to look.
func (p *tierPlan) litterLimit() time.Duration { return p.grace() + 3*time.Minute }

// anyAge is longer than fsck waits before it calls something an orphan.
const anyAge = 2 * time.Hour

// swept tells whether the leader of a finding's partition has swept: that begins with the first entry under its epoch. What comes
// later than that is for the next leader.
func (c *cluster) swept(f fsck.Finding) bool {
	if c.stats.LatePuts > 0 {
		return false
	}
	for _, p := range c.ledger.named(fmt.Sprintf("%s-%d", f.Topic, *f.Partition)) {
		s, err := c.manifestOf(p)
		return err == nil && int32(s.LeaderEpoch()) == p.epoch
	}
	return false
}

// lostOf is the range of a partition that a recovery has given up; false if it has not.
func lostOf(s *manifest.State) (manifest.Range, bool) {
	if n := len(s.Lost); n > 0 {
		return s.Lost[n-1], true
	}
	return manifest.Range{}, false
}
