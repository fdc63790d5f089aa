package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// tierPlan is the part of a seed that is about the bucket as a place for records.
type tierPlan struct {
	on         bool
	wipes      bool // disks get lost, with all that is on them
	untiered   bool // there are topics whose records stay on the disk
	unsealedMs int64
	graceMs    int64
	shutdownMs int64
	gap        int64 // tier.recovery.offset.gap
	cacheBytes int64
	uploads    int // at a time
	slowTasks  bool
}

func newTierPlan(random *rand.Rand) tierPlan {
	coin := func(sides int) bool { return random.IntN(sides) == 0 }
	p := tierPlan{
		on: coin(2), wipes: coin(2), untiered: coin(3),
		unsealedMs: []int64{1000, 1000, 3000, 10_000}[random.IntN(4)],
		graceMs:    []int64{1000, longGraceMs}[random.IntN(2)],
		shutdownMs: []int64{0, 2000, longShutdownMs}[random.IntN(3)],
		gap:        []int64{0, 3000, 3000}[random.IntN(3)],
		cacheBytes: []int64{0, 4 << 20, 64 << 20}[random.IntN(3)],
		uploads:    1 + random.IntN(4),
	}
	p.wipes = p.wipes && p.on
	p.untiered = p.untiered && p.on && !p.wipes // what is on a lost disk alone is lost
	return p
}

// longGraceMs is a tier.delete.grace.ms that outlives every put that is late, as real ones do.
const longGraceMs = 30_000

func (p *tierPlan) grace() time.Duration { return time.Duration(p.graceMs) * time.Millisecond }

// longShutdownMs is a tier.shutdown.upload.ms that is enough for all that there is.
const longShutdownMs = 20_000

// settings are those of the broker.
func (p *tierPlan) settings() []string {
	if !p.on {
		return []string{"tier.enable=false"}
	}
	return []string{
		"tier.enable=true", "tier.chunk.bytes=65536",
		fmt.Sprintf("tier.max.unsealed.ms=%d", p.unsealedMs), fmt.Sprintf("tier.delete.grace.ms=%d", p.graceMs),
		fmt.Sprintf("tier.shutdown.upload.ms=%d", p.shutdownMs), fmt.Sprintf("tier.recovery.offset.gap=%d", p.gap),
		fmt.Sprintf("tier.cache.bytes=%d", p.cacheBytes), fmt.Sprintf("tier.upload.parallel=%d", p.uploads),
	}
}

// topicConfigs draws the settings of a topic that are about the tier.
func (p *tierPlan) topicConfigs(random *rand.Rand, configs map[string]string) {
	if !p.on {
		return
	}
	if p.untiered && random.IntN(3) == 0 {
		configs["remote.storage.enable"] = "false"
		return
	}
	switch random.IntN(4) { // total retention bounds that of the disk
	case 0:
		configs["local.retention.bytes"] = "1"
	case 1:
		configs["local.retention.ms"] = "1"
	case 2:
		configs["local.retention.ms"] = "1500"
	}
}

// auditLimit is how long an audit may be tried: a manifest that can't be read is tried again each minute at last, and where most requests
// fail, that takes a while.
func (p *tierPlan) auditLimit() time.Duration {
	if p.on {
		return 15 * time.Minute
	}
	return auditLimit
}

// fetchSlack is how much later the answer to a fetch may be than on a broker whose records are all on its disk: how long it waits for
// the bucket, and the task that asks there.
func (p *tierPlan) fetchSlack() time.Duration {
	switch {
	case p.on && p.slowTasks:
		return time.Minute
	case p.on:
		return time.Second
	}
	return fetchSlack
}

// coldReady tells whether what of a partition is in the bucket alone can be read: its manifest may not have been yet.
func (a *audit) coldReady(p *partition) bool {
	if !a.c.plan.tier.on {
		return true
	}
	start, result := a.listOffset(p, earliestOffset)
	if result == wire.None {
		_, result = a.tryFetch(p, start.Offset)
	}
	if result == wire.None { // what is in memory is answered also while all tasks are taken by those who asked before
		_, result = a.listOffset(p, 0)
	}
	if result != wire.None {
		a.notYet = fmt.Sprintf("beginning of %s: %s", p, result)
	}
	return result == wire.None
}
