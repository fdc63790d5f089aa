package replica_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func (r *rig) files() []string {
	r.t.Helper()
	names, err := r.fs.List(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	return names
}

func TestRestartKeepsRecordsAndHighWatermark(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{partitions: 2})
	r.put("t", 3)
	before := r.info("t")
	r.restart()
	if after := r.info("t"); after.Positions != before.Positions || after.TopicID != before.TopicID {
		t.Fatalf("before %+v, after %+v", before, after)
	}
	if got := r.offsets(r.fetch(asks("t", 0)).now()); len(got) != 3 {
		t.Fatalf("reads %v", got)
	}
}

// A leader with followers begins at the high watermark of its checkpoint, not at its log's end.
func TestLeaderWithFollowersBeginsAtItsCheckpoint(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{replicas: []wire.BrokerID{1, 2}})
	r.put("t", 3)
	r.follow(2, "t", 2).now()
	r.restart()
	if at := r.info("t"); at.HighWatermark != 2 || at.LogEndOffset != 3 {
		t.Fatalf("%+v", at)
	}
}

func TestDeletedTopicLosesItsLog(t *testing.T) {
	r := newRig(t)
	id := r.create("t", topic{partitions: 2})
	r.put("t", 1)
	r.remove(id)
	if _, ok := r.m.Partition(wire.TopicPartition{Topic: "t"}); ok {
		t.Fatal("the partition is still here")
	}
	if got := r.fetch(asks("t", 0)).now(); got.Code != wire.UnknownTopicOrPartition {
		t.Fatal(got.Code)
	}
	r.sleep(2 * time.Minute) // file.delete.delay.ms
	r.m.DeleteDue(t.Context(), r.now)
	if slices.ContainsFunc(r.files(), func(name string) bool { return name[0] == 't' }) {
		t.Fatalf("left on disk: %v", r.files())
	}
}

// BO-040: a topic made again under its old name begins at 0 with nothing of the old one.
func TestBO040RecreatedTopicBeginsAnew(t *testing.T) {
	r := newRig(t)
	id := r.create("t", topic{})
	r.put("t", 10)
	again := wire.TopicID(r.uuid())
	r.commit(
		&metadata.RemoveTopicRecord{ID: id},
		&metadata.TopicRecord{Name: "t", ID: again},
		&metadata.PartitionRecord{TopicID: again, Partition: metadata.Partition{
			Replicas: []wire.BrokerID{1}, Directories: []string{""}, ISR: []wire.BrokerID{1}, Leader: 1,
		}},
	)
	if at := r.info("t"); at.TopicID != again || at.LogEndOffset != 0 || at.LeaderEpoch != 0 {
		t.Fatalf("%+v", at)
	}
	if got := r.produce("t", -1, r.batchOf(1, 10)).now(); got.BaseOffset != 0 {
		t.Fatalf("%+v", got)
	}
	if slices.ContainsFunc(r.files(), func(name string) bool { return len(name) > 6 && name[len(name)-6:] == "-stray" }) {
		t.Fatalf("a deleted log was set aside: %v", r.files())
	}
}

// Safety rule 9: nothing but the committed deletion of a topic id removes a log. What nobody can explain is set aside.
func TestSafety09UnexplainedLogsAreSetAside(t *testing.T) {
	r := newRig(t)
	known := r.create("known", topic{})
	r.create("lost", topic{})
	r.put("lost", 1)
	r.forget() // and from now on the image has never heard of one of them
	r.commit(
		&metadata.TopicRecord{Name: "known", ID: known},
		&metadata.PartitionRecord{TopicID: known, Partition: metadata.Partition{
			Replicas: []wire.BrokerID{1}, Directories: []string{""}, ISR: []wire.BrokerID{1}, Leader: 1, LeaderEpoch: 1,
		}},
	)
	r.m.SetStraysAside(r.now)
	r.sleep(time.Hour)
	r.m.DeleteDue(t.Context(), r.now)
	names := r.files()
	if !slices.Contains(names, "known-0") || slices.Contains(names, "lost-0") {
		t.Fatalf("%v", names)
	}
	if !slices.ContainsFunc(names, func(name string) bool {
		return len(name) > 10 && name[:6] == "lost-0" && name[len(name)-6:] == "-stray"
	}) {
		t.Fatalf("no stray among %v", names)
	}
}

// A log of another topic id under the same name is set aside too, and the partition begins anew.
func TestSafety09LogOfAnotherTopicIDIsSetAside(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{})
	r.put("t", 3)
	r.forget()
	r.create("t", topic{})
	if at := r.info("t"); at.LogEndOffset != 0 {
		t.Fatalf("%+v", at)
	}
	if !slices.ContainsFunc(r.files(), func(name string) bool { return len(name) > 6 && name[len(name)-6:] == "-stray" }) {
		t.Fatalf("no stray among %v", r.files())
	}
}

// The deletion of a topic is that of its id. A log of another id under the name, as a disk that was away brings it back, stays.
func TestSafety09ADeletionTakesNoLogOfAnotherTopicID(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{})
	r.put("t", 3)
	r.forget()
	deleted := &metadata.Topic{Name: "t", ID: r.uuid(), Partitions: make([]*metadata.Partition, 1)}
	r.m.Apply(r.now, r.image, metadata.Delta{Topics: []metadata.TopicDelta{{Before: deleted}}})
	r.sleep(time.Hour)
	r.m.DeleteDue(t.Context(), r.now)
	if names := r.files(); !slices.Contains(names, "t-0") {
		t.Fatalf("%v", names)
	}
}

// A partition whose recorded directory is not there is offline: an empty log elsewhere would lose what it holds.
func TestPartitionInAMissingDirectoryIsOffline(t *testing.T) {
	r := newRig(t)
	id := wire.TopicID(r.uuid())
	r.commit(
		&metadata.TopicRecord{Name: "t", ID: id},
		&metadata.PartitionRecord{TopicID: id, Partition: metadata.Partition{
			Replicas: []wire.BrokerID{1}, Directories: []string{wire.TopicID{7}.String()}, ISR: []wire.BrokerID{1}, Leader: 1,
		}},
	)
	if got := r.produce("t", 1, r.batchOf(1, 10)).now(); got.Code != wire.KafkaStorageError {
		t.Errorf("produce: %v", got.Code)
	}
	if got := r.fetch(asks("t", 0)).now(); got.Code != wire.KafkaStorageError {
		t.Errorf("fetch: %v", got.Code)
	}
	if got := r.list("t", -1); got.Code != wire.KafkaStorageError {
		t.Errorf("list offsets: %v", got.Code)
	}
	if at := r.info("t"); !at.Offline {
		t.Errorf("%+v", at)
	}
	r.m.DeleteDue(t.Context(), r.now)
	if at := r.info("t"); !at.Offline {
		t.Errorf("made anew: %+v", at)
	}
}

// The broker tells the controller in which directory it keeps a log, until the image says so.
func TestPlacements(t *testing.T) {
	r := newRig(t)
	id := r.create("t", topic{})
	placed := r.m.Placements()
	if len(placed) != 1 || placed[0].TopicID != id || placed[0].Directory != r.logs.Dirs()[0].ID.String() {
		t.Fatalf("%+v", placed)
	}
	p := r.image.TopicByID(id).Partitions[0]
	r.commit(&metadata.PartitionChangeRecord{TopicID: id, PartitionEpoch: p.PartitionEpoch + 1, Directories: []string{placed[0].Directory}})
	if placed := r.m.Placements(); len(placed) != 0 {
		t.Fatalf("%+v", placed)
	}
}

func TestFollowerRefusesClients(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{replicas: []wire.BrokerID{2, 1}, leader: 2})
	if got := r.fetch(asks("t", 0)).now(); got.Code != wire.NotLeaderOrFollower || got.Leader.ID != 2 {
		t.Errorf("%+v", got)
	}
	if at := r.info("t"); at.Leads || at.InSyncReplicas != 0 || at.UnderReplicated() {
		t.Errorf("%+v", at)
	}
}

// BO-080: retention by size never passes the high watermark.
func TestBO080RetentionStopsAtTheHighWatermark(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{replicas: []wire.BrokerID{1, 2}, configs: map[string]string{
		"segment.bytes": "1048576", "max.message.bytes": "1100000", "retention.bytes": "1",
	}})
	for range 4 {
		r.produce("t", 1, r.batchOf(1, 700_000)).now()
	}
	r.follow(2, "t", 2).now()
	r.m.Retain(t.Context(), r.now)
	if at := r.info("t"); at.LogStartOffset > at.HighWatermark || at.LogStartOffset == 0 || at.HighWatermark != 2 {
		t.Fatalf("%+v", at)
	}
}

func TestPartitionsAreListedInOrder(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"b", "a", "c"} {
		r.create(name, topic{partitions: 2})
	}
	var names []string
	for p := range r.m.Partitions() {
		names = append(names, p.String())
	}
	if fmt.Sprint(names) != "[a-0 a-1 b-0 b-1 c-0 c-1]" {
		t.Fatalf("%v", names)
	}
}

func TestLogDirs(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{partitions: 2})
	r.put("t", 1)
	dirs := r.m.LogDirs(func(tp wire.TopicPartition) bool { return tp.Partition == 0 })
	if len(dirs) != 1 || dirs[0].Path != "/data" || dirs[0].Code != wire.None || len(dirs[0].Partitions) != 1 || dirs[0].Partitions[0].Size == 0 {
		t.Fatalf("%+v", dirs)
	}
}

func TestDescribeProducers(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{})
	r.produce("t", 1, r.batchOf(2, 10, producer(9, 4, 0))).now()
	known, code := r.m.DescribeProducers(wire.TopicPartition{Topic: "t"})
	if code != wire.None || len(known) != 1 || known[0].ID != 9 || known[0].Epoch != 4 || known[0].LastSequence != 1 ||
		known[0].CoordinatorEpoch != -1 || known[0].CurrentTxnStartOffset != -1 || known[0].LastTimestamp != r.now.UnixMilli()+1 {
		t.Fatalf("%+v %v", known, code)
	}
	if _, code := r.m.DescribeProducers(wire.TopicPartition{Topic: "t", Partition: 1}); code != wire.UnknownTopicOrPartition {
		t.Fatal(code)
	}
}

// What coordinators rest on: an append under a leader epoch, word of the high watermark, and reading it all back.
func TestCoordinatorAppendsAndLoads(t *testing.T) {
	r := newRig(t)
	id := r.create("__consumer_offsets", topic{replicas: []wire.BrokerID{1, 2}})
	tp := wire.TopicPartition{Topic: "__consumer_offsets"}
	end, err := r.m.AppendAsCoordinator(r.now, tp, 0, r.batchOf(3, 10))
	if err != nil || end != 3 || r.marks[tp] != 0 {
		t.Fatalf("end %d, %v, high watermark %d", end, err, r.marks[tp])
	}
	r.follow(2, tp.Topic, 3).now()
	if r.marks[tp] != 3 {
		t.Fatalf("high watermark %d", r.marks[tp])
	}
	for range 3 {
		if _, err := r.m.AppendAsCoordinator(r.now, tp, 0, r.batchOf(1, 900_000)); err != nil {
			t.Fatal(err)
		}
	}
	var read []wire.Offset
	for b, err := range r.m.ReadLocal(t.Context(), tp) {
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, b.BaseOffset())
	}
	if fmt.Sprint(read) != "[0 3 4 5]" {
		t.Fatalf("reads %v", read)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range r.m.ReadLocal(ctx, tp) {
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled: %v", err)
		}
	}
	r.lead(id, 2)
	r.lead(id, 1)
	if _, err := r.m.AppendAsCoordinator(r.now, tp, 0, r.batchOf(1, 10)); wire.CodeOf(err) != wire.NotLeaderOrFollower {
		t.Fatalf("under a former epoch: %v", err)
	}
	if _, err := r.m.AppendAsCoordinator(r.now, tp, 2, flipped(r.batchOf(1, 10))); wire.CodeOf(err) != wire.CorruptMessage {
		t.Fatalf("damaged: %v", err)
	}
	for _, err := range r.m.ReadLocal(t.Context(), wire.TopicPartition{Topic: "none"}) {
		if wire.CodeOf(err) != wire.UnknownTopicOrPartition {
			t.Fatalf("unknown: %v", err)
		}
	}
}

// Without followers the listener hears of an append before AppendAsCoordinator returns.
func TestCoordinatorHearsOfTheHighWatermarkAtOnceWithoutFollowers(t *testing.T) {
	r := newRig(t)
	r.create("__consumer_offsets", topic{})
	tp := wire.TopicPartition{Topic: "__consumer_offsets"}
	if _, err := r.m.AppendAsCoordinator(r.now, tp, 0, r.batchOf(2, 10)); err != nil || r.marks[tp] != 2 {
		t.Fatalf("%v, high watermark %d", err, r.marks[tp])
	}
	r.create("t", topic{})
	r.put("t", 1)
	if len(r.marks) != 1 {
		t.Fatalf("told of %v", r.marks)
	}
}

// A coordinator appends under a lock of its own: nobody is called back before it is done.
func TestCoordinatorAppendCallsNoFetchBack(t *testing.T) {
	r := newRig(t)
	r.create("__consumer_offsets", topic{})
	tp := wire.TopicPartition{Topic: "__consumer_offsets"}
	fetch := r.fetch(asks(tp.Topic, 0))
	wakes := len(r.wakes)
	if _, err := r.m.AppendAsCoordinator(r.now, tp, 0, r.batchOf(2, 10)); err != nil {
		t.Fatal(err)
	}
	fetch.waits()
	if len(r.wakes) == wakes {
		t.Error("nobody is woken for the fetch")
	}
	r.m.Advance(r.now)
	if got := fetch.now(); got.HighWatermark != 2 {
		t.Errorf("%+v", got)
	}
}

// What a broker that died has begun to make of a log is no stray: nothing was ever in it.
func TestALogThatWasNotFinishedLeavesNothingBehind(t *testing.T) {
	files := vfs.NewMem()
	disk := vfs.NewFault(files)
	r := newRigOn(t, disk, "/data")
	var left []*vfs.Mem
	disk.SetRules(vfs.Rule{Path: "/data/t-0*", Hook: func(vfs.Call) { left = append(left, files.ProcessCrashClone()) }},
		vfs.Rule{Path: "/data/t-0/*", Hook: func(vfs.Call) { left = append(left, files.ProcessCrashClone()) }})
	r.create("t", topic{})
	if len(left) < 5 {
		t.Fatalf("%d places to die at", len(left))
	}
	for i, files := range left {
		r.fs = files
		r.open()
		r.m.SetStraysAside(r.now)
		r.put("t", 1)
		if names := r.files(); slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, "-stray") }) {
			t.Errorf("died at call %d: %v", i, names)
		}
	}
}
