package engine

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

var errDisk = errors.New("input/output error")

// dead is a log directory on a disk that is gone.
func dead(dir string) []vfs.Rule {
	return []vfs.Rule{{Path: dir, Err: errDisk}, {Path: dir + "/*", Err: errDisk}, {Path: dir + "/*/*", Err: errDisk}}
}

// A start reads nothing before its directories are locked. Another process may be about to stop: what it has written meanwhile, here
// and to the chain, would be missing, and the logs of its newest topics would be taken for strays.
func TestSafety09AStartLocksBeforeItReads(t *testing.T) {
	r := serving(t)
	running, calls := r.e, 0
	r.faults = func(faultstore.Call) faultstore.Fault { calls++; return faultstore.None }
	if err := r.tryOpen(); !errors.Is(err, vfs.ErrLocked) {
		t.Fatalf("a second process opened with %v", err)
	}
	if calls != 0 {
		t.Errorf("%d calls of the store before the lock", calls)
	}
	r.e = running
	r.create("t")
	r.stop()
	r.faults = func(faultstore.Call) faultstore.Fault {
		if lock, err := r.files.Lock("/d1/.lock"); err == nil {
			t.Error("the directory is not locked while the chain is read")
			_ = lock.Close()
		}
		return faultstore.None
	}
	r.open()
	r.until("it serves", r.e.Serving)
	r.consistent()
}

// A start that fails leaves the directories as it found them: unlocked, and clean if they were.
func TestAStartThatFailsLeavesNothingBehind(t *testing.T) {
	r := serving(t)
	r.create("t")
	r.stop()
	former := r.committed().Broker(1).Epoch
	for name, spoil := range map[string]func(){
		"no store": func() { r.faults = func(faultstore.Call) faultstore.Fault { return faultstore.Refuse } },
		"no kept file": func() {
			r.rules = []vfs.Rule{{Op: vfs.OpCreate, Path: "/d1/" + keptFile + ".tmp", Err: errDisk}}
		},
	} {
		spoil()
		if err := r.tryOpen(); err == nil {
			t.Fatalf("%s: it opened", name)
		}
		r.faults, r.rules = nil, nil
	}
	r.open()
	r.until("it serves", r.e.Serving)
	if b := r.e.Image().Broker(1); b.CleanStopEpoch != former {
		t.Errorf("registered with the clean stop of epoch %d, not %d", b.CleanStopEpoch, former)
	}
}

// A broker that has lost one of its directories starts with the others, and remembers in one of them what it has seen.
func TestSafety08WhatWasSeenOutlivesADirectory(t *testing.T) {
	r := serving(t)
	r.create("t")
	r.pass(2 * time.Second)
	r.kill()
	r.rules = dead("/d1")
	r.open()
	r.until("it serves", r.e.Serving)
	r.create("u")
	r.pass(2 * time.Second)
	seen := r.e.role.log.tail
	r.kill()
	r.rules = nil
	kept, err := loadKept(r.files, []string{"/d1", "/d2"})
	if err != nil || kept.position != seen {
		t.Errorf("remembered is %+v, %v, and %+v was seen", kept.position, err, seen)
	}
}

// A directory that can't be read may be one of a cluster: the broker is not taken for a new one because of it.
func TestSafety08AnUnreadableDirectoryIsNotANewOne(t *testing.T) {
	for name, rules := range map[string][]vfs.Rule{
		"the disk is gone": dead("/d1"),
		"a file of it is":  {{Path: "/d1/meta.properties", Err: errDisk}},
	} {
		r := serving(t, "log.dirs=/d1")
		r.kill()
		for _, key := range r.keys("") {
			_ = r.bucket.Delete(t.Context(), key)
		}
		r.set = []string{"log.dirs=/d1,/d2"}
		r.rules = rules
		if err := r.tryOpen(); !errors.Is(err, log.ErrStorage) {
			t.Errorf("%s: opened with %v", name, err)
		}
		if keys := r.keys(""); len(keys) != 0 {
			t.Errorf("%s: it made %v", name, keys)
		}
	}
}

// twin is another process with the same broker id and bucket.
func (r *rig) twin(files *vfs.Mem) *rig {
	twin := newRig(r.t, r.set...)
	twin.now, twin.files, twin.starts = r.now, files, 100
	twin.bucket = r.bucket
	twin.store = faultstore.New(r.bucket, nil)
	twin.open()
	return twin
}

// refuses tells whether a broker has no answers for clients any more.
func (r *rig) refuses() bool {
	reply := r.e.Handle(r.now, &api.Request{RequestHeader: wire.RequestHeader{Key: 18}, Session: &api.Session{}})
	return reply.Outcome == api.Close
}

// Safety rule 10: two processes with the id of one broker never serve side by side. One that comes with directories of its own
// waits as long as the other holds the lease.
func TestSafety10ASecondIncarnationWaitsForTheFirst(t *testing.T) {
	r := serving(t)
	twin := r.twin(vfs.NewMem())
	r.create("t")
	for range 300 {
		r.pass(200 * time.Millisecond)
		twin.now = r.now
		twin.turn()
	}
	if twin.e.Serving() || !r.e.Serving() || r.refuses() {
		t.Errorf("the first serves: %t, the second: %t", r.e.Serving(), twin.e.Serving())
	}
	// The first one is stopped for longer than its lease.
	twin.until("the second serves", twin.e.Serving)
	if !twin.now.After(r.now) {
		t.Fatal("it did not wait")
	}
	twin.create("u")
	r.now = twin.now
	r.pass(2 * time.Second)
	if !isClosed(r.e.Failed()) || r.e.Failure() == nil || r.e.Serving() || !r.refuses() {
		t.Errorf("the first one goes on: failure %v", r.e.Failure())
	}
	r.stop()
	twin.consistent()
}

// One that comes with a copy of the directories takes the first one for dead, and the first one gives way.
func TestSafety10TheFirstIncarnationGivesWayToACopy(t *testing.T) {
	r := serving(t)
	r.create("t")
	r.pass(2 * time.Second)
	twin := r.twin(r.files.ProcessCrashClone())
	twin.until("the second serves", twin.e.Serving)
	r.pass(1500 * time.Millisecond) // the next renewal
	if !isClosed(r.e.Failed()) || r.e.Serving() || !r.refuses() {
		t.Errorf("the first one goes on: failure %v", r.e.Failure())
	}
	for range 60 {
		twin.pass(time.Second)
		r.now = twin.now
		r.turn()
	}
	if !twin.e.Serving() || twin.e.Failure() != nil {
		t.Errorf("the second one: failure %v", twin.e.Failure())
	}
	twin.consistent()
}

// Groups are not loaded under a leadership of the incarnation before: the next one comes with the registration.
func TestSafety10GroupsWaitForTheNewEpoch(t *testing.T) {
	r := serving(t)
	r.create(wire.ConsumerOffsetsTopic)
	r.create("t")
	r.commitOffset("g", "t", 5)
	r.kill()
	r.open()
	r.closed[LaneChain], r.closed[LaneLoad] = true, true
	r.pass(time.Second)
	if slices.ContainsFunc(r.held, func(task Task) bool { return task.Lane == LaneLoad }) {
		t.Error("a partition is loaded before the broker is registered")
	}
	r.release(LaneChain)
	r.release(LaneLoad)
	r.until("it serves", r.e.Serving)
	if got := r.committedOffset("g", "t"); got != 5 {
		t.Errorf("the group is at %d", got)
	}
}

// The deletion of a topic is committed, and the process dies before its groups hear of it: a topic made anew under the name must not
// inherit their offsets.
func TestOffsetsOfADeletedTopicDoNotOutliveAKill(t *testing.T) {
	r := serving(t)
	r.create(wire.ConsumerOffsetsTopic)
	r.create("kept")
	r.create("deleted")
	r.commitOffset("g", "kept", 5)
	r.commitOffset("g", "deleted", 5)
	r.pass(2 * time.Second)
	r.closed[LaneChain] = true
	name := "deleted"
	r.submit(&metadata.DeleteTopics{Topics: []metadata.TopicRef{{Name: &name}}})
	r.turn()
	for _, task := range r.held {
		_ = task.Run(t.Context())
	}
	if r.committed().Topic("deleted") != nil {
		t.Fatal("the stage is not set")
	}
	r.kill()
	r.open()
	r.until("it serves", r.e.Serving)
	r.create("deleted")
	for topic, want := range map[string]int64{"kept": 5, "deleted": -1} {
		if got := r.committedOffset("g", topic); got != want {
			t.Errorf("%s: the group is at %d, want %d", topic, got, want)
		}
	}
	r.commitOffset("g", "deleted", 7)
	r.kill()
	r.open()
	r.until("it serves", r.e.Serving)
	if got := r.committedOffset("g", "deleted"); got != 7 {
		t.Errorf("what was committed for the new topic is %d", got)
	}
}

// A commit that began before its topic was deleted comes to the groups after they have forgotten it: a topic made anew under the name
// must not inherit that either.
func TestALateCommitForADeletedTopicIsNotInherited(t *testing.T) {
	r := serving(t)
	r.create(wire.ConsumerOffsetsTopic)
	r.create("t")
	former, name := r.e.Image().Topic("t").ID, "t"
	r.submit(&metadata.DeleteTopics{Topics: []metadata.TopicRef{{Name: &name}}})
	r.turn()
	request := kmsg.NewPtrOffsetCommitRequest()
	request.SetVersion(7)
	request.Group, request.Generation = "g", -1
	request.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: name, TopicID: former, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: 5}}}}
	r.e.groups.OffsetCommit(r.now, request, func(*kmsg.OffsetCommitResponse) {})
	r.turn()
	if got := r.committedOffset("g", name); got != 5 {
		t.Fatalf("the stage is not set: the group is at %d", got)
	}
	r.create(name)
	if got := r.committedOffset("g", name); got != -1 {
		t.Errorf("the group is at %d", got)
	}
	r.pass(2 * time.Second)
	r.kill()
	r.open()
	r.until("it serves", r.e.Serving)
	if got := r.committedOffset("g", name); got != -1 {
		t.Errorf("the group is at %d after a kill", got)
	}
}

func (r *rig) commitOffset(group, topic string, offset int64) {
	r.t.Helper()
	request := kmsg.NewPtrOffsetCommitRequest()
	request.SetVersion(7)
	request.Group, request.Generation = group, -1
	request.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: offset, LeaderEpoch: -1}}}}
	code := wire.UnknownServerError
	r.e.groups.OffsetCommit(r.now, request, func(response *kmsg.OffsetCommitResponse) {
		code = wire.Code(response.Topics[0].Partitions[0].ErrorCode)
	})
	r.turn()
	if code != wire.None {
		r.t.Fatal(code)
	}
}

func (r *rig) committedOffset(group, topic string) int64 {
	r.t.Helper()
	request := kmsg.NewPtrOffsetFetchRequest()
	request.SetVersion(7)
	request.Group = group
	request.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: topic, Partitions: []int32{0}}}
	offset := int64(-2)
	r.e.groups.OffsetFetch(r.now, request, func(response *kmsg.OffsetFetchResponse) {
		offset = response.Topics[0].Partitions[0].Offset
	})
	r.turn()
	return offset
}
