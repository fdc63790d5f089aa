package engine

import (
	"errors"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/membership/lease"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/cluster"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

// A new cluster of one: two commits, and it serves; producer ids for those to come are the third. Nothing on the way waits for time to pass.
func TestANewClusterServes(t *testing.T) {
	r := newRig(t)
	r.open()
	if r.e.Serving() || isClosed(r.e.Served()) {
		t.Error("it serves before anything is committed")
	}
	r.until("it serves", r.e.Serving)
	if took := r.now.Sub(start); took > 10*time.Millisecond {
		t.Errorf("it took %v", took)
	}
	entries := r.entries()
	if len(entries) != 3 {
		t.Errorf("it took %d entries: the first has the election and the registration, the second lifts the fence, the third has producer ids", len(entries))
	}
	if keys := r.keys(""); !slices.Equal(keys, []string{
		cluster.Key, lease.Key, "metadata/00000000000000000001.json", "metadata/00000000000000000002.json",
		"metadata/00000000000000000003.json",
	}) {
		t.Errorf("the bucket holds %v", keys)
	}
	if b := r.e.Image().Broker(1); b == nil || b.Fenced || len(b.Directories) != 2 || b.Incarnation != "run1" {
		t.Errorf("registered as %+v", b)
	}
	if !isClosed(r.e.Served()) || r.e.ClusterID() == "" {
		t.Error("nobody is told that it serves")
	}
	r.consistent()
}

// A store that is away for a while delays the start and does not end it.
func TestAStartOutlastsAStoreThatIsAway(t *testing.T) {
	r := newRig(t)
	r.open()
	r.faults = func(faultstore.Call) faultstore.Fault { return faultstore.Refuse }
	r.pass(time.Minute)
	if r.e.Serving() {
		t.Fatal("it serves without a commit")
	}
	r.faults = nil
	r.until("it serves", r.e.Serving)
	r.consistent()
}

// TestBO097OneAnswerThatDecidesNothingEndsNoStart: the guard passes on what a conditional put is answered, so it is the start's to settle.
func TestBO097OneAnswerThatDecidesNothingEndsNoStart(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{"409": faultstore.Conflict, "answer lost": faultstore.LoseAnswer} {
		for at := 1; ; at++ {
			r, conditional := newRig(t), 0
			r.faults = func(c faultstore.Call) faultstore.Fault {
				if c.Op == faultstore.Put && c.Cond.Kind != object.Always {
					if conditional++; conditional == at {
						return fault
					}
				}
				return faultstore.None
			}
			if err := r.tryOpen(); err != nil {
				t.Errorf("%s to conditional put %d: %v", name, at, err)
				continue
			}
			r.until("it serves", r.e.Serving)
			if conditional < at {
				break
			}
		}
	}
}

// Safety rule 12: the lock of the data directory proves that the former incarnation is dead, so its lease is taken at once.
func TestSafety12ARestartAfterAKillWaitsForNoTTL(t *testing.T) {
	r := serving(t)
	r.create("t")
	first := r.leaseRecord()
	if first.Incarnation != "run1" || first.State != lease.Held {
		t.Fatalf("lease is %+v", first)
	}
	r.kill()
	killed := r.now
	r.open()
	r.until("it serves", r.e.Serving)
	if took := r.now.Sub(killed); took > 10*time.Millisecond {
		t.Errorf("it took %v", took)
	}
	if next := r.leaseRecord(); next.Epoch != first.Epoch+1 || next.Incarnation != "run2" {
		t.Errorf("lease went from %+v to %+v", first, next)
	}
	if r.e.Image().Topic("t") == nil {
		t.Error("the topic is gone")
	}
	r.consistent()
}

// Safety rule 10: no leader epoch is resumed by another incarnation.
func TestSafety10ARestartLeadsUnderNewEpochs(t *testing.T) {
	r := serving(t)
	r.create("t")
	before := r.e.Image().Partition("t", 0).LeaderEpoch
	r.kill()
	r.open()
	r.until("it serves", r.e.Serving)
	if p := r.e.Image().Partition("t", 0); p.Leader != 1 || p.LeaderEpoch <= before {
		t.Errorf("leader %d of epoch %d after %d", p.Leader, p.LeaderEpoch, before)
	}
}

// Safety rule 8: a broker that has data refuses a bucket that lacks what it has seen.
func TestSafety08ABucketThatIsNotOursIsRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *rig)
		want   error
	}{
		{"the bucket was emptied", func(r *rig) {
			for _, key := range r.keys("") {
				_ = r.bucket.Delete(r.t.Context(), key)
			}
		}, cluster.ErrMissing},
		{"the bucket is another cluster's", func(r *rig) {
			_ = r.bucket.Delete(r.t.Context(), cluster.Key)
			other := cluster.Cluster{ID: "AAAAAAAAAAAAAAAAAAAAAA", Version: cluster.FormatVersion}
			for _, key := range r.keys("") {
				_ = r.bucket.Delete(r.t.Context(), key)
			}
			if _, err := cluster.Ensure(r.t.Context(), r.bucket, "", other); err != nil {
				r.t.Fatal(err)
			}
		}, cluster.ErrMismatch},
		{"the chain ends lower", func(r *rig) {
			keys := r.keys(cluster.MetadataPrefix + "/0")
			_ = r.bucket.Delete(r.t.Context(), keys[len(keys)-1])
		}, chain.ErrHalt},
		{"the chain is gone", func(r *rig) {
			for _, key := range r.keys(cluster.MetadataPrefix) {
				_ = r.bucket.Delete(r.t.Context(), key)
			}
		}, chain.ErrHalt},
		{"the chain differs", func(r *rig) {
			keys := r.keys(cluster.MetadataPrefix + "/0")
			_ = r.bucket.Delete(r.t.Context(), keys[len(keys)-1])
			r.rival(50, &metadata.ControllerElectedRecord{BrokerID: 2, Epoch: 50})
			r.rival(51, &metadata.ControllerElectedRecord{BrokerID: 2, Epoch: 51})
		}, chain.ErrHalt},
		{"the chain is damaged", func(r *rig) { r.damage(r.keys(cluster.MetadataPrefix + "/0")[1]) }, chain.ErrHalt},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := serving(t)
			r.create("t")
			r.pass(2 * time.Second) // the kept file is up to date
			r.kill()
			c.change(r)
			before := r.keys("")
			if err := r.tryOpen(); !errors.Is(err, c.want) {
				t.Fatalf("opened with %v, not %v", err, c.want)
			}
			if after := r.keys(""); !slices.Equal(before, after) {
				t.Errorf("refused, but the bucket changed from %v to %v", before, after)
			}
		})
	}
}

// The kept file is replaced whole: a power loss leaves the old or the new one.
func TestTheKeptFileSurvivesAPowerLoss(t *testing.T) {
	for range 20 {
		r := serving(t)
		for _, name := range []string{"a", "b", "c"} {
			r.create(name)
			r.pass(time.Second)
		}
		r.files = r.files.CrashClone(r.random)
		kept, err := loadKept(r.files, []string{"/d1", "/d2"})
		if err != nil || kept.incarnation != "run1" {
			t.Fatalf("kept %+v, %v", kept, err)
		}
		r.open()
		r.until("it serves", r.e.Serving)
		r.consistent()
	}
}

func TestAKeptFileThatIsDamagedIsNoEmptyOne(t *testing.T) {
	for _, text := range []string{"", "{}", `{"position":`, `{"version":2,"position":{}}`} {
		r := serving(t)
		r.kill()
		r.write(path.Join("/d1", keptFile), text)
		if err := r.tryOpen(); err == nil || !strings.Contains(err.Error(), keptFile) {
			t.Errorf("%q: opened with %v", text, err)
		}
	}
}

// Safety rule 9: what is deleted goes, what nobody can explain stays, under another name.
func TestSafety09DeletedLogsGoAndStraysStay(t *testing.T) {
	r := serving(t, "log.dirs=/d1")
	r.create("kept")
	r.create("deleted")
	r.pass(2 * time.Second)
	if err := r.files.MkdirAll("/d1/stray-0"); err != nil {
		t.Fatal(err)
	}
	r.write("/d1/stray-0/partition.metadata", "version: 0\ntopic_id: oAD42iqRT2qubzFF7DhmXg")
	r.write("/d1/stray-0/00000000000000000000.log", "")

	// The deletion is committed, and the process dies before it hears of it.
	r.closed[LaneChain] = true
	name := "deleted"
	r.submit(&metadata.DeleteTopics{Topics: []metadata.TopicRef{{Name: &name}}})
	r.turn()
	for _, task := range r.held {
		_ = task.Run(t.Context())
	}
	if !slices.Contains(r.dirs(), "deleted-0") || r.committed().Topic("deleted") != nil {
		t.Fatalf("the stage is not set: %v", r.dirs())
	}
	r.kill()
	r.open()
	r.until("it serves", r.e.Serving)
	r.pass(10 * time.Second)
	dirs := r.dirs()
	if !slices.Contains(dirs, "kept-0") {
		t.Errorf("the log of a topic that is there is gone: %v", dirs)
	}
	if slices.ContainsFunc(dirs, func(d string) bool { return strings.HasPrefix(d, "deleted") }) {
		t.Errorf("the log of a deleted topic is still there: %v", dirs)
	}
	if !slices.ContainsFunc(dirs, func(d string) bool { return strings.HasPrefix(d, "stray-0") && strings.HasSuffix(d, "-stray") }) {
		t.Errorf("a log that nobody can explain is gone, or taken for good: %v", dirs)
	}
}

// Safety rule 7: a registration lists the directories, and what was in one that is missing has no leader from that commit on.
func TestSafety07ADirectoryThatIsMissingTakesItsReplicasAlong(t *testing.T) {
	r := serving(t)
	topics := []string{"a", "b", "c", "d"}
	for _, name := range topics {
		r.create(name)
	}
	r.pass(2 * time.Second)
	lost := r.e.logs.Dirs()[1].ID.String()
	was := map[string]string{}
	for _, name := range topics {
		was[name] = r.e.Image().Partition(name, 0).DirectoryOf(1)
	}
	r.kill()
	if err := r.files.RemoveAll("/d2"); err != nil {
		t.Fatal(err)
	}
	r.open()
	r.until("it serves", r.e.Serving)
	b := r.e.Image().Broker(1)
	if len(b.Directories) != 2 || slices.Contains(b.Directories, lost) || b.BootID != "boot" || b.Incarnation != "run2" {
		t.Errorf("registered as %+v", b)
	}
	gone := 0
	for _, name := range topics {
		leads := r.e.Image().Partition(name, 0).Leader == 1
		if was[name] == lost {
			gone++
		}
		if leads == (was[name] == lost) {
			t.Errorf("%s of directory %s is led: %t", name, was[name], leads)
		}
	}
	if gone == 0 || gone == len(topics) {
		t.Errorf("%d of the topics were lost: the test shows nothing", gone)
	}
	r.consistent()
}

// A disk that fails is told to the controller by its directory's id, which is what registrations have.
func TestAFailedDirectoryLeavesTheRegistration(t *testing.T) {
	r := serving(t)
	topics := []string{"a", "b", "c", "d"}
	for _, name := range topics {
		r.create(name)
	}
	r.pass(time.Second)
	r.disk.SetRules(vfs.Rule{Path: "/d2/*/*", Op: vfs.OpWrite, Err: errors.New("input/output error")})
	failed := map[string]bool{}
	for _, name := range topics {
		if code := r.produce(name); code != wire.None {
			failed[name] = true
		}
	}
	if len(failed) == 0 || len(failed) == len(topics) {
		t.Fatalf("on the disk that failed: %v", failed)
	}
	r.pass(2 * time.Second)
	if b := r.e.Image().Broker(1); len(b.Directories) != 1 || b.Directories[0] != r.e.logs.Dirs()[0].ID.String() {
		t.Errorf("registered with %v", b.Directories)
	}
	for _, name := range topics {
		if leads := r.e.Image().Partition(name, 0).Leader == 1; leads == failed[name] {
			t.Errorf("%s has a leader: %t, failed: %t", name, leads, failed[name])
		}
		if code := r.produce(name); (code == wire.None) == failed[name] {
			t.Errorf("%s answers %v", name, code)
		}
	}
	if !r.e.Serving() {
		t.Error("a failed directory stopped the broker")
	}
}
