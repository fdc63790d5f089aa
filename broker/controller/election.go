package controller

import (
	"slices"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// An ISR never becomes empty: its last member stays in it when its broker goes, and the partition has no leader until that
// broker is back. Leaders come from the ISR alone; unclean elections and ELR are the cluster issue's.

// partitionState is what a partition is to become.
type partitionState struct {
	isr         []wire.BrokerID
	leader      wire.BrokerID
	directories []string // nil: as they are
	elr         []wire.BrokerID
	recovery    metadata.RecoveryState
	empty       bool // while there is no leader
	newEpoch    bool // even if the leader stays
}

// stateOf a partition as it is.
func stateOf(p *metadata.Partition) partitionState {
	return partitionState{isr: p.ISR, leader: p.Leader, elr: p.ELR, recovery: p.Recovery, empty: p.Empty}
}

// changeRecord takes a partition to a state; nil if it is there already.
func changeRecord(topic wire.TopicID, index int32, p *metadata.Partition, to partitionState) metadata.Record {
	r := &metadata.PartitionChangeRecord{TopicID: topic, Index: index, PartitionEpoch: p.PartitionEpoch + 1, Directories: to.directories}
	changed := to.directories != nil
	if !slices.Equal(to.isr, p.ISR) {
		r.ISR, changed = to.isr, true
	}
	if !slices.Equal(to.elr, p.ELR) {
		r.ELR, changed = to.elr, true
	}
	if to.recovery != p.Recovery {
		r.Recovery, changed = &to.recovery, true
	}
	if empty := to.empty && to.leader == wire.NoBroker; empty != p.Empty {
		r.Empty, changed = &empty, true
	}
	if to.leader != p.Leader || to.newEpoch {
		epoch := p.LeaderEpoch + 1
		r.Leader, r.LeaderEpoch, changed = &to.leader, &epoch, true
	}
	if !changed {
		return nil
	}
	return r
}

// eligible tells whether a broker can lead the partition or be in its ISR.
func (s *step) eligible(id wire.BrokerID, p *metadata.Partition) bool {
	b := s.image.Broker(id)
	return b != nil && b.Active() && directoryOnline(b, p)
}

// directoryOnline tells whether the directory that the broker keeps the partition in is there. Where the broker has not chosen
// one yet, nothing can be missing.
func directoryOnline(b *metadata.Broker, p *metadata.Partition) bool {
	directory := p.DirectoryOf(b.ID)
	return directory == "" || slices.Contains(b.Directories, directory)
}

// elect a leader: the first replica that is in the ISR and eligible, so the preferred one where possible.
func (s *step) elect(p *metadata.Partition, isr []wire.BrokerID) wire.BrokerID {
	for _, id := range p.Replicas {
		if slices.Contains(isr, id) && s.eligible(id, p) {
			return id
		}
	}
	return wire.NoBroker
}

// eachReplica collects what next makes of each partition that has a replica on the broker, as one addition.
func (s *step) eachReplica(broker wire.BrokerID, next func(p *metadata.Partition) partitionState) {
	var records []metadata.Record
	for t := range s.image.Topics("") {
		for index, p := range t.Partitions {
			if !slices.Contains(p.Replicas, broker) {
				continue
			}
			if r := changeRecord(t.ID, int32(index), p, next(p)); r != nil {
				records = append(records, r)
			}
		}
	}
	if len(records) > 0 {
		s.add(records...)
	}
}

// withdraw gives the state of a partition after a broker that is no longer eligible has left it.
func (s *step) withdraw(broker wire.BrokerID, p *metadata.Partition) partitionState {
	to := stateOf(p)
	if rest := without(p.ISR, broker); len(rest) > 0 {
		to.isr = rest
	}
	if p.Leader == broker {
		to.leader = s.elect(p, to.isr)
	}
	return to
}

// without gives list without id: list itself if id is not in it.
func without(list []wire.BrokerID, id wire.BrokerID) []wire.BrokerID {
	if !slices.Contains(list, id) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(other wire.BrokerID) bool { return other == id })
}
