package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// member is a member of a classic group: it joins, gets partitions, commits offsets for them, sends heartbeats, and leaves now
// and then, or goes silent.
type member struct {
	client
	group      *groupLedger
	found      bool
	out        bool
	id         string
	instance   *string // of a static member
	generation int32
	assigned   []*partition // while stable
	stable     bool
	beatAt     time.Time
	next       int64
}

func newMember(c *cluster, i int) *member {
	m := &member{group: c.ledger.group(fmt.Sprintf("group-%d", i%2))}
	m.client = newClient(c, fmt.Sprintf("member-%d", i), m.work)
	m.strays = true
	if m.random.IntN(4) == 0 {
		m.instance = &m.name
	}
	m.soon(500 * time.Millisecond)
	return m
}

func (m *member) waitsFor() string {
	if m.out {
		return m.name + " waits for an answer"
	}
	return ""
}

func (m *member) work() {
	switch {
	case m.out || m.c.healed:
	case !m.connected():
		m.soon(200 * time.Millisecond)
	case !m.found:
		m.out = true
		m.findCoordinator(m.group.name, func(ok bool) { m.out, m.found = false, ok; m.soon(100 * time.Millisecond) })
	case !m.stable:
		m.join()
	case m.random.IntN(100) == 0:
		m.leave()
	case m.random.IntN(100) == 0:
		m.c.trace.add(m.name, "goes silent")
		m.soon(2 * sessionTimeout)
	case !m.c.clock.now.Before(m.beatAt):
		m.heartbeat()
	case len(m.assigned) > 0:
		m.commit()
	default:
		m.soon(100 * time.Millisecond)
	}
}

const (
	sessionTimeout   = 3 * time.Second
	rebalanceTimeout = 2 * time.Second
	beatInterval     = 500 * time.Millisecond
)

// ask sends a request of the member; broken is called instead of answered when there is no answer.
func (m *member) ask(request kmsg.Request, note string, answered func(kmsg.Response)) {
	m.out = true
	m.call(request, note, func(response kmsg.Response) {
		m.out = false
		if response != nil {
			answered(response)
		}
		m.soon(50 * time.Millisecond)
	})
}

// told reacts to an error of the group's protocol; false: there is none.
func (m *member) told(api string, result wire.Code) bool {
	m.c.trace.add(m.name, "< %s: %s", api, result)
	switch result {
	case wire.None:
		return false
	case wire.UnknownMemberID, wire.FencedInstanceID, wire.GroupIDNotFound:
		m.id, m.stable = "", false
	case wire.IllegalGeneration, wire.RebalanceInProgress:
		m.stable = false
	case wire.NotCoordinator, wire.CoordinatorNotAvailable, wire.CoordinatorLoadInProgress, wire.NetworkException, wire.RequestTimedOut:
	default:
		m.c.fail("%s: %s says %s", m.name, api, result)
	}
	return true
}

func (m *member) join() {
	known := m.group.generation
	request := kmsg.NewPtrJoinGroupRequest()
	request.SetVersion(m.version(kmsg.JoinGroup, m.oldest(0, 5), anyVersion))
	request.Group, request.MemberID, request.InstanceID = m.group.name, m.id, m.instance
	request.SessionTimeoutMillis, request.RebalanceTimeoutMillis = int32(sessionTimeout.Milliseconds()), int32(rebalanceTimeout.Milliseconds())
	request.ProtocolType = "consumer"
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name, protocol.Metadata = "sim", []byte(m.name)
	request.Protocols = append(request.Protocols, protocol)
	m.ask(request, fmt.Sprintf("%s as %q", m.group.name, m.id), func(response kmsg.Response) {
		r := response.(*kmsg.JoinGroupResponse)
		if code(r.ErrorCode) == wire.MemberIDRequired {
			m.id = r.MemberID
			return
		}
		if m.told(fmt.Sprintf("JoinGroup of generation %d", r.Generation), code(r.ErrorCode)) {
			return
		}
		if r.Generation < known {
			m.c.fail("%s: generation %d of %s comes after %d", m.name, r.Generation, m.group.name, known)
		}
		m.id, m.generation = r.MemberID, r.Generation
		m.sync(r)
	})
}

// oldest is the oldest version that can say what a member has to say: a static one says who it is.
func (m *member) oldest(dynamic, static int16) int16 {
	if m.instance != nil {
		return static
	}
	return dynamic
}

// sync asks for the assignment, or makes it as the leader.
func (m *member) sync(joined *kmsg.JoinGroupResponse) {
	request := kmsg.NewPtrSyncGroupRequest()
	request.SetVersion(m.version(kmsg.SyncGroup, m.oldest(0, 3), anyVersion))
	request.Group, request.Generation, request.MemberID, request.InstanceID = m.group.name, m.generation, m.id, m.instance
	request.ProtocolType, request.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("sim")
	if len(joined.Members) > 0 {
		request.GroupAssignment = m.assign(joined.Members)
	}
	if !m.connected() {
		return
	}
	m.ask(request, fmt.Sprintf("%s in generation %d", m.group.name, m.generation), func(response kmsg.Response) {
		r := response.(*kmsg.SyncGroupResponse)
		if m.told("SyncGroup", code(r.ErrorCode)) {
			return
		}
		m.c.stats.Generations++
		m.group.generation = max(m.group.generation, m.generation)
		m.stable, m.beatAt, m.assigned = true, m.c.clock.now.Add(beatInterval), m.c.ledger.named(string(r.MemberAssignment))
	})
}

// assign deals the partitions that last out among the members.
func (m *member) assign(members []kmsg.JoinGroupResponseMember) []kmsg.SyncGroupRequestGroupAssignment {
	names := make([][]string, len(members))
	i := 0
	for _, t := range m.c.ledger.topics {
		for _, p := range t.partitions {
			if t.lasting {
				names[i%len(members)] = append(names[i%len(members)], p.String())
				i++
			}
		}
	}
	var assignments []kmsg.SyncGroupRequestGroupAssignment
	for i, other := range members {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = other.MemberID, []byte(strings.Join(names[i], " "))
		assignments = append(assignments, a)
	}
	return assignments
}

func (m *member) heartbeat() {
	m.beatAt = m.c.clock.now.Add(beatInterval)
	request := kmsg.NewPtrHeartbeatRequest()
	request.SetVersion(m.version(kmsg.Heartbeat, m.oldest(0, 3), anyVersion))
	request.Group, request.Generation, request.MemberID, request.InstanceID = m.group.name, m.generation, m.id, m.instance
	m.ask(request, m.group.name, func(response kmsg.Response) {
		m.told("Heartbeat", code(response.(*kmsg.HeartbeatResponse).ErrorCode))
	})
}

// commit commits an offset, now and then as if it were in a generation that is over. No commit of a generation may succeed that is
// known to be over when it is sent.
func (m *member) commit() {
	known, generation := m.group.generation, m.generation
	if m.random.IntN(30) == 0 {
		generation--
	}
	m.out = true
	m.next++
	of := m.assigned[m.random.IntN(len(m.assigned))]
	m.commitOffset(m.group, of, m.next, generation, m.id, func(result wire.Code) {
		m.out = false
		if !m.told("OffsetCommit", result) && generation < known {
			m.c.fail("%s commits in generation %d of %s after generation %d began", m.name, generation, m.group.name, known)
		}
		m.soon(100 * time.Millisecond)
	})
}

func (m *member) leave() {
	request := kmsg.NewPtrLeaveGroupRequest()
	request.SetVersion(m.version(kmsg.LeaveGroup, m.oldest(0, 3), anyVersion))
	request.Group, request.MemberID = m.group.name, m.id
	row := kmsg.NewLeaveGroupRequestMember()
	row.MemberID, row.InstanceID = m.id, m.instance
	request.Members = append(request.Members, row)
	m.ask(request, m.group.name, func(response kmsg.Response) {
		m.told("LeaveGroup", code(response.(*kmsg.LeaveGroupResponse).ErrorCode))
		m.id, m.stable = "", false
	})
}
