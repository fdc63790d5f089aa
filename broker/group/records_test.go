package group

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/coordinator"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func recordOf(key, value []byte) coordinator.Record {
	return coordinator.Record{Key: key, Value: value}
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Records that Kafka 4.4.0 wrote to its __consumer_offsets are written the same here, byte by byte.
func TestRecordsAreKafkas(t *testing.T) {
	topicID := wire.TopicID(unhex(t, "1e3e1733d59d47dc87ddca94af8597b5"))
	member := &member{
		id: "i1-527db959-a2eb-4da1-b8b8-0d7e7ec0afe5", clientID: "differ", clientHost: "/127.0.0.1",
		sessionTimeout: 10 * time.Second, rebalanceTimeout: 10 * time.Second,
		protocols: []protocol{{"range", []byte("ma")}},
	}
	instance := "i1"
	member.instance = &instance
	g := newGroup("g-8mb27e3i2u04")
	g.protocolType, g.generation = "consumer", 1
	g.add(member)
	chosen := "range"
	g.protocol = &chosen
	vacant := newGroup(g.id)
	vacant.protocolType, vacant.generation = "consumer", 2

	for _, row := range []struct {
		name       string
		got        coordinator.Record
		key, value string
	}{
		{
			"offset",
			offsetRecord("g-8mb2yx46czk05", "t-8mb2yx46czk05", committed{topicID: topicID, offset: 5, leaderEpoch: -1, metadata: "hello", committed: 0x1a228da990c, expires: noTime}),
			"0001000f672d386d623279783436637a6b3035000f742d386d623279783436637a6b303500000000",
			"00040000000000000005ffffffff0668656c6c6f000001a228da990c0100101e3e1733d59d47dc87ddca94af8597b5",
		},
		{
			"offset with leader epoch",
			offsetRecord("g", "t", committed{topicID: topicID, partition: 1, offset: 7, leaderEpoch: 3, committed: 0x1a228da990c, expires: noTime}),
			"0001000167000174" + "00000001",
			"000400000000000000070000000301000001a228da990c0100101e3e1733d59d47dc87ddca94af8597b5",
		},
		{
			"offset with a retention time",
			offsetRecord("g", "t", committed{topicID: topicID, offset: 5, leaderEpoch: -1, committed: 0x1a228da96ee, expires: 0x1a228db814e}),
			"0001000167000174" + "00000000",
			"000100000000000000050000000001a228da96ee000001a228db814e",
		},
		{"offset tombstone", offsetTombstone("g", "t", 1), "0001000167000174" + "00000001", ""},
		{
			"group",
			groupRecord(g.id, g.record(time.UnixMilli(0x1a228da97e0), map[string][]byte{member.id: []byte("mine")})),
			"0002000e672d386d62323765336932753034",
			"00030008636f6e73756d657200000001000572616e6765002769312d35323764623935392d613265622d346461312d623862382d306437653765633061666535" +
				"000001a228da97e000000001002769312d35323764623935392d613265622d346461312d623862382d306437653765633061666535000269310006646966666572000a2f3132372e302e302e31" +
				"0000271000002710000000026d61000000046d696e65",
		},
		{
			"empty group",
			groupRecord(vacant.id, vacant.record(time.UnixMilli(0x1a228da97ff), nil)),
			"0002000e672d386d62323765336932753034",
			"00030008636f6e73756d657200000002ffffffff000001a228da97ff00000000",
		},
		{"group tombstone", groupTombstone("g"), "0002000167", ""},
	} {
		if got := hex.EncodeToString(row.got.Key); got != row.key {
			t.Errorf("%s: key\n got %s\nwant %s", row.name, got, row.key)
		}
		if got := hex.EncodeToString(row.got.Value); got != row.value || (row.got.Value == nil) != (row.value == "") {
			t.Errorf("%s: value\n got %s\nwant %s", row.name, got, row.value)
		}
	}
}

// Old versions of the records, as brokers of former times left them.
func TestOldRecordsAreRead(t *testing.T) {
	s := newShard(&Config{})
	replay := func(key, value []byte) {
		t.Helper()
		if err := s.Replay(recordOf(key, value)); err != nil {
			t.Error(err)
		}
	}
	for version := int16(0); version <= 4; version++ {
		key := kmsg.OffsetCommitKey{Version: min(version, 1), Group: "g", Topic: "t", Partition: int32(version)}
		value := kmsg.OffsetCommitValue{Version: version, Offset: 7, LeaderEpoch: 2, Metadata: "m", CommitTimestamp: 1000, ExpireTimestamp: 5000}
		replay(key.AppendTo(nil), value.AppendTo(nil))
		want := committed{partition: int32(version), leaderEpoch: -1, offset: 7, committed: 1000, expires: noTime, metadata: "m"}
		if version >= 3 {
			want.leaderEpoch = 2
		}
		if version == 1 {
			want.expires = 5000
		}
		if got := s.groups["g"].offsets.get("t", int32(version)); got == nil || *got != want {
			t.Errorf("version %d: got %+v, want %+v", version, got, want)
		}
	}
	for version := int16(0); version <= 4; version++ {
		key := kmsg.GroupMetadataKey{Version: 2, Group: "old"}
		value := kmsg.NewGroupMetadataValue()
		protocol, leader := "range", "m1"
		value.Version, value.ProtocolType, value.Generation, value.Protocol, value.Leader = version, "consumer", 3, &protocol, &leader
		value.CurrentStateTimestamp = 99
		m := kmsg.NewGroupMetadataValueMember()
		m.MemberID, m.SessionTimeoutMillis, m.RebalanceTimeoutMillis, m.Assignment = "m1", 6000, 9000, []byte("a")
		value.Members = append(value.Members, m)
		replay(key.AppendTo(nil), value.AppendTo(nil))
		g := s.groups["old"]
		rebalance, since := 9*time.Second, int64(99)
		if version < 1 {
			rebalance = 6 * time.Second
		}
		if version < 2 {
			since = noTime
		}
		if g.state != stable || g.generation != 3 || g.since != since || g.members[0].rebalanceTimeout != rebalance || string(g.members[0].assignment) != "a" {
			t.Errorf("version %d: %s", version, settled(g))
		}
	}
}

// The bytes of a record are those of a read buffer: what is kept is copied.
func TestReplayKeepsNoBytesOfARecord(t *testing.T) {
	s := newShard(&Config{})
	value := kmsg.NewGroupMetadataValue()
	value.ProtocolType, value.Protocol = "consumer", new(string)
	m := kmsg.NewGroupMetadataValueMember()
	m.MemberID, m.Subscription, m.Assignment = "member", []byte("subscription"), []byte("assignment")
	value.Members = append(value.Members, m)
	for _, r := range []coordinator.Record{
		offsetRecord("group", "topic", committed{metadata: "metadata", expires: noTime}),
		groupRecord("group", &value),
	} {
		if err := s.Replay(r); err != nil {
			t.Fatal(err)
		}
		clear(r.Key)
		clear(r.Value)
	}
	g := s.groups["group"]
	if g == nil || g.id != "group" || g.offsets.get("topic", 0) == nil || g.offsets.get("topic", 0).metadata != "metadata" {
		t.Fatal("offset lost")
	}
	if m := g.member("member"); m == nil || string(m.assignment) != "assignment" || string(m.metadata("")) != "subscription" {
		t.Errorf("got %s", settled(g))
	}
}

// Other record types are those of newer groups: passed over, whatever they hold. What should be readable and is not is an error.
func TestUnreadableRecords(t *testing.T) {
	s := newShard(&Config{})
	for kind := int16(3); kind < 30; kind++ {
		if err := s.Replay(recordOf(binary.BigEndian.AppendUint16(nil, uint16(kind)), []byte{1, 2, 3})); err != nil {
			t.Errorf("type %d: %v", kind, err)
		}
	}
	twice := kmsg.NewGroupMetadataValue()
	twice.Members = append(twice.Members, kmsg.NewGroupMetadataValueMember(), kmsg.NewGroupMetadataValueMember())
	for name, r := range map[string]coordinator.Record{
		"no key":            recordOf(nil, nil),
		"cut offset key":    recordOf(offsetKey("g", "t", 0)[:7], []byte{}),
		"cut offset value":  recordOf(offsetKey("g", "t", 0), []byte{0, 3, 0}),
		"cut group key":     recordOf(groupKey("group")[:5], nil),
		"cut group value":   recordOf(groupKey("group"), []byte{0, 3, 0}),
		"a member is twice": groupRecord("g", &twice),
	} {
		if s.Replay(r) == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if len(s.groups) != 0 {
		t.Errorf("groups of unreadable records: %d", len(s.groups))
	}
}

// A group tombstone takes the members and leaves offsets: Kafka writes one when a group turns to another protocol.
func TestGroupTombstoneLeavesOffsets(t *testing.T) {
	s := newShard(&Config{})
	value := kmsg.NewGroupMetadataValue()
	value.ProtocolType, value.Generation = "consumer", 5
	for _, r := range []coordinator.Record{
		offsetRecord("g", "t", committed{offset: 9, expires: noTime}),
		groupRecord("g", &value),
		groupTombstone("g"),
	} {
		if err := s.Replay(r); err != nil {
			t.Fatal(err)
		}
	}
	g := s.groups["g"]
	if g == nil || g.protocolType != "" || g.generation != 0 || g.offsets.get("t", 0) == nil {
		t.Fatalf("got %s", settled(g))
	}
	if err := s.Replay(offsetTombstone("g", "t", 0)); err != nil {
		t.Fatal(err)
	}
	s.Loaded(start)
	if len(s.groups) != 0 {
		t.Error("an empty group stays")
	}
}

// Each member votes for the first of its protocols that all know. Of equal votes the first in Java's hash order wins.
func TestProtocolVotes(t *testing.T) {
	for _, row := range []struct {
		members []string
		want    string
	}{
		{[]string{"range"}, "range"},
		{[]string{"range sticky", "sticky range", "sticky range"}, "sticky"},
		{[]string{"cooperative-sticky range", "range"}, "range"},
		{[]string{"cooperative-sticky range", "cooperative-sticky range"}, "cooperative-sticky"},
		{[]string{"x range", "y range", "x range"}, "range"},
		{[]string{"range sticky", "sticky range"}, "sticky"}, // a tie, as Kafka 4.4.0 decided it
		{[]string{"sticky range", "range sticky"}, "sticky"},
	} {
		g := newGroup("g")
		for i, list := range row.members {
			m := &member{id: string(rune('a' + i))}
			for name := range strings.FieldsSeq(list) {
				m.protocols = append(m.protocols, protocol{name: name})
			}
			g.add(m)
		}
		if got := g.elect(); got != row.want {
			t.Errorf("%v: got %s, want %s", row.members, got, row.want)
		}
	}
}

func FuzzReplay(f *testing.F) {
	f.Add(offsetKey("g", "t", 1), []byte{0, 3, 0, 0, 0, 0, 0, 0, 0, 5, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add(groupKey("g"), unhex(f, "00030008636f6e73756d657200000001000572616e676500026d31000001a228da97e00000000100026d31ffff0006646966666572000a2f3132372e302e302e310000271000002710000000026d61000000046d696e65"))
	f.Add(groupKey("g"), unhex(f, "00030008636f6e73756d657200000002ffffffff000001a228da97ff00000000"))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		s := newShard(&Config{MaxSize: 1})
		for range 2 { // the second finds the group of the first
			_ = s.Replay(recordOf(key, value))
		}
		s.Loaded(start)
		for range 100 {
			out, more := s.Advance(start.Add(time.Hour))
			if !more {
				break
			}
			for _, r := range out.Records {
				if err := s.Replay(r); err != nil {
					t.Fatalf("own record: %v", err)
				}
			}
		}
		_ = s.Replay(recordOf(key, nil))
	})
}

func FuzzSubscribedTopics(f *testing.F) {
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics = []string{"a", "b"}
	f.Add(meta.AppendTo(nil))
	f.Fuzz(func(t *testing.T, metadata []byte) {
		var topics []string
		err := subscribedTopics(metadata, func(topic string) { topics = append(topics, topic) })
		var whole kmsg.ConsumerMemberMetadata
		if whole.ReadFrom(metadata) == nil && whole.Version >= 0 && bytes.Equal(whole.AppendTo(nil), metadata) {
			if err != nil || len(topics) != len(whole.Topics) {
				t.Errorf("got %v (%v), want %v", topics, err, whole.Topics)
			}
		}
	})
}
