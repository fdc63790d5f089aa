package api_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// BO-101: ApiVersions in a version that nobody knows, with a body that is none, is answered in version 0 with error 35 and the range
// of ApiVersions alone; the connection is of use after that.
func TestBO101ApiVersionsInAnUnknownVersion(t *testing.T) {
	r := newRig(t)
	for _, version := range []int16{6, 99, 32767} {
		asked := kmsg.NewPtrApiVersionsRequest() // version 0, in whose form the answer is
		answer := r.body(asked, r.send(18, version, []byte("garbage"))).(*kmsg.ApiVersionsResponse)
		if keys := answer.ApiKeys; answer.ErrorCode != int16(wire.UnsupportedVersion) || len(keys) != 1 ||
			keys[0].ApiKey != 18 || keys[0].MinVersion != 0 || keys[0].MaxVersion != 5 {
			t.Errorf("version %d: %+v", version, answer)
		}
	}
	if answer := ask[*kmsg.ApiVersionsResponse](r, apiVersions(4)); answer.ErrorCode != 0 {
		t.Errorf("after that: %v", answer.ErrorCode)
	}
}

func TestClientsNameThemselvesProperly(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"", "-x", "x-", "a b", "ü"} {
		request := apiVersions(3)
		request.ClientSoftwareName = name
		if answer := ask[*kmsg.ApiVersionsResponse](r, request); answer.ErrorCode != int16(wire.InvalidRequest) {
			t.Errorf("%q: code %d", name, answer.ErrorCode)
		}
	}
	if ask[*kmsg.ApiVersionsResponse](r, apiVersions(3)); r.session.ClientSoftware != "test" {
		t.Errorf("the session remembers %q", r.session.ClientSoftware)
	}
}

// KIP-1242: a client that meant another cluster or another node is told to begin anew.
func TestApiVersionsForAnotherNode(t *testing.T) {
	r := newRig(t)
	wrong := "wrong"
	right := r.e.ClusterID()
	for _, c := range []struct {
		cluster *string
		node    int32
		want    wire.Code
	}{
		{nil, -1, wire.None},
		{&right, 1, wire.None},
		{&wrong, 1, wire.RebootstrapRequired},
		{&right, 2, wire.RebootstrapRequired},
		{nil, 1, wire.InvalidRequest},
		{&right, -1, wire.InvalidRequest},
	} {
		request := apiVersions(5)
		request.ClusterID, request.NodeID = c.cluster, c.node
		if answer := ask[*kmsg.ApiVersionsResponse](r, request); wire.Code(answer.ErrorCode) != c.want {
			t.Errorf("cluster %v, node %d: %v, not %v", c.cluster, c.node, wire.Code(answer.ErrorCode), c.want)
		}
	}
}

func produceTo(t *testing.T, version, acks int16, topics ...kmsg.ProduceRequestTopic) *kmsg.ProduceRequest {
	t.Helper()
	request := kmsg.NewPtrProduceRequest()
	request.Version, request.Acks, request.TimeoutMillis = version, acks, 1000
	for _, topic := range topics {
		topic.Partitions = []kmsg.ProduceRequestTopicPartition{{Records: batch(t, 1)}}
		request.Topics = append(request.Topics, topic)
	}
	return request
}

// With acks=0 nothing is answered. The only way to tell of an error is to close the connection.
func TestAcksZero(t *testing.T) {
	r := newRig(t)
	r.create("t")
	for name, want := range map[string]api.Outcome{"t": api.NoReply, "missing": api.Close} {
		request := produceTo(t, 9, 0, kmsg.ProduceRequestTopic{Topic: name})
		if reply := r.send(0, 9, request.AppendTo(nil)); reply.Outcome != want || len(reply.Parts) != 0 {
			t.Errorf("%s: outcome %v with %d parts", name, reply.Outcome, len(reply.Parts))
		}
	}
	if end := r.listOffset("t", -1); end != 1 {
		t.Errorf("the log ends at %d", end)
	}
}

func (r *rig) listOffset(topic string, timestamp int64) int64 {
	r.t.Helper()
	request := kmsg.NewPtrListOffsetsRequest()
	request.Version, request.ReplicaID = 7, -1
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = timestamp
	request.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	return ask[*kmsg.ListOffsetsResponse](r, request).Topics[0].Partitions[0].Offset
}

// KIP-951, and the trap in it: tagged fields are legal bytes in every flexible version, but Java's client refuses those that its
// version does not have. Produce names leaders and their addresses from version 10 on.
func TestProduceNamesLeadersFromVersion10(t *testing.T) {
	r := newRig(t)
	r.join()
	r.create("far", other)
	for version := int16(3); version <= 13; version++ {
		topic := kmsg.ProduceRequestTopic{Topic: "far", TopicID: r.topicID("far")}
		answer := ask[*kmsg.ProduceResponse](r, produceTo(t, version, 1, topic))
		row := answer.Topics[0].Partitions[0]
		if wire.Code(row.ErrorCode) != wire.NotLeaderOrFollower {
			t.Fatalf("version %d: %v", version, wire.Code(row.ErrorCode))
		}
		leader, addresses := int32(-1), 0
		if version >= 10 {
			leader, addresses = int32(other), 1
		}
		if row.CurrentLeader.LeaderID != leader || len(answer.Brokers) != addresses {
			t.Errorf("version %d names leader %d and %d addresses", version, row.CurrentLeader.LeaderID, len(answer.Brokers))
		}
		if addresses == 1 && (answer.Brokers[0].Host != "two" || *answer.Brokers[0].Rack != "far") {
			t.Errorf("version %d: %+v", version, answer.Brokers[0])
		}
	}
}

// Fetch names leaders from version 12 on, and their addresses from 16 on.
func TestFetchNamesLeadersFromVersion12AndAddressesFrom16(t *testing.T) {
	r := newRig(t)
	r.join()
	r.create("far", other)
	for version := int16(4); version <= 18; version++ {
		request := kmsg.NewPtrFetchRequest()
		request.Version, request.MaxWaitMillis, request.MinBytes, request.SessionEpoch = version, 10, 1, -1
		p := kmsg.NewFetchRequestTopicPartition()
		p.PartitionMaxBytes = 1 << 20
		request.Topics = []kmsg.FetchRequestTopic{{Topic: "far", TopicID: r.topicID("far"), Partitions: []kmsg.FetchRequestTopicPartition{p}}}
		answer := ask[*kmsg.FetchResponse](r, request)
		row := answer.Topics[0].Partitions[0]
		if wire.Code(row.ErrorCode) != wire.NotLeaderOrFollower {
			t.Fatalf("version %d: %v", version, wire.Code(row.ErrorCode))
		}
		leader, addresses := int32(-1), 0
		if version >= 12 {
			leader = int32(other)
		}
		if version >= 16 {
			addresses = 1
		}
		if row.CurrentLeader.LeaderID != leader || len(answer.Brokers) != addresses {
			t.Errorf("version %d names leader %d and %d addresses", version, row.CurrentLeader.LeaderID, len(answer.Brokers))
		}
	}
}

func metadataFor(version int16, names ...string) *kmsg.MetadataRequest {
	request := kmsg.NewPtrMetadataRequest()
	request.Version, request.AllowAutoTopicCreation = version, false
	request.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range names {
		request.Topics = append(request.Topics, kmsg.MetadataRequestTopic{Topic: &name})
	}
	return request
}

func topicNames(answer *kmsg.MetadataResponse) []string {
	var names []string
	for _, topic := range answer.Topics {
		names = append(names, *topic.Topic)
	}
	return names
}

// BO-037: no list and an empty one are not the same, but for version 0, which has no other way to say "all".
func TestBO037EmptyAndNullListsOfTopics(t *testing.T) {
	r := newRig(t)
	r.create("a")
	r.create("b")
	all := []string{"a", "b"}
	for version := int16(0); version <= 13; version++ {
		empty := metadataFor(version)
		want := []string(nil)
		if version == 0 {
			want = all
		}
		if got := topicNames(ask[*kmsg.MetadataResponse](r, empty)); !slices.Equal(got, want) {
			t.Errorf("version %d, empty list: %v", version, got)
		}
		if version == 0 {
			continue
		}
		null := metadataFor(version)
		null.Topics = nil
		if got := topicNames(ask[*kmsg.MetadataResponse](r, null)); !slices.Equal(got, all) {
			t.Errorf("version %d, null: %v", version, got)
		}
	}
}

func TestMetadataByTopicID(t *testing.T) {
	r := newRig(t)
	r.create("a")
	byID := func(version int16, id wire.TopicID, name *string) *kmsg.MetadataResponse {
		request := metadataFor(version)
		request.Topics = []kmsg.MetadataRequestTopic{{TopicID: id, Topic: name}}
		return ask[*kmsg.MetadataResponse](r, request)
	}
	a := r.topicID("a")
	for _, version := range []int16{12, 13} {
		if row := byID(version, a, nil).Topics[0]; row.ErrorCode != 0 || *row.Topic != "a" || row.TopicID != a {
			t.Errorf("version %d: %+v", version, row)
		}
		if row := byID(version, wire.TopicID{1}, nil).Topics[0]; wire.Code(row.ErrorCode) != wire.UnknownTopicID || row.Topic != nil {
			t.Errorf("version %d, unknown id: %+v", version, row)
		}
		if row := byID(version, wire.TopicID{}, nil).Topics[0]; wire.Code(row.ErrorCode) != wire.UnknownServerError {
			t.Errorf("version %d, neither id nor name: %+v", version, row)
		}
	}
	request := metadataFor(12)
	for i := range 50 {
		name := fmt.Sprint("name-", i)
		request.Topics = append(request.Topics, kmsg.MetadataRequestTopic{TopicID: a, Topic: &name})
	}
	if rows := ask[*kmsg.MetadataResponse](r, request).Topics; len(rows) != 1 || *rows[0].Topic != "a" {
		t.Errorf("%d rows of one topic", len(rows))
	}
	for _, version := range []int16{10, 11} {
		if row := byID(version, a, kmsg.StringPtr("a")).Topics[0]; wire.Code(row.ErrorCode) != wire.InvalidRequest {
			t.Errorf("version %d must not ask by id: %+v", version, row)
		}
	}
}

// BO-038: brokers are always listed, with the addresses of the listener that was asked, and the controller is one of them.
func TestBO038BrokersAndController(t *testing.T) {
	r := newRig(t)
	r.join()
	for listener, hosts := range map[string][]string{"PLAINTEXT": {"one", "two"}, "SECOND": {"second.one", "second.two"}} {
		r.session.Listener = listener
		for version := int16(0); version <= 13; version++ {
			answer := ask[*kmsg.MetadataResponse](r, metadataFor(version, "missing"))
			var got []string
			controller := false
			for _, b := range answer.Brokers {
				got = append(got, b.Host)
				controller = controller || b.NodeID == answer.ControllerID
			}
			if !slices.Equal(got, hosts) || version >= 1 && !controller {
				t.Errorf("%s, version %d: brokers %v, controller %d", listener, version, got, answer.ControllerID)
			}
		}
	}
}

// BO-036: a topic is created on first use only where broker and client both allow it, and never by Produce.
func TestBO036AutoCreation(t *testing.T) {
	for _, c := range []struct {
		broker  string
		client  bool
		version int16
		created bool
	}{
		{"true", true, 4, true},
		{"true", false, 4, false},
		{"false", true, 4, false},
		{"false", false, 4, false},
		{"true", false, 3, true}, // the client has no say yet
		{"false", true, 3, false},
	} {
		r := newRig(t, "auto.create.topics.enable="+c.broker)
		if row := ask[*kmsg.ProduceResponse](r, produceTo(t, 9, 1, kmsg.ProduceRequestTopic{Topic: "t"})).Topics[0].Partitions[0]; wire.Code(row.ErrorCode) != wire.UnknownTopicOrPartition {
			t.Errorf("produce: %v", wire.Code(row.ErrorCode))
		}
		request := metadataFor(c.version, "t")
		request.AllowAutoTopicCreation = c.client
		if row := ask[*kmsg.MetadataResponse](r, request).Topics[0]; wire.Code(row.ErrorCode) != wire.UnknownTopicOrPartition {
			t.Errorf("%+v: %v", c, wire.Code(row.ErrorCode))
		}
		r.turn()
		if created := r.e.Image().Topic("t") != nil; created != c.created {
			t.Errorf("%+v: created is %t", c, created)
		}
	}
}

// What Kafka keeps for itself is internal before it is there, and is not made on first use as a topic of anybody.
func TestInternalTopicsAreInternalBeforeTheyExist(t *testing.T) {
	r := newRig(t)
	names := []string{wire.ConsumerOffsetsTopic, wire.ShareGroupStateTopic, wire.TransactionStateTopic}
	request := metadataFor(4, names...)
	request.AllowAutoTopicCreation = true
	for _, row := range ask[*kmsg.MetadataResponse](r, request).Topics {
		if wire.Code(row.ErrorCode) != wire.UnknownTopicOrPartition || !row.IsInternal {
			t.Errorf("%s: %v, internal is %t", *row.Topic, wire.Code(row.ErrorCode), row.IsInternal)
		}
	}
	r.turn()
	for _, name := range names {
		if created := r.e.Image().Topic(name) != nil; created != (name == wire.ConsumerOffsetsTopic) {
			t.Errorf("%s: created is %t", name, created)
		}
	}
	describe := kmsg.NewPtrDescribeTopicPartitionsRequest()
	describe.ResponsePartitionLimit = 1
	describe.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: wire.TransactionStateTopic}}
	row := ask[*kmsg.DescribeTopicPartitionsResponse](r, describe).Topics[0]
	if wire.Code(row.ErrorCode) != wire.UnknownTopicOrPartition || !row.IsInternal {
		t.Errorf("described: %v, internal is %t", wire.Code(row.ErrorCode), row.IsInternal)
	}
}

func TestFindCoordinator(t *testing.T) {
	r := newRig(t)
	find := func(version int16, kind int8, keys ...string) *kmsg.FindCoordinatorResponse {
		request := kmsg.NewPtrFindCoordinatorRequest()
		request.Version, request.CoordinatorType, request.CoordinatorKey, request.CoordinatorKeys = version, kind, keys[0], keys
		return ask[*kmsg.FindCoordinatorResponse](r, request)
	}
	// The first question creates the topic.
	if answer := find(3, 0, "g"); wire.Code(answer.ErrorCode) != wire.CoordinatorNotAvailable || answer.NodeID != -1 || answer.Port != -1 {
		t.Errorf("before there is a coordinator: %+v", answer)
	}
	r.until("there is a coordinator", func() bool { return find(3, 0, "g").ErrorCode == 0 })
	if topic := r.e.Image().Topic(wire.ConsumerOffsetsTopic); len(topic.Partitions) != 2 {
		t.Errorf("the topic has %d partitions", len(topic.Partitions))
	}
	for version := int16(0); version <= 3; version++ {
		if answer := find(version, 0, "g"); answer.ErrorCode != 0 || answer.NodeID != int32(self) || answer.Host != "one" || answer.Port != 9092 {
			t.Errorf("version %d: %+v", version, answer)
		}
	}
	for version := int16(4); version <= 6; version++ {
		answer := find(version, 0, "g", "", "h")
		if len(answer.Coordinators) != 3 {
			t.Fatalf("version %d: %+v", version, answer)
		}
		for i, key := range []string{"g", "", "h"} {
			if row := answer.Coordinators[i]; row.Key != key || row.ErrorCode != 0 || row.NodeID != int32(self) {
				t.Errorf("version %d: %+v", version, row)
			}
		}
	}
	if answer := find(3, 7, "g"); wire.Code(answer.ErrorCode) != wire.InvalidRequest {
		t.Errorf("an unknown kind of coordinator: %+v", answer)
	}
	r.session.Listener = "SECOND"
	if answer := find(3, 0, "g"); answer.Host != "second.one" || answer.Port != 9093 {
		t.Errorf("on the other listener: %+v", answer)
	}
}

// heldController keeps what is submitted.
type heldController struct {
	api.Controller
	done []func(metadata.Answer, error)
}

func (h *heldController) Submit(_ time.Time, _ metadata.Change, _ time.Time, done func(metadata.Answer, error)) {
	h.done = append(h.done, done)
}

// A request names as many groups as it likes: the topic of all of them is asked for once at a time.
func TestTheOffsetsTopicIsAskedForOnce(t *testing.T) {
	controller, broker := new(heldController), settings(t)
	server := api.New(api.Options{Config: func() *config.Broker { return broker }, Image: metadata.Empty, Controller: controller})
	request := kmsg.NewPtrFindCoordinatorRequest()
	request.Version, request.CoordinatorKeys = 6, make([]string, 1000)
	for submitted := 1; submitted <= 2; submitted++ {
		for range 2 {
			server.Handle(time.Time{}, &api.Request{RequestHeader: wire.RequestHeader{Key: 10, Version: 6}, Body: request.AppendTo(nil)})
		}
		if len(controller.done) != submitted {
			t.Fatalf("%d changes, not %d", len(controller.done), submitted)
		}
		controller.done[submitted-1](nil, wire.NotController)
	}
}

// KIP-848: a group's offsets go by topic ids from version 10 on. Ids that nobody knows get their error, the others are served.
func TestOffsetsGoByTopicIDFromVersion10(t *testing.T) {
	r := withOffsets(t)
	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Version = 10
	unknown := wire.TopicID{9}
	fetch.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "g", MemberEpoch: -1, Topics: []kmsg.OffsetFetchRequestGroupTopic{
		{TopicID: r.topicID("t"), Partitions: []int32{0}}, {TopicID: unknown, Partitions: []int32{4}},
	}}}
	group := ask[*kmsg.OffsetFetchResponse](r, fetch).Groups[0]
	if len(group.Topics) != 2 || group.Topics[0].TopicID != r.topicID("t") || group.Topics[0].Partitions[0].Offset != 1 {
		t.Errorf("%+v", group)
	}
	if row := group.Topics[1].Partitions[0]; group.Topics[1].TopicID != unknown || wire.Code(row.ErrorCode) != wire.UnknownTopicID || row.Partition != 4 {
		t.Errorf("unknown id: %+v", group.Topics[1])
	}

	commit := asking[8](r, 10, 0).(*kmsg.OffsetCommitRequest)
	commit.Version = 10
	commit.Topics = append([]kmsg.OffsetCommitRequestTopic{{TopicID: unknown, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Partition: 3}}}}, commit.Topics...)
	answer := ask[*kmsg.OffsetCommitResponse](r, commit)
	if got := codes(answer); !slices.Equal(got, []wire.Code{wire.UnknownTopicID, wire.None}) {
		t.Errorf("codes %v", got)
	}
}

// An offset is stored with the id of its topic, however old the version of the commit.
func TestCommitsAreStoredWithTheTopicID(t *testing.T) {
	r := withOffsets(t) // by version 5
	commit := asking[8](r, 10, 0)
	commit.SetVersion(10)
	if got := codes(ask[*kmsg.OffsetCommitResponse](r, commit)); !slices.Equal(got, []wire.Code{wire.None}) {
		t.Fatalf("codes %v", got)
	}
	stored := 0
	for partition := range int32(2) {
		for b, err := range r.e.Replicas().ReadLocal(t.Context(), wire.TopicPartition{Topic: wire.ConsumerOffsetsTopic, Partition: partition}) {
			if err != nil {
				t.Fatal(err)
			}
			for x := range record.Records(b, 1<<20) {
				value := kmsg.NewOffsetCommitValue()
				if err := value.ReadFrom(x.Value); err != nil || value.TopicID != r.topicID("t") {
					t.Errorf("stored %+v, %v", value, err)
				}
				stored++
			}
		}
	}
	if stored != 2 {
		t.Errorf("%d offsets are stored", stored)
	}
}

// A page that is full ends before the next topic, whether that exists or not.
func TestDescribeTopicPartitionsEndsAFullPage(t *testing.T) {
	r := newRig(t)
	r.create("t")
	request := kmsg.NewPtrDescribeTopicPartitionsRequest()
	request.ResponsePartitionLimit = 1
	for _, name := range []string{"t", "u"} {
		request.Topics = append(request.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: name})
	}
	answer := ask[*kmsg.DescribeTopicPartitionsResponse](r, request)
	if next := answer.NextCursor; len(answer.Topics) != 1 || next == nil || next.Topic != "u" || next.Partition != 0 {
		t.Fatalf("%+v", answer)
	}
	request.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: "u"}
	answer = ask[*kmsg.DescribeTopicPartitionsResponse](r, request)
	if got := codes(answer); !slices.Equal(got, []wire.Code{wire.UnknownTopicOrPartition}) || answer.NextCursor != nil {
		t.Errorf("%+v", answer)
	}
}

// A cursor may name any partition, the last that there can be among them: of a topic that has fewer there is nothing to tell.
func TestDescribeTopicPartitionsTakesACursorBehindTheLastPartition(t *testing.T) {
	r := newRig(t)
	r.create("t")
	r.create("u")
	for _, partition := range []int32{1, 2, math.MaxInt32 - 1, math.MaxInt32} {
		request := kmsg.NewPtrDescribeTopicPartitionsRequest()
		request.ResponsePartitionLimit = 1
		request.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: "t", Partition: partition}
		answer := ask[*kmsg.DescribeTopicPartitionsResponse](r, request)
		if len(answer.Topics) < 2 || len(answer.Topics[0].Partitions) != 0 || len(answer.Topics[1].Partitions) != 1 {
			t.Errorf("from partition %d: %+v", partition, answer)
		}
	}
}

// The offsets of one commit fit a batch of the offsets topic, whose limit is that topic's.
func TestCommitsFitTheOffsetsTopic(t *testing.T) {
	r := withOffsets(t)
	commit := asking[8](r, 5, 0).(*kmsg.OffsetCommitRequest)
	commit.Version, commit.Group, commit.MemberID, commit.Generation = 5, strings.Repeat("g", 32767), "", -1
	commit.Topics[0].Partitions = slices.Repeat(commit.Topics[0].Partitions, 40)
	if got := codes(ask[*kmsg.OffsetCommitResponse](r, commit)); len(got) != 40 || got[0] != wire.UnknownServerError || got[39] != got[0] {
		t.Errorf("codes %v", got)
	}
	limit := "2000000"
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	alter.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{
		ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: wire.ConsumerOffsetsTopic,
		Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "max.message.bytes", Value: &limit}},
	}}
	if got := codes(ask[*kmsg.IncrementalAlterConfigsResponse](r, alter)); got[0] != wire.None {
		t.Fatalf("codes %v", got)
	}
	if got := codes(ask[*kmsg.OffsetCommitResponse](r, commit)); len(got) != 40 || got[0] != wire.None || got[39] != got[0] {
		t.Errorf("codes %v", got)
	}
}

// What OffsetDelete does not know gets its error under its topic, once a topic, after what the coordinator answers.
func TestOffsetDeleteNamesEachUnknownTopicOnce(t *testing.T) {
	r := withOffsets(t)
	request := kmsg.NewPtrOffsetDeleteRequest()
	request.Group = "g"
	at := func(n int32) kmsg.OffsetDeleteRequestTopicPartition {
		return kmsg.OffsetDeleteRequestTopicPartition{Partition: n}
	}
	request.Topics = []kmsg.OffsetDeleteRequestTopic{
		{Topic: "x", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{at(0), at(1)}},
		{Topic: "t", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{at(5), at(0)}},
		{Topic: "x", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{at(2)}},
		{Topic: "y", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{at(0)}},
	}
	var got []string
	for _, topic := range ask[*kmsg.OffsetDeleteResponse](r, request).Topics {
		for _, p := range topic.Partitions {
			got = append(got, fmt.Sprintf("%s-%d=%d", topic.Topic, p.Partition, p.ErrorCode))
		}
	}
	if want := "t-0=0 t-5=3 x-0=3 x-1=3 x-2=3 y-0=3"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// Each unknown topic costs the same, however many there are.
func TestOffsetDeleteOfManyUnknownTopicsIsLinear(t *testing.T) {
	r := withOffsets(t)
	request := kmsg.NewPtrOffsetDeleteRequest()
	request.Group = "g"
	for i := range config.RequestElementsMax / 3 {
		request.Topics = append(request.Topics, kmsg.OffsetDeleteRequestTopic{
			Topic: fmt.Sprintf("%06d", i), Partitions: make([]kmsg.OffsetDeleteRequestTopicPartition, 1),
		})
	}
	began := time.Now()
	if got := len(ask[*kmsg.OffsetDeleteResponse](r, request).Topics); got != len(request.Topics) {
		t.Errorf("%d topics", got)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("it took %s", took)
	}
}

// What is read is what was written, as ranges of the log's files.
func TestFetchAnswersWithRangesOfTheLog(t *testing.T) {
	r := newRig(t)
	r.create("t")
	written := batch(t, 3)
	for range 2 {
		produce := asking[0](r, 9, 0)
		produce.SetVersion(9)
		if got := codes(ask[*kmsg.ProduceResponse](r, produce)); !slices.Equal(got, []wire.Code{wire.None}) {
			t.Fatal(got)
		}
	}
	request := asking[1](r, 12, 0)
	request.SetVersion(12)
	reply := r.send(1, 12, request.AppendTo(nil))
	if len(reply.Parts) != 3 || reply.Parts[1].Range.Length != int64(2*len(written)) || reply.Parts[1].Bytes != nil {
		t.Fatalf("%d parts", len(reply.Parts))
	}
	row := r.body(request, reply).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if row.HighWatermark != 6 || len(row.RecordBatches) != 2*len(written) || string(row.RecordBatches[21:len(written)]) != string(written[21:]) {
		t.Errorf("high watermark %d, %d bytes", row.HighWatermark, len(row.RecordBatches))
	}
}

// More than an answer may hold is not waited for: fetch.min.bytes above fetch.max.bytes is as much as that.
func TestFetchDoesNotWaitForMoreThanItMayAnswer(t *testing.T) {
	r := newRig(t)
	r.create("t")
	size := int32(len(batch(t, 3)))
	for range 3 {
		produce := asking[0](r, 9, 0)
		produce.SetVersion(9)
		ask[*kmsg.ProduceResponse](r, produce)
	}
	request := asking[1](r, 12, 0).(*kmsg.FetchRequest)
	request.Version, request.MaxBytes, request.MinBytes, request.MaxWaitMillis = 12, 2*size, 10*size, 30_000
	before := r.now
	rows := ask[*kmsg.FetchResponse](r, request).Topics
	if r.now != before || len(rows) != 1 || len(rows[0].Partitions[0].RecordBatches) != int(2*size) {
		t.Errorf("answered after %v: %+v", r.now.Sub(before), rows)
	}
}

// Until transactions are served a producer that wants them is refused at once (docs/decisions/0001): a retriable answer would have it
// try until its own time-out, for what never comes.
func TestTransactionalProducersAreRefusedForGood(t *testing.T) {
	r := newRig(t)
	for id, want := range map[string]wire.Code{"": wire.InvalidRequest, "id": wire.UnsupportedVersion} {
		request := kmsg.NewPtrInitProducerIDRequest()
		request.Version, request.TransactionalID = 5, &id
		answer := ask[*kmsg.InitProducerIDResponse](r, request)
		if code := wire.Code(answer.ErrorCode); code != want || answer.ProducerID != -1 || answer.ProducerEpoch != -1 {
			t.Errorf("%q: %v with producer id %d, not %v", id, code, answer.ProducerID, want)
		}
	}
}
