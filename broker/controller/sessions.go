package controller

import (
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// session is what the controller remembers of a registered broker besides the image. It is not part of the metadata: a new
// controller starts all of them anew.
type session struct {
	heard      time.Time   // of the last heartbeat, or when the session started
	offset     wire.Offset // of the metadata that the broker has applied, from its last heartbeat
	shutdownAt wire.Offset // where its controlled shutdown was recorded; means something during one alone
}

func (c *Controller) sessionTimeout() time.Duration {
	return time.Duration(c.config.BrokerSessionTimeoutMs) * time.Millisecond
}

// sessionLives tells whether a registered broker may be alive. The controller's own broker holds the lock of its data
// directory, so its former incarnation is known to be dead (safety.md 12).
func (s *step) sessionLives(b *metadata.Broker) bool {
	return b.ID != s.self && !b.Fenced && s.now.Before(s.sessions[b.ID].heard.Add(s.sessionTimeout()))
}

func (s *step) hear(id wire.BrokerID, offset wire.Offset) {
	session := s.sessions[id]
	session.heard, session.offset = s.now, max(session.offset, offset)
}

func (s *step) heartbeat(beat *metadata.BrokerHeartbeat) *metadata.BrokerHeartbeatAnswer {
	b, err := s.registered(beat.BrokerID, beat.BrokerEpoch)
	if err != nil {
		return &metadata.BrokerHeartbeatAnswer{Result: metadata.ResultOf(err), Fenced: true}
	}
	s.hear(b.ID, beat.MetadataOffset)
	s.loseDirectories(b, beat.OfflineDirectories)
	answer := &metadata.BrokerHeartbeatAnswer{CaughtUp: beat.MetadataOffset >= wire.Offset(b.Epoch)}
	switch {
	case b.Fenced && beat.WantShutdown:
		answer.ShouldShutdown = true
	case b.Fenced && answer.CaughtUp && !beat.WantFence:
		s.unfence(b)
	case b.Fenced:
	case beat.WantShutdown || b.InControlledShutdown:
		if answer.ShouldShutdown = s.shutDown(b, beat.Empty); answer.ShouldShutdown && beat.Whole {
			s.add(&metadata.BrokerChangeRecord{BrokerID: b.ID, Epoch: b.Epoch, Whole: &beat.Whole})
		}
	case beat.WantFence:
		s.fence(b)
	}
	answer.Fenced = s.image.Broker(b.ID).Fenced
	return answer
}

// unfence a broker, and let it lead the partitions that had nobody else.
func (s *step) unfence(b *metadata.Broker) {
	fenced := false
	s.add(&metadata.BrokerChangeRecord{BrokerID: b.ID, Epoch: b.Epoch, Fenced: &fenced})
	s.eachReplica(b.ID, func(p *metadata.Partition) partitionState {
		to := stateOf(p)
		if p.Leader == wire.NoBroker {
			to.leader = s.elect(p, p.ISR)
		}
		return to
	})
}

// fence a broker: it leaves leaderships and ISRs.
func (s *step) fence(b *metadata.Broker) { s.retire(b, nil) }

// retire fences a broker that says which of the partitions that it leads never had a record. Of those that get another leader, nobody
// knows for long.
func (s *step) retire(b *metadata.Broker, said []metadata.TopicPartitions) {
	fenced := true
	s.add(&metadata.BrokerChangeRecord{BrokerID: b.ID, Epoch: b.Epoch, Fenced: &fenced})
	empty := s.find(said)
	s.eachReplica(b.ID, func(p *metadata.Partition) partitionState {
		to := s.withdraw(b.ID, p)
		to.empty = to.empty || p.Leader == b.ID && empty[p]
		return to
	})
}

// find gives the partitions that there are among those of a list.
func (s *step) find(list []metadata.TopicPartitions) map[*metadata.Partition]bool {
	found := map[*metadata.Partition]bool{}
	for _, l := range list {
		t := s.image.TopicByID(l.TopicID)
		if t == nil {
			continue
		}
		for _, index := range l.Partitions {
			if p := t.Partition(index); p != nil {
				found[p] = true
			}
		}
	}
	return found
}

// shutDown takes a controlled shutdown as far as it can go and tells whether the broker may stop. First others take over what they
// can; once every other broker has applied that, the broker is fenced.
func (s *step) shutDown(b *metadata.Broker, empty []metadata.TopicPartitions) bool {
	session := s.sessions[b.ID]
	if !b.InControlledShutdown {
		yes := true
		s.add(&metadata.BrokerChangeRecord{BrokerID: b.ID, Epoch: b.Epoch, InControlledShutdown: &yes})
		s.eachReplica(b.ID, func(p *metadata.Partition) partitionState {
			if len(without(p.ISR, b.ID)) == 0 {
				return stateOf(p) // served until the end
			}
			return s.withdraw(b.ID, p)
		})
		session.shutdownAt = s.image.Offset()
	}
	for other := range s.image.Brokers() {
		if other.ID != b.ID && other.Active() && s.sessions[other.ID].offset < session.shutdownAt {
			return false
		}
	}
	s.retire(b, empty)
	return true
}

// loseDirectories takes the broker out of the partitions in log directories that have failed.
func (s *step) loseDirectories(b *metadata.Broker, offline []string) {
	online := slices.DeleteFunc(slices.Clone(b.Directories), func(d string) bool { return slices.Contains(offline, d) })
	if len(online) == len(b.Directories) {
		return
	}
	s.add(&metadata.BrokerChangeRecord{BrokerID: b.ID, Epoch: b.Epoch, Directories: online})
	now := s.image.Broker(b.ID)
	s.eachReplica(b.ID, func(p *metadata.Partition) partitionState {
		if directoryOnline(now, p) {
			return stateOf(p)
		}
		return s.withdraw(b.ID, p)
	})
}

// Tick does what is due: it fences the brokers whose session has ended, unless the controller itself seems to be cut off.
func (c *Controller) Tick(now time.Time) []metadata.Record {
	if c.image == nil || c.Isolated(now) {
		return nil
	}
	s := c.begin(now)
	for b := range c.image.Brokers() {
		if !b.Fenced && b.ID != c.self && !s.sessionLives(b) {
			s.fence(s.image.Broker(b.ID))
		}
	}
	c.image = s.image
	return s.records
}

// Isolated tells whether the controller has heard, for half a session time, from less than half of the other unfenced brokers. It
// should give the lease up then and let another try, in place of fencing them (safety.md 13). Worth asking with every Tick.
func (c *Controller) Isolated(now time.Time) bool {
	if c.image == nil {
		return false
	}
	others, heard := 0, 0
	for b := range c.image.Brokers() {
		if b.Fenced || b.ID == c.self {
			continue
		}
		others++
		if now.Before(c.sessions[b.ID].heard.Add(c.sessionTimeout() / 2)) {
			heard++
		}
	}
	return 2*heard < others
}

// NextWake is when the next session ends, so that Tick may have something to do; zero if never.
func (c *Controller) NextWake() time.Time {
	var next time.Time
	if c.image == nil {
		return next
	}
	for b := range c.image.Brokers() {
		if b.Fenced || b.ID == c.self {
			continue
		}
		if ends := c.sessions[b.ID].heard.Add(c.sessionTimeout()); next.IsZero() || ends.Before(next) {
			next = ends
		}
	}
	return next
}
