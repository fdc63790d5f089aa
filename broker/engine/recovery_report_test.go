package engine

import (
	"math"
	"testing"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
)

// A broker has fifty partitions of group offsets, most of them empty: nobody wants to read of each.
func TestLostRangesAreToldInShort(t *testing.T) {
	report := RecoveryReport{}
	add := func(topic string, partition int32, first wire.Offset) {
		report.Lost = append(report.Lost, LostRange{Topic: topic, Partition: partition, First: first, Next: first + gap})
	}
	for partition := range int32(50) {
		add(wire.ConsumerOffsetsTopic, partition, 0)
	}
	add("t", 0, 5)
	add("t", 1, 5)
	add("t", 2, 6)
	add("t", 4, 6)
	add("u", 5, 6)
	want := "t-0 to 1 from offset 5 on, t-2 from offset 6 on, t-4 from offset 6 on, u-5 from offset 6 on, __consumer_offsets-0 to 49 from offset 0 on"
	if got := report.summary(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// However large the numbers are, a recovery fits into one entry.
func TestTheLargestRecoveryFitsIntoAnEntry(t *testing.T) {
	const most = math.MaxInt32
	raw, err := metadata.MarshalRecord(&metadata.PartitionRecord{TopicID: wire.TopicID{1}, Index: most, Partition: metadata.Partition{
		Replicas: []wire.BrokerID{most}, Directories: []string{wire.TopicID{1}.String()}, ISR: []wire.BrokerID{most}, Leader: wire.NoBroker,
		LeaderEpoch: most, PartitionEpoch: most, Recovery: metadata.Recovering, RecoverySince: most,
	}})
	if err != nil {
		t.Fatal(err)
	}
	const others = 1 << 20 // the entry's head, and the brokers that are unregistered
	if size := (len(raw) + len(",\n")) * recoveryPartitionsMax; size > chain.EntryBytesMax-others {
		t.Errorf("%d partitions take %d bytes", recoveryPartitionsMax, size)
	}
}
