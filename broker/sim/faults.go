package sim

import (
	"math/rand/v2"
	"time"
)

// injector lets things go wrong, one after the other, as the plan has it.
type injector struct {
	c      *cluster
	random *rand.Rand
	kinds  []func()
}

// injectFaults begins with the faults.
func (c *cluster) injectFaults() {
	j := &injector{c: c, random: c.stream("faults")}
	p := &c.plan
	for _, k := range []struct {
		on     bool
		weight int
		inject func()
	}{
		{p.processCrashes, 4, func() { j.crash(processCrash) }},
		{p.powerLosses, 3, func() { j.crash(powerLoss) }},
		{p.cleanStops, 2, j.stop},
		{p.storeAway, 1, j.storeAway},
		{p.fullDisk, 2, j.fullDisk},
		{p.failingDisk && p.dirs > 1, 1, j.failingDisk},
		{p.disconnects, 1, j.disconnect},
		{p.tier.wipes, 2, j.wipe},
	} {
		for range k.weight {
			if k.on {
				j.kinds = append(j.kinds, k.inject)
			}
		}
	}
	if len(j.kinds) > 0 {
		j.next()
	}
}

func (j *injector) next() {
	at := j.c.clock.now.Add(time.Duration(j.random.ExpFloat64() * float64(j.c.plan.faultsEvery)))
	if night := j.c.morning.Sub(at); night > 0 {
		at = at.Add(time.Duration(j.random.Int64N(int64(2 * night)))) // one fault in half of the nights
	}
	j.c.clock.at(at, func() {
		if j.c.healed {
			return
		}
		j.kinds[j.random.IntN(len(j.kinds))]()
		j.next()
	})
}

// crash ends the run now, or at a call that is still to come.
func (j *injector) crash(kind crash) {
	n := j.c.node
	if n.disk.crashIn > 0 || j.c.bucket.crashIn > 0 {
		return // one is on its way
	}
	switch {
	case j.c.plan.crashPoints && j.random.IntN(3) > 0:
		calls := 1 + j.random.IntN([]int{5, 100, 2000}[j.random.IntN(3)])
		j.c.trace.add("fault", "%s at call %d of the disk from here", kind, calls)
		n.disk.armCrash(calls, kind)
	case j.c.plan.crashPoints && j.random.IntN(4) > 0:
		b := j.c.bucket
		what := "call"
		b.crashIn, b.crashKind = 1+j.random.IntN(30), kind
		if b.crashPuts = j.random.IntN(2) == 0; b.crashPuts {
			b.crashIn, what = 1+j.random.IntN(4), "put"
		}
		j.c.trace.add("fault", "%s at %s %d of the store from here", kind, what, b.crashIn)
	case n.engine != nil:
		j.c.trace.add("fault", "%s", kind)
		n.crash(kind)
	}
}

// wipe lets the broker lose its disks.
func (j *injector) wipe() { j.c.node.loseDisks() }

func (j *injector) stop() {
	if j.c.node.state == serving {
		j.c.node.stop()
	}
}

func (j *injector) storeAway() {
	if j.c.bucket.away {
		return
	}
	d := time.Duration(j.random.IntN(15_000)) * time.Millisecond
	j.c.trace.add("fault", "the store is away for %s", d)
	j.c.bucket.away = true
	j.c.clock.after(d, func() {
		j.c.trace.add("fault", "the store is back")
		j.c.bucket.away = false
	})
}

func (j *injector) fullDisk() {
	if j.c.node.disk.full {
		return
	}
	d := time.Duration(j.random.IntN(5000)) * time.Millisecond
	j.c.trace.add("fault", "the disk is full for %s", d)
	j.c.node.disk.setFull(true)
	j.c.clock.after(d, func() {
		j.c.trace.add("fault", "the disk has room")
		j.c.node.disk.setFull(false)
	})
}

// failingDisk breaks the second of two log directories until the next start.
func (j *injector) failingDisk() {
	if j.c.node.engine != nil {
		dir := j.c.plan.logDirs()[1]
		j.c.trace.add("fault", "the disk of %s fails", dir)
		j.c.node.disk.setFailing(dir)
	}
}

func (j *injector) disconnect() {
	if conns := j.c.node.conns; len(conns) > 0 {
		x := conns[j.random.IntN(len(conns))]
		j.c.trace.add("fault", "connection of %s breaks", x.session.ID)
		x.cut(true)
	}
}
