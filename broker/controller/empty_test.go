package controller

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Safety rule 30: what a broker that stops calls empty is noted for as long as nobody leads it.
func TestSafety30EmptyIsWhatItsLeaderSaysUntilTheNextOneLeads(t *testing.T) {
	c := newController(t)
	c.Elected(start, metadata.Empty(), 1)
	for id := wire.BrokerID(1); id <= 2; id++ {
		c.Step(start, registration(int(id), "i", "boot", "", "cluster", -1, nil))
		beat(c, id)
	}
	placed := func(replicas ...wire.BrokerID) []wire.BrokerID { return replicas }
	for name, assignments := range map[string][]metadata.Assignment{
		"a": {{Partition: 0, Replicas: placed(1)}, {Partition: 1, Replicas: placed(1)}, {Partition: 2, Replicas: placed(2)}},
		"b": {{Partition: 0, Replicas: placed(1, 2)}, {Partition: 1, Replicas: placed(1, 2)}},
	} {
		created := c.Step(start, &metadata.CreateTopics{Topics: []metadata.NewTopic{{Name: name, Partitions: -1, ReplicationFactor: -1, Assignments: assignments}}})
		if row := created.Answer.(*metadata.CreateTopicsAnswer).Topics[0]; row.Result.Code != wire.None {
			t.Fatal(row.Result)
		}
	}
	a, b := c.Image().Topic("a").ID, c.Image().Topic("b").ID
	empty := func() (list []string) {
		for topic := range c.Image().Topics("") {
			for i, p := range topic.Partitions {
				if p.Empty {
					list = append(list, fmt.Sprint(topic.Name, i))
				}
			}
		}
		return list
	}
	is := func(want ...string) {
		t.Helper()
		if got := empty(); !slices.Equal(got, want) {
			t.Errorf("empty are %v, want %v", got, want)
		}
	}
	stop := func(id wire.BrokerID, said ...metadata.TopicPartitions) {
		t.Helper()
		for range 3 {
			c.Step(start, &metadata.BrokerHeartbeat{
				BrokerID: id, BrokerEpoch: c.Image().Broker(id).Epoch, MetadataOffset: c.Image().Offset(), WantShutdown: true, Empty: said,
			})
			for b := range c.Image().Brokers() {
				if b.Active() {
					beat(c, b.ID)
				}
			}
		}
		if !c.Image().Broker(id).Fenced {
			t.Fatalf("broker %d has not stopped", id)
		}
	}
	// a1 had records, a2 is none of its business, b0 goes on under another leader, the others do not exist.
	stop(1, metadata.TopicPartitions{TopicID: a, Partitions: []int32{0, 2, 7}}, metadata.TopicPartitions{TopicID: b, Partitions: []int32{0}},
		metadata.TopicPartitions{TopicID: wire.TopicID{9}, Partitions: []int32{0}})
	is("a0")
	stop(2, metadata.TopicPartitions{TopicID: a, Partitions: []int32{2}}, metadata.TopicPartitions{TopicID: b, Partitions: []int32{0}})
	is("a0", "a2", "b0")
	c.Step(start, registration(1, "j", "boot", "", "cluster", -1, nil))
	beat(c, 1)
	is("a2", "b0")
	stop(1, metadata.TopicPartitions{TopicID: b, Partitions: []int32{1}}) // whose last leader, 2, did not say so
	is("a2", "b0")
	c.Step(start, registration(2, "j", "boot", "", "cluster", -1, nil))
	beat(c, 2)
	is()
}
