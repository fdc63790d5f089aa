package controller

import (
	"slices"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func (s *step) createPartitions(change *metadata.CreatePartitions) *metadata.CreatePartitionsAnswer {
	answer := &metadata.CreatePartitionsAnswer{}
	topics := distinct(change.Topics, func(t metadata.MorePartitions) string { return t.Name })
	added := 0
	for _, t := range topics {
		if existing := s.image.Topic(t.item.Name); existing != nil && !t.repeated {
			added += max(int(t.item.Count)-len(existing.Partitions), 0)
		}
	}
	if added > config.PartitionsPerRequestMax {
		excess := refusal(wire.PolicyViolation, "Excessively large number of additional partitions per request.")
		for _, t := range change.Topics {
			answer.Topics = append(answer.Topics, metadata.NamedResult{Name: t.Name, Result: metadata.ResultOf(excess)})
		}
		return answer
	}
	for _, t := range topics {
		err := errDuplicateName
		if !t.repeated {
			err = s.addPartitions(t.item)
		}
		answer.Topics = append(answer.Topics, metadata.NamedResult{Name: t.item.Name, Result: metadata.ResultOf(err)})
	}
	return answer
}

func (s *step) addPartitions(more metadata.MorePartitions) error {
	t := s.image.Topic(more.Name)
	if t == nil {
		return wire.UnknownTopicOrPartition
	}
	existing := int32(len(t.Partitions))
	switch {
	case more.Count == existing:
		return refusal(wire.InvalidPartitions, "Topic already has %d partition(s).", existing)
	case more.Count < existing:
		return refusal(wire.InvalidPartitions, "The topic %s currently has %d partition(s); %d would not be an increase.", t.Name, existing, more.Count)
	case more.Assignments != nil && len(more.Assignments) != int(more.Count-existing):
		return refusal(wire.InvalidReplicaAssignment, "Attempted to add %d additional partition(s), but only %d assignment(s) were specified.",
			more.Count-existing, len(more.Assignments))
	}
	factor := len(t.Partitions[0].Replicas)
	var placed []metadata.Partition
	if more.Assignments == nil {
		var err error
		if placed, err = s.place(existing, more.Count-existing, factor); err != nil {
			return err
		}
	}
	for i, replicas := range more.Assignments {
		p, err := s.assigned(existing+int32(i), replicas, factor)
		if err != nil {
			return err
		}
		placed = append(placed, p)
	}
	records := make([]metadata.Record, len(placed))
	for i, p := range placed {
		records[i] = &metadata.PartitionRecord{TopicID: t.ID, Index: existing + int32(i), Partition: p}
	}
	s.add(records...)
	return nil
}

// assignedPartitions are the partitions of a new topic with manual assignments.
func (s *step) assignedPartitions(t metadata.NewTopic) ([]metadata.Partition, error) {
	if t.ReplicationFactor != -1 {
		return nil, refusal(wire.InvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.")
	}
	if t.Partitions != -1 {
		return nil, refusal(wire.InvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1.")
	}
	partitions := make([]metadata.Partition, len(t.Assignments))
	seen := make(map[int32]bool, len(t.Assignments))
	inSequence, factor := true, 0
	for _, a := range t.Assignments {
		if seen[a.Partition] {
			return nil, refusal(wire.InvalidReplicaAssignment, "Found multiple manual partition assignments for partition %d", a.Partition)
		}
		p, err := s.assigned(a.Partition, a.Replicas, factor)
		if err != nil {
			return nil, err
		}
		seen[a.Partition], factor = true, len(a.Replicas)
		if a.Partition < 0 || int(a.Partition) >= len(partitions) {
			inSequence = false
			continue
		}
		partitions[a.Partition] = p
	}
	if !inSequence {
		return nil, refusal(wire.InvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence")
	}
	return partitions, nil
}

// assigned is a new partition with manually chosen replicas, as many as factor says; 0 leaves it open.
func (s *step) assigned(index int32, replicas []wire.BrokerID, factor int) (metadata.Partition, error) {
	if len(replicas) == 0 {
		return metadata.Partition{}, refusal(wire.InvalidReplicaAssignment, "The manual partition assignment includes an empty replica list.")
	}
	sorted := slices.Sorted(slices.Values(replicas))
	for i, id := range sorted {
		if s.image.Broker(id) == nil {
			return metadata.Partition{}, refusal(wire.InvalidReplicaAssignment,
				"The manual partition assignment includes broker %d, but no such broker is registered.", id)
		}
		if i > 0 && sorted[i-1] == id {
			return metadata.Partition{}, refusal(wire.InvalidReplicaAssignment,
				"The manual partition assignment includes the broker %d more than once.", id)
		}
	}
	if factor != 0 && len(replicas) != factor {
		return metadata.Partition{}, refusal(wire.InvalidReplicaAssignment,
			"The manual partition assignment includes a partition with %d replica(s), but this is not consistent with previous partitions, which have %d replica(s).",
			len(replicas), factor)
	}
	p, ok := s.newPartition(replicas)
	if !ok {
		return metadata.Partition{}, refusal(wire.InvalidReplicaAssignment,
			"All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", index)
	}
	return p, nil
}

// placedPartitions are the partitions of a new topic that is described by counts.
func (s *step) placedPartitions(t metadata.NewTopic) ([]metadata.Partition, error) {
	count, factor := t.Partitions, int(t.ReplicationFactor)
	switch {
	case factor < -1 || factor == 0:
		return nil, refusal(wire.InvalidReplicationFactor, "Replication factor must be larger than 0, or -1 to use the default value.")
	case count < -1 || count == 0:
		return nil, refusal(wire.InvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	}
	if count == -1 {
		count = int32(s.effectiveConfig().NumPartitions)
	}
	if factor == -1 {
		factor = s.effectiveConfig().DefaultReplicationFactor
	}
	return s.place(0, count, factor)
}

// place chooses replicas for count partitions, the first of which gets the index first.
func (s *step) place(first, count int32, factor int) ([]metadata.Partition, error) {
	layout := newLayout(s.image, s.rand)
	if err := layout.check(factor); err != nil {
		return nil, err
	}
	partitions := make([]metadata.Partition, count)
	for i := range partitions {
		p, ok := s.newPartition(layout.replicas(int(first)+i, factor))
		if !ok {
			return nil, refusal(wire.InvalidReplicationFactor,
				"Unable to replicate the partition %d time(s): All brokers are currently fenced or in controlled shutdown.", factor)
		}
		partitions[i] = p
	}
	return partitions, nil
}

// newPartition is a partition before its first leader has done anything. It is false if no replica can lead it.
func (s *step) newPartition(replicas []wire.BrokerID) (metadata.Partition, bool) {
	p := metadata.Partition{Replicas: replicas}
	for _, id := range replicas {
		b := s.image.Broker(id)
		// With several directories the broker chooses, and reports it.
		directory := ""
		if len(b.Directories) == 1 {
			directory = b.Directories[0]
		}
		p.Directories = append(p.Directories, directory)
		if b.Active() {
			p.ISR = append(p.ISR, id)
		}
	}
	if len(p.ISR) == 0 {
		return p, false
	}
	p.Leader = p.ISR[0]
	return p, true
}
