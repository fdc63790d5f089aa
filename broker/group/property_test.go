package group

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// actor is a client of the property test: it remembers what it was told, and does not always act on it.
type actor struct {
	id         string // member id
	instance   *string
	generation int32
	leader     bool
	roster     []string
	asked      int // requests
	answered   int
}

// play drives one group by several actors.
type play struct {
	*world
	rt     *rapid.T
	actors []*actor
	failed bool // an append has failed: memory may be ahead of the log
}

// state is the group as it is now, or nil.
func (p *play) group() (found *group) {
	if err := p.View(0, func(s *shard) { found = s.groups["g"] }); err != nil {
		p.rt.Fatal(err)
	}
	return found
}

func (p *play) step() {
	a := rapid.SampledFrom(p.actors).Draw(p.rt, "actor")
	switch rapid.SampledFrom([]string{"join", "join", "sync", "sync", "beat", "leave", "commit", "pass", "pass", "log", "reload"}).Draw(p.rt, "step") {
	case "join":
		p.join(a)
	case "sync":
		p.sync(a)
	case "beat":
		req := kmsg.NewPtrHeartbeatRequest()
		req.Group, req.MemberID, req.InstanceID, req.Generation = "g", a.id, a.instance, a.generation
		p.Heartbeat(p.now, req)
	case "leave":
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Version, req.Group = 5, "g"
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID, m.InstanceID = a.id, a.instance
		req.Members = append(req.Members, m)
		a.asked++
		p.LeaveGroup(p.now, req, func(*kmsg.LeaveGroupResponse) { a.answered++ })
	case "commit":
		req := commitRequest("g", "t", 0, 1)
		req.MemberID, req.InstanceID, req.Generation = a.id, a.instance, a.generation
		a.asked++
		p.OffsetCommit(p.now, req, func(*kmsg.OffsetCommitResponse) { a.answered++ })
	case "pass":
		p.pass(time.Duration(rapid.IntRange(1, 20000).Draw(p.rt, "ms")) * time.Millisecond)
	case "log":
		p.control(rapid.SampledFrom([]string{"fail", "work", "work", "hold", "release"}).Draw(p.rt, "log"))
		p.failed = p.failed || p.log.err != nil
	case "reload":
		p.load()
		p.failed = p.log.err != nil
	}
}

func commitRequest(group, topic string, partition int32, offset int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group = 8, group
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset = partition, offset
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func (p *play) join(a *actor) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version = rapid.SampledFrom([]int16{0, 3, 5, 9}).Draw(p.rt, "version")
	req.Group, req.MemberID, req.InstanceID = "g", a.id, a.instance
	req.SessionTimeoutMillis = 10000
	req.RebalanceTimeoutMillis = rapid.SampledFrom([]int32{-1, 0, 5000, 30000}).Draw(p.rt, "rebalance")
	req.ProtocolType = "consumer"
	for _, name := range rapid.SampledFrom([][]string{{"range"}, {"range", "sticky"}, {"sticky", "range"}, {"sticky"}, {}}).Draw(p.rt, "protocols") {
		rp := kmsg.NewJoinGroupRequestProtocol()
		rp.Name, rp.Metadata = name, []byte(name)
		req.Protocols = append(req.Protocols, rp)
	}
	a.asked++
	p.JoinGroup(p.now, req, Client{ID: "c"}, func(r *kmsg.JoinGroupResponse) {
		a.answered++
		switch wire.Code(r.ErrorCode) {
		case wire.None:
			a.id, a.generation, a.leader = r.MemberID, r.Generation, r.LeaderID == r.MemberID
			a.roster = nil
			for _, m := range r.Members {
				a.roster = append(a.roster, m.MemberID)
			}
			if a.leader && r.Version < 9 && len(r.Members) == 0 || !a.leader && len(r.Members) > 0 {
				p.rt.Fatalf("leader %v with %d members", a.leader, len(r.Members))
			}
		case wire.MemberIDRequired:
			a.id = r.MemberID
		case wire.UnknownMemberID, wire.FencedInstanceID:
			a.id = ""
		}
	})
}

func (p *play) sync(a *actor) {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group = 3, "g"
	req.MemberID, req.InstanceID, req.Generation = a.id, a.instance, a.generation
	for _, id := range a.roster {
		ra := kmsg.NewSyncGroupRequestGroupAssignment()
		ra.MemberID, ra.MemberAssignment = id, fmt.Appendf(nil, "%d:%s", a.generation, id)
		req.GroupAssignment = append(req.GroupAssignment, ra)
	}
	asked, generation := a.id, a.generation
	a.asked++
	p.SyncGroup(p.now, req, func(r *kmsg.SyncGroupResponse) {
		a.answered++
		if want := fmt.Sprintf("%d:%s", generation, asked); r.ErrorCode == 0 && len(r.MemberAssignment) > 0 && string(r.MemberAssignment) != want &&
			!strings.HasPrefix(string(r.MemberAssignment), fmt.Sprint(generation, ":")) {
			p.rt.Fatalf("assignment %s, want %s", r.MemberAssignment, want)
		}
	})
}

// check holds the group against what must always be true of it.
func (p *play) check(before state, generation int32) {
	g := p.group()
	if g == nil {
		return
	}
	fail := func(format string, args ...any) {
		p.rt.Helper()
		p.rt.Fatalf("%s, generation %d: %s", g.state, g.generation, fmt.Sprintf(format, args...))
	}
	if g.state == stable && before != stable && before != completingRebalance {
		fail("stable after %s", before)
	}
	if g.generation < generation {
		fail("generation was %d", generation)
	}
	if (g.state == empty || g.state == stable && before == empty) && len(g.members) > 0 {
		fail("%d members", len(g.members))
	}
	if g.state > preparingRebalance && (len(g.members) == 0 || g.protocol == nil || !g.common(*g.protocol)) {
		fail("%d members, protocol %v", len(g.members), text(g.protocol))
	}
	if g.joinDeadline.IsZero() == (g.state == preparingRebalance) {
		fail("join deadline %v", g.joinDeadline)
	}
	if !g.syncDeadline.IsZero() && g.state < completingRebalance {
		fail("sync deadline %v", g.syncDeadline)
	}
	var ids, instances []string
	count := make(map[string]int)
	for _, m := range g.members {
		ids = append(ids, m.id)
		if m.instance != nil {
			instances = append(instances, *m.instance)
		}
		if m.join != nil && g.state != preparingRebalance || m.sync != nil && g.state != completingRebalance {
			fail("parked: join %v sync %v", m.join != nil, m.sync != nil)
		}
		if g.member(m.id) != m {
			fail("member %s not found", m.id)
		}
		for _, p := range m.protocols {
			count[p.name]++
		}
	}
	if !maps.Equal(count, g.supported) {
		fail("supported %v, want %v", g.supported, count)
	}
	if len(g.members) > 0 && !slices.Contains(slices.Collect(maps.Values(g.supported)), len(g.members)) {
		fail("no common protocol in %v", g.supported)
	}
	if distinct(ids) != len(g.members) || distinct(instances) != len(instances) {
		fail("members %v instances %v", ids, instances)
	}
	if len(g.members) > 0 != (g.member(g.leader) != nil) {
		fail("leader %q of %v", g.leader, ids)
	}
	if next := g.nextDeadline(); !next.IsZero() && (g.slot < 0 || g.wake.After(next)) {
		fail("deadline %v would be missed", next)
	}
	if (g.state == empty || g.state == stable) && g.logged && !p.failed {
		p.compareWithLog(g)
	}
}

func distinct(list []string) int {
	list = slices.Clone(list)
	slices.Sort(list)
	return len(slices.Compact(list))
}

// compareWithLog checks that a new coordinator would find the same.
func (p *play) compareWithLog(g *group) {
	s := newShard(&p.cfg)
	load := func(key, value []byte) {
		if err := s.Replay(recordOf(key, value)); err != nil {
			p.rt.Fatal(err)
		}
	}
	for r := range p.log.records {
		load(r.Key, r.Value)
	}
	if got, want := settled(s.groups["g"]), settled(g); got != want {
		p.rt.Fatalf("in the log\n%s\nin memory\n%s", got, want)
	}
}

// settled is what of a group outlives its coordinator.
func settled(g *group) string {
	if g == nil {
		return "none"
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %d %s %s %s %v %v %d\n", g.state, g.generation, g.protocolType, text(g.protocol), g.leader, g.topics, g.topicsKnown, g.since)
	for _, m := range g.members {
		fmt.Fprintf(&b, "%s %s %s %s %v %v %s", m.id, text(m.instance), m.clientID, m.clientHost, m.sessionTimeout, m.rebalanceTimeout, m.assignment)
		if g.protocol != nil {
			fmt.Fprintf(&b, " %s", m.metadata(*g.protocol))
		}
		fmt.Fprintln(&b)
	}
	for _, t := range g.offsets {
		fmt.Fprintf(&b, "%s %v\n", t.topic, t.partitions)
	}
	return b.String()
}

// FM-76 and the table of states: whatever the clients do, in whatever order, with a log that fails, lags, or moves to another
// coordinator, the group stays consistent, its log says the same as its memory, and every request is answered once.
func TestGroupStaysConsistent(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		delay := rapid.SampledFrom([]time.Duration{0, 3 * time.Second}).Draw(rt, "initial delay")
		p := &play{rt: rt, world: newWorld(func(c *Config) {
			c.InitialRebalanceDelay = delay
			c.MaxSize = 3
			c.OffsetsRetention, c.OffsetsRetentionCheck = time.Minute, 20*time.Second
		})}
		for i := range rapid.IntRange(1, 5).Draw(rt, "actors") {
			a := new(actor)
			if rapid.Bool().Draw(rt, "static") {
				instance := fmt.Sprint("i", i/2) // some share one
				a.instance = &instance
			}
			p.actors = append(p.actors, a)
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			before, generation, epoch := empty, int32(0), p.epoch
			if g := p.group(); g != nil {
				before, generation = g.state, g.generation
			}
			gone := len(p.log.batches)
			p.step()
			if p.epoch != epoch || deleted(p, gone) {
				before, generation = stable, 0
			}
			p.check(before, generation)
		}
		p.Unload(0, p.epoch+1)
		for _, a := range p.actors {
			if a.asked != a.answered {
				rt.Fatalf("%d requests, %d answers", a.asked, a.answered)
			}
		}
	})
}

// deleted tells whether the group was deleted by the batches from number on.
func deleted(p *play, from int) bool {
	for _, b := range p.log.batches[from:] {
		one := memoryLog{}
		one.batches = append(one.batches, b)
		for r := range one.records {
			if r.Value == nil && bytes.Equal(r.Key, groupKey("g")) {
				return true
			}
		}
	}
	return false
}

// Offsets against a map: what was acknowledged is what is fetched, before and after a reload.
func TestOffsetsAreAMap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(nil)
		type key struct {
			group, topic string
			partition    int32
		}
		model := make(map[key]int64)
		groups, topics := []string{"", "g", "h"}, []string{"a", "b", "ab"}
		draw := func() key {
			return key{
				rapid.SampledFrom(groups).Draw(rt, "group"),
				rapid.SampledFrom(topics).Draw(rt, "topic"),
				rapid.Int32Range(0, 3).Draw(rt, "partition"),
			}
		}
		for range rapid.IntRange(1, 50).Draw(rt, "steps") {
			k := draw()
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0:
				w.load()
			case 1:
				w.log.err = wire.KafkaStorageError
			case 2:
				req := kmsg.NewPtrDeleteGroupsRequest()
				req.Groups = []string{k.group}
				w.DeleteGroups(w.now, req, func(r *kmsg.DeleteGroupsResponse) {
					if r.Groups[0].ErrorCode == 0 {
						for other := range model {
							if other.group == k.group {
								delete(model, other)
							}
						}
					}
				})
			case 3:
				w.TopicsDeleted(w.now, []string{k.topic})
				if w.log.err == nil {
					for other := range model {
						if other.topic == k.topic {
							delete(model, other)
						}
					}
				}
			case 4:
				req := kmsg.NewPtrOffsetDeleteRequest()
				req.Group = k.group
				rt := kmsg.NewOffsetDeleteRequestTopic()
				rt.Topic = k.topic
				rp := kmsg.NewOffsetDeleteRequestTopicPartition()
				rp.Partition = k.partition
				rt.Partitions = append(rt.Partitions, rp)
				req.Topics = append(req.Topics, rt)
				w.OffsetDelete(w.now, req, func(r *kmsg.OffsetDeleteResponse) {
					if r.ErrorCode == 0 {
						delete(model, k)
					}
				})
			default:
				w.log.err = nil
				offset := rapid.Int64Range(0, 1000).Draw(rt, "offset")
				w.OffsetCommit(w.now, commitRequest(k.group, k.topic, k.partition, offset), func(r *kmsg.OffsetCommitResponse) {
					if r.Topics[0].Partitions[0].ErrorCode == 0 {
						model[k] = offset
					}
				})
			}
			for _, group := range groups {
				req := kmsg.NewPtrOffsetFetchRequest()
				req.Version, req.Group = 7, group
				w.OffsetFetch(w.now, req, func(r *kmsg.OffsetFetchResponse) {
					n := 0
					for _, t := range r.Topics {
						for _, p := range t.Partitions {
							n++
							if want, ok := model[key{group, t.Topic, p.Partition}]; !ok || want != p.Offset {
								rt.Fatalf("%s %s-%d is %d, want %d (%v)", group, t.Topic, p.Partition, p.Offset, want, ok)
							}
						}
					}
					for k := range model {
						if k.group == group {
							n--
						}
					}
					if n != 0 {
						rt.Fatalf("%s: %d offsets too many", group, n)
					}
				})
			}
		}
	})
}

// A storm of joins ends, with a bounded memory of ids that nobody used (BO-047, FM-76).
func TestRebalanceStormEnds(t *testing.T) {
	w := newWorld(nil)
	join := func(version int16, id string, done func(*kmsg.JoinGroupResponse)) {
		req := kmsg.NewPtrJoinGroupRequest()
		req.Version, req.Group, req.MemberID = version, "g", id
		req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = 10000, 60000, "consumer"
		rp := kmsg.NewJoinGroupRequestProtocol()
		rp.Name = "range"
		req.Protocols = append(req.Protocols, rp)
		w.JoinGroup(w.now, req, Client{ID: "c"}, done)
	}
	const clients = 500
	for range 3 * maxPendingMembers {
		join(5, "", func(*kmsg.JoinGroupResponse) {})
	}
	var g *group
	_ = w.View(0, func(s *shard) { g = s.groups["g"] })
	if len(g.pending) != maxPendingMembers {
		t.Fatalf("%d pending ids", len(g.pending))
	}
	generations := make(map[int32]int)
	var ids []string
	for range clients {
		join(5, "", func(r *kmsg.JoinGroupResponse) { ids = append(ids, r.MemberID) })
	}
	for _, id := range ids {
		join(5, id, func(r *kmsg.JoinGroupResponse) { generations[r.Generation]++ })
	}
	join(5, ids[0], func(r *kmsg.JoinGroupResponse) { generations[r.Generation]++ }) // it was alone in generation 1
	w.pass(10 * time.Second)                                                         // the other ids are forgotten
	if generations[1] != 1 || generations[2] != clients {
		t.Errorf("answers by generation: %v", generations)
	}
	if g.state != completingRebalance || len(g.members) != clients || len(g.pending) != 0 {
		t.Errorf("%s, %d members, %d pending", g.state, len(g.members), len(g.pending))
	}
}

// A load is used up while topics go: they are forgotten when it ends, and not by a load after it.
func TestTopicsDeletedWhileLoading(t *testing.T) {
	w := newWorld(nil)
	ok := func(*kmsg.OffsetCommitResponse) {}
	w.OffsetCommit(w.now, commitRequest("g", "a", 0, 1), ok)
	w.OffsetCommit(w.now, commitRequest("g", "b", 0, 1), ok)
	reload := func(meanwhile func()) {
		w.Unload(0, w.epoch+1)
		w.epoch += 2
		load := w.StartLoad(0, w.epoch)
		err := load.Replay(context.Background(), w.log.read())
		meanwhile()
		w.FinishLoad(w.now, load, w.log.end, err)
	}
	topics := func() string {
		var list []string
		_ = w.View(0, func(s *shard) {
			for _, o := range s.groups["g"].offsets {
				list = append(list, o.topic)
			}
		})
		return strings.Join(list, " ")
	}
	reload(func() { w.TopicsDeleted(w.now, []string{"a"}) })
	if got := topics(); got != "b" {
		t.Errorf("got %q", got)
	}
	w.Unload(0, w.epoch+1)
	w.epoch += 2
	w.StartLoad(0, w.epoch)
	w.TopicsDeleted(w.now, []string{"b"})
	reload(func() {}) // b was made again since
	if got := topics(); got != "b" {
		t.Errorf("got %q", got)
	}
}

// Each refusal of the runtime reaches the client in the fields of its version.
func TestRefusalsByVersion(t *testing.T) {
	w := newWorld(nil)
	w.Unload(0, w.epoch+1)
	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Group = "g"
	topic := kmsg.NewOffsetFetchRequestTopic()
	topic.Topic, topic.Partitions = "t", []int32{0, 1}
	fetch.Topics = append(fetch.Topics, topic)
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = "g"
	fetch.Groups = append(fetch.Groups, group)
	for version := int16(1); version <= 10; version++ {
		fetch.Version = version
		w.OffsetFetch(w.now, fetch, func(r *kmsg.OffsetFetchResponse) {
			var code int16
			switch {
			case version < 2:
				code = cmp.Or(r.Topics[0].Partitions[1].ErrorCode, r.Topics[0].Partitions[0].ErrorCode)
			case version < 8:
				code = r.ErrorCode
			default:
				code = r.Groups[0].ErrorCode
			}
			if code != int16(wire.NotCoordinator) {
				t.Errorf("OffsetFetch v%d: %d", version, code)
			}
		})
	}
	w.OffsetCommit(w.now, commitRequest("g", "t", 0, 1), func(r *kmsg.OffsetCommitResponse) {
		if code := r.Topics[0].Partitions[0].ErrorCode; code != int16(wire.NotCoordinator) {
			t.Errorf("OffsetCommit: %d", code)
		}
	})
	w.SetPartitionCount(0) // BO-051: the internal topic is not there yet
	w.OffsetCommit(w.now, commitRequest("g", "t", 0, 1), func(r *kmsg.OffsetCommitResponse) {
		if code := r.Topics[0].Partitions[0].ErrorCode; code != int16(wire.CoordinatorNotAvailable) {
			t.Errorf("OffsetCommit: %d", code)
		}
	})
	if r := w.ListGroups(kmsg.NewPtrListGroupsRequest()); r.ErrorCode != 0 {
		t.Errorf("ListGroups: %d", r.ErrorCode)
	}
	w.StartLoad(0, w.epoch+2)
	if r := w.ListGroups(kmsg.NewPtrListGroupsRequest()); r.ErrorCode != int16(wire.CoordinatorLoadInProgress) {
		t.Errorf("ListGroups while loading: %d", r.ErrorCode)
	}
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group = "g"
	w.SetPartitionCount(1)
	if r := w.Heartbeat(w.now, beat); r.ErrorCode != int16(wire.CoordinatorLoadInProgress) {
		t.Errorf("Heartbeat while loading: %d", r.ErrorCode)
	}
}
