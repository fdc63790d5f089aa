package isr

import (
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// Tick looks for a change of the ISR that is due, and returns it for the controller to decide. At most one proposal is out:
// Tick returns nothing until it was Decided, Refused or Updated away. A follower's fetch is the moment for Tick to let it in; half of
// LagTimeMax is how often to look for those that fell behind.
func (s *State) Tick(now time.Time) (Proposal, bool) {
	if s.proposed != nil {
		again := s.askAgain
		s.askAgain = false
		return *s.proposed, again
	}
	if stay := s.inSync(now); len(stay) < len(s.isr) {
		return s.propose(stay), true
	}
	for i := range s.followers {
		if f := &s.followers[i]; s.mayJoin(f) {
			s.joining = f.broker
			return s.propose(append(slices.Clone(s.isr), f.broker)), true
		}
	}
	return Proposal{}, false
}

// Decided takes the controller's answer to the proposal made on partition epoch asked: the partition's state now. With a
// partition epoch that is asked itself, it says that there was nothing to decide. Answers may come late, after Updated; then
// a later proposal may be out, which they do not concern. It tells whether the high watermark moved.
func (s *State) Decided(now time.Time, asked, partitionEpoch int32, isr []wire.BrokerID) bool {
	if partitionEpoch > s.partitionEpoch {
		return s.Updated(now, partitionEpoch, nil, isr)
	}
	if s.proposed != nil && asked == s.proposed.PartitionEpoch && asked == partitionEpoch {
		s.settle()
	}
	return s.raiseHighWatermark(now)
}

// Updated takes the partition's state from the metadata; replicas are nil where they are as before. A state that is not newer
// than ours changes nothing. A newer one makes the proposal that is out void: the controller refuses what was made on an
// older one. It tells whether the high watermark moved.
func (s *State) Updated(now time.Time, partitionEpoch int32, replicas, isr []wire.BrokerID) bool {
	if partitionEpoch <= s.partitionEpoch {
		return false
	}
	s.settle()
	s.partitionEpoch = partitionEpoch
	s.isr = slices.Clone(isr)
	if replicas != nil {
		s.setReplicas(now, replicas)
	}
	return s.raiseHighWatermark(now)
}

// Refused says that the proposal made on a partition epoch was not decided. Only INELIGIBLE_REPLICA ends it, because the
// controller looks at the epochs first: the ISR goes on as it was. Where our state is not the controller's, the proposal
// stays out until a newer state comes: an earlier attempt may have been decided, and its new member has to be waited
// for. Any other code, and a lost answer (REQUEST_TIMED_OUT), makes Tick ask the same again. It tells whether the high
// watermark moved.
//
// This rests on the controller seeing requests in the order in which they were made: one whose answer was lost must not
// be decided after a later one was answered.
func (s *State) Refused(now time.Time, partitionEpoch int32, code wire.Code) bool {
	if s.proposed == nil || s.proposed.PartitionEpoch != partitionEpoch {
		return false
	}
	switch code {
	case wire.IneligibleReplica:
		s.settle()
	case wire.FencedLeaderEpoch, wire.InvalidUpdateVersion, wire.InvalidRequest, wire.NewLeaderElected,
		wire.UnknownTopicOrPartition, wire.UnknownTopicID:
	default:
		s.askAgain = true
	}
	return s.raiseHighWatermark(now)
}

func (s *State) settle() { s.proposed, s.joining, s.askAgain = nil, wire.NoBroker, false }

func (s *State) propose(brokers []wire.BrokerID) Proposal {
	p := Proposal{LeaderEpoch: s.leaderEpoch, PartitionEpoch: s.partitionEpoch, ISR: make([]Member, len(brokers))}
	for i, broker := range brokers {
		p.ISR[i] = Member{Broker: broker, Epoch: NoBrokerEpoch}
		if f := s.follower(broker); f != nil {
			p.ISR[i].Epoch = f.epoch
		}
	}
	s.proposed = &p
	return p
}

// inSync is the ISR without those that fell behind.
func (s *State) inSync(now time.Time) []wire.BrokerID {
	stay := make([]wire.BrokerID, 0, len(s.isr))
	for _, broker := range s.isr {
		if f := s.follower(broker); f == nil || s.isCaughtUp(now, f) {
			stay = append(stay, broker)
		}
	}
	return stay
}

// mayJoin tells whether a follower has reached the high watermark within the leader's epoch, and may be in the ISR.
func (s *State) mayJoin(f *follower) bool {
	return !s.inISR(f.broker) && f.eligible() && f.logEndOffset >= s.highWatermark && f.logEndOffset >= s.epochStart
}
