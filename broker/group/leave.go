package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/coordinator"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// leaveLists is the version of LeaveGroup from which on it lists members and answers for each (KIP-345).
const leaveLists = 3

// LeaveGroup removes members.
func (c *Coordinator) LeaveGroup(now time.Time, req *kmsg.LeaveGroupRequest, done func(*kmsg.LeaveGroupResponse)) {
	members := req.Members
	if req.Version < leaveLists {
		only := kmsg.NewLeaveGroupRequestMember()
		only.MemberID = req.MemberID
		members = []kmsg.LeaveGroupRequestMember{only}
	}
	refuse := func(code wire.Code) {
		resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
		resp.ErrorCode = int16(code)
		done(resp)
	}
	if req.Group == "" {
		refuse(wire.InvalidGroupID)
		return
	}
	c.handle(now, req.Group, func(s *shard) coordinator.Result {
		codes, out := s.leave(now, req.Group, members)
		out.Replies = append(out.Replies, orRefuse(refuse, func() {
			if req.Version < leaveLists {
				refuse(codes[0])
				return
			}
			done(leaveResponse(req, codes))
		}))
		return out
	}, refuse)
}

func leaveResponse(req *kmsg.LeaveGroupRequest, codes []wire.Code) *kmsg.LeaveGroupResponse {
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	for i, m := range req.Members {
		rm := kmsg.NewLeaveGroupResponseMember()
		rm.MemberID, rm.InstanceID, rm.ErrorCode = m.MemberID, m.InstanceID, int16(codes[i])
		resp.Members = append(resp.Members, rm)
	}
	return resp
}

// leave removes the members and returns a code for each.
func (s *shard) leave(now time.Time, name string, members []kmsg.LeaveGroupRequestMember) (codes []wire.Code, out coordinator.Result) {
	g := s.groups[name]
	left := false
	for _, rm := range members {
		if g == nil {
			codes = append(codes, wire.UnknownMemberID)
			continue
		}
		m, code := g.leaving(rm)
		if m != nil {
			g.evict(m, &out)
			left = true
		}
		codes = append(codes, code)
	}
	if g == nil {
		return codes, out
	}
	if left || g.state == preparingRebalance {
		g.rebalance(now, s.cfg.InitialRebalanceDelay, &out)
	}
	s.settle(g)
	return codes, out
}

// leaving finds the member that is to leave. An instance id alone is an administrator's way to name a static member. A
// pending member is simply forgotten: then there is neither a member nor an error.
func (g *group) leaving(rm kmsg.LeaveGroupRequestMember) (*member, wire.Code) {
	if rm.MemberID == "" {
		if rm.InstanceID != nil {
			if m := g.static(*rm.InstanceID); m != nil {
				return m, wire.None
			}
		}
		return nil, wire.UnknownMemberID
	}
	if g.dropPending(rm.MemberID) {
		return nil, wire.None
	}
	return g.validate(rm.MemberID, rm.InstanceID)
}
