package broker_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// groupConn speaks to the coordinator of a group.
type groupConn struct {
	*conn
	id string
}

// group waits until there is a coordinator.
func (r *rig) group(id string) groupConn {
	r.t.Helper()
	c := r.dial()
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorKey = id
	eventually(r.t, "there is a coordinator", func() bool {
		if ask[*kmsg.FindCoordinatorResponse](c, version(1, find)).ErrorCode != 0 {
			return false
		}
		fetch := kmsg.NewPtrOffsetFetchRequest()
		fetch.Group = id
		return ask[*kmsg.OffsetFetchResponse](c, version(2, fetch)).ErrorCode == 0
	})
	return groupConn{c, id}
}

// commit commits an offset of partition 0 as a consumer without a group does.
func (g groupConn) commit(v int16, topic string, offset int64, edit func(*kmsg.OffsetCommitRequest)) []kmsg.OffsetCommitResponseTopic {
	g.t.Helper()
	request := kmsg.NewPtrOffsetCommitRequest()
	request.Group, request.Generation, request.RetentionTimeMillis = g.id, -1, -1
	row := kmsg.NewOffsetCommitRequestTopicPartition()
	row.Offset = offset
	request.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{row}}}
	if edit != nil {
		edit(request)
	}
	return ask[*kmsg.OffsetCommitResponse](g.conn, version(v, request)).Topics
}

// fetch is what was committed for partition 0.
func (g groupConn) fetch(v int16, topic string) kmsg.OffsetFetchResponseTopicPartition {
	g.t.Helper()
	request := kmsg.NewPtrOffsetFetchRequest()
	request.Group = g.id
	request.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: topic, Partitions: []int32{0}}}
	return ask[*kmsg.OffsetFetchResponse](g.conn, version(v, request)).Topics[0].Partitions[0]
}

// joinOf is a member's request to join.
func (g groupConn) joinOf(member string, instance *string, sessionMs int32) *kmsg.JoinGroupRequest {
	request := kmsg.NewPtrJoinGroupRequest()
	request.Group, request.MemberID, request.InstanceID, request.ProtocolType = g.id, member, instance, "consumer"
	request.SessionTimeoutMillis, request.RebalanceTimeoutMillis = sessionMs, 10_000
	request.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}}
	return request
}

func (g groupConn) join(v int16, member string, instance *string, sessionMs int32) *kmsg.JoinGroupResponse {
	g.t.Helper()
	return ask[*kmsg.JoinGroupResponse](g.conn, version(v, g.joinOf(member, instance, sessionMs)))
}

func (g groupConn) sync(member string, instance *string, generation int32) wire.Code {
	g.t.Helper()
	request := kmsg.NewPtrSyncGroupRequest()
	request.Group, request.MemberID, request.InstanceID, request.Generation = g.id, member, instance, generation
	request.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: member, MemberAssignment: []byte("a")}}
	return wire.Code(ask[*kmsg.SyncGroupResponse](g.conn, version(3, request)).ErrorCode)
}

func (g groupConn) heartbeat(member string, instance *string, generation int32) wire.Code {
	g.t.Helper()
	request := kmsg.NewPtrHeartbeatRequest()
	request.Group, request.MemberID, request.InstanceID, request.Generation = g.id, member, instance, generation
	return wire.Code(ask[*kmsg.HeartbeatResponse](g.conn, version(3, request)).ErrorCode)
}

func (g groupConn) describe(v int16) kmsg.DescribeGroupsResponseGroup {
	g.t.Helper()
	request := kmsg.NewPtrDescribeGroupsRequest()
	request.Groups = []string{g.id}
	return ask[*kmsg.DescribeGroupsResponse](g.conn, version(v, request)).Groups[0]
}

func TestGroupFaults(t *testing.T) {
	r := startBroker(t, "group.min.session.timeout.ms=100")
	r.create("subscribed", 1)
	r.create("unsubscribed", 1)

	t.Run("BO-051 first contact", func(t *testing.T) {
		c := r.dial()
		retriable := []wire.Code{wire.CoordinatorLoadInProgress, wire.CoordinatorNotAvailable, wire.NotCoordinator}
		fetch := kmsg.NewPtrOffsetFetchRequest()
		fetch.Group = "first"
		fetch.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "subscribed", Partitions: []int32{0}}}
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.CoordinatorKey = "first"
		eventually(t, "the coordinator answers", func() bool {
			if code := wire.Code(ask[*kmsg.FindCoordinatorResponse](c, version(1, find)).ErrorCode); code != wire.None && !slices.Contains(retriable, code) {
				t.Fatalf("FindCoordinator: %v", code)
			}
			answer := ask[*kmsg.OffsetFetchResponse](c, version(3, fetch))
			if code := wire.Code(answer.ErrorCode); code != wire.None {
				if !slices.Contains(retriable, code) {
					t.Fatalf("OffsetFetch: %v", code)
				}
				return false
			}
			if row := answer.Topics[0].Partitions[0]; row.Offset != -1 || row.ErrorCode != 0 {
				t.Fatalf("%+v", row)
			}
			return true
		})
	})
	t.Run("BO-047 members that ask for an id and never come back", func(t *testing.T) {
		g := r.group("pending")
		ids := map[string]bool{}
		for range 50 {
			answer := g.join(4, "", nil, 100)
			if wire.Code(answer.ErrorCode) != wire.MemberIDRequired || ids[answer.MemberID] {
				t.Fatalf("%v, id %s", wire.Code(answer.ErrorCode), answer.MemberID)
			}
			ids[answer.MemberID] = true
		}
		member := g.join(4, "", nil, 30_000).MemberID
		answer := g.join(4, member, nil, 30_000)
		if answer.ErrorCode != 0 || len(answer.Members) != 1 {
			t.Fatalf("%v, %d members", wire.Code(answer.ErrorCode), len(answer.Members))
		}
		if code := g.sync(member, nil, answer.Generation); code != wire.None || g.describe(5).State != "Stable" {
			t.Errorf("%v, %s", code, g.describe(5).State)
		}
	})
	t.Run("BO-048 a static member comes back", func(t *testing.T) {
		g := r.group("static")
		instance := "one"
		first := g.join(5, "", &instance, 30_000)
		if first.ErrorCode != 0 || g.sync(first.MemberID, &instance, first.Generation) != wire.None {
			t.Fatal(wire.Code(first.ErrorCode))
		}
		second := g.join(5, "", &instance, 30_000)
		if second.ErrorCode != 0 || second.MemberID == first.MemberID {
			t.Fatalf("%v, id %s", wire.Code(second.ErrorCode), second.MemberID)
		}
		commit := g.commit(7, "subscribed", 1, func(r *kmsg.OffsetCommitRequest) {
			r.MemberID, r.InstanceID, r.Generation = first.MemberID, &instance, first.Generation
		})
		for name, code := range map[string]wire.Code{
			"join":      wire.Code(g.join(5, first.MemberID, &instance, 30_000).ErrorCode),
			"sync":      g.sync(first.MemberID, &instance, first.Generation),
			"heartbeat": g.heartbeat(first.MemberID, &instance, first.Generation),
			"commit":    wire.Code(commit[0].Partitions[0].ErrorCode),
		} {
			if code != wire.FencedInstanceID {
				t.Errorf("%s: %v", name, code)
			}
		}
	})
	t.Run("BO-049 session time-outs", func(t *testing.T) {
		for v := range int16(10) {
			for ms, want := range map[int32]wire.Code{1: wire.InvalidSessionTimeout, 99: wire.InvalidSessionTimeout, 1_800_001: wire.InvalidSessionTimeout} {
				if code := wire.Code(r.group("timeouts").join(v, "", nil, ms).ErrorCode); code != want {
					t.Errorf("version %d, %d ms: %v", v, ms, code)
				}
			}
			nameless := groupConn{r.dial(), ""}
			if code := wire.Code(nameless.join(v, "", nil, 6000).ErrorCode); code != wire.InvalidGroupID {
				t.Errorf("version %d, no group: %v", v, code)
			}
		}
		for _, ms := range []int32{100, 1_800_000} {
			g := r.group(fmt.Sprint("timeout-", ms))
			if code := wire.Code(g.join(3, "", nil, ms).ErrorCode); code != wire.None {
				t.Errorf("%d ms: %v", ms, code)
			}
		}
	})
	t.Run("BO-050 unknown members leave", func(t *testing.T) {
		g := r.group("leavers")
		g.join(3, "", nil, 30_000)
		for v := range int16(6) {
			request := kmsg.NewPtrLeaveGroupRequest()
			instance := "unknown"
			request.Group, request.MemberID = g.id, "unknown"
			request.Members = []kmsg.LeaveGroupRequestMember{{MemberID: "unknown"}, {InstanceID: &instance}}
			answer := ask[*kmsg.LeaveGroupResponse](g.conn, version(v, request))
			if v < 3 {
				if wire.Code(answer.ErrorCode) != wire.UnknownMemberID {
					t.Errorf("version %d: %v", v, wire.Code(answer.ErrorCode))
				}
				continue
			}
			if answer.ErrorCode != 0 || len(answer.Members) != 2 ||
				wire.Code(answer.Members[0].ErrorCode) != wire.UnknownMemberID || wire.Code(answer.Members[1].ErrorCode) != wire.UnknownMemberID {
				t.Errorf("version %d: %v, %+v", v, wire.Code(answer.ErrorCode), answer.Members)
			}
		}
	})
	t.Run("BO-053 an unknown group is described", func(t *testing.T) {
		g := r.group("nobody")
		for v := range int16(7) {
			got, want := g.describe(v), wire.None
			if v == 6 {
				want = wire.GroupIDNotFound
			}
			if wire.Code(got.ErrorCode) != want || got.State != "Dead" || len(got.Members) != 0 {
				t.Errorf("version %d: %v, %s", v, wire.Code(got.ErrorCode), got.State)
			}
		}
	})
	t.Run("BO-054 offsets of what is subscribed to", func(t *testing.T) {
		g := r.group("live")
		g.commit(5, "unsubscribed", 3, nil)
		consumer := r.client(kgo.ConsumerGroup("live"), kgo.ConsumeTopics("subscribed"))
		eventually(t, "the consumer is in the group", func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			consumer.PollFetches(ctx)
			return g.describe(5).State == "Stable"
		})
		remove := func(group string) *kmsg.OffsetDeleteResponse {
			request := kmsg.NewPtrOffsetDeleteRequest()
			request.Group = group
			for _, topic := range []string{"subscribed", "unsubscribed"} {
				request.Topics = append(request.Topics, kmsg.OffsetDeleteRequestTopic{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{}}})
			}
			return ask[*kmsg.OffsetDeleteResponse](g.conn, version(0, request))
		}
		for _, topic := range remove("live").Topics {
			want := wire.None
			if topic.Topic == "subscribed" {
				want = wire.GroupSubscribedToTopic
			}
			if code := wire.Code(topic.Partitions[0].ErrorCode); code != want {
				t.Errorf("%s: %v", topic.Topic, code)
			}
		}
		if row := g.fetch(5, "unsubscribed"); row.Offset != -1 {
			t.Errorf("the offset is still %d", row.Offset)
		}
		if code := wire.Code(remove("unheard-of").ErrorCode); code != wire.GroupIDNotFound {
			t.Errorf("an unknown group: %v", code)
		}
	})
	t.Run("BO-055 groups by state and type", func(t *testing.T) {
		g := r.group("listed")
		g.commit(5, "subscribed", 1, nil)
		list := func(v int16, states, types []string) (names []string) {
			request := kmsg.NewPtrListGroupsRequest()
			request.StatesFilter, request.TypesFilter = states, types
			for _, row := range ask[*kmsg.ListGroupsResponse](g.conn, version(v, request)).Groups {
				if row.GroupState == "" {
					t.Errorf("%s has no state", row.Group)
				}
				names = append(names, row.Group)
			}
			return names
		}
		for v := int16(4); v <= 5; v++ {
			if empty := list(v, []string{"Empty"}, nil); !slices.Contains(empty, "listed") || slices.Contains(empty, "static") {
				t.Errorf("version %d: empty are %v", v, empty)
			}
			if stable := list(v, []string{"Stable"}, nil); slices.Contains(stable, "listed") || !slices.Contains(stable, "pending") {
				t.Errorf("version %d: stable are %v", v, stable)
			}
			if none := list(v, []string{"Nonsense"}, nil); len(none) != 0 {
				t.Errorf("version %d: nonsense are %v", v, none)
			}
		}
		if classic := list(5, nil, []string{"classic"}); !slices.Contains(classic, "listed") {
			t.Errorf("classic are %v", classic)
		}
		if none := list(5, nil, []string{"nonsense"}); len(none) != 0 {
			t.Errorf("of type nonsense are %v", none)
		}
	})
	r.wantServing()
}

func TestOffsetFaults(t *testing.T) {
	r := startBroker(t)
	r.create("t", 1)

	t.Run("BO-052 a deleted group stays gone", func(t *testing.T) {
		g := r.group("deleted")
		g.commit(5, "t", 1, nil)
		request := kmsg.NewPtrDeleteGroupsRequest()
		request.Groups = []string{g.id}
		if row := ask[*kmsg.DeleteGroupsResponse](g.conn, version(1, request)).Groups[0]; row.ErrorCode != 0 {
			t.Fatal(wire.Code(row.ErrorCode))
		}
		r.restart()
		g = r.group("deleted")
		if state, row := g.describe(5).State, g.fetch(5, "t"); state != "Dead" || row.Offset != -1 {
			t.Errorf("%s, offset %d", state, row.Offset)
		}
	})
	g := r.group("offsets")
	t.Run("BO-057 retention -1 is the broker's", func(t *testing.T) {
		for v := int16(2); v <= 4; v++ {
			if code := g.commit(v, "t", int64(v), nil)[0].Partitions[0].ErrorCode; code != 0 {
				t.Errorf("version %d: %v", v, wire.Code(code))
			}
			if row := g.fetch(5, "t"); row.Offset != int64(v) {
				t.Errorf("version %d: offset %d", v, row.Offset)
			}
		}
	})
	t.Run("BO-059 null metadata", func(t *testing.T) {
		for v := int16(2); v <= 9; v++ {
			for _, metadata := range []*string{nil, new(string)} {
				rows := g.commit(v, "t", 1, func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Partitions[0].Metadata = metadata })
				if row := g.fetch(5, "t"); rows[0].Partitions[0].ErrorCode != 0 || row.Metadata == nil || *row.Metadata != "" {
					t.Errorf("version %d: %v, read back as %v", v, wire.Code(rows[0].Partitions[0].ErrorCode), row.Metadata)
				}
			}
		}
	})
	t.Run("BO-060 a topic that is not there", func(t *testing.T) {
		for v := int16(2); v <= 10; v++ {
			rows := g.commit(v, "t", 5, func(request *kmsg.OffsetCommitRequest) {
				request.Topics[0].TopicID = r.topicID("t")
				missing := request.Topics[0]
				missing.Topic, missing.TopicID = "missing", [16]byte{1}
				request.Topics = append(request.Topics, missing)
				beyond := kmsg.NewOffsetCommitRequestTopicPartition()
				beyond.Partition = 7
				request.Topics[0].Partitions = append(request.Topics[0].Partitions, beyond)
			})
			want := map[string]wire.Code{"t/0": wire.None, "t/7": wire.UnknownTopicOrPartition, "missing/0": wire.UnknownTopicOrPartition}
			if v == 10 {
				want["missing/0"] = wire.UnknownTopicID
			}
			for _, topic := range rows {
				for _, row := range topic.Partitions {
					name := topic.Topic
					if v == 10 {
						name = map[bool]string{true: "t", false: "missing"}[topic.TopicID == r.topicID("t")]
					}
					if key := fmt.Sprintf("%s/%d", name, row.Partition); wire.Code(row.ErrorCode) != want[key] {
						t.Errorf("version %d: %s: %v", v, key, wire.Code(row.ErrorCode))
					}
				}
			}
			if row := g.fetch(5, "missing"); row.Offset != -1 {
				t.Errorf("version %d: an offset of the missing topic is kept", v)
			}
		}
	})
	t.Run("BO-061 the leader epoch of an offset", func(t *testing.T) {
		check := func(when string, want int32) {
			t.Helper()
			if row := g.fetch(7, "t"); row.LeaderEpoch != want {
				t.Errorf("%s, by name: %d", when, row.LeaderEpoch)
			}
			all := kmsg.NewPtrOffsetFetchRequest()
			all.Group = g.id
			for _, topic := range ask[*kmsg.OffsetFetchResponse](g.conn, version(7, all)).Topics {
				if topic.Topic == "t" && topic.Partitions[0].LeaderEpoch != want {
					t.Errorf("%s, among all: %d", when, topic.Partitions[0].LeaderEpoch)
				}
			}
		}
		g.commit(7, "t", 1, nil)
		check("never given", -1)
		g.commit(7, "t", 1, func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Partitions[0].LeaderEpoch = 3 })
		check("given", 3)
		r.restart()
		g = r.group("offsets")
		check("after a restart", 3)
	})
	r.wantServing()
}

// FM-95: names as long as strings can be come back whole, over a restart, too; longer ones are refused as Kafka refuses them, and leave
// nothing behind in the offsets topic.
func TestLongNamesOfGroups(t *testing.T) {
	r := startBroker(t)
	r.create("t", 1)
	r.group("warm")
	limit, above := strings.Repeat("g", math.MaxInt16), strings.Repeat("g", math.MaxInt16+1)
	longest := groupConn{r.dial(), limit}
	if code := longest.commit(8, "t", 5, nil)[0].Partitions[0].ErrorCode; code != 0 {
		t.Errorf("the longest name: %v", wire.Code(code))
	}
	if code := wire.Code(groupConn{r.dial(), "g"}.join(6, "", &limit, 30_000).ErrorCode); code != wire.UnknownServerError {
		t.Errorf("an instance id that a member id can't hold: %v", code)
	}
	for name, request := range map[string]kmsg.Request{
		"group":    groupConn{nil, above}.joinOf("", nil, 30_000),
		"member":   groupConn{nil, "g"}.joinOf(above, nil, 30_000),
		"instance": groupConn{nil, "g"}.joinOf("", &above, 30_000),
	} {
		c := r.dial()
		if c.send(version(6, request)); !c.closed() {
			t.Errorf("a longer %s id is answered", name)
		}
	}
	r.restart()
	r.group("warm")
	longest.conn = r.dial()
	if row := longest.fetch(6, "t"); row.Offset != 5 {
		t.Errorf("the longest name has offset %d", row.Offset)
	}
	list := kmsg.NewPtrListGroupsRequest()
	var names []int
	for _, g := range ask[*kmsg.ListGroupsResponse](longest.conn, version(4, list)).Groups {
		names = append(names, len(g.Group))
	}
	if !slices.Equal(names, []int{math.MaxInt16}) {
		t.Errorf("groups with names of %v bytes", names)
	}
}
