package group

import (
	"bytes"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/coordinator"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// syncNamesProtocol is the version of SyncGroup from which on it must name protocol and protocol type (KIP-559).
const syncNamesProtocol = 5

// SyncGroup asks for a member's assignment and, from the leader, brings everybody's.
func (c *Coordinator) SyncGroup(now time.Time, req *kmsg.SyncGroupRequest, done func(*kmsg.SyncGroupResponse)) {
	parked := &parkedSync{resp: req.ResponseKind().(*kmsg.SyncGroupResponse), done: done}
	refuse := func(code wire.Code) {
		parked.fail(code)
		parked.reply(nil)
	}
	switch {
	case req.Version >= syncNamesProtocol && (req.ProtocolType == nil || req.Protocol == nil):
		refuse(wire.InconsistentGroupProtocol)
	case req.Group == "":
		refuse(wire.InvalidGroupID)
	default:
		c.handle(now, req.Group, func(s *shard) coordinator.Result { return s.sync(now, req, parked) }, refuse)
	}
}

func (s *shard) sync(now time.Time, req *kmsg.SyncGroupRequest, parked *parkedSync) (out coordinator.Result) {
	g := s.groups[req.Group]
	m, code := g.syncing(req)
	if code != wire.None {
		parked.fail(code)
		out.Replies = append(out.Replies, parked.reply)
		return out
	}
	m.failSync(wire.RebalanceInProgress, &out) // its client has given up on an earlier one
	m.sync, m.synced = parked, true
	m.alive(now)
	switch {
	case g.state == stable:
		g.hand(m)
		m.answerSync(&out)
		out.Barrier = true
	case m.id == g.leader:
		s.assign(now, g, req.GroupAssignment, &out)
	}
	s.settle(g)
	return out
}

// syncing checks a SyncGroup request against the group, which may be nil.
func (g *group) syncing(req *kmsg.SyncGroupRequest) (*member, wire.Code) {
	if g == nil || g.state == empty {
		return nil, wire.UnknownMemberID
	}
	other := func(said, have *string) bool { return said != nil && (have == nil || *said != *have) }
	m, code := g.validateIn(req.Generation, req.MemberID, req.InstanceID)
	switch {
	case code != wire.None:
		return nil, code
	case other(req.ProtocolType, g.typeName()), other(req.Protocol, g.protocol):
		return nil, wire.InconsistentGroupProtocol
	case g.state == preparingRebalance:
		return nil, wire.RebalanceInProgress
	}
	return m, wire.None
}

// assign writes the leader's assignment down, which makes the group stable, and hands it to those who wait.
func (s *shard) assign(now time.Time, g *group, list []kmsg.SyncGroupRequestGroupAssignment, out *coordinator.Result) {
	assignments := make(map[string][]byte, len(list))
	for _, a := range list {
		assignments[a.MemberID] = a.MemberAssignment
	}
	for _, m := range g.members {
		m.assignment = bytes.Clone(assignments[m.id])
		if m.sync != nil {
			g.hand(m)
			m.answerSync(out)
			m.alive(now)
		}
	}
	out.Records = append(out.Records, groupRecord(g.id, g.record(now, assignments)))
	out.Rejected = func() (out coordinator.Result) {
		g.prepare(now, s.cfg.InitialRebalanceDelay, &out)
		s.settle(g)
		return out
	}
}

// hand fills in a member's answer.
func (g *group) hand(m *member) {
	m.sync.resp.MemberAssignment = m.assignment
	m.sync.resp.ProtocolType, m.sync.resp.Protocol = g.typeName(), g.protocol
}

// assignments is what each member has been assigned.
func (g *group) assignments() map[string][]byte {
	list := make(map[string][]byte, len(g.members))
	for _, m := range g.members {
		list[m.id] = m.assignment
	}
	return list
}

// Heartbeat keeps a member alive and tells it of a rebalance.
func (c *Coordinator) Heartbeat(now time.Time, req *kmsg.HeartbeatRequest) *kmsg.HeartbeatResponse {
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
	code := wire.InvalidGroupID
	if req.Group != "" {
		partition, err := c.PartitionFor(req.Group)
		if err == nil {
			err = c.View(partition, func(s *shard) { code = s.heartbeat(now, req) })
		}
		if err != nil {
			code = wire.CodeOf(err)
		}
	}
	resp.ErrorCode = int16(code)
	return resp
}

func (s *shard) heartbeat(now time.Time, req *kmsg.HeartbeatRequest) wire.Code {
	g := s.groups[req.Group]
	if g == nil {
		return wire.UnknownMemberID
	}
	m, code := g.validateIn(req.Generation, req.MemberID, req.InstanceID)
	if code != wire.None {
		return code
	}
	m.alive(now)
	if g.state == preparingRebalance {
		return wire.RebalanceInProgress
	}
	return wire.None
}
