package group

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/coordinator"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// state is where a group is between two generations. Empty and stable groups are as the log has them; the two states in
// between are of this coordinator's memory.
type state int8

const (
	empty state = iota
	preparingRebalance
	completingRebalance
	stable
)

// String is the state's name in DescribeGroups and ListGroups.
func (s state) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}[s]
}

// dead is the state of a group that does not exist.
const dead = "Dead"

// consumerProtocol is the protocol type whose metadata the coordinator looks into.
const consumerProtocol = "consumer"

// group is a classic group, or the offsets of consumers without one (then its protocol type is empty).
type group struct {
	id         string
	state      state
	generation int32
	since      int64 // when it became empty or stable, in ms; noTime when the record does not say

	protocolType string
	protocol     *string // nil between generations
	leader       string  // member id, or ""

	members   []*member          // in the order of joining
	index     map[string]*member // by id, for large groups only
	supported map[string]int     // how many members can use each protocol
	pending   []pendingMember    // have an id and have not joined

	topics      []string // that the members of the generation subscribe to, in order
	topicsKnown bool

	joinDeadline time.Time     // of preparingRebalance, when joins are no more waited for
	initial      bool          // the rebalance began in an empty group: it waits for more members
	extended     bool          // somebody joined since joinDeadline was set
	waited       time.Duration // the last delay of an initial rebalance
	remaining    time.Duration // what it may still wait
	syncDeadline time.Time     // when members that have not synced are removed, or zero

	offsets offsets
	logged  bool // the log has a group metadata record

	wake time.Time // what the shard's heap sorts by
	slot int       // in the heap, or -1
}

// pendingMember is a member id that was handed out with MEMBER_ID_REQUIRED.
type pendingMember struct {
	id       string
	deadline time.Time
}

// maxPendingMembers bounds the ids of a group that were handed out and not used. Beyond it the oldest is forgotten; its
// client, if it still lives, asks for another.
const maxPendingMembers = 1000

// indexedMembers is from what size on a group keeps an index of its members.
const indexedMembers = 16

func newGroup(id string) *group { return &group{id: id, since: noTime, slot: -1} }

// reset forgets everything but the offsets.
func (g *group) reset() {
	fresh := newGroup(g.id)
	fresh.offsets, fresh.slot, fresh.wake = g.offsets, g.slot, g.wake
	*g = *fresh
}

// disposable tells whether nothing would be lost with the group.
func (g *group) disposable() bool {
	return g.state == empty && !g.logged && len(g.offsets) == 0 && len(g.pending) == 0
}

// member finds a member by its id.
func (g *group) member(id string) *member {
	if g.index != nil {
		return g.index[id]
	}
	for _, m := range g.members {
		if m.id == id {
			return m
		}
	}
	return nil
}

// static finds a member by its instance id.
func (g *group) static(instance string) *member {
	for _, m := range g.members {
		if m.instance != nil && *m.instance == instance {
			return m
		}
	}
	return nil
}

// validate finds the member that a request speaks for, or tells why it may not: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
func (g *group) validate(id string, instance *string) (*member, wire.Code) {
	m := g.member(id)
	if instance != nil && (m == nil || m.instance == nil || *m.instance != *instance) {
		if g.static(*instance) != nil {
			return nil, wire.FencedInstanceID
		}
		return nil, wire.UnknownMemberID
	}
	if m == nil {
		return nil, wire.UnknownMemberID
	}
	return m, wire.None
}

// validateIn is validate for a request of one generation: ILLEGAL_GENERATION in another.
func (g *group) validateIn(generation int32, id string, instance *string) (*member, wire.Code) {
	m, code := g.validate(id, instance)
	if code == wire.None && generation != g.generation {
		return nil, wire.IllegalGeneration
	}
	return m, code
}

func (g *group) add(m *member) {
	if len(g.members) == 0 {
		g.leader = m.id
	}
	g.members = append(g.members, m)
	if g.index != nil {
		g.index[m.id] = m
	} else {
		g.reindex()
	}
	g.count(m, 1)
	g.dropPending(m.id)
}

func (g *group) remove(m *member) {
	g.members = slices.DeleteFunc(g.members, func(other *member) bool { return other == m })
	if g.index != nil {
		delete(g.index, m.id)
	}
	g.count(m, -1)
	if g.leader == m.id {
		g.leader = ""
		if len(g.members) > 0 {
			g.leader = g.members[0].id
		}
	}
}

// rename gives a static member the id of its next life.
func (g *group) rename(m *member, id string) {
	if g.index != nil {
		delete(g.index, m.id)
		g.index[id] = m
	}
	if g.leader == m.id {
		g.leader = id
	}
	m.id = id
}

// reindex builds the index anew, when the group is large enough to have one.
func (g *group) reindex() {
	if g.index = nil; len(g.members) <= indexedMembers {
		return
	}
	g.index = make(map[string]*member, len(g.members))
	for _, m := range g.members {
		g.index[m.id] = m
	}
}

// update takes over what a rejoining member says.
func (g *group) update(m *member, protocols []protocol, rebalanceTimeout, sessionTimeout time.Duration) {
	g.count(m, -1)
	m.protocols, m.rebalanceTimeout, m.sessionTimeout = protocols, rebalanceTimeout, sessionTimeout
	g.count(m, 1)
}

func (g *group) count(m *member, by int) {
	if g.supported == nil {
		g.supported = make(map[string]int)
	}
	for _, p := range m.protocols {
		if g.supported[p.name] += by; g.supported[p.name] == 0 {
			delete(g.supported, p.name)
		}
	}
}

// supports tells whether somebody with these protocols may join: one of them must be every member's.
func (g *group) supports(protocolType string, protocols []protocol) bool {
	if g.state == empty {
		return protocolType != "" && len(protocols) > 0
	}
	return protocolType == g.protocolType && slices.ContainsFunc(protocols, func(p protocol) bool { return g.common(p.name) })
}

// common tells whether all members know a protocol.
func (g *group) common(protocol string) bool {
	if len(g.members) == 0 {
		return true
	}
	return g.supported[protocol] == len(g.members)
}

// elect chooses the protocol of the next generation: each member votes for the first of its protocols that all know. A tie is
// decided as Kafka's hash map does, so that a mixed group chooses the same on both.
func (g *group) elect() string {
	votes := make(map[string]int)
	for _, m := range g.members {
		for _, p := range m.protocols {
			if g.common(p.name) {
				votes[p.name]++
				break
			}
		}
	}
	best := ""
	for _, name := range slices.Sorted(maps.Keys(votes)) {
		if best == "" || votes[name] > votes[best] || votes[name] == votes[best] && bucket(name) < bucket(best) {
			best = name
		}
	}
	return best
}

// bucket is where Java's HashMap of default size puts a string, which is the order in which it is walked.
func bucket(s string) uint32 {
	h := uint32(coordinator.StringHash(s))
	return (h ^ h>>16) & 15
}

func (g *group) dropPending(id string) bool {
	before := len(g.pending)
	g.pending = slices.DeleteFunc(g.pending, func(p pendingMember) bool { return p.id == id })
	return len(g.pending) < before
}

func (g *group) isPending(id string) bool {
	return slices.ContainsFunc(g.pending, func(p pendingMember) bool { return p.id == id })
}

// allJoined tells whether nobody has to be waited for.
func (g *group) allJoined() bool { return len(g.pending) == 0 && g.joined() == len(g.members) }

// joined is how many members wait for the rebalance to end.
func (g *group) joined() int {
	n := 0
	for _, m := range g.members {
		if m.join != nil {
			n++
		}
	}
	return n
}

// rebalanceTimeout is the longest of the members'.
func (g *group) rebalanceTimeout() time.Duration {
	var longest time.Duration
	for i, m := range g.members {
		if i == 0 || m.rebalanceTimeout > longest {
			longest = m.rebalanceTimeout
		}
	}
	return longest
}

// learnTopics works out what the members of the generation subscribe to.
func (g *group) learnTopics() {
	g.topics, g.topicsKnown = nil, false
	if g.protocolType != consumerProtocol || len(g.members) > 0 && g.protocol == nil {
		return
	}
	var topics []string
	for _, m := range g.members {
		if err := subscribedTopics(m.metadata(*g.protocol), func(t string) { topics = append(topics, t) }); err != nil {
			return
		}
	}
	slices.Sort(topics)
	g.topics, g.topicsKnown = slices.Clip(slices.Compact(topics)), true
}

// subscribes tells whether members consume a topic; all topics, when they cannot be asked.
func (g *group) subscribes(topic string) bool {
	if !g.topicsKnown {
		return g.protocolType == consumerProtocol
	}
	_, ok := slices.BinarySearch(g.topics, topic)
	return ok
}

// nextDeadline is when the first thing about the group falls due, or the zero time.
func (g *group) nextDeadline() time.Time {
	var first time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	sooner(g.joinDeadline)
	sooner(g.syncDeadline)
	for _, p := range g.pending {
		sooner(p.deadline)
	}
	for _, m := range g.members {
		if m.bounded() {
			sooner(m.deadline)
		}
	}
	return first
}

// record states the group as it is to be read back. Members get the assignment that assignments has for them.
func (g *group) record(now time.Time, assignments map[string][]byte) *kmsg.GroupMetadataValue {
	value := kmsg.NewGroupMetadataValue()
	value.ProtocolType = g.protocolType
	value.Generation = g.generation
	value.CurrentStateTimestamp = now.UnixMilli()
	if len(g.members) == 0 {
		return &value
	}
	leader := g.leader
	value.Protocol, value.Leader = g.protocol, &leader
	for _, m := range g.members {
		mv := kmsg.NewGroupMetadataValueMember()
		mv.MemberID, mv.InstanceID = m.id, m.instance
		mv.ClientID, mv.ClientHost = m.clientID, m.clientHost
		mv.RebalanceTimeoutMillis = int32(m.rebalanceTimeout.Milliseconds())
		mv.SessionTimeoutMillis = int32(m.sessionTimeout.Milliseconds())
		mv.Subscription = m.metadata(*g.protocol)
		mv.Assignment = assignments[m.id]
		value.Members = append(value.Members, mv)
	}
	return &value
}

// adopt makes the group what its record says. Members that it has already keep what is not in the log: their sessions and
// parked requests.
func (g *group) adopt(value *kmsg.GroupMetadataValue) {
	g.logged = true
	g.generation = value.Generation
	g.protocolType = value.ProtocolType
	if g.protocol = value.Protocol; g.protocol == nil && len(value.Members) > 0 {
		g.protocol = new(string) // members always have one; no record may make us stumble
	}
	g.since = value.CurrentStateTimestamp
	g.leader = ""
	if value.Leader != nil {
		g.leader = *value.Leader
	}
	former := g.members
	g.members, g.index, g.supported = nil, nil, nil
	for i := range value.Members {
		mv := &value.Members[i]
		m := lifeOf(former, i, mv)
		if m == nil {
			m = new(member)
		}
		m.id, m.instance = mv.MemberID, mv.InstanceID
		m.clientID, m.clientHost = mv.ClientID, mv.ClientHost
		m.sessionTimeout = time.Duration(mv.SessionTimeoutMillis) * time.Millisecond
		m.rebalanceTimeout = time.Duration(mv.RebalanceTimeoutMillis) * time.Millisecond
		if mv.RebalanceTimeoutMillis == -1 { // of a record without the field
			m.rebalanceTimeout = m.sessionTimeout
		}
		m.chose(*g.protocol, mv.Subscription)
		m.assignment = bytes.Clone(mv.Assignment)
		g.members = append(g.members, m)
		g.count(m, 1)
	}
	g.reindex()
	g.state = empty
	if len(g.members) > 0 {
		g.state = stable
	}
	g.learnTopics()
}

// lifeOf finds the member that a record speaks of, by its id or, of a static member, by a former life. It is likely at
// the same place as in the record.
func lifeOf(members []*member, place int, mv *kmsg.GroupMetadataValueMember) *member {
	for i := range members {
		m := members[(place+i)%len(members)]
		if m.id == mv.MemberID || m.instance != nil && mv.InstanceID != nil && *m.instance == *mv.InstanceID {
			return m
		}
	}
	return nil
}
