package controller

import (
	"slices"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func (s *step) alterPartition(change *metadata.AlterPartition) *metadata.AlterPartitionAnswer {
	if _, err := s.registered(change.BrokerID, change.BrokerEpoch); err != nil {
		return &metadata.AlterPartitionAnswer{Result: metadata.ResultOf(err)}
	}
	answer := &metadata.AlterPartitionAnswer{}
	for _, proposal := range change.Partitions {
		row := metadata.DecidedISR{TopicID: proposal.TopicID, Partition: proposal.Partition, Leader: wire.NoBroker}
		if p, err := s.decideISR(change.BrokerID, proposal); err != nil {
			row.Result = metadata.ResultOf(err)
		} else {
			row.Leader, row.LeaderEpoch, row.PartitionEpoch, row.Recovery, row.ISR = p.Leader, p.LeaderEpoch, p.PartitionEpoch, p.Recovery, p.ISR
		}
		answer.Partitions = append(answer.Partitions, row)
	}
	return answer
}

// decideISR accepts or refuses a proposal and gives the partition as it is then.
func (s *step) decideISR(leader wire.BrokerID, proposal metadata.ISRProposal) (*metadata.Partition, error) {
	t := s.image.TopicByID(proposal.TopicID)
	if t == nil {
		return nil, wire.UnknownTopicID
	}
	p := t.Partition(proposal.Partition)
	if p == nil {
		return nil, wire.UnknownTopicOrPartition
	}
	switch {
	case proposal.LeaderEpoch > p.LeaderEpoch || proposal.PartitionEpoch > p.PartitionEpoch:
		return nil, wire.NotController // somebody else has decided since
	case proposal.LeaderEpoch < p.LeaderEpoch:
		return nil, wire.FencedLeaderEpoch
	case leader != p.Leader:
		return nil, wire.InvalidRequest
	case proposal.PartitionEpoch < p.PartitionEpoch:
		return nil, wire.InvalidUpdateVersion
	}
	isr := make([]wire.BrokerID, 0, len(proposal.ISR))
	for _, member := range proposal.ISR {
		if !slices.Contains(p.Replicas, member.BrokerID) || slices.Contains(isr, member.BrokerID) {
			return nil, wire.InvalidRequest
		}
		isr = append(isr, member.BrokerID)
	}
	if !slices.Contains(isr, leader) {
		return nil, wire.InvalidRequest
	}
	if recovering := proposal.Recovery == metadata.Recovering; recovering && (len(isr) > 1 || p.Recovery == metadata.Recovered) {
		return nil, wire.InvalidRequest
	}
	for _, member := range proposal.ISR {
		// A replica that restarted since the leader saw it may have lost what the leader counts on (KIP-903).
		current := s.image.Broker(member.BrokerID)
		if !s.eligible(member.BrokerID, p) || member.Epoch != -1 && member.Epoch != current.Epoch {
			return nil, wire.IneligibleReplica
		}
	}
	to := stateOf(p)
	to.isr, to.recovery = isr, proposal.Recovery
	if r := changeRecord(t.ID, proposal.Partition, p, to); r != nil {
		s.add(r)
	}
	return s.image.TopicByID(t.ID).Partitions[proposal.Partition], nil
}

func (s *step) assignReplicasToDirs(change *metadata.AssignReplicasToDirs) *metadata.AssignReplicasToDirsAnswer {
	b, err := s.registered(change.BrokerID, change.BrokerEpoch)
	if err != nil {
		return &metadata.AssignReplicasToDirsAnswer{Result: metadata.ResultOf(err)}
	}
	answer := &metadata.AssignReplicasToDirsAnswer{}
	for _, assignment := range change.Replicas {
		answer.Replicas = append(answer.Replicas, metadata.ResultOf(s.assignReplica(b, assignment)))
	}
	return answer
}

func (s *step) assignReplica(b *metadata.Broker, assignment metadata.DirectoryAssignment) error {
	t := s.image.TopicByID(assignment.TopicID)
	if t == nil {
		return wire.UnknownTopicID
	}
	p := t.Partition(assignment.Partition)
	if p == nil {
		return wire.UnknownTopicOrPartition
	}
	at := slices.Index(p.Replicas, b.ID)
	switch {
	case at < 0:
		return wire.NotLeaderOrFollower
	case !slices.Contains(b.Directories, assignment.Directory):
		return wire.LogDirNotFound
	case p.Directories[at] == assignment.Directory:
		return nil
	case !directoryOnline(b, p) && slices.Contains(p.ISR, b.ID):
		// What the ISR vouches for is in the directory that is missing, not in this one.
		return wire.InvalidReplicaAssignment
	}
	to := stateOf(p)
	to.directories = slices.Clone(p.Directories)
	to.directories[at] = assignment.Directory
	s.add(changeRecord(t.ID, assignment.Partition, p, to))
	return nil
}
