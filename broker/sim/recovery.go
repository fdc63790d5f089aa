package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/broker/engine"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier"
)

// recovery is what a broker without its disks does to come back.
type recovery struct {
	whole bool // everything was in the bucket: nobody has to be asked
	asked bool // the operator knows that something will be missing
	lost  map[string]engine.LostRange
	had   map[*partition]int64 // where the bucket ended when the disks were lost
	used  map[*partition]int64 // where the log did
}

// loseDisks kills the broker and takes its disks away.
func (n *node) loseDisks() {
	if n.engine != nil {
		n.crash(processCrash)
	}
	n.wipe(false)
}

// wipeSoon lets the disks be lost in the first moments after a clean stop that had all in the bucket: of what has come since, the bucket
// may have nothing yet, and it still says that the partitions are whole.
func (n *node) wipeSoon() {
	n.later(100*time.Millisecond+time.Duration(n.random.IntN(1500))*time.Millisecond, func() {
		if !n.c.healed {
			n.loseDisks()
		}
	})
}

// wipe takes the disks away. What is in the bucket can't be lost. whole: that is everything.
func (n *node) wipe(whole bool) {
	n.c.trace.add("fault", "the disks are lost, whole in the bucket: %v", whole)
	n.c.stats.Wiped++
	n.disk.wipe()
	if n.ended == wiped {
		whole = false // the recovery may have begun
	}
	n.recovery = recovery{whole: whole, lost: map[string]engine.LostRange{}, had: map[*partition]int64{}, used: map[*partition]int64{}}
	n.ended = wiped
	for _, t := range n.c.ledger.topics {
		for _, p := range t.partitions {
			if s, err := n.c.manifestOf(p); err == nil {
				p.durable = dataEnd(s)
				n.recovery.had[p], n.recovery.used[p] = p.durable, p.end()
				p.judged = max(p.judged, int64(s.LogStart)) // what made retention take that may be lost now
			} else {
				n.c.fail("the manifest of %s can't be read: %v", p, err)
			}
		}
	}
	for _, g := range n.c.ledger.groups {
		for _, m := range g.commits {
			m.durable = false
		}
	}
}

// saysWhole tells whether a broker that was stopped has told the controller that the bucket has all, and the bucket says so too.
func (n *node) saysWhole() bool {
	n.c.ledger.chain.check()
	image := n.c.ledger.chain.image
	if b := image.Broker(n.settings.NodeID); b == nil || !b.Whole {
		return false
	}
	for t := range image.Topics("") {
		for i := range t.Partitions {
			found, err := tier.Survey(context.Background(), n.c.bucket.inner, t.Name, t.ID, int32(i))
			empty := t.Partitions[i].Empty && found.End == 0
			if err != nil || !found.Closed && !empty {
				return false
			}
		}
	}
	return true
}

// dataMissing tells whether a broker has refused to start since the bucket lacks something. The operator then says that it may.
func (n *node) dataMissing(err error) bool {
	if !errors.Is(err, engine.ErrDataMissing) || n.ended != wiped || n.recovery.asked {
		return false
	}
	n.c.trace.add("broker", "run %d is refused: %v", n.run, err)
	if n.recovery.whole {
		n.c.fail("run %d: after a clean stop that had everything in the bucket: %v", n.run, err)
		return true
	}
	n.recovery.asked = true
	n.disk.crashed(processCrash)
	n.c.clock.after(n.between(time.Millisecond, time.Second), n.start)
	return true
}

// noteRecovery notes what a recovery says that it gives up.
func (n *node) noteRecovery(e *engine.Engine) {
	report, ok := e.Recovery()
	if !ok {
		return
	}
	if !report.Complete {
		n.c.stats.Recovered++
	}
	for _, l := range report.Lost {
		n.recovery.lost[fmt.Sprintf("%s-%d", l.Topic, l.Partition)] = l
	}
	// A gap that is shorter than what was not uploaded has offsets used again: the operator's choice.
	for p, end := range n.recovery.used {
		l, ok := n.recovery.lost[p.String()]
		if gap := n.c.plan.tier.gap; !ok || gap == 0 || end <= int64(l.Next) {
			continue
		} else if int64(l.Next) < n.recovery.had[p]+gap {
			n.c.fail("the recovery begins %s at %d, less than %d behind what the bucket had, %d", p, l.Next, gap, n.recovery.had[p])
			return
		}
		p.lose(int64(l.Next))
		delete(n.recovery.used, p)
	}
}

// gaveUpOffsets tells whether a recovery has given up offsets of groups.
func (n *node) gaveUpOffsets() bool {
	for _, l := range n.recovery.lost {
		if l.Topic == wire.ConsumerOffsetsTopic {
			return true
		}
	}
	return false
}

// checkRecovered compares what a recovery has given up with what the bucket has: no record of it is gone, no offset that may have been
// used is used again, and what the report does not name has lost nothing.
func (a *audit) checkRecovered(p *partition, start, end int64) {
	c := a.c
	named, ok := c.node.recovery.lost[p.String()]
	if !ok {
		return
	}
	had := c.node.recovery.had[p]
	if int64(named.First) < had {
		c.fail("the recovery gives %s up from %d on: the bucket had it up to %d", p, named.First, had)
		return
	}
	if c.plan.tier.gap == 0 {
		p.lose(end)
		return
	}
	from, to := int64(named.First), int64(named.Next)
	if r, ok := lostOf(c.see(p)); ok { // what came late is not lost
		from, to = int64(r.Start), int64(r.End)
	}
	if start >= from { // a recovery before this one, that nobody has looked at, may have given up what lies before
		from = min(from, had)
	}
	if from < had || to > end {
		c.fail("%s@%d to %d are given up: the bucket had it up to %d, and it ends at %d", p, from, to, had, end)
		return
	}
	if p.skip(from) < to || to > p.end() {
		p.giveUp(from, to)
	}
}
