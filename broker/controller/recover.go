package controller

import (
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func (s *step) recoverCluster(change *metadata.RecoverCluster) *metadata.RecoverClusterAnswer {
	return &metadata.RecoverClusterAnswer{Result: metadata.ResultOf(s.recover(change))}
}

// recover gives everything that the cluster had to one new broker (safety.md 30), which leads it as soon as it is registered: until then
// nobody does. The leader epochs are above all that were seen, in the metadata and elsewhere, and each partition of which something may
// be missing has to recover before it serves.
func (s *step) recover(change *metadata.RecoverCluster) error {
	if change.Incarnation != s.image.ClusterIncarnation()+1 || len(change.Partitions) != s.image.PartitionCount() {
		return errRecoveryStale
	}
	records := []metadata.Record{&metadata.ClusterRecoveredRecord{Incarnation: change.Incarnation}}
	for b := range s.image.Brokers() {
		records = append(records, &metadata.UnregisterBrokerRecord{BrokerID: b.ID, Epoch: b.Epoch})
	}
	seen := make(map[recoveredKey]bool, len(change.Partitions))
	for _, found := range change.Partitions {
		topic := s.image.TopicByID(found.TopicID)
		key := recoveredKey{found.TopicID, found.Partition}
		if topic == nil || topic.Partition(found.Partition) == nil || seen[key] {
			return errRecoveryStale
		}
		seen[key] = true
		p := topic.Partition(found.Partition)
		epoch := max(p.LeaderEpoch, found.LeaderEpoch) + 1
		recovery, since := metadata.Recovering, epoch
		if found.Whole {
			recovery, since = metadata.Recovered, 0
		}
		records = append(records, &metadata.PartitionRecord{
			TopicID: found.TopicID, Index: found.Partition,
			Partition: metadata.Partition{
				Replicas: []wire.BrokerID{change.BrokerID}, Directories: []string{change.Directory}, ISR: []wire.BrokerID{change.BrokerID},
				Leader: wire.NoBroker, LeaderEpoch: epoch, PartitionEpoch: p.PartitionEpoch + 1,
				Recovery: recovery, RecoverySince: since, Empty: p.Empty && found.Whole,
			},
		})
	}
	if change.NextProducerID > s.image.NextProducerID() {
		records = append(records, &metadata.ProducerIDBlockRecord{
			BrokerID: wire.NoBroker, BrokerEpoch: -1, NextProducerID: change.NextProducerID,
		})
	}
	s.add(records...)
	clear(s.sessions)
	return nil
}

// recoveredKey is a partition of a topic id.
type recoveredKey struct {
	topic     wire.TopicID
	partition int32
}

var errRecoveryStale = refusal(wire.InvalidRequest, "The cluster's metadata has changed since its recovery was prepared.")
