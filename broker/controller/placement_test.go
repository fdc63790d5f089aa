package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// brokers is an image of brokers 1, 2, ... on the given racks; a rack with a leading '-' is of a fenced one.
func brokers(t interface{ Fatal(...any) }, racks ...string) *metadata.Image {
	var records []metadata.Record
	for i, rack := range racks {
		fenced := rack != "" && rack[0] == '-'
		if fenced {
			rack = rack[1:]
		}
		records = append(records, &metadata.BrokerRegistrationRecord{Broker: metadata.Broker{
			ID: wire.BrokerID(i + 1), Epoch: wire.BrokerEpoch(i), Rack: rack, Fenced: fenced, Directories: []string{fmt.Sprint(i)},
		}})
	}
	image, _, err := metadata.Empty().Apply(0, records)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func TestReplicasSpreadOverRacksAndBrokers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		racks := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "c", "-a", "-b"}), 1, 9).Draw(t, "racks")
		image := brokers(t, racks...)
		l := newLayout(image, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))
		factor := rapid.IntRange(1, len(racks)).Draw(t, "factor")
		if len(l.leaders) == 0 {
			if l.check(factor) == nil {
				t.Fatal("placed on fenced brokers alone")
			}
			return
		}
		distinctRacks := map[string]bool{}
		for b := range image.Brokers() {
			distinctRacks[b.Rack] = true
		}
		leads := map[wire.BrokerID]int{}
		rounds := rapid.IntRange(1, 3).Draw(t, "rounds")
		for index := range rounds * len(l.leaders) {
			replicas := l.replicas(index, factor)
			leads[replicas[0]]++
			if image.Broker(replicas[0]).Fenced {
				t.Fatalf("fenced broker %d leads", replicas[0])
			}
			onRack := map[string]int{}
			for i, id := range replicas {
				onRack[image.Broker(id).Rack]++
				if slices.Contains(replicas[:i], id) {
					t.Fatalf("replicas %v", replicas)
				}
			}
			if len(onRack) != min(factor, len(distinctRacks)) {
				t.Fatalf("replicas %v on racks %v of %v", replicas, onRack, distinctRacks)
			}
		}
		for id, n := range leads {
			if n != rounds {
				t.Fatalf("broker %d leads %d partitions in %d rounds", id, n, rounds)
			}
		}
	})
}

func TestReplicasOfOneLeaderSpreadOverTheOthers(t *testing.T) {
	l := newLayout(brokers(t, "", "", "", ""), rand.New(rand.NewPCG(1, 1)))
	followers := map[wire.BrokerID]map[wire.BrokerID]int{}
	load := map[wire.BrokerID]int{}
	for index := range 12 {
		replicas := l.replicas(index, 2)
		if followers[replicas[0]] == nil {
			followers[replicas[0]] = map[wire.BrokerID]int{}
		}
		followers[replicas[0]][replicas[1]]++
		load[replicas[1]]++
	}
	for leader, by := range followers {
		if len(by) != 3 {
			t.Errorf("broker %d is followed by %v alone", leader, by)
		}
	}
	for id, n := range load {
		if n != 3 {
			t.Errorf("broker %d follows %d partitions of 12", id, n)
		}
	}
}

func TestUnfencedBrokersAreChosenBeforeFencedOnes(t *testing.T) {
	l := newLayout(brokers(t, "a", "-a", "b", "-b"), rand.New(rand.NewPCG(1, 1)))
	for index := range 4 {
		replicas := l.replicas(index, 2)
		slices.Sort(replicas)
		if !slices.Equal(replicas, []wire.BrokerID{1, 3}) {
			t.Errorf("partition %d on %v", index, replicas)
		}
	}
}

func TestPlacementDependsOnTheSeedAlone(t *testing.T) {
	image := brokers(t, "a", "b", "c", "a", "b", "c")
	place := func(seed uint64) (all [][]wire.BrokerID) {
		l := newLayout(image, rand.New(rand.NewPCG(seed, 0)))
		for index := range 6 {
			all = append(all, l.replicas(index, 3))
		}
		return all
	}
	same, different := 0, 0
	for seed := range uint64(20) {
		placed := fmt.Sprint(place(seed))
		if again := fmt.Sprint(place(seed)); placed == again {
			same++
		}
		if placed != fmt.Sprint(place(seed+1)) {
			different++
		}
	}
	if same != 20 || different < 15 {
		t.Errorf("%d of 20 seeds place alike twice, %d unlike the next", same, different)
	}
}

func TestTopicIDsAreNeverReservedAndNeverLookLikeFlags(t *testing.T) {
	c := newController(t)
	c.Elected(start, metadata.Empty(), 1)
	s := c.begin(start)
	seen := map[wire.TopicID]bool{}
	for range 20_000 {
		id := s.newTopicID()
		if id[6]>>4 != 4 || id[8]>>6 != 2 {
			t.Fatalf("%x is no version 4 UUID, so it may be reserved", id)
		}
		if id.String()[0] == '-' {
			t.Fatalf("%s looks like a flag", id)
		}
		if seen[id] {
			t.Fatalf("%s came twice", id)
		}
		seen[id] = true
	}
}
