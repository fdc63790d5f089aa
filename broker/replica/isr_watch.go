package replica

import (
	"slices"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/broker/isr"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// isrWatch says when the partitions with followers are to be looked at, and holds proposals on their way to the controller.
type isrWatch struct {
	mu       sync.Mutex   // guards all below; a leaf lock
	led      []*partition // partitions that this broker leads and that have followers
	interval time.Duration
	next     time.Time // of the look for followers that fell behind; zero without any
	due      time.Time // of the oldest proposal; zero without any
	proposed []metadata.ISRProposal
}

// reset takes over which partitions have followers.
func (w *isrWatch) reset(now time.Time, s *state, lagTimeMax time.Duration) {
	var led []*partition
	s.each(func(p *partition) {
		if r := p.role.Load(); r.log != nil && r.leads && len(r.metadata.Replicas) > 1 {
			led = append(led, p)
		}
	})
	slices.SortFunc(led, comparePartitions)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.led, w.interval = led, lagTimeMax/2
	switch {
	case len(led) == 0:
		w.next = time.Time{}
	case w.next.IsZero() || w.next.After(now.Add(w.interval)):
		w.next = now.Add(w.interval)
	}
}

func (w *isrWatch) nextWake() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.due.IsZero() {
		return w.due
	}
	return w.next
}

// takeDue gives the partitions to look at when it is time to.
func (w *isrWatch) takeDue(now time.Time) []*partition {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next.IsZero() || now.Before(w.next) {
		return nil
	}
	w.next = now.Add(w.interval)
	return w.led
}

// takeProposed gives the proposals that wait for the controller.
func (w *isrWatch) takeProposed() []metadata.ISRProposal {
	w.mu.Lock()
	defer w.mu.Unlock()
	proposed := w.proposed
	w.proposed, w.due = nil, time.Time{}
	return proposed
}

func (w *isrWatch) add(now time.Time, p metadata.ISRProposal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.proposed = append(w.proposed, p)
	if w.due.IsZero() {
		w.due = now
	}
}

// watchISR lets time pass for partitions with followers and collects proposals.
func (m *Manager) watchISR(now time.Time) *metadata.AlterPartition {
	for _, p := range m.isr.takeDue(now) {
		if p.change(func(s *isr.State) bool { return s.Advance(now) }) {
			m.committed(now, p)
		}
		m.propose(now, p)
	}
	proposed := m.isr.takeProposed()
	if len(proposed) == 0 {
		return nil
	}
	return &metadata.AlterPartition{BrokerID: m.self, Partitions: proposed}
}

// propose looks whether the ISR of a partition is to change. It tells whether there is a proposal.
func (m *Manager) propose(now time.Time, p *partition) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isr == nil {
		return false
	}
	proposal, ok := p.isr.Tick(now)
	if !ok {
		return false
	}
	asked := metadata.ISRProposal{
		TopicID: p.topicID, Partition: p.tp.Partition,
		LeaderEpoch: proposal.LeaderEpoch, PartitionEpoch: proposal.PartitionEpoch,
		ISR: make([]metadata.ISRMember, len(proposal.ISR)),
	}
	for i, member := range proposal.ISR {
		asked.ISR[i] = metadata.ISRMember{BrokerID: member.Broker, Epoch: member.Epoch}
	}
	m.isr.add(now, asked)
	return true
}

// followerFetched takes what a follower's fetch says about it.
func (m *Manager) followerFetched(now time.Time, p *partition, f isr.Fetch) wire.Code {
	var err error
	moved := p.change(func(s *isr.State) (moved bool) {
		moved, err = s.Fetched(now, f)
		return moved
	})
	if err != nil {
		return wire.CodeOf(err)
	}
	if moved {
		m.committed(now, p)
	}
	m.deletes.Fire(now, p)
	if m.propose(now, p) && m.wake != nil {
		m.wake(now)
	}
	return wire.None
}

// ISRDecided brings what the controller said to proposals of Advance. Proposals without an answer, when answer is nil, are
// made again by a later Advance.
func (m *Manager) ISRDecided(now time.Time, asked *metadata.AlterPartition, answer *metadata.AlterPartitionAnswer) {
	s := m.state.Load()
	for i := range asked.Partitions {
		proposal := &asked.Partitions[i]
		p, code := s.findByID(proposal.TopicID, "", proposal.Partition)
		if code != wire.None {
			continue
		}
		if p.change(func(s *isr.State) bool { return decided(now, s, proposal, answer, i) }) {
			m.committed(now, p)
		}
		// The ISR may be below its minimum now, which is an answer to produce requests that wait.
		m.produces.Fire(now, p)
	}
}

func decided(now time.Time, s *isr.State, asked *metadata.ISRProposal, answer *metadata.AlterPartitionAnswer, row int) bool {
	switch {
	case answer == nil || row >= len(answer.Partitions):
		return s.Refused(now, asked.PartitionEpoch, wire.RequestTimedOut)
	case answer.Result.Code != wire.None:
		return s.Refused(now, asked.PartitionEpoch, answer.Result.Code)
	}
	d := &answer.Partitions[row]
	if d.Result.Code != wire.None {
		return s.Refused(now, asked.PartitionEpoch, d.Result.Code)
	}
	if d.LeaderEpoch != asked.LeaderEpoch {
		return false // the image will say what became of the partition
	}
	return s.Decided(now, asked.PartitionEpoch, d.PartitionEpoch, d.ISR)
}
