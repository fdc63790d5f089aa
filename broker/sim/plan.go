package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

// plan is what a seed is about. Each has a choice of its own among faults, clients and settings, so that no fault hides
// another in all of them.
type plan struct {
	length time.Duration
	night  time.Duration // of quiet, in which the metadata gets a snapshot; 0: none

	processCrashes, powerLosses, cleanStops bool
	crashPoints                             bool // inside of calls, not only between events
	disconnects                             bool
	slowTasks                               bool
	fullDisk, failingDisk                   bool
	storeAway                               bool
	storeFaults                             faultstore.Rates
	faultsEvery                             time.Duration // on average

	dirs       int
	indexBytes int   // log.index.size.max.bytes: what makes most segments roll
	flushMs    int64 // log.flush.interval.ms, with a scheduler; 0: as Kafka has it
	retain     time.Duration
	offsets    int // partitions of __consumer_offsets

	topics, producers, consumers, committers, members int
	admin                                             bool

	tier tierPlan
}

func newPlan(random *rand.Rand) plan {
	coin := func(sides int) bool { return random.IntN(sides) == 0 }
	p := plan{
		length:         time.Duration(10+random.IntN(30)) * time.Second,
		processCrashes: !coin(3), powerLosses: coin(2), cleanStops: coin(2), crashPoints: !coin(3),
		disconnects: !coin(3), slowTasks: coin(2), fullDisk: coin(4), failingDisk: coin(6), storeAway: coin(3),
		faultsEvery: time.Duration(500+random.IntN(5000)) * time.Millisecond,
		dirs:        1 + random.IntN(2), offsets: 1 + random.IntN(4),
		indexBytes: []int{64, 512, 4096}[random.IntN(3)],
		retain:     time.Duration(1+random.IntN(10)) * time.Second,
		topics:     1 + random.IntN(4), producers: 1 + random.IntN(4), consumers: random.IntN(3),
		committers: random.IntN(3), members: random.IntN(5), admin: !coin(4),
	}
	if coin(12) {
		p.night = time.Duration(10+random.IntN(10)) * time.Minute
	}
	if coin(2) {
		p.flushMs = int64(1 + random.IntN(5000))
	}
	if !coin(3) {
		p.storeFaults = faultstore.Rates{}
		scale := random.Float64() * 0.3
		for f := faultstore.Refuse; f <= faultstore.FalseFailure; f++ {
			if f != faultstore.Stale && !coin(3) {
				p.storeFaults[f] = scale * random.Float64()
			}
		}
	}
	return p
}

// logDirs are the paths of the log directories.
func (p *plan) logDirs() []string { return []string{"logs/a", "logs/b"}[:p.dirs] }

// settings are the broker's. Intervals are shorter than Kafka's, so that what they drive happens often in a short life.
func (p *plan) settings() (*config.Broker, error) {
	lines := []string{
		"node.id=1", "listeners=PLAINTEXT://sim:9092", "cluster.listener=sim:9093", "store.url=mem://",
		"log.dirs=" + strings.Join(p.logDirs(), ","),
		"offsets.topic.replication.factor=1", fmt.Sprintf("offsets.topic.num.partitions=%d", p.offsets),
		"group.initial.rebalance.delay.ms=200", "group.min.session.timeout.ms=1000",
		fmt.Sprintf("log.retention.check.interval.ms=%d", p.retain.Milliseconds()),
		"replica.high.watermark.checkpoint.interval.ms=1000",
		"log.segment.delete.delay.ms=1000", "log.index.interval.bytes=256", fmt.Sprintf("log.index.size.max.bytes=%d", p.indexBytes),
	}
	lines = append(lines, p.tier.settings()...)
	if p.flushMs > 0 {
		lines = append(lines, fmt.Sprintf("log.flush.interval.ms=%d", p.flushMs), "log.flush.scheduler.interval.ms=1000")
	}
	settings, _, err := config.Parse([]config.Source{{Format: config.Properties, Name: "sim", Text: strings.Join(lines, "\n")}})
	if err != nil {
		return nil, fmt.Errorf("settings of the simulator: %w", err)
	}
	return settings, nil
}
