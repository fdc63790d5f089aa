package group

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// talk runs the commands of a transcript. Member ids read m1, m2, ... in the order in which they were made.
type talk struct {
	*world
	t   *testing.T
	ids map[string]string
	out strings.Builder
}

var memberIDs = regexp.MustCompile(`[a-z0-9]*-00000000-0000-4000-8000-0*([0-9a-f]+)`)

// say notes an answer to a client.
func (k *talk) say(client, format string, args ...any) {
	line := strings.TrimRight(fmt.Sprintf(format, args...), " ")
	line = memberIDs.ReplaceAllStringFunc(line, func(id string) string {
		n, _ := strconv.ParseInt(memberIDs.FindStringSubmatch(id)[1], 16, 32)
		alias := fmt.Sprintf("m%d", n)
		k.ids[alias] = id
		return alias
	})
	fmt.Fprintf(&k.out, "%s: %s\n", client, line)
}

// id is the member id behind an alias, even of a member that has not been told yet.
func (k *talk) id(alias string) string {
	if id, ok := k.ids[alias]; ok || !strings.HasPrefix(alias, "m") {
		return cmp.Or(id, alias)
	}
	found := alias
	err := k.View(0, func(s *shard) {
		for _, g := range s.groups {
			for _, m := range g.members {
				if sub := memberIDs.FindStringSubmatch(m.id); sub != nil && "m"+sub[1] == alias {
					found = m.id
				}
			}
		}
	})
	if err != nil {
		k.t.Error(err)
	}
	return found
}

func name(code int16) string {
	if code == 0 {
		return "ok"
	}
	return wire.Code(code).Error()
}

func text(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

// args reads the arguments of a command.
type args struct{ d *datadriven.TestData }

func (a args) get(key, otherwise string) string {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key {
			return arg.Vals[0]
		}
	}
	return otherwise
}

// list are the values of an argument; () is an empty list, but for groups, which have an empty name among them.
func (a args) list(key string) []string {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key && !(len(arg.Vals) == 1 && arg.Vals[0] == "" && key != "groups") {
			return arg.Vals
		}
	}
	return nil
}

func (a args) num(key string, otherwise int) int {
	n, err := strconv.Atoi(a.get(key, strconv.Itoa(otherwise)))
	if err != nil {
		panic(err)
	}
	return n
}

func (a args) optional(key string) *string {
	if !a.d.HasArg(key) {
		return nil
	}
	s := a.get(key, "")
	return &s
}

func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		k := &talk{world: newWorld(nil), t: t, ids: make(map[string]string)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			k.out.Reset()
			k.run(d)
			return k.out.String()
		})
	})
}

func (k *talk) run(d *datadriven.TestData) {
	a := args{d}
	client := a.get("by", "x")
	switch d.Cmd {
	case "config":
		k.world = newWorld(func(c *Config) {
			for _, arg := range d.CmdArgs {
				k.configure(c, arg.Key, arg.Vals[0])
			}
		})
	case "join":
		k.join(a, client)
	case "sync":
		k.sync(a, client)
	case "beat":
		k.beat(a, client)
	case "leave":
		k.leave(a, client)
	case "commit":
		k.commit(a, client)
	case "fetch":
		k.fetch(a, client)
	case "delete-offsets":
		k.deleteOffsets(a, client)
	case "describe":
		k.describe(a)
	case "list":
		k.list(a)
	case "delete":
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = a.list("groups")
		k.DeleteGroups(k.now, req, func(resp *kmsg.DeleteGroupsResponse) {
			for _, g := range resp.Groups {
				k.say(client, "%s %s", g.Group, name(g.ErrorCode))
			}
		})
	case "topics-deleted":
		k.TopicsDeleted(k.now, a.list("topics"))
	case "pass":
		d, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			panic(err)
		}
		k.pass(d)
	case "wake":
		k.say("at", "%s", k.NextWake().Sub(k.now))
	case "log":
		k.logCommand(d.CmdArgs[0].Key)
	case "reload":
		k.load()
	default:
		k.t.Fatalf("unknown command %s", d.Cmd)
	}
}

func (k *talk) configure(c *Config, key, value string) {
	d, _ := time.ParseDuration(value)
	n, _ := strconv.Atoi(value)
	switch key {
	case "initial-delay":
		c.InitialRebalanceDelay = d
	case "retention":
		c.OffsetsRetention = d
	case "check":
		c.OffsetsRetentionCheck = d
	case "max-size":
		c.MaxSize = n
	default:
		k.t.Fatalf("unknown setting %s", key)
	}
}

// logCommand is one that control knows, or dump.
func (k *talk) logCommand(what string) {
	if what == "dump" {
		k.log.records(func(r record.Record) bool {
			k.say(fmt.Sprint(r.Offset), "%s", describeRecord(r.Key, r.Value))
			return true
		})
	} else if !k.control(what) {
		k.t.Fatalf("unknown log command %s", what)
	}
}

func describeRecord(key, value []byte) string {
	var ok kmsg.OffsetCommitKey
	if key[1] < 2 && ok.ReadFrom(key) == nil {
		s := fmt.Sprintf("offset %q %s-%d", ok.Group, ok.Topic, ok.Partition)
		if value == nil {
			return s + " deleted"
		}
		var v kmsg.OffsetCommitValue
		if err := v.ReadFrom(value); err != nil {
			return s + " " + err.Error()
		}
		if len(v.Metadata) > 20 {
			v.Metadata = v.Metadata[:20] + "..."
		}
		return fmt.Sprintf("%s v%d %d epoch=%d metadata=%q expires=%d", s, v.Version, v.Offset, v.LeaderEpoch, v.Metadata, v.ExpireTimestamp)
	}
	var gk kmsg.GroupMetadataKey
	if err := gk.ReadFrom(key); err != nil {
		return err.Error()
	}
	s := fmt.Sprintf("group %q", gk.Group)
	if value == nil {
		return s + " deleted"
	}
	var v kmsg.GroupMetadataValue
	if err := v.ReadFrom(value); err != nil {
		return s + " " + err.Error()
	}
	s += fmt.Sprintf(" v%d generation=%d type=%q protocol=%s leader=%s", v.Version, v.Generation, v.ProtocolType, text(v.Protocol), text(v.Leader))
	for _, m := range v.Members {
		s += fmt.Sprintf(" [%s %s %s%s %d/%d %s=%s]", m.MemberID, text(m.InstanceID), m.ClientID, m.ClientHost,
			m.SessionTimeoutMillis, m.RebalanceTimeoutMillis, m.Subscription, m.Assignment)
	}
	return s
}

func (k *talk) join(a args, client string) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version = int16(a.num("v", 5))
	req.Group = a.get("group", "g")
	req.MemberID = k.id(a.get("member", ""))
	req.InstanceID = a.optional("instance")
	req.SessionTimeoutMillis = int32(a.num("session", 10000))
	req.RebalanceTimeoutMillis = int32(a.num("rebalance", 10000))
	req.ProtocolType = a.get("type", "consumer")
	for _, p := range a.list("protocols") {
		rp := kmsg.NewJoinGroupRequestProtocol()
		name, metadata, _ := strings.Cut(p, ":")
		rp.Name, rp.Metadata = name, []byte(metadata)
		if topics, ok := strings.CutPrefix(metadata, "topics="); ok {
			meta := kmsg.NewConsumerMemberMetadata()
			meta.Topics = strings.Split(topics, "+")
			rp.Metadata = meta.AppendTo(nil)
		}
		req.Protocols = append(req.Protocols, rp)
	}
	k.JoinGroup(k.now, req, Client{ID: client, Host: "/127.0.0.1"}, func(r *kmsg.JoinGroupResponse) {
		r = asSeen(k.t, r)
		if r.ErrorCode != 0 {
			k.say(client, "join %s generation=%d member=%s", name(r.ErrorCode), r.Generation, r.MemberID)
			return
		}
		var members []string
		for _, m := range r.Members {
			s := m.MemberID
			if m.InstanceID != nil {
				s += "(" + *m.InstanceID + ")"
			}
			members = append(members, s+":"+printable(m.ProtocolMetadata))
		}
		skip := ""
		if r.SkipAssignment {
			skip = "skip-assignment"
		}
		k.say(client, "join ok generation=%d type=%s protocol=%s leader=%s member=%s %v %s",
			r.Generation, text(r.ProtocolType), text(r.Protocol), r.LeaderID, r.MemberID, members, skip)
	})
}

// asSeen is what arrives of a response at the client.
func asSeen[R any, P interface {
	*R
	kmsg.Response
}](t *testing.T, r P) P {
	got := P(new(R))
	got.SetVersion(r.GetVersion())
	if err := got.ReadFrom(r.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	return got
}

func printable(b []byte) string {
	if bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' || r > '~' }) {
		return fmt.Sprintf("%x", b)
	}
	return string(b)
}

func (k *talk) sync(a args, client string) {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version = int16(a.num("v", 3))
	req.Group = a.get("group", "g")
	req.Generation = int32(a.num("generation", 1))
	req.MemberID = k.id(a.get("member", ""))
	req.InstanceID = a.optional("instance")
	req.ProtocolType, req.Protocol = a.optional("type"), a.optional("protocol")
	for _, s := range a.list("assign") {
		id, assignment, _ := strings.Cut(s, ":")
		ra := kmsg.NewSyncGroupRequestGroupAssignment()
		ra.MemberID, ra.MemberAssignment = k.id(id), []byte(assignment)
		req.GroupAssignment = append(req.GroupAssignment, ra)
	}
	k.SyncGroup(k.now, req, func(r *kmsg.SyncGroupResponse) {
		r = asSeen(k.t, r)
		if r.ErrorCode != 0 {
			k.say(client, "sync %s", name(r.ErrorCode))
			return
		}
		k.say(client, "sync ok type=%s protocol=%s assignment=%q", text(r.ProtocolType), text(r.Protocol), r.MemberAssignment)
	})
}

func (k *talk) beat(a args, client string) {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version = 4
	req.Group = a.get("group", "g")
	req.Generation = int32(a.num("generation", 1))
	req.MemberID = k.id(a.get("member", ""))
	req.InstanceID = a.optional("instance")
	k.say(client, "beat %s", name(k.Heartbeat(k.now, req).ErrorCode))
}

func (k *talk) leave(a args, client string) {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version = int16(a.num("v", 5))
	req.Group = a.get("group", "g")
	for _, s := range a.list("members") {
		id, instance, static := strings.Cut(s, "/")
		rm := kmsg.NewLeaveGroupRequestMember()
		rm.MemberID = k.id(id)
		if static {
			rm.InstanceID = &instance
		}
		req.Members = append(req.Members, rm)
		req.MemberID = rm.MemberID
	}
	k.LeaveGroup(k.now, req, func(r *kmsg.LeaveGroupResponse) {
		var members []string
		for _, m := range r.Members {
			members = append(members, fmt.Sprintf("%s/%s %s", m.MemberID, text(m.InstanceID), name(m.ErrorCode)))
		}
		k.say(client, "leave %s %s", name(r.ErrorCode), strings.Join(members, ", "))
	})
}

// commit stores offsets given as topic-partition:offset[:metadata[:epoch]].
func (k *talk) commit(a args, client string) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version = int16(a.num("v", 8))
	req.Group = a.get("group", "g")
	req.Generation = int32(a.num("generation", -1))
	req.MemberID = k.id(a.get("member", ""))
	req.InstanceID = a.optional("instance")
	req.RetentionTimeMillis = int64(a.num("retention", -1))
	for _, s := range a.list("offsets") {
		fields := strings.Split(s, ":")
		topic, partition := splitPartition(fields[0])
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic, rt.TopicID = topic, [16]byte{1}
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition = partition
		rp.Offset, _ = strconv.ParseInt(fields[1], 10, 64)
		if len(fields) > 2 {
			if n, ok := strings.CutPrefix(fields[2], "x*"); ok {
				n, _ := strconv.Atoi(n)
				fields[2] = strings.Repeat("x", n)
			}
			rp.Metadata = &fields[2]
		}
		if len(fields) > 3 {
			epoch, _ := strconv.Atoi(fields[3])
			rp.LeaderEpoch = int32(epoch)
		}
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	k.OffsetCommit(k.now, req, func(r *kmsg.OffsetCommitResponse) {
		var parts []string
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				parts = append(parts, fmt.Sprintf("%s-%d %s", t.Topic, p.Partition, name(p.ErrorCode)))
			}
		}
		k.say(client, "commit %s", strings.Join(parts, ", "))
	})
}

func splitPartition(s string) (string, int32) {
	at := strings.LastIndexByte(s, '-')
	n, _ := strconv.Atoi(s[at+1:])
	return s[:at], int32(n)
}

// fetch reads offsets; without partitions all of the group.
func (k *talk) fetch(a args, client string) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = int16(a.num("v", 7))
	groups := []string{a.get("group", "g")}
	if list := a.list("group"); len(list) > 1 {
		groups = list
	}
	req.Group = groups[0]
	for _, group := range groups {
		rg := kmsg.NewOffsetFetchRequestGroup()
		rg.Group = group
		for _, s := range a.list("partitions") {
			topic, partition := splitPartition(s)
			gt := kmsg.NewOffsetFetchRequestGroupTopic()
			gt.Topic, gt.Partitions = topic, []int32{partition}
			rg.Topics = append(rg.Topics, gt)
		}
		req.Groups = append(req.Groups, rg)
	}
	for _, t := range req.Groups[0].Topics {
		rt := kmsg.NewOffsetFetchRequestTopic()
		rt.Topic, rt.Partitions = t.Topic, t.Partitions
		req.Topics = append(req.Topics, rt)
	}
	k.OffsetFetch(k.now, req, func(r *kmsg.OffsetFetchResponse) {
		show := func(topic string, p kmsg.OffsetFetchResponseTopicPartition) string {
			return fmt.Sprintf("%s-%d=%d epoch=%d metadata=%q %s", topic, p.Partition, p.Offset, p.LeaderEpoch, text(p.Metadata), name(p.ErrorCode))
		}
		var parts []string
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				parts = append(parts, show(t.Topic, p))
			}
		}
		if r.Version < 8 {
			k.say(client, "fetch %s [%s]", name(r.ErrorCode), strings.Join(parts, ", "))
		}
		for _, g := range r.Groups {
			parts = nil
			for _, t := range g.Topics {
				for _, p := range t.Partitions {
					parts = append(parts, show(t.Topic, kmsg.OffsetFetchResponseTopicPartition(p)))
				}
			}
			k.say(client, "fetch %s %s [%s]", g.Group, name(g.ErrorCode), strings.Join(parts, ", "))
		}
	})
}

func (k *talk) deleteOffsets(a args, client string) {
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = a.get("group", "g")
	for _, s := range a.list("partitions") {
		topic, partition := splitPartition(s)
		rt := kmsg.NewOffsetDeleteRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewOffsetDeleteRequestTopicPartition()
		rp.Partition = partition
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	k.OffsetDelete(k.now, req, func(r *kmsg.OffsetDeleteResponse) {
		var parts []string
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				parts = append(parts, fmt.Sprintf("%s-%d %s", t.Topic, p.Partition, name(p.ErrorCode)))
			}
		}
		k.say(client, "delete-offsets %s %s", name(r.ErrorCode), strings.Join(parts, ", "))
	})
}

func (k *talk) describe(a args) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Version = int16(a.num("v", 6))
	if req.Groups = a.list("groups"); req.Groups == nil {
		req.Groups = []string{"g"}
	}
	for _, g := range k.DescribeGroups(req).Groups {
		k.say(g.Group, "%s %s type=%q protocol=%q %s", name(g.ErrorCode), g.State, g.ProtocolType, g.Protocol, text(g.ErrorMessage))
		for _, m := range g.Members {
			k.say("  "+g.Group, "%s instance=%s client=%s%s metadata=%q assignment=%q",
				m.MemberID, text(m.InstanceID), m.ClientID, m.ClientHost, m.ProtocolMetadata, m.MemberAssignment)
		}
	}
}

func (k *talk) list(a args) {
	req := kmsg.NewPtrListGroupsRequest()
	req.StatesFilter, req.TypesFilter = a.list("states"), a.list("types")
	resp := k.ListGroups(req)
	var groups []string
	for _, g := range resp.Groups {
		groups = append(groups, fmt.Sprintf("%q %s %s %q", g.Group, g.GroupState, g.GroupType, g.ProtocolType))
	}
	if !slices.IsSorted(groups) {
		k.t.Errorf("groups not by name: %v", groups)
	}
	k.say("list", "%s %s", name(resp.ErrorCode), strings.Join(groups, ", "))
}
