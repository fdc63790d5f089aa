package group

import (
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/coordinator"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Versions of JoinGroup from which on something holds.
const (
	joinRequiresID       = 4 // a first join gets an id and MEMBER_ID_REQUIRED (KIP-394)
	joinSkipsAssignment  = 9 // a returning static leader is told that it need not assign (KIP-814)
	joinRebalanceTimeout = 1 // the rebalance timeout is a field of its own
)

// JoinGroup enters a group or a group's next generation; the answer comes when the rebalance is over.
func (c *Coordinator) JoinGroup(now time.Time, req *kmsg.JoinGroupRequest, client Client, done func(*kmsg.JoinGroupResponse)) {
	parked := &parkedJoin{resp: req.ResponseKind().(*kmsg.JoinGroupResponse), done: done}
	refuse := func(code wire.Code) {
		parked.fail(code, req.MemberID)
		parked.reply(nil)
	}
	session := time.Duration(req.SessionTimeoutMillis) * time.Millisecond
	switch {
	case req.Group == "":
		refuse(wire.InvalidGroupID)
	case session < c.cfg.MinSessionTimeout || session > c.cfg.MaxSessionTimeout:
		refuse(wire.InvalidSessionTimeout)
	default:
		j := joining{now: now, req: req, client: client, protocols: protocolsOf(req.Protocols), session: session, parked: parked}
		j.rebalance = time.Duration(req.RebalanceTimeoutMillis) * time.Millisecond
		if req.Version < joinRebalanceTimeout {
			j.rebalance = session
		}
		c.handle(now, req.Group, func(s *shard) coordinator.Result { return s.join(&j) }, refuse)
	}
}

// joining is a JoinGroup request at work.
type joining struct {
	now       time.Time
	req       *kmsg.JoinGroupRequest
	client    Client
	protocols []protocol
	session   time.Duration
	rebalance time.Duration
	parked    *parkedJoin
	out       coordinator.Result
}

func (j *joining) refuse(code wire.Code, memberID string) {
	j.parked.fail(code, memberID)
	j.answer()
}

func (j *joining) answer() { j.out.Replies = append(j.out.Replies, j.parked.reply) }

func (s *shard) join(j *joining) coordinator.Result {
	g := s.groups[j.req.Group]
	if g == nil {
		if j.req.MemberID != "" {
			j.refuse(wire.UnknownMemberID, j.req.MemberID)
			return j.out
		}
		g = newGroup(j.req.Group)
	}
	switch m := g.member(j.req.MemberID); {
	case s.full(g, m):
		if m != nil {
			g.evict(m, &j.out)
			g.rebalance(j.now, s.cfg.InitialRebalanceDelay, &j.out)
		}
		j.refuse(wire.GroupMaxSizeReached, "")
	case !g.supports(j.req.ProtocolType, j.protocols):
		j.refuse(wire.InconsistentGroupProtocol, j.req.MemberID)
	case j.req.MemberID == "":
		s.joinNew(g, j)
	case g.isPending(j.req.MemberID) && j.req.InstanceID == nil:
		s.admit(g, j, j.req.MemberID)
	default:
		s.rejoin(g, j)
	}
	s.settle(g)
	return j.out
}

// full tells whether the group takes nobody more. While it rebalances, those count that have joined: a group that is over its
// size loses those who come last.
func (s *shard) full(g *group, m *member) bool {
	switch g.state {
	case empty:
		return false
	case preparingRebalance:
		return (m == nil || m.join == nil) && g.joined() >= s.cfg.MaxSize
	default:
		return m == nil && len(g.members) >= s.cfg.MaxSize
	}
}

// joinNew handles a join without member id.
func (s *shard) joinNew(g *group, j *joining) {
	prefix := j.client.ID
	if j.req.InstanceID != nil {
		prefix = *j.req.InstanceID
	}
	id := s.memberID(prefix)
	if len(id) > math.MaxInt16 { // neither an answer nor a record can hold it
		j.refuse(wire.UnknownServerError, "")
		return
	}
	if j.req.InstanceID != nil {
		if old := g.static(*j.req.InstanceID); old != nil {
			s.replace(g, j, old, id)
		} else {
			s.admit(g, j, id)
		}
		return
	}
	if j.req.Version < joinRequiresID {
		s.admit(g, j, id)
		return
	}
	if len(g.pending) >= maxPendingMembers {
		g.pending = g.pending[1:]
	}
	g.pending = append(g.pending, pendingMember{id, j.now.Add(j.session)})
	j.refuse(wire.MemberIDRequired, id)
}

// memberID makes a member id as Kafka makes them.
func (s *shard) memberID(prefix string) string {
	u := s.cfg.UUID()
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80 // version 4, RFC 9562
	return fmt.Sprintf("%s-%x-%x-%x-%x-%x", prefix, u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// admit adds a member.
func (s *shard) admit(g *group, j *joining, id string) {
	m := &member{
		id:               id,
		instance:         j.req.InstanceID,
		clientID:         j.client.ID,
		clientHost:       j.client.Host,
		rebalanceTimeout: j.rebalance,
		sessionTimeout:   j.session,
		protocols:        j.protocols,
		fresh:            true,
		deadline:         j.now.Add(newMemberTimeout),
		join:             j.parked,
	}
	if len(g.members) == 0 {
		g.protocolType = j.req.ProtocolType
	}
	g.add(m)
	g.extended = true
	g.rebalance(j.now, s.cfg.InitialRebalanceDelay, &j.out)
}

// rejoin handles the join of a member that should be known.
func (s *shard) rejoin(g *group, j *joining) {
	m, code := g.validate(j.req.MemberID, j.req.InstanceID)
	if code != wire.None {
		j.refuse(code, j.req.MemberID)
		return
	}
	// A leader that comes back to a stable group wants to assign anew: topics may have changed. Anybody else with nothing new
	// has only missed the answer.
	missed := m.announces(j.protocols) && (g.state == completingRebalance || g.state == stable && m.id != g.leader)
	if !missed {
		m.failJoin(wire.RebalanceInProgress, m.id, &j.out) // its client has given up on an earlier join
		g.update(m, j.protocols, j.rebalance, j.session)
		m.join = j.parked
		g.rebalance(j.now, s.cfg.InitialRebalanceDelay, &j.out)
		return
	}
	m.alive(j.now)
	g.welcome(m, j.parked.resp)
	if m.id == g.leader {
		j.parked.resp.Members = g.roster()
	}
	j.answer()
}

// replace gives a static member a new life under a new id; requests of the old one are fenced from now on.
func (s *shard) replace(g *group, j *joining, m *member, id string) {
	former, formerLeader := *m, g.leader
	m.failJoin(wire.FencedInstanceID, m.id, &j.out)
	m.failSync(wire.FencedInstanceID, &j.out)
	g.rename(m, id)
	g.update(m, j.protocols, j.rebalance, j.session)
	m.alive(j.now)
	m.fresh = false
	if g.state != stable || g.elect() != *g.protocol {
		m.join = j.parked
		g.rebalance(j.now, s.cfg.InitialRebalanceDelay, &j.out)
		return
	}
	g.welcome(m, j.parked.resp)
	switch {
	case j.req.Version < joinSkipsAssignment:
		j.parked.resp.LeaderID = formerLeader // so that a returning leader does not take itself for one and assign
	case m.id == g.leader:
		j.parked.resp.Members = g.roster()
		j.parked.resp.SkipAssignment = true
	}
	j.answer()
	j.out.Records = append(j.out.Records, groupRecord(g.id, g.record(j.now, g.assignments())))
	j.out.Rejected = func() (out coordinator.Result) {
		g.rename(m, former.id)
		g.update(m, former.protocols, former.rebalanceTimeout, former.sessionTimeout)
		return out
	}
}
