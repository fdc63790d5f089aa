package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/cluster"
)

// gap is tier.recovery.offset.gap in these tests.
const gap = 1000

// tiered is a rig whose topics are tiered, and sealed after a second.
func tiered(t *testing.T, set ...string) *rig {
	t.Helper()
	return serving(t, append([]string{
		"log.dirs=/d1", "tier.enable=true", fmt.Sprint("tier.recovery.offset.gap=", gap), "tier.max.unsealed.ms=1000", "offsets.topic.num.partitions=1",
	}, set...)...)
}

// wipe takes the broker's disk away. What is up to date is known to no one but the bucket.
func (r *rig) wipe() {
	r.kill()
	r.files = vfs.NewMem()
}

// ledger is what a topic has acknowledged: values by offset.
type ledger map[wire.Offset]string

// produceTo appends one record and notes what was acknowledged.
func (r *rig) produceTo(topic string, l ledger) {
	r.t.Helper()
	value := fmt.Sprint(topic, " ", r.random.Uint64())
	var b record.Builder
	b.Append(r.now.UnixMilli(), nil, []byte(value))
	batch, err := b.Build()
	if err != nil {
		r.t.Fatal(err)
	}
	var result replica.ProduceResult
	r.e.Replicas().Produce(r.now, &replica.ProduceRequest{
		Acks: -1, Timeout: time.Second, ZstdAllowed: true, Partitions: []replica.ProducePartition{{Topic: topic, Records: batch}},
	}, func(results []replica.ProduceResult) { result = results[0] })
	r.turn()
	if result.Code != wire.None {
		r.t.Fatalf("produce to %s: %v", topic, result.Code)
	}
	if was, used := l[result.BaseOffset]; used {
		r.t.Fatalf("offset %d was used for %q, and is used again", result.BaseOffset, was)
	}
	l[result.BaseOffset] = value
}

// consume reads a topic from its log start on.
func (r *rig) consume(topic string) ledger {
	r.t.Helper()
	info, ok := r.e.Replicas().Partition(wire.TopicPartition{Topic: topic})
	if !ok {
		r.t.Fatalf("%s is not here", topic)
	}
	got := ledger{}
	for from := info.LogStartOffset; from < info.HighWatermark; {
		var result *replica.FetchResult
		r.e.Replicas().Fetch(r.now, &replica.FetchRequest{
			ReplicaID: replica.ConsumerID, MaxBytes: 1 << 20, MaxWait: time.Second, MinBytes: 1,
			Partitions: []replica.FetchPartition{{
				Topic: topic, FetchOffset: from, MaxBytes: 1 << 20, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1, LogStartOffset: -1,
			}},
		}, func(results []replica.FetchResult) { result = &results[0] })
		r.until("the fetch is answered", func() bool { return result != nil })
		if result.Code != wire.None {
			r.t.Fatalf("fetch of %s at %d: %v", topic, from, result.Code)
		}
		data := make([]byte, result.Records.Length)
		if len(data) > 0 {
			if _, err := result.Records.File.ReadAt(data, result.Records.Offset); err != nil && !errors.Is(err, io.EOF) {
				r.t.Fatal(err)
			}
		}
		if result.Records.Release != nil {
			result.Records.Release()
		}
		next := from
		for len(data) > 0 {
			batch, rest, err := record.Next(data)
			if err != nil {
				break // cut by the limit
			}
			data = rest
			next = batch.NextOffset()
			for rec, err := range record.Records(batch, 1<<20) {
				if err != nil {
					r.t.Fatal(err)
				}
				if rec.Offset >= from {
					got[rec.Offset] = string(rec.Value)
				}
			}
		}
		if next == from {
			break // nothing is left but offsets that are lost
		}
		from = next
	}
	return got
}

// has fails unless a topic holds exactly what was acknowledged.
func (r *rig) has(topic string, want ledger) {
	r.t.Helper()
	got := r.consume(topic)
	for offset, value := range want {
		if got[offset] != value {
			r.t.Errorf("%s at %d is %q, not %q", topic, offset, got[offset], value)
		}
	}
	if len(got) != len(want) {
		r.t.Errorf("%s holds %d records, not %d", topic, len(got), len(want))
	}
}

// settled waits until all partitions serve.
func (r *rig) settled() {
	r.t.Helper()
	r.until("it serves", r.e.Serving)
	r.until("all partitions have recovered", func() bool {
		for t := range r.e.Image().Topics("") {
			for _, p := range t.Partitions {
				if p.Recovery == metadata.Recovering {
					return false
				}
			}
		}
		return true
	})
	r.pass(time.Second)
}

// Safety rule 30: after a clean stop the bucket alone is enough: topics, configs, group offsets and records are back, and no offset is
// left out. Nobody has to ask for it.
func TestSafety30AStopAWipeAndAStart(t *testing.T) {
	r := tiered(t)
	r.create(wire.ConsumerOffsetsTopic)
	limit := "123456"
	r.do(&metadata.CreateTopics{Topics: []metadata.NewTopic{{
		Name: "t", Partitions: 1, ReplicationFactor: 1, Configs: []metadata.ConfigEntry{{Name: "max.message.bytes", Value: &limit}},
	}}})
	r.create("empty")
	r.pass(time.Second)
	records := ledger{}
	for range 20 {
		r.produceTo("t", records)
		r.pass(300 * time.Millisecond)
	}
	r.commitOffset("g", "t", 7)
	ids := r.e.Image().NextProducerID()
	epoch := r.e.Image().Partition("t", 0).LeaderEpoch
	r.stop()
	r.wipe()

	stopped := r.now
	r.open()
	r.settled()
	if took := r.now.Sub(stopped); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if got := r.e.Image().Configs(metadata.ConfigResource{Type: metadata.TopicResource, Name: "t"})["max.message.bytes"]; got != limit {
		t.Errorf("max.message.bytes is %q", got)
	}
	r.has("t", records)
	if got := r.committedOffset("g", "t"); got != 7 {
		t.Errorf("the group is at %d", got)
	}
	r.produceTo("t", records)
	if _, ok := records[20]; !ok {
		t.Errorf("there is a gap: %v", slices.Sorted(maps.Keys(records)))
	}
	empty := ledger{}
	r.produceTo("empty", empty)
	if _, ok := empty[0]; !ok {
		t.Errorf("there is a gap in a topic that was empty: %v", empty)
	}
	r.has("t", records)
	if image := r.e.Image(); image.ClusterIncarnation() != 1 || image.NextProducerID() <= ids || image.Partition("t", 0).LeaderEpoch <= epoch {
		t.Errorf("incarnation %d, next producer id %d after %d, leader epoch %d after %d", image.ClusterIncarnation(), image.NextProducerID(), ids,
			image.Partition("t", 0).LeaderEpoch, epoch)
	}
	if logged := r.logged.String(); strings.Contains(logged, "level=ERROR") {
		t.Errorf("people were told of errors: %s", logged)
	}
	if report, ok := r.e.Recovery(); !ok || !report.Complete || len(report.Lost) != 0 || report.Partitions != 3 {
		t.Errorf("report %+v, %t", report, ok)
	}
	r.consistent()
}

// Safety rule 30: after a kill nothing is given up unless somebody says so, and the error says what that would cost.
func TestSafety30AKillAndAWipeAreNotRecoveredUnasked(t *testing.T) {
	r := tiered(t)
	r.create("t")
	r.pass(time.Second)
	records := ledger{}
	r.produceTo("t", records)
	r.pass(10 * time.Second)
	r.produceTo("t", records)
	r.wipe()
	before := r.keys("")
	err := r.tryOpen()
	if !errors.Is(err, ErrDataMissing) {
		t.Fatalf("opened with %v", err)
	}
	for _, part := range []string{"t-0 from offset 1 on", "--recover", "/d1"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in: %v", part, err)
		}
	}
	if after := r.keys(""); !slices.Equal(before, after) {
		t.Errorf("refused, but the bucket changed from %v to %v", before, after)
	}
	for _, name := range r.dirs() {
		if strings.HasPrefix(name, "t-") || name == "meta.properties" {
			t.Errorf("refused, but there is %s", name)
		}
	}
}

// Safety rule 30: that a manifest was closed whole once says nothing about what was taken since, even if nothing of that was uploaded.
func TestSafety30AStopIsNoExcuseForWhatCameAfterIt(t *testing.T) {
	r := tiered(t, "tier.max.unsealed.ms=600000")
	r.create("t")
	r.create("empty")
	r.pass(time.Second)
	used := ledger{}
	r.produceTo("t", used)
	r.stop()
	r.open()
	r.settled()
	kept := maps.Clone(used)
	r.produceTo("t", used)
	r.produceTo("empty", ledger{})
	r.wipe()
	if err := r.tryOpen(); !errors.Is(err, ErrDataMissing) || !strings.Contains(err.Error(), "t-0 from offset 1 on") ||
		!strings.Contains(err.Error(), "empty-0 from offset 0 on") {
		t.Fatalf("opened with %v", err)
	}
	r.recover = true
	r.open()
	r.settled()
	r.has("t", kept)
	r.produceTo("t", used) // fails where an offset is used again
	if _, ok := used[1+gap]; !ok {
		t.Errorf("used %v", slices.Sorted(maps.Keys(used)))
	}
}

// Safety rules 19 and 30: with --recover everything that was uploaded is back, what may be lost is named before anything serves, and no
// offset is used again, however often that happens.
func TestSafety30AKillAWipeAndARecovery(t *testing.T) {
	r := tiered(t)
	r.create(wire.ConsumerOffsetsTopic)
	r.create("t")
	r.pass(time.Second)
	used, uploaded := ledger{}, ledger{}
	for round := range int64(3) {
		for range 5 {
			r.produceTo("t", used)
		}
		r.commitOffset("g", "t", 10+round)
		r.pass(2 * time.Minute)
		maps.Copy(uploaded, used)
		maps.DeleteFunc(uploaded, func(_ wire.Offset, value string) bool { return value == "lost" })
		end := slices.Max(slices.Collect(maps.Keys(used))) + 1
		r.produceTo("t", used) // acknowledged, and never uploaded
		lost := slices.Max(slices.Collect(maps.Keys(used)))
		if lost != end {
			t.Fatalf("appended at %d, not %d", lost, end)
		}

		r.recover = true
		r.wipe()
		r.open()
		report, ok := r.e.Recovery()
		if !ok || report.Complete || report.Incarnation != round+1 {
			t.Fatalf("report %+v, %t", report, ok)
		}
		at := slices.IndexFunc(report.Lost, func(l LostRange) bool { return l.Topic == "t" })
		if at < 0 || report.Lost[at].First != end || report.Lost[at].Next != end+gap {
			t.Errorf("round %d: lost %+v", round, report.Lost)
		}
		r.settled()
		r.hasReport(report)
		r.has("t", uploaded)
		used[lost] = "lost" // gone, and not to come back
		if got := r.committedOffset("g", "t"); got != 10+round {
			t.Errorf("round %d: the group is at %d", round, got)
		}
		r.produceTo("t", used)
		next := slices.Max(slices.Collect(maps.Keys(used)))
		if next != end+gap {
			t.Errorf("round %d: the next record is at %d, not %d", round, next, end+gap)
		}
		uploaded[next] = used[next]
		r.has("t", uploaded) // behind what is lost, too
		r.consistent()
	}
}

// hasReport compares the report with what lies in the bucket and in the log directory.
func (r *rig) hasReport(want RecoveryReport) {
	r.t.Helper()
	stored, _, err := object.Read(r.t.Context(), r.bucket, reportKey(want.Incarnation), 1<<20)
	if err != nil {
		r.t.Fatal(err)
	}
	file, err := r.files.OpenRead(path.Join("/d1", reportFile))
	if err != nil {
		r.t.Fatal(err)
	}
	defer file.Close()
	local := make([]byte, len(stored))
	if _, err := file.ReadAt(local, 0); err != nil && !errors.Is(err, io.EOF) {
		r.t.Fatal(err)
	}
	var got RecoveryReport
	if err := json.Unmarshal(stored, &got); err != nil || !slices.Equal(got.Lost, want.Lost) || string(local) != string(stored) {
		r.t.Errorf("stored %s (%v), on disk %s", stored, err, local)
	}
}

// Safety rule 30: a directory of before the recovery is refused, and the error says what to do.
func TestSafety30ADirectoryOfTheFormerIncarnationIsRefused(t *testing.T) {
	r := tiered(t)
	r.create("t")
	r.pass(time.Second)
	r.produceTo("t", ledger{})
	r.kill()
	former := r.files
	r.files = vfs.NewMem()
	r.recover = true
	r.open()
	r.settled()
	r.stop()
	r.files = former
	for _, asked := range []bool{false, true} {
		r.recover = asked
		err := r.tryOpen()
		if !errors.Is(err, ErrFormerIncarnation) || !strings.Contains(err.Error(), "/d1") || !strings.Contains(err.Error(), "Move it away") {
			t.Errorf("opened with %v", err)
		}
	}
}

// Safety rule 21: a disk that comes back without what it had synced ends with the bucket's history.
func TestSafety21ALogBehindTheManifestBeginsAnewFromTheBucket(t *testing.T) {
	r := tiered(t)
	r.create(wire.ConsumerOffsetsTopic)
	r.create("t")
	r.pass(time.Second)
	records := ledger{}
	for range 3 {
		r.produceTo("t", records)
	}
	r.commitOffset("g", "t", 1)
	r.pass(2 * time.Minute)
	earlier := r.files.ProcessCrashClone()
	for range 5 {
		r.produceTo("t", records)
	}
	r.commitOffset("g", "t", 6)
	r.pass(2 * time.Minute)
	r.kill()
	r.files, r.boot = earlier, "another"
	r.open()
	r.settled()
	r.has("t", records)
	if got := r.committedOffset("g", "t"); got != 6 {
		t.Errorf("the group is at %d", got)
	}
	r.produceTo("t", records)
	r.has("t", records)
	if _, ok := records[8]; !ok {
		t.Errorf("there is a gap: %v", slices.Sorted(maps.Keys(records)))
	}
	r.consistent()
}

// Safety rule 8: a wrong prefix has no cluster to recover, and gets none.
func TestSafety08AnEmptyBucketIsNotRecovered(t *testing.T) {
	r := newRig(t)
	r.recover = true
	if err := r.tryOpen(); !errors.Is(err, cluster.ErrMissing) {
		t.Errorf("opened with %v", err)
	}
	if keys := r.keys(""); len(keys) != 0 {
		t.Errorf("it made %v", keys)
	}
}

// A stop as soon as a recovery is over closes everything whole: the next start needs neither the disk nor a flag.
func TestAStopRightAfterARecoveryIsWhole(t *testing.T) {
	r := tiered(t, "log.dirs=/d1,/d2")
	r.create(wire.ConsumerOffsetsTopic)
	r.create("t")
	r.pass(time.Second)
	used := ledger{}
	r.produceTo("t", used)
	r.pass(2 * time.Minute)
	r.commitOffset("g", "t", 1)
	for range 2 {
		r.recover = true
		r.wipe()
		r.open()
		r.until("it serves", r.e.Serving)
		stopping := r.now
		r.stop()
		if took := r.now.Sub(stopping); took > 10*time.Second {
			t.Errorf("the stop took %v", took)
		}
		r.recover = false
		r.wipe()
		r.open()
		r.settled()
		r.has("t", used)
		if got := r.committedOffset("g", "t"); got != -1 {
			t.Errorf("the group is at %d", got)
		}
		if report, ok := r.e.Recovery(); !ok || !report.Complete {
			t.Errorf("report %+v, %t", report, ok)
		}
	}
}

// Safety rule 30: a topic that was never tiered is lost with the disk. It is said to be, and it begins above what it may have had.
func TestSafety30ATopicThatIsNotInTheBucketIsNamed(t *testing.T) {
	r := tiered(t)
	no := "false"
	r.do(&metadata.CreateTopics{Topics: []metadata.NewTopic{{
		Name: "local", Partitions: 1, ReplicationFactor: 1, Configs: []metadata.ConfigEntry{{Name: "remote.storage.enable", Value: &no}},
	}}})
	r.pass(time.Second)
	used := ledger{}
	r.produceTo("local", used)
	r.stop()
	r.wipe()
	if err := r.tryOpen(); !errors.Is(err, ErrDataMissing) || !strings.Contains(err.Error(), "local-0 from offset 0 on") {
		t.Fatalf("opened with %v", err)
	}
	r.recover = true
	for round := range 2 {
		r.open()
		report, _ := r.e.Recovery()
		if len(report.Lost) != 1 || report.Lost[0].Topic != "local" || !report.Lost[0].Absent {
			t.Errorf("lost %+v", report.Lost)
		}
		r.settled()
		r.produceTo("local", used)
		if _, ok := used[wire.Offset(gap*(round+1))]; !ok {
			t.Errorf("round %d: used %v", round, used)
		}
		r.wipe()
	}
}

// Safety rule 30: the manifest of a topic that is not tiered says where it began after a recovery, and not that nothing came since.
func TestSafety30ATopicThatIsNotTieredIsNeverWhole(t *testing.T) {
	r := tiered(t)
	no := "false"
	r.do(&metadata.CreateTopics{Topics: []metadata.NewTopic{{
		Name: "local", Partitions: 1, ReplicationFactor: 1, Configs: []metadata.ConfigEntry{{Name: "remote.storage.enable", Value: &no}},
	}}})
	r.pass(time.Second)
	r.recover = true
	r.wipe()
	r.open()
	r.settled()
	r.recover = false
	r.stop()
	r.wipe()
	if err := r.tryOpen(); !errors.Is(err, ErrDataMissing) || !strings.Contains(err.Error(), fmt.Sprintf("local-0 from offset %d on", gap)) {
		t.Fatalf("opened with %v", err)
	}
}

// Safety rule 30: what is lost of a partition that lost everything is named for as long as of any other: until somebody moves the log
// start over it, which the recovery itself has not.
func TestSafety30WhatAPartitionLostThatLostEverythingStaysNamed(t *testing.T) {
	r := tiered(t, "tier.max.unsealed.ms=600000")
	r.create("t")
	r.pass(time.Second)
	used := ledger{}
	r.produceTo("t", used)
	r.recover = true
	r.wipe()
	r.open()
	r.settled()
	tp := wire.TopicPartition{Topic: "t"}
	named := func(want int64) {
		t.Helper()
		r.pass(time.Minute)
		if s, ok := r.e.tier.worker.Partition(r.now, tp); !ok || s.Lost != want || s.LogStart < gap {
			t.Errorf("%d offsets are lost by the numbers, the log starts at %d: %+v", s.Lost, s.LogStart, s)
		}
	}
	named(gap)
	r.kill()
	r.open()
	r.settled()
	named(gap)
	r.produceTo("t", used)
	deleted := func(offset wire.Offset) {
		t.Helper()
		var result *replica.DeleteRecordsResult
		r.e.Replicas().DeleteRecords(r.now, &replica.DeleteRecordsRequest{
			Timeout: 10 * time.Second, Partitions: []replica.DeleteRecordsPartition{{Topic: "t", Offset: offset}},
		}, func(results []replica.DeleteRecordsResult) { result = &results[0] })
		r.until("the request is answered", func() bool { return result != nil })
		if result.Code != wire.None {
			t.Errorf("delete records: %v", result.Code)
		}
	}
	deleted(gap) // the log starts there
	named(gap)
	deleted(gap + 1)
	named(0)
}

// With its directories in place a broker has nothing to recover, whatever it is asked.
func TestRecoverDoesNothingWithoutNeed(t *testing.T) {
	r := tiered(t)
	r.create("t")
	r.pass(time.Second)
	records := ledger{}
	r.produceTo("t", records)
	r.recover = true
	r.kill()
	r.open()
	r.settled()
	r.has("t", records)
	if _, ok := r.e.Recovery(); ok || r.e.Image().ClusterIncarnation() != 0 {
		t.Error("it has recovered")
	}
	if meta, _, err := log.ReadMeta(r.files, "/d1"); err != nil || meta.ClusterIncarnation != 0 {
		t.Errorf("%+v, %v", meta, err)
	}
}
