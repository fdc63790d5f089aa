package isr

import (
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// Leadership is what a leader starts from.
type Leadership struct {
	Self           wire.BrokerID
	LeaderEpoch    wire.LeaderEpoch
	PartitionEpoch int32
	Replicas       []wire.BrokerID // the leader among them
	ISR            []wire.BrokerID
	EpochStart     wire.Offset // log end offset at which the leader epoch began
	LogEndOffset   wire.Offset
	HighWatermark  wire.Offset   // of the checkpoint or of the follower that became leader; at most LogEndOffset
	MinISR         int           // min.insync.replicas
	LagTimeMax     time.Duration // replica.lag.time.max.ms
}

// Liveness is what the cluster's metadata says of a broker.
type Liveness struct {
	Active bool // registered, not fenced, not in controlled shutdown
	Epoch  wire.BrokerEpoch
}

// Member is a replica of a proposed ISR with the broker epoch under which it fetched (KIP-903).
type Member struct {
	Broker wire.BrokerID
	Epoch  wire.BrokerEpoch // NoBrokerEpoch: of the leader itself, or never fetched
}

// NoBrokerEpoch stands for "not known".
const NoBrokerEpoch wire.BrokerEpoch = -1

// Proposal is an ISR that the controller is asked to decide, for one state of the partition alone.
type Proposal struct {
	LeaderEpoch    wire.LeaderEpoch
	PartitionEpoch int32
	ISR            []Member
}

// Fetch is what a follower's fetch says about it.
type Fetch struct {
	Broker       wire.BrokerID
	BrokerEpoch  wire.BrokerEpoch
	LogEndOffset wire.Offset // the offset that it asks for
	LogStart     wire.Offset
}

// State is one leader's view of its replicas.
type State struct {
	self           wire.BrokerID
	leaderEpoch    wire.LeaderEpoch
	partitionEpoch int32
	isr            []wire.BrokerID // as decided
	joining        wire.BrokerID   // proposed to join and not decided yet, or NoBroker
	proposed       *Proposal       // out for decision, or nil
	askAgain       bool            // the proposal's fate is not known
	followers      []follower      // all replicas but the leader, in the order of assignment
	epochStart     wire.Offset
	logEndOffset   wire.Offset
	highWatermark  wire.Offset
	minISR         int
	lagTimeMax     time.Duration
}

// follower is what is known of one replica.
type follower struct {
	broker       wire.BrokerID
	live         Liveness
	epoch        wire.BrokerEpoch // under which it last fetched
	logEndOffset wire.Offset      // NoOffset until it has fetched
	logStart     wire.Offset
	caughtUp     time.Time   // when it last had all that the leader had
	lastFetch    time.Time   // when it last fetched
	leaderEnd    wire.Offset // the leader's log end at that time
}

// New begins a leadership. Followers of the ISR count as caught up at now.
func New(now time.Time, l Leadership) *State {
	s := &State{
		self:           l.Self,
		leaderEpoch:    l.LeaderEpoch,
		partitionEpoch: l.PartitionEpoch,
		isr:            slices.Clone(l.ISR),
		joining:        wire.NoBroker,
		epochStart:     l.EpochStart,
		logEndOffset:   l.LogEndOffset,
		highWatermark:  l.HighWatermark,
		minISR:         l.MinISR,
		lagTimeMax:     l.LagTimeMax,
	}
	s.setReplicas(now, l.Replicas)
	s.raiseHighWatermark(now)
	return s
}

// HighWatermark is the first offset that is not committed.
func (s *State) HighWatermark() wire.Offset { return s.highWatermark }

// ISR is the set of in-sync replicas as decided. The slice must not be changed.
func (s *State) ISR() []wire.BrokerID { return s.isr }

// PartitionEpoch is that of the decided ISR.
func (s *State) PartitionEpoch() int32 { return s.partitionEpoch }

// EnoughInSync tells whether the decided ISR reaches the effective minimum, which acks=-1 asks for.
func (s *State) EnoughInSync() bool { return len(s.isr) >= s.effectiveMinISR() }

// effectiveMinISR is at most the number of replicas: a topic with fewer replicas than its minimum stays writable.
func (s *State) effectiveMinISR() int { return min(s.minISR, len(s.followers)+1) }

// SetMinISR takes a new min.insync.replicas. It tells whether the high watermark moved.
func (s *State) SetMinISR(now time.Time, n int) bool {
	s.minISR = n
	return s.raiseHighWatermark(now)
}

// SetLagTimeMax takes a new replica.lag.time.max.ms.
func (s *State) SetLagTimeMax(d time.Duration) { s.lagTimeMax = d }

// SetLiveness takes what the metadata now says of a broker. It tells whether the high watermark moved.
func (s *State) SetLiveness(now time.Time, broker wire.BrokerID, live Liveness) bool {
	f := s.follower(broker)
	if f == nil {
		return false
	}
	f.live = live
	return s.raiseHighWatermark(now)
}

// Advance lets time pass: a follower outside the ISR is no longer waited for once it has been behind for too long. It tells
// whether the high watermark moved.
func (s *State) Advance(now time.Time) bool { return s.raiseHighWatermark(now) }

// Appended takes the leader's new log end offset. It tells whether the high watermark moved.
func (s *State) Appended(now time.Time, logEndOffset wire.Offset) bool {
	s.logEndOffset = logEndOffset
	return s.raiseHighWatermark(now)
}

// Fetched takes a follower's fetch. One of a broker that is no replica, or from before the follower's restart, changes
// nothing and is NOT_LEADER_OR_FOLLOWER. It tells whether the high watermark moved.
func (s *State) Fetched(now time.Time, r Fetch) (moved bool, err error) {
	f := s.follower(r.Broker)
	if f == nil || r.BrokerEpoch != NoBrokerEpoch && r.BrokerEpoch < max(f.epoch, f.live.Epoch) {
		return false, wire.NotLeaderOrFollower
	}
	switch {
	case r.LogEndOffset >= s.logEndOffset:
		f.caughtUp = later(f.caughtUp, now)
	case r.LogEndOffset >= f.leaderEnd && !f.lastFetch.IsZero():
		f.caughtUp = later(f.caughtUp, f.lastFetch)
	}
	f.epoch, f.logEndOffset, f.logStart = r.BrokerEpoch, r.LogEndOffset, r.LogStart
	f.lastFetch, f.leaderEnd = now, s.logEndOffset
	return s.raiseHighWatermark(now), nil
}

// LowWatermark is the lowest log start offset of the leader, whose own is given, and its live followers. Followers that
// never fetched count as far behind.
func (s *State) LowWatermark(logStart wire.Offset) wire.Offset {
	for i := range s.followers {
		if f := &s.followers[i]; f.live.Active {
			logStart = min(logStart, f.logStart)
		}
	}
	return logStart
}

// raiseHighWatermark applies the rules of the package comment.
func (s *State) raiseHighWatermark(now time.Time) bool {
	if !s.EnoughInSync() {
		return false
	}
	high := s.logEndOffset
	for i := range s.followers {
		f := &s.followers[i]
		if f.logEndOffset < high && (s.inMaximalISR(f.broker) || s.mayJoinSoon(now, f)) {
			high = f.logEndOffset
		}
	}
	if high <= s.highWatermark {
		return false
	}
	s.highWatermark = high
	return true
}

// mayJoinSoon tells whether a follower outside the ISR is worth waiting for.
func (s *State) mayJoinSoon(now time.Time, f *follower) bool {
	return s.isCaughtUp(now, f) && f.eligible()
}

// isCaughtUp tells whether a follower had all that the leader has within the last LagTimeMax.
func (s *State) isCaughtUp(now time.Time, f *follower) bool {
	return f.logEndOffset == s.logEndOffset || now.Sub(f.caughtUp) <= s.lagTimeMax
}

// eligible tells whether the follower may be in the ISR: alive, and fetching as the incarnation that is registered.
func (f *follower) eligible() bool {
	return f.live.Active && (f.epoch == NoBrokerEpoch || f.epoch == f.live.Epoch)
}

func (s *State) inISR(broker wire.BrokerID) bool { return slices.Contains(s.isr, broker) }

func (s *State) inMaximalISR(broker wire.BrokerID) bool {
	return broker == s.joining || s.inISR(broker)
}

func (s *State) follower(broker wire.BrokerID) *follower {
	for i := range s.followers {
		if s.followers[i].broker == broker {
			return &s.followers[i]
		}
	}
	return nil
}

// setReplicas keeps what is known of replicas that stay.
func (s *State) setReplicas(now time.Time, replicas []wire.BrokerID) {
	followers := make([]follower, 0, len(replicas))
	for _, broker := range replicas {
		if broker == s.self {
			continue
		}
		if known := s.follower(broker); known != nil {
			followers = append(followers, *known)
			continue
		}
		f := follower{broker: broker, epoch: NoBrokerEpoch, logEndOffset: wire.NoOffset, logStart: wire.NoOffset}
		if s.inISR(broker) {
			f.caughtUp = now
		}
		followers = append(followers, f)
	}
	s.followers = followers
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
