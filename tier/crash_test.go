package tier

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// scenario is work in whose midst a broker may die.
type scenario struct {
	topic string // orders where it is empty
	setup func(r *rig)
	// start is how a leader begins before the work, and again after each crash.
	start Start
	// work goes on where it was, or begins; false: it has crashed.
	work func(r *rig) bool
	// power: a power loss may come as well as the end of the process.
	power bool
}

const busyRounds = 14

// busy appends in rounds some time apart, under retention that lets segments, pages and objects go.
func busy(r *rig) bool {
	for ; r.rounds < busyRounds; r.rounds++ {
		r.produce(11)
		if !r.pass(time.Minute) {
			r.rounds++
			return false
		}
	}
	return true
}

func busyConfig(r *rig) {
	r.pageSegments = 2
	r.topic.LocalRetentionBytes, r.topic.RetentionBytes = 2<<10, 9<<10
	r.config.DeleteGrace = 2 * time.Minute
}

// filled is a rig with something in the bucket, whose process is gone.
func filled(r *rig) {
	r.topic.LocalRetentionBytes = 2 << 10
	r.lead(StartHere)
	r.produce(40)
	r.settle()
}

var scenarios = map[string]scenario{
	"upload and retention": {setup: busyConfig, start: StartHere, work: busy, power: true},
	"clean stop": {
		setup: func(r *rig) { r.topic.LocalRetentionBytes = 2 << 10 },
		start: StartHere,
		work: func(r *rig) bool {
			if r.produce(25); !r.step() {
				return false
			}
			r.m.Close(r.now, r.now.Add(time.Minute))
			return r.pass(5 * time.Second)
		},
	},
	"a disk that lost its end": {
		setup: func(r *rig) {
			filled(r)
			r.loseFrom("orders", 20)
		},
		start: StartVerified,
		work:  func(r *rig) bool { return r.pass(2 * time.Minute) },
	},
	"an internal topic on an empty disk": {
		topic: wire.ConsumerOffsetsTopic,
		setup: func(r *rig) {
			filled(r)
			r.loseDisk()
		},
		start: StartVerified,
		work:  func(r *rig) bool { return r.pass(2 * time.Minute) },
	},
	"recovery from the bucket": {
		setup: func(r *rig) {
			filled(r)
			r.loseDisk()
		},
		start: StartRecovered,
		work:  func(r *rig) bool { return r.pass(2 * time.Minute) },
	},
	"an unclean election": {
		setup: func(r *rig) {
			filled(r)
			l := r.log("orders")
			if _, err := l.TruncateTo(r.now, l.LocalStartOffset()+1); err != nil {
				r.t.Fatal(err)
			}
			r.ledger["orders"] = r.ledger["orders"][:l.EndOffset()]
		},
		start: StartUnclean,
		work:  func(r *rig) bool { return r.pass(2 * time.Minute) },
	},
	"orphans of a former leader": {
		setup: func(r *rig) {
			r.lead(StartHere)
			r.produce(8)
			r.hook = func(point string) {
				if point == pointUpload+pointCommit {
					panic(errCrash)
				}
			}
			r.step()
			r.hook = nil
		},
		start: StartHere,
		work:  func(r *rig) bool { return r.pass(2 * testGrace) },
	},
	"a range that nobody has": {
		setup: func(r *rig) {
			r.lead(StartHere)
			if err := r.log("orders").StartFromTier(r.now, 30, 0, nil, nil); err != nil {
				r.t.Fatal(err)
			}
			r.produce(20)
			r.log("orders").Flush()
		},
		start: StartHere,
		work:  func(r *rig) bool { return r.pass(2 * time.Minute) },
	},
}

// A crash between every two steps of what the package does: nothing is lost, no range is there twice, and what is left over is swept
// after the grace.
func TestCrashBetweenAnyTwoSteps(t *testing.T) {
	passed := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(scenarios)) {
		s := scenarios[name]
		hits := map[string]int{}
		dry := s.begin(t)
		dry.hook = func(point string) { hits[point]++ }
		dry.lead(s.start)
		if !s.work(dry) {
			t.Fatal("a crash without a reason")
		}
		dry.check()
		for _, point := range Points {
			passed[point] = passed[point] || hits[point] > 0
			for _, nth := range slices.Compact(slices.Sorted(slices.Values([]int{1, 2, hits[point] / 2, hits[point]}))) {
				if nth < 1 || nth > hits[point] || nth > 1 && testing.Short() {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s %d", name, point, nth), func(t *testing.T) {
					s.crashAt(t, point, nth, log.StopProcessCrash)
					if s.power {
						s.crashAt(t, point, nth, log.StopPowerLoss)
					}
				})
			}
		}
	}
	for _, point := range Points {
		if !passed[point] && point != pointDeleteTopic {
			t.Errorf("no scenario passes %q", point)
		}
	}
}

func (s scenario) begin(t *testing.T) *rig {
	topic := "orders"
	if s.topic != "" {
		topic = s.topic
	}
	r := newRig(t, topic)
	s.setup(r)
	r.crash(log.StopProcessCrash)
	return r
}

func (s scenario) crashAt(t *testing.T, point string, nth int, stop log.Stop) {
	t.Helper()
	r := s.begin(t)
	r.hook = func(p string) {
		if p == point {
			if nth--; nth == 0 {
				panic(errCrash)
			}
		}
	}
	r.lead(s.start)
	if s.work(r) {
		t.Fatal("it never came there")
	}
	r.hook = nil
	if stop == log.StopPowerLoss {
		topic := r.names[0]
		owed := max(r.log(topic).RecoveryPoint(), r.state(topic).End)
		r.disk = r.disk.CrashClone(rand.New(rand.NewPCG(uint64(nth), uint64(len(point)))))
		r.crash(stop)
		r.lead(StartVerified)
		if end := r.log(topic).EndOffset(); end < owed {
			t.Fatalf("the log ends at %d, %d was durable", end, owed)
		}
		r.owe(topic)
	} else {
		r.crash(stop)
		r.lead(s.start)
	}
	if !s.work(r) {
		t.Fatal("it crashed again")
	}
	r.settle()
	r.check()
	r.crash(log.StopProcessCrash)
	r.lead(StartHere)
	r.produce(11)
	r.pass(3 * r.config.DeleteGrace)
	r.check()
	if left := r.unnamed(r.names[0]); len(left) > 0 {
		t.Errorf("orphans: %v", left)
	}
}

// owe forgets what the log's end lacks: it was lost with permission.
func (r *rig) owe(topic string) {
	end := max(r.log(topic).EndOffset(), r.state(topic).End)
	r.ledger[topic] = r.ledger[topic][:min(int(end), len(r.ledger[topic]))]
}

// loseDisk leaves an empty disk, and owes what is in the bucket alone.
func (r *rig) loseDisk() {
	for _, topic := range r.names {
		r.ledger[topic] = r.ledger[topic][:r.state(topic).End]
	}
	r.disk = vfs.NewMem()
}

// loseFrom cuts a log, as a disk does that has lied about its syncs, and owes what is in the bucket alone.
func (r *rig) loseFrom(topic string, offset wire.Offset) {
	if err := r.log(topic).TruncateFullyAndStartAt(r.now, offset); err != nil {
		r.t.Fatal(err)
	}
	r.ledger[topic] = r.ledger[topic][:r.state(topic).End]
}
