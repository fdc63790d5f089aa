package replica_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func (r *rig) list(topic string, timestamp int64) replica.ListOffsetsResult {
	return r.listAs(replica.ConsumerID, topic, wire.NoLeaderEpoch, timestamp)
}

func (r *rig) listAs(as wire.BrokerID, topic string, epoch wire.LeaderEpoch, timestamp int64) (got replica.ListOffsetsResult) {
	r.m.ListOffsets(r.now, &replica.ListOffsetsRequest{ReplicaID: as, Partitions: []replica.ListOffsetsPartition{
		{Topic: topic, CurrentLeaderEpoch: epoch, Timestamp: timestamp},
	}}, func(results []replica.ListOffsetsResult) { got = results[0] })
	return got
}

// at makes a batch of one record a time.
func (r *rig) at(times ...int64) record.Batch {
	return r.batchOf(0, 0, func(b *record.Builder) {
		for _, ts := range times {
			b.Append(ts, []byte("k"), []byte("v"))
		}
	})
}

var nothing = replica.ListOffsetsResult{Timestamp: -1, Offset: -1, LeaderEpoch: -1}

func TestListOffsets(t *testing.T) {
	r := newRig(t)
	r.create("empty", topic{})
	r.create("even", topic{})
	for _, ts := range []int64{2, 4, 6, 8} {
		r.produce("even", 1, r.at(ts)).now()
	}
	r.create("unordered", topic{})
	r.produce("unordered", 1, r.at(300, 900, 100)).now()
	r.produce("unordered", 1, r.at(500)).now()
	r.create("cut", topic{})
	r.produce("cut", 1, r.at(10, 20, 30, 40)).now()
	r.deleteRecords("cut", 2)
	for _, c := range []struct {
		what, topic string
		timestamp   int64
		want        replica.ListOffsetsResult
	}{
		{"BO-001 later than all", "even", 1 << 40, nothing},
		{"BO-002 between", "even", 3, replica.ListOffsetsResult{Timestamp: 4, Offset: 1}},
		{"BO-002 between", "even", 5, replica.ListOffsetsResult{Timestamp: 6, Offset: 2}},
		{"BO-002 between", "even", 7, replica.ListOffsetsResult{Timestamp: 8, Offset: 3}},
		{"BO-002 behind", "even", 9, nothing},
		{"equal", "even", 4, replica.ListOffsetsResult{Timestamp: 4, Offset: 1}},
		{"in the middle of a batch", "unordered", 400, replica.ListOffsetsResult{Timestamp: 900, Offset: 1}},
		{"BO-003 largest timestamp", "unordered", -3, replica.ListOffsetsResult{Timestamp: 900, Offset: 1}},
		{"BO-003 largest timestamp of nothing", "empty", -3, nothing},
		{"latest", "even", -1, replica.ListOffsetsResult{Timestamp: -1, Offset: 4}},
		{"latest of nothing", "empty", -1, replica.ListOffsetsResult{Timestamp: -1}},
		{"earliest", "even", -2, replica.ListOffsetsResult{Timestamp: -1}},
		{"earliest after DeleteRecords", "cut", -2, replica.ListOffsetsResult{Timestamp: -1, Offset: 2}},
		{"BO-004 earliest local", "cut", -4, replica.ListOffsetsResult{Timestamp: -1, Offset: 2}},
		{"BO-004 latest tiered", "even", -5, nothing},
		{"BO-004 earliest pending upload", "even", -6, nothing},
		{"a time below the log start", "cut", 10, replica.ListOffsetsResult{Timestamp: 30, Offset: 2}},
		{"unknown topic", "none", -1, replica.ListOffsetsResult{Code: wire.UnknownTopicOrPartition, Timestamp: -1, Offset: -1, LeaderEpoch: -1}},
	} {
		if got := r.list(c.topic, c.timestamp); got != c.want {
			t.Errorf("%s, %s at %d: %+v, want %+v", c.what, c.topic, c.timestamp, got, c.want)
		}
	}
}

// BO-008: what a topic with LogAppendTime was given as timestamps is not what is looked up.
func TestBO008LookUpUnderLogAppendTime(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{configs: map[string]string{"message.timestamp.type": "LogAppendTime"}})
	r.produce("t", 1, r.at(0, 946_684_800_000)).now()
	if got := r.list("t", r.now.UnixMilli()-1); got.Code != wire.None || got.Offset != 0 || got.Timestamp != r.now.UnixMilli() {
		t.Fatalf("%+v", got)
	}
}

func TestListOffsetsByEpochAndReplica(t *testing.T) {
	r := newRig(t)
	id := r.create("t", topic{replicas: []wire.BrokerID{1, 2}})
	r.lead(id, 2)
	r.lead(id, 1) // epoch 2
	r.put("t", 3)
	r.follow(2, "t", 1).now()
	for _, c := range []struct {
		what    string
		replica wire.BrokerID
		epoch   wire.LeaderEpoch
		code    wire.Code
		offset  wire.Offset
	}{
		{"consumer sees the high watermark", -1, -1, wire.None, 1},
		{"debugging consumer sees the end", -2, -1, wire.None, 3},
		{"replica sees the end", 2, -1, wire.None, 3},
		{"right epoch", -1, 2, wire.None, 1},
		{"older epoch", -1, 1, wire.FencedLeaderEpoch, -1},
		{"newer epoch", -1, 3, wire.UnknownLeaderEpoch, -1},
		{"negative epochs but -1 are epochs here", -1, -2, wire.FencedLeaderEpoch, -1},
	} {
		got := r.listAs(c.replica, "t", c.epoch, replica.LatestTimestamp)
		if got.Code != c.code || got.Offset != c.offset {
			t.Errorf("%s: %+v", c.what, got)
		}
	}
	if got := r.list("t", r.now.UnixMilli()); got.Offset != 0 {
		t.Errorf("a record below the high watermark: %+v", got)
	}
	r.lead(id, 2)
	if got := r.list("t", -1); got.Code != wire.NotLeaderOrFollower {
		t.Errorf("follower: %+v", got)
	}
}

// A new leader can't say what is committed until its high watermark has reached where its epoch began (KIP-207).
func TestListOffsetsOfANewLeader(t *testing.T) {
	r := newRig(t)
	id := r.create("t", topic{replicas: []wire.BrokerID{1, 2}})
	r.put("t", 3)
	r.follow(2, "t", 1).now()
	r.lead(id, 2)
	r.lead(id, 1)
	for _, c := range []struct {
		timestamp int64
		code      wire.Code
	}{
		{replica.LatestTimestamp, wire.OffsetNotAvailable},
		{replica.EarliestTimestamp, wire.None},
		{r.now.UnixMilli(), wire.None}, // offset 0 is below the high watermark
		{r.now.UnixMilli() + 1, wire.None},
	} {
		if got := r.list("t", c.timestamp); got.Code != c.code {
			t.Errorf("timestamp %d: %+v", c.timestamp, got)
		}
	}
	r.now = r.now.Add(time.Second)
	r.put("t", 1)
	if got := r.list("t", r.now.UnixMilli()); got.Code != wire.OffsetNotAvailable {
		t.Errorf("a record that may not be committed: %+v", got)
	}
	r.follow(2, "t", 3).now()
	if got := r.list("t", replica.LatestTimestamp); got.Code != wire.None || got.Offset != 3 {
		t.Errorf("after the follower came: %+v", got)
	}
}

// BO-019: answers by epoch, with three leaders' records in the log.
func TestBO019OffsetForLeaderEpoch(t *testing.T) {
	r := newRig(t)
	id := r.create("t", topic{replicas: []wire.BrokerID{1, 2}})
	r.put("t", 2) // epoch 0
	r.lead(id, 2)
	r.lead(id, 1)
	r.put("t", 3) // epoch 2
	r.lead(id, 2)
	r.lead(id, 1)
	r.put("t", 1) // epoch 4
	for _, c := range []struct {
		asked, current wire.LeaderEpoch
		want           replica.EpochEnd
		code           wire.Code
	}{
		{0, 4, replica.EpochEnd{Epoch: 0, Offset: 2}, wire.None},
		{1, 4, replica.EpochEnd{Epoch: 0, Offset: 2}, wire.None},
		{2, 4, replica.EpochEnd{Epoch: 2, Offset: 5}, wire.None},
		{3, -1, replica.EpochEnd{Epoch: 2, Offset: 5}, wire.None},
		{4, -1, replica.EpochEnd{Epoch: 4, Offset: 6}, wire.None},
		{5, -1, replica.EpochEnd{Epoch: -1, Offset: -1}, wire.None},
		{-1, -1, replica.EpochEnd{Epoch: -1, Offset: -1}, wire.None},
		{4, 3, replica.EpochEnd{Epoch: -1, Offset: -1}, wire.FencedLeaderEpoch},
		{4, 5, replica.EpochEnd{Epoch: -1, Offset: -1}, wire.UnknownLeaderEpoch},
	} {
		got, code := r.m.OffsetForLeaderEpoch(replica.EpochRequest{Topic: "t", CurrentLeaderEpoch: c.current, LeaderEpoch: c.asked})
		if got != c.want || code != c.code {
			t.Errorf("epoch %d, current %d: %+v %v", c.asked, c.current, got, code)
		}
	}
	if got, code := r.m.OffsetForLeaderEpoch(replica.EpochRequest{Topic: "none", CurrentLeaderEpoch: -1}); code != wire.UnknownTopicOrPartition || got.Epoch != -1 {
		t.Errorf("unknown topic: %+v %v", got, code)
	}
	r.deleteRecords("t", 3)
	r.create("empty", topic{})
	if got, code := r.m.OffsetForLeaderEpoch(replica.EpochRequest{Topic: "empty", CurrentLeaderEpoch: -1}); code != wire.None || got != (replica.EpochEnd{}) {
		t.Errorf("empty log: %+v %v", got, code)
	}
}

func (r *rig) deleteRecords(topic string, offset wire.Offset) *pending[replica.DeleteRecordsResult] {
	r.t.Helper()
	p := &pending[replica.DeleteRecordsResult]{t: r.t}
	r.m.DeleteRecords(r.now, &replica.DeleteRecordsRequest{
		Timeout: 10 * time.Second, Partitions: []replica.DeleteRecordsPartition{{Topic: topic, Offset: offset}},
	}, p.done)
	return p
}

func TestBO083DeleteRecords(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{})
	r.put("t", 6)
	r.create("empty", topic{})
	r.create("compacted", topic{configs: map[string]string{"cleanup.policy": "compact"}})
	r.create("both", topic{configs: map[string]string{"cleanup.policy": "compact,delete"}})
	r.create("neither", topic{configs: map[string]string{"cleanup.policy": ""}})
	r.create("elsewhere", topic{replicas: []wire.BrokerID{2}, leader: 2})
	r.create("__consumer_offsets", topic{})
	for _, c := range []struct {
		what, topic string
		offset      wire.Offset
		want        replica.DeleteRecordsResult
	}{
		{"inside", "t", 2, replica.DeleteRecordsResult{LowWatermark: 2}},
		{"below the start", "t", 1, replica.DeleteRecordsResult{LowWatermark: 2}},
		{"above the high watermark", "t", 7, replica.DeleteRecordsResult{Code: wire.OffsetOutOfRange, LowWatermark: -1}},
		{"negative", "t", -2, replica.DeleteRecordsResult{Code: wire.OffsetOutOfRange, LowWatermark: -1}},
		{"-1 is the high watermark", "t", -1, replica.DeleteRecordsResult{LowWatermark: 6}},
		{"of nothing", "empty", -1, replica.DeleteRecordsResult{LowWatermark: 0}},
		{"unknown topic", "none", 0, replica.DeleteRecordsResult{Code: wire.UnknownTopicOrPartition, LowWatermark: -1}},
		{"compacted", "compacted", 0, replica.DeleteRecordsResult{Code: wire.PolicyViolation, LowWatermark: -1}},
		{"compacted and deleted", "both", 0, replica.DeleteRecordsResult{LowWatermark: 0}},
		{"neither policy, measured", "neither", 0, replica.DeleteRecordsResult{LowWatermark: 0}},
		{"not the leader", "elsewhere", 0, replica.DeleteRecordsResult{Code: wire.NotLeaderOrFollower, LowWatermark: -1}},
		{"internal topic", "__consumer_offsets", 0, replica.DeleteRecordsResult{Code: wire.InvalidTopic, LowWatermark: -1}},
	} {
		if got := r.deleteRecords(c.topic, c.offset).now(); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
	if got := r.fetch(asks("t", 5)).now(); got.Code != wire.OffsetOutOfRange {
		t.Errorf("fetch below the start: %v", got.Code)
	}
}

// DeleteRecords is answered when the followers that live have followed.
func TestDeleteRecordsWaitsForFollowers(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{replicas: []wire.BrokerID{1, 2}})
	r.put("t", 4)
	r.follow(2, "t", 4).now()
	p := r.deleteRecords("t", 3)
	p.waits()
	asked := asks("t", 4)
	asked.LogStartOffset = 3
	r.fetchAll(&replica.FetchRequest{ReplicaID: 2, ReplicaEpoch: 1, Partitions: []replica.FetchPartition{asked}})
	if got := p.now(); got.Code != wire.None || got.LowWatermark != 3 {
		t.Fatalf("%+v", got)
	}
	p = r.deleteRecords("t", 4)
	r.sleep(10 * time.Second)
	if got := p.now(); got.Code != wire.RequestTimedOut || got.LowWatermark != -1 {
		t.Fatalf("%+v", got)
	}
}

// BO-084: a log trimmed to its end opens again, and goes on where it was.
func TestBO084TrimToTheEndAndRestart(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{})
	r.put("t", 5)
	r.deleteRecords("t", -1).now()
	r.restart()
	if first, last := r.list("t", -2), r.list("t", -1); first.Offset != 5 || last.Offset != 5 {
		t.Fatalf("earliest %+v, latest %+v", first, last)
	}
	if got := r.produce("t", -1, r.batchOf(1, 10)).now(); got.BaseOffset != 5 {
		t.Fatalf("%+v", got)
	}
}

// FM-32: what DeleteRecords has answered a kill does not bring back, unlike in Kafka.
func TestFM32DeletedRecordsStayDeletedAfterAKill(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{})
	r.put("t", 5)
	if got := r.deleteRecords("t", 3).now(); got.Code != wire.None || got.LowWatermark != 3 {
		t.Fatalf("%+v", got)
	}
	r.fs = r.fs.(*vfs.Mem).ProcessCrashClone()
	r.open()
	if first := r.list("t", -2); first.Offset != 3 {
		t.Fatalf("earliest is %+v after the kill, want 3", first)
	}
}

// What could not be made durable is not answered as deleted. With room again it may be asked for again.
func TestFM32DeleteRecordsOnADiskThatRefuses(t *testing.T) {
	for failure, again := range map[error]wire.Code{vfs.ErrNoSpace: wire.None, errors.New("input/output error"): wire.KafkaStorageError} {
		files := vfs.NewMem()
		disk := vfs.NewFault(files)
		r := newRigOn(t, disk, "/data")
		r.create("t", topic{})
		r.put("t", 5)
		disk.SetRules(vfs.Rule{Op: vfs.OpCreate, Path: "/data/log-start-offset-checkpoint.tmp", Err: failure, Times: 1})
		for _, want := range []wire.Code{wire.KafkaStorageError, again} {
			if got := r.deleteRecords("t", 3).now(); got.Code != want {
				t.Fatalf("%v: %+v, want %v", failure, got, want)
			}
		}
		if again != wire.None {
			continue
		}
		r.fs = files.ProcessCrashClone()
		r.open()
		if first := r.list("t", -2); first.Offset != 3 {
			t.Errorf("%v: earliest is %+v after a kill", failure, first)
		}
	}
}
