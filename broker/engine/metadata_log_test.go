package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/tier/object/cluster"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

// snapshots lists the snapshots in the store.
func (r *rig) snapshots() []string {
	r.t.Helper()
	var names []string
	for _, key := range r.keys(cluster.MetadataPrefix + "/0") {
		if strings.Contains(key, "snapshot") {
			names = append(names, key)
		}
	}
	return names
}

// touch makes an entry.
func (r *rig) touch() {
	r.t.Helper()
	a := r.submit(&metadata.AllocateProducerIDs{BrokerID: 1, BrokerEpoch: r.e.member.epoch})
	r.until("it is answered", a.done)
}

func TestASnapshotIsDueByCount(t *testing.T) {
	r := serving(t)
	for len(r.keys(cluster.MetadataPrefix+"/0")) < snapshotEntries {
		r.touch()
	}
	if s := r.snapshots(); len(s) != 1 {
		t.Fatalf("after %d entries: %v", snapshotEntries, s)
	}
	r.consistent()
}

// A broker that never lives long would read a chain that only grows.
func TestRestartsDoNotPutASnapshotOff(t *testing.T) {
	r := serving(t)
	for round := 1; len(r.keys(cluster.MetadataPrefix+"/0")) <= snapshotEntries; round++ {
		for len(r.keys(cluster.MetadataPrefix+"/0")) < round*snapshotEntries/4 {
			r.touch()
		}
		r.kill()
		r.open()
		r.until("it serves", r.e.Serving)
	}
	if s := r.snapshots(); len(s) != 1 {
		t.Fatalf("after %d entries: %v", len(r.entries()), s)
	}
	r.consistent()
}

func TestASnapshotIsDueBySize(t *testing.T) {
	r := serving(t)
	resource := metadata.ConfigResource{Type: metadata.BrokerResource}
	for round := range 2 * snapshotBytes / (900 << 10) {
		if len(r.snapshots()) > 0 {
			return
		}
		var ops []metadata.ConfigOp
		value := strings.Repeat(fmt.Sprint(round%10), 30<<10)
		for i := range 30 {
			ops = append(ops, metadata.ConfigOp{Name: fmt.Sprint("x", i), Op: metadata.SetConfig, Value: &value})
		}
		a := r.submit(&metadata.IncrementalAlterConfigs{Resources: []metadata.ResourceOps{{Resource: resource, Ops: ops}}})
		r.until("it is answered", a.done)
	}
	t.Errorf("no snapshot after %d entries", len(r.entries()))
}

// Commits go on while a snapshot is being written, and the snapshot is of the moment when it was begun.
func TestCommitsGoOnBesideASnapshot(t *testing.T) {
	r := serving(t)
	r.closed[LaneSnapshot] = true
	r.now = r.now.Add(snapshotAge)
	r.pass(10 * time.Second) // the lease ran out meanwhile
	r.touch()
	r.create("t")
	if len(r.held) == 0 {
		t.Fatal("no snapshot is due: the test shows nothing")
	}
	r.release(LaneSnapshot)
	if len(r.snapshots()) != 1 {
		t.Errorf("snapshots: %v", r.snapshots())
	}
	r.consistent()
	r.kill()
	r.open()
	r.until("it serves", r.e.Serving)
	if r.e.Image().Topic("t") == nil {
		t.Error("what was committed beside the snapshot is gone")
	}
}

// Entries behind old snapshots go; a broker that starts after that reads the rest, and so does one that was there before.
func TestOldEntriesAreTrimmed(t *testing.T) {
	r := serving(t)
	r.create("first")
	for day := range 12 {
		r.now = r.now.Add(24 * time.Hour)
		r.pass(20 * time.Second)
		r.touch()
		r.create("t" + strings.Repeat("x", day))
	}
	boundaries := r.keys(cluster.MetadataPrefix + "/boundary/")
	if len(boundaries) == 0 {
		t.Fatalf("nothing was trimmed: %v", r.keys(cluster.MetadataPrefix))
	}
	if keys := r.keys(cluster.MetadataPrefix + "/0"); strings.HasSuffix(keys[0], "/00000000000000000001.json") {
		t.Errorf("the first entry is still there: %v", keys)
	}
	r.consistent()
	r.kill()
	r.open()
	r.until("it serves", r.e.Serving)
	if r.e.Image().Topic("first") == nil {
		t.Error("what the trimmed entries made is gone")
	}
	r.consistent()
}

// A snapshot that fails is left for the next time, and stops nobody.
func TestASnapshotThatFails(t *testing.T) {
	r := serving(t)
	r.faults = func(c faultstore.Call) faultstore.Fault {
		if strings.Contains(c.Key, "snapshot") {
			return faultstore.Refuse
		}
		return faultstore.None
	}
	r.now = r.now.Add(snapshotAge)
	r.pass(10 * time.Second)
	r.touch()
	r.create("t")
	if len(r.snapshots()) != 0 {
		t.Fatal("the snapshot did not fail: the test shows nothing")
	}
	r.faults = nil
	r.now = r.now.Add(snapshotAge)
	r.pass(10 * time.Second)
	r.touch()
	r.pass(time.Second)
	if len(r.snapshots()) != 1 {
		t.Error("it was not tried again")
	}
}
