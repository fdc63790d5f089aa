package group

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/coordinator"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// describeNamesUnknown is the version of DescribeGroups from which on an unknown group is an error (KIP-1043).
const describeNamesUnknown = 6

// classicType is the type of all groups here in ListGroups.
const classicType = "classic"

// DescribeGroups shows groups with their members.
func (c *Coordinator) DescribeGroups(req *kmsg.DescribeGroupsRequest) *kmsg.DescribeGroupsResponse {
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	var names config.Names[string]
	for _, name := range req.Groups {
		rg := kmsg.NewDescribeGroupsResponseGroup()
		rg.Group = name
		if names.Repeated(name) {
			rg.ErrorCode = int16(wire.InvalidRequest)
			resp.Groups = append(resp.Groups, rg)
			continue
		}
		partition, err := c.PartitionFor(name)
		if err == nil {
			err = c.View(partition, func(s *shard) { s.describe(&rg, req.Version) })
		}
		rg.ErrorCode = cmp.Or(rg.ErrorCode, int16(wire.CodeOf(err)))
		resp.Groups = append(resp.Groups, rg)
	}
	return resp
}

func (s *shard) describe(rg *kmsg.DescribeGroupsResponseGroup, version int16) {
	g := s.groups[rg.Group]
	if g == nil {
		rg.State = dead
		if version >= describeNamesUnknown {
			text := "Group " + rg.Group + " not found."
			rg.ErrorCode, rg.ErrorMessage = int16(wire.GroupIDNotFound), &text
		}
		return
	}
	rg.State = g.state.String()
	rg.ProtocolType = g.protocolType
	if g.state == stable {
		rg.Protocol = *g.protocol
	}
	for _, m := range g.members {
		rm := kmsg.NewDescribeGroupsResponseGroupMember()
		rm.MemberID, rm.InstanceID = m.id, m.instance
		rm.ClientID, rm.ClientHost = m.clientID, m.clientHost
		rm.MemberAssignment = m.assignment // while a rebalance that began in a stable group goes on, that of before
		if g.state == stable {
			rm.ProtocolMetadata = m.metadata(*g.protocol)
		}
		rg.Members = append(rg.Members, rm)
	}
}

// ListGroups lists the groups of all partitions that are led, by name. It answers COORDINATOR_LOAD_IN_PROGRESS while one
// of them is loading.
func (c *Coordinator) ListGroups(req *kmsg.ListGroupsRequest) *kmsg.ListGroupsResponse {
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	wanted := func(filter []string, value string) bool {
		return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, value) })
	}
	var states [stable + 1]bool // those that are asked for: a filter may be long, and is not gone through for each group
	for i := range states {
		states[i] = wanted(req.StatesFilter, state(i).String()) && wanted(req.TypesFilter, classicType)
	}
	for _, partition := range c.Partitions() {
		err := c.View(partition, func(s *shard) {
			for _, g := range s.groups {
				if states[g.state] {
					rg := kmsg.NewListGroupsResponseGroup()
					rg.Group, rg.ProtocolType = g.id, g.protocolType
					rg.GroupState, rg.GroupType = g.state.String(), classicType
					resp.Groups = append(resp.Groups, rg)
				}
			}
		})
		if wire.CodeOf(err) == wire.CoordinatorLoadInProgress {
			resp.ErrorCode, resp.Groups = int16(wire.CoordinatorLoadInProgress), nil
			return resp
		}
	}
	slices.SortFunc(resp.Groups, func(a, b kmsg.ListGroupsResponseGroup) int { return strings.Compare(a.Group, b.Group) })
	return resp
}

// DeleteGroups removes groups without members, and their offsets.
func (c *Coordinator) DeleteGroups(now time.Time, req *kmsg.DeleteGroupsRequest, done func(*kmsg.DeleteGroupsResponse)) {
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	resp.Groups = make([]kmsg.DeleteGroupsResponseGroup, len(req.Groups))
	each(len(req.Groups), func(i int, finish func()) {
		resp.Groups[i] = kmsg.NewDeleteGroupsResponseGroup()
		resp.Groups[i].Group = req.Groups[i]
		answer := func(code wire.Code) {
			resp.Groups[i].ErrorCode = int16(code)
			finish()
		}
		c.handle(now, req.Groups[i], func(s *shard) coordinator.Result {
			out, code := s.delete(req.Groups[i])
			out.Replies = append(out.Replies, func(err error) {
				if err != nil {
					code = wire.CodeOf(err)
				}
				answer(code)
			})
			return out
		}, answer)
	}, func() { done(resp) })
}

func (s *shard) delete(name string) (out coordinator.Result, code wire.Code) {
	g := s.groups[name]
	switch {
	case g == nil:
		return out, wire.GroupIDNotFound
	case g.state != empty:
		return out, wire.NonEmptyGroup
	}
	for _, t := range g.offsets {
		for _, c := range t.partitions {
			out.Records = append(out.Records, offsetTombstone(name, t.topic, c.partition))
		}
	}
	out.Records = append(out.Records, groupTombstone(name)) // last: a group half deleted is still there
	out.Divisible = true
	return out, wire.None
}
