package group

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/coordinator"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// newMemberTimeout is how long a new member's JoinGroup may stay parked (Kafka's constant): its client cannot beat yet, and
// nobody would notice that it is gone.
const newMemberTimeout = 5 * time.Minute

// The functions below move a group between states. They add the replies and records that this takes to out.

// rebalance begins a rebalance, or ends the one that runs when that waited for nobody else.
func (g *group) rebalance(now time.Time, delay time.Duration, out *coordinator.Result) {
	if g.state != preparingRebalance {
		g.prepare(now, delay, out)
	} else if !g.initial && g.allJoined() {
		g.complete(now, out)
	}
}

// prepare asks all members to join anew.
func (g *group) prepare(now time.Time, delay time.Duration, out *coordinator.Result) {
	if g.state == completingRebalance {
		for _, m := range g.members {
			m.assignment = nil
			if m.sync != nil {
				m.alive(now) // it could not beat while it waited
				m.failSync(wire.RebalanceInProgress, out)
			}
		}
	}
	g.syncDeadline = time.Time{}
	g.initial = g.state == empty
	g.state = preparingRebalance
	switch {
	case g.initial && delay > 0: // give the others time to arrive, or each would begin a rebalance of its own
		g.extended, g.waited, g.remaining = false, delay, max(g.rebalanceTimeout()-delay, 0)
		g.joinDeadline = now.Add(delay)
	case g.initial, g.allJoined():
		g.complete(now, out)
	default:
		g.joinDeadline = now.Add(g.rebalanceTimeout())
	}
}

// joinDue ends the wait for members, unless the group is new and still gathers.
func (g *group) joinDue(now time.Time, delay time.Duration, out *coordinator.Result) {
	if !g.initial || !g.extended || g.remaining == 0 {
		g.complete(now, out)
		return
	}
	g.extended = false
	next := min(delay, g.remaining)
	g.remaining = max(g.remaining-g.waited, 0)
	g.waited = next
	g.joinDeadline = now.Add(next)
}

// complete begins the next generation with those who have joined. Static members keep their place.
func (g *group) complete(now time.Time, out *coordinator.Result) {
	for _, m := range slices.Clone(g.members) {
		if m.join == nil && m.instance == nil {
			g.remove(m)
		}
	}
	if len(g.members) == 0 {
		g.becomeEmpty(now, out)
		return
	}
	if !g.electLeader() {
		g.joinDeadline = now.Add(max(g.rebalanceTimeout(), time.Second)) // static members alone, all silent: their sessions decide
		return
	}
	g.joinDeadline, g.initial = time.Time{}, false
	g.generation++
	chosen := g.elect()
	g.protocol = &chosen
	g.learnTopics()
	g.state = completingRebalance
	for _, m := range g.members {
		if m.join != nil {
			resp := m.join.resp
			g.welcome(m, resp)
			if m.id == g.leader {
				resp.Members = g.roster()
			}
			m.answerJoin(out)
		}
		m.fresh, m.synced = false, false
		m.alive(now)
	}
	g.syncDeadline = now.Add(g.rebalanceTimeout())
}

// becomeEmpty ends a rebalance that found no members. If the record cannot be written, a later coordinator finds the last
// generation and times its members out.
func (g *group) becomeEmpty(now time.Time, out *coordinator.Result) {
	g.state, g.since = empty, now.UnixMilli()
	g.generation++
	g.protocol, g.leader = nil, ""
	g.joinDeadline, g.initial = time.Time{}, false
	g.learnTopics()
	out.Records = append(out.Records, groupRecord(g.id, g.record(now, nil)))
}

// electLeader lets the leader be somebody who has joined. It fails when nobody has.
func (g *group) electLeader() bool {
	if leader := g.member(g.leader); leader != nil && leader.join != nil {
		return true
	}
	at := slices.IndexFunc(g.members, func(m *member) bool { return m.join != nil })
	if at < 0 {
		return false
	}
	g.leader = g.members[at].id
	return true
}

// welcome fills in what every member learns of the generation.
func (g *group) welcome(m *member, resp *kmsg.JoinGroupResponse) {
	resp.Generation = g.generation
	resp.ProtocolType, resp.Protocol = g.typeName(), g.protocol
	resp.LeaderID = g.leader
	resp.MemberID = m.id
}

// typeName is the protocol type, or nil without one.
func (g *group) typeName() *string {
	if g.protocolType == "" {
		return nil
	}
	name := g.protocolType
	return &name
}

// roster is what the leader needs to assign.
func (g *group) roster() []kmsg.JoinGroupResponseMember {
	list := make([]kmsg.JoinGroupResponseMember, len(g.members))
	for i, m := range g.members {
		list[i] = kmsg.NewJoinGroupResponseMember()
		list[i].MemberID, list[i].InstanceID = m.id, m.instance
		list[i].ProtocolMetadata = m.metadata(*g.protocol)
	}
	return list
}

// expire removes who is overdue and ends waits that are over.
func (g *group) expire(now time.Time, delay time.Duration, out *coordinator.Result) {
	g.pending = slices.DeleteFunc(g.pending, func(p pendingMember) bool { return due(p.deadline, now) })
	left := false
	for _, m := range slices.Clone(g.members) {
		if m.expired(now) {
			g.evict(m, out)
			left = true
		}
	}
	if left {
		g.rebalance(now, delay, out)
	}
	if g.state == preparingRebalance && !g.initial && g.allJoined() {
		g.complete(now, out)
	}
	if g.state == preparingRebalance && due(g.joinDeadline, now) {
		g.joinDue(now, delay, out)
	}
	if due(g.syncDeadline, now) {
		g.syncDue(now, delay, out)
	}
}

func due(deadline, now time.Time) bool { return !deadline.IsZero() && !deadline.After(now) }

// evict removes a member. A parked request of it is answered so that a client that still lives joins again.
func (g *group) evict(m *member, out *coordinator.Result) {
	m.failJoin(wire.UnknownMemberID, "", out)
	m.failSync(wire.UnknownMemberID, out)
	g.remove(m)
}

// syncDue removes the members that have not asked for their assignment in time.
func (g *group) syncDue(now time.Time, delay time.Duration, out *coordinator.Result) {
	g.syncDeadline = time.Time{}
	late := slices.DeleteFunc(slices.Clone(g.members), func(m *member) bool { return m.synced })
	for _, m := range late {
		g.evict(m, out)
	}
	if len(late) > 0 {
		g.prepare(now, delay, out)
	}
}
