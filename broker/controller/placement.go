package controller

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// layout spreads the replicas of a topic's partitions over brokers and racks: leaders go round robin over the unfenced brokers,
// followers over all of them, each on a rack that the partition has not used yet as long as there is one. Which broker comes
// first is drawn for each topic, so that many small topics spread as evenly as one large one.
type layout struct {
	leaders []placedBroker // unfenced, racks taking turns
	all     []placedBroker // racks taking turns; in a rack unfenced ones first
	racks   int
}

type placedBroker struct {
	id     wire.BrokerID
	rack   int
	fenced bool
}

func newLayout(image *metadata.Image, random *rand.Rand) *layout {
	byRack := map[string][]placedBroker{}
	for b := range image.Brokers() {
		byRack[b.Rack] = append(byRack[b.Rack], placedBroker{id: b.ID, fenced: b.Fenced})
	}
	names := make([]string, 0, len(byRack))
	for name := range byRack {
		names = append(names, name)
	}
	slices.SortFunc(names, strings.Compare)
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	l := &layout{racks: len(names)}
	for rack, name := range names {
		brokers := byRack[name]
		random.Shuffle(len(brokers), func(i, j int) { brokers[i], brokers[j] = brokers[j], brokers[i] })
		slices.SortStableFunc(brokers, func(a, b placedBroker) int {
			switch {
			case a.fenced == b.fenced:
				return 0
			case a.fenced:
				return 1
			default:
				return -1
			}
		})
		for i := range brokers {
			brokers[i].rack = rack
		}
	}
	for turn := 0; len(l.all) < image.BrokerCount(); turn++ {
		for _, name := range names {
			if turn < len(byRack[name]) {
				b := byRack[name][turn]
				l.all = append(l.all, b)
				if !b.fenced {
					l.leaders = append(l.leaders, b)
				}
			}
		}
	}
	return l
}

// check tells whether factor replicas can be placed.
func (l *layout) check(factor int) error {
	const unable = "Unable to replicate the partition %d time(s): "
	if factor > len(l.all) {
		return refusal(wire.InvalidReplicationFactor, unable+"The target replication factor of %d cannot be reached because only %d broker(s) are "+
			"registered or some brokers have all their log directories cordoned.", factor, factor, len(l.all))
	}
	if len(l.leaders) == 0 {
		return refusal(wire.InvalidReplicationFactor, unable+"All brokers are currently fenced.", factor)
	}
	return nil
}

// replicas of the partition with that index, the leader first. check has allowed the factor.
func (l *layout) replicas(index, factor int) []wire.BrokerID {
	leader := l.leaders[index%len(l.leaders)]
	chosen := []wire.BrokerID{leader.id}
	onRack := make([]int, l.racks)
	onRack[leader.rack]++
	// Each time round, the followers begin one broker further from the leader, so that a broker's load goes to many when it dies.
	start := slices.Index(l.all, leader) + 1 + index/len(l.leaders)
	for len(chosen) < factor {
		best := -1
		for distance := range l.all {
			at := (start + distance) % len(l.all)
			if b := l.all[at]; !slices.Contains(chosen, b.id) && (best < 0 || better(b, l.all[best], onRack)) {
				best = at
			}
		}
		chosen = append(chosen, l.all[best].id)
		onRack[l.all[best].rack]++
	}
	return chosen
}

// better tells whether a is a better next replica than b, given how many replicas are on each rack.
func better(a, b placedBroker, onRack []int) bool {
	if onRack[a.rack] != onRack[b.rack] {
		return onRack[a.rack] < onRack[b.rack]
	}
	return b.fenced && !a.fenced
}
