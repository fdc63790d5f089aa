package sim

import (
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"time"
)

// Options of a run.
type Options struct {
	Seed  uint64
	Trace io.Writer // gets every line; nil: nobody reads along
}

// Result of a run.
type Result struct {
	Hash  string // of the trace
	Stats Stats
	Err   error    // what does not hold, nil if everything does
	Tail  []string // the last lines of the trace
}

// Stats count what a run has tried.
type Stats struct {
	ProcessCrashes, PowerLosses, CleanStops, Refused int
	LatePuts                                         int
	Wiped, Recovered                                 int // losses of all disks; recoveries that gave something up
	Uploaded, ColdReads                              int // the most segments of a partition in the bucket; reads from there
	Audits                                           int
	Produced, Lost, Fetched                          int // records acknowledged, taken by power losses, read by consumers
	Retried, Stragglers                              int // batches sent again, requests that came after their connection's end
	Commits, Generations                             int // of groups
	Changes                                          int // of topics and settings
}

// cluster is a run.
type cluster struct {
	seed    uint64
	clock   clock
	trace   *trace
	plan    plan
	bucket  *bucket
	node    *node
	ledger  *ledger
	clients []worker
	morning time.Time // until then all clients sleep
	healed  bool      // no faults any more, and no new work
	stats   Stats
	failure error
}

// Run plays a seed.
func Run(o Options) Result {
	c := &cluster{seed: o.Seed, clock: clock{now: epoch}}
	c.trace = newTrace(func() time.Time { return c.clock.now }, o.Trace)
	c.plan = newPlan(c.stream("plan"))
	c.plan.tier = newTierPlan(c.stream("tier"))
	c.plan.tier.slowTasks = c.plan.slowTasks
	c.trace.add("plan", "%+v", c.plan)
	settings, err := c.plan.settings()
	if err != nil {
		return Result{Err: err}
	}
	c.ledger = newLedger(c)
	c.bucket = newBucket(c, c.plan.storeFaults)
	c.node = newNode(c, settings)
	c.node.start()
	c.enlist()
	c.injectFaults()
	c.runFor(c.plan.length)
	if c.plan.night > 0 {
		c.trace.add("plan", "night falls")
		c.morning = c.clock.now.Add(c.plan.night)
		c.clock.at(c.morning, c.ledger.forgetGenerations)
		c.runFor(c.plan.night + c.plan.length/4)
	}
	c.heal()
	c.finish()
	return Result{Hash: c.trace.sum(), Stats: c.stats, Err: c.failure, Tail: c.trace.end()}
}

// stream is a source of random numbers for one part of the run, so that a draw more in one does not change the others.
func (c *cluster) stream(name string) *rand.Rand {
	h := fnv.New64a()
	io.WriteString(h, name) //nolint:errcheck // a hash takes everything
	return rand.New(rand.NewPCG(c.seed, h.Sum64()))
}

// fail notes that something does not hold. The first finding ends the run: what follows may be its consequence.
func (c *cluster) fail(format string, args ...any) {
	if c.failure == nil {
		c.failure = fmt.Errorf(format, args...)
		c.trace.add("FAIL", "%v", c.failure)
	}
}

// runFor lets d pass.
func (c *cluster) runFor(d time.Duration) {
	end := c.clock.now.Add(d)
	c.runUntil(end, func() bool { return false })
	if c.failure == nil {
		c.clock.now = end
	}
}

// standstill is how many events of one moment are a loop.
const standstill = 10_000

// runUntil lets time pass up to end, or until done; it tells whether done was the reason.
func (c *cluster) runUntil(end time.Time, done func() bool) bool {
	since, events := c.clock.now, 0
	for c.failure == nil {
		if done() {
			return true
		}
		if events++; c.clock.now.After(since) {
			since, events = c.clock.now, 0
		}
		if events > standstill {
			c.fail("time stands still: %d events at one moment", events)
		}
		if len(c.clock.heap) == 0 || c.clock.heap[0].at.After(end) {
			return false
		}
		c.clock.step()
	}
	return false
}

// healLimit is how long a broker and its clients may take to come to rest once all faults are over. The slowest of what has to
// end by itself are requests that wait for the controller: 30 s.
const healLimit = 90 * time.Second

// healRounds is how often that, as long as somebody gets on: a consumer may read a few records at a time.
const healRounds = 5

// heal ends all faults and waits until all clients have got what they asked for.
func (c *cluster) heal() {
	c.trace.add("fault", "all faults end")
	c.healed, c.plan.slowTasks = true, false
	c.bucket.calm, c.bucket.away, c.bucket.crashIn = true, false, 0
	c.node.disk.armCrash(0, processCrash)
	c.node.disk.setFull(false)
	if c.node.disk.failing != "" && c.node.engine != nil {
		c.node.crash(processCrash) // a disk that has failed is not trusted again before a restart
	}
	for before, round := "", 1; !c.runUntil(c.clock.now.Add(healLimit), c.atRest) && c.failure == nil; round++ {
		now := c.restless()
		if c.node.state != serving || now == before || round == healRounds {
			c.fail("%s after the last fault: broker is %s, %s", time.Duration(round)*healLimit, c.node.state, now)
		}
		before = now // slow, and getting on
	}
}

func (c *cluster) atRest() bool { return c.node.state == serving && c.restless() == "" }

// restless names a client that waits for something.
func (c *cluster) restless() string {
	for _, w := range c.clients {
		if what := w.waitsFor(); what != "" {
			return what
		}
	}
	return ""
}

// finish looks at everything once more, before and after a last restart.
func (c *cluster) finish() {
	if c.failure != nil {
		return
	}
	c.runFor(lateLimit) // what is on its way arrives, for it is the last that will be counted
	var a audit
	done := func() bool { // not at once where the last fault was a full disk: logs that it lacks are tried again each second
		a = audit{c: c, ended: cleanly}
		if a.notYet = a.leftovers(); a.notYet == "" {
			a.run()
		}
		return a.notYet == ""
	}
	if !c.runUntil(c.clock.now.Add(c.plan.tier.auditLimit()), done) {
		if c.failure == nil {
			c.fail("at the end, for %s: %s", c.plan.tier.auditLimit(), a.notYet)
		}
		return
	}
	litter := ""
	look := c.clock.now
	tidy := func() bool {
		if !c.clock.now.Before(look) {
			litter, look = c.litter(), c.clock.now.Add(time.Second)
		}
		return litter == ""
	}
	if c.plan.tier.on && !c.runUntil(c.clock.now.Add(c.plan.tier.litterLimit()), tidy) {
		if c.failure == nil {
			c.fail("at the end, for %s: %s", c.plan.tier.litterLimit(), litter)
		}
		return
	}
	c.node.wipeNext = c.plan.tier.wipes
	c.node.stop()
	audits := c.stats.Audits
	again := func() bool { return c.node.state == serving && c.stats.Audits > audits }
	if !c.runUntil(c.clock.now.Add(healLimit), again) && c.failure == nil {
		c.fail("%s after the last stop: broker is %s", healLimit, c.node.state)
	}
}
