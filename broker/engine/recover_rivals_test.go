package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/object/cluster"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

// Safety rule 30: a cluster that lives is not recovered from under its controller, and nothing of it changes.
func TestSafety30AClusterThatIsAliveIsNotRecovered(t *testing.T) {
	r := tiered(t)
	r.create("t")
	r.pass(time.Second)
	twin := newRig(t, append(r.set, "node.id=2")...)
	twin.now, twin.starts, twin.bucket, twin.recover = r.now, 100, r.bucket, true
	twin.store = r.store
	twin.open()
	for range 30 {
		r.pass(time.Second)
		twin.now = r.now
		twin.turn()
	}
	if !errors.Is(twin.e.Failure(), ErrClusterAlive) || twin.e.Serving() {
		t.Errorf("the second goes on: failure %v, serving %t", twin.e.Failure(), twin.e.Serving())
	}
	if logged := twin.logged.String(); strings.Contains(logged, "level=ERROR") {
		t.Errorf("the second never was this broker, and people were told of errors: %s", logged)
	}
	if r.e.Failure() != nil || !r.e.Serving() || r.committed().ClusterIncarnation() != 0 {
		t.Errorf("the first: failure %v, serving %t, incarnation %d", r.e.Failure(), r.e.Serving(), r.committed().ClusterIncarnation())
	}
	r.consistent()

	// Once it is gone, another broker may take over what it had, with an empty directory that a recovery has begun in.
	r.kill()
	twin.kill()
	twin.now = twin.now.Add(time.Second)
	twin.open()
	twin.settled()
	if b := twin.e.Image().Broker(1); b != nil {
		t.Errorf("broker 1 is registered still: %+v", b)
	}
	if p := twin.e.Image().Partition("t", 0); p.Leader != 2 || !slices.Equal(p.Replicas, []wire.BrokerID{2}) {
		t.Errorf("t-0 is %+v", p)
	}
	twin.consistent()
}

// Safety rule 30: a broker that was only stopped for a while, and that the cluster was recovered without, stops serving and leaves its logs
// as they are.
func TestSafety30ABrokerThatTheClusterWasRecoveredWithoutEnds(t *testing.T) {
	r := tiered(t)
	r.create("t")
	r.pass(time.Second)
	r.produceTo("t", ledger{})
	twin := newRig(t, append(r.set, "node.id=2")...)
	twin.now, twin.starts, twin.bucket, twin.recover = r.now, 100, r.bucket, true
	twin.store = faultstore.New(r.bucket, nil)
	twin.open()
	twin.settled()

	r.now = twin.now
	for range 30 {
		r.pass(time.Second)
		twin.now = r.now
		twin.turn()
	}
	if !errors.Is(r.e.Failure(), errRecoveredAway) || r.e.Serving() || !r.refuses() {
		t.Errorf("it goes on: failure %v, serving %t", r.e.Failure(), r.e.Serving())
	}
	if !slices.Contains(r.dirs(), "t-0") {
		t.Errorf("its log is gone: %v", r.dirs())
	}
	if twin.e.Failure() != nil || !twin.e.Serving() {
		t.Errorf("the second: failure %v, serving %t", twin.e.Failure(), twin.e.Serving())
	}
	twin.consistent()
}

// Safety rule 30: what a dead process has put arrives after the manifests were looked at. That recovery ends, and the next one has the topic,
// for nothing of it is on the disk that was to be the cluster's.
func TestSafety30AnEntryThatComesLateIsPartOfTheNextRecovery(t *testing.T) {
	r := tiered(t, "log.dirs=/d1,/d2") // with one, the entry would name the directory that is gone
	r.create("t")
	r.pass(time.Second)
	r.faults = func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.Put && strings.HasPrefix(c.Key, cluster.MetadataPrefix) {
			return faultstore.Late
		}
		return faultstore.None
	}
	r.submit(topicNamed("late"))
	r.turn()
	r.faults = nil
	r.recover = true
	r.wipe()
	r.open()
	if err := r.store.Release(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	r.until("the recovery ends", func() bool { return r.e.Failure() != nil })
	if slices.Contains(r.dirs(), "late-0") {
		t.Errorf("before the recovery is committed the disk has %v", r.dirs())
	}
	r.kill()
	r.open()
	r.settled()
	if r.e.Image().Topic("late") == nil || !slices.Contains(r.dirs(), "late-0") {
		t.Errorf("the topic is missing: %v", r.dirs())
	}
	r.consistent()
}
