package group

import (
	"bytes"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/coordinator"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// member is a member of a group.
type member struct {
	id         string
	instance   *string // group.instance.id of a static member
	clientID   string
	clientHost string

	rebalanceTimeout time.Duration
	sessionTimeout   time.Duration
	protocols        []protocol // by preference
	assignment       []byte     // in the group's generation

	deadline time.Time   // of the session
	fresh    bool        // has not got a JoinGroup answer yet, so it does not know its id
	join     *parkedJoin // waits for the rebalance to end
	sync     *parkedSync // waits for the leader's assignment
	synced   bool        // has asked for its assignment in this generation
}

// protocol is an assignment strategy with what the member tells the leader about itself.
type protocol struct {
	name     string
	metadata []byte
}

// protocolsOf copies the protocols of a request; of a name that comes twice the first counts.
func protocolsOf(list []kmsg.JoinGroupRequestProtocol) []protocol {
	protocols := make([]protocol, 0, len(list))
	seen := make(map[string]bool, len(list))
	for _, p := range list {
		if !seen[p.Name] {
			seen[p.Name] = true
			protocols = append(protocols, protocol{p.Name, bytes.Clone(p.Metadata)})
		}
	}
	return protocols
}

// announces tells whether the member comes with just these protocols.
func (m *member) announces(protocols []protocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(a, b protocol) bool {
		return a.name == b.name && bytes.Equal(a.metadata, b.metadata)
	})
}

// metadata is what the member says about itself under a protocol.
func (m *member) metadata(protocol string) []byte {
	for _, p := range m.protocols {
		if p.name == protocol {
			return p.metadata
		}
	}
	return nil
}

// chose notes the metadata of the protocol that the group has chosen, as its record has it.
func (m *member) chose(name string, metadata []byte) {
	for i, p := range m.protocols {
		if p.name == name {
			if !bytes.Equal(p.metadata, metadata) {
				m.protocols[i].metadata = bytes.Clone(metadata)
			}
			return
		}
	}
	m.protocols = []protocol{{name, bytes.Clone(metadata)}}
}

// expired tells whether the session is over. Who waits for an answer of ours cannot beat, so it stays; but not somebody
// who may be long gone and does not even know its id.
func (m *member) expired(now time.Time) bool {
	return m.bounded() && !m.deadline.After(now)
}

func (m *member) bounded() bool { return m.fresh || m.join == nil && m.sync == nil }

func (m *member) alive(now time.Time) { m.deadline = now.Add(m.sessionTimeout) }

// parkedJoin is a JoinGroup request that waits for the rebalance to end.
type parkedJoin struct {
	resp *kmsg.JoinGroupResponse
	done func(*kmsg.JoinGroupResponse)
}

// fail makes the answer an error.
func (p *parkedJoin) fail(code wire.Code, memberID string) {
	version := p.resp.Version
	*p.resp = kmsg.NewJoinGroupResponse()
	p.resp.Version, p.resp.ErrorCode, p.resp.MemberID = version, int16(code), memberID
}

// reply is how the answer leaves, unless what it rests on could not be written.
func (p *parkedJoin) reply(err error) {
	if err != nil && p.resp.ErrorCode == 0 {
		p.fail(wire.CodeOf(err), "")
	}
	p.done(p.resp)
}

// answerJoin lets the parked answer go, as it is filled in.
func (m *member) answerJoin(out *coordinator.Result) {
	out.Replies = append(out.Replies, m.join.reply)
	m.join = nil
}

// failJoin answers the parked JoinGroup, if there is one, with an error.
func (m *member) failJoin(code wire.Code, memberID string, out *coordinator.Result) {
	if m.join != nil {
		m.join.fail(code, memberID)
		m.answerJoin(out)
	}
}

// parkedSync is a SyncGroup request that waits for the assignment.
type parkedSync struct {
	resp *kmsg.SyncGroupResponse
	done func(*kmsg.SyncGroupResponse)
}

func (p *parkedSync) fail(code wire.Code) {
	version := p.resp.Version
	*p.resp = kmsg.NewSyncGroupResponse()
	p.resp.Version, p.resp.ErrorCode = version, int16(code)
}

func (p *parkedSync) reply(err error) {
	if err != nil && p.resp.ErrorCode == 0 {
		p.fail(wire.CodeOf(err))
	}
	p.done(p.resp)
}

// answerSync lets the parked answer go, as it is filled in.
func (m *member) answerSync(out *coordinator.Result) {
	out.Replies = append(out.Replies, m.sync.reply)
	m.sync = nil
}

// failSync answers the parked SyncGroup, if there is one, with an error.
func (m *member) failSync(code wire.Code, out *coordinator.Result) {
	if m.sync != nil {
		m.sync.fail(code)
		m.answerSync(out)
	}
}
