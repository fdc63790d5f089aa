package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object/cluster"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

// createMany makes a topic of many partitions.
func (r *rig) createMany(name string, partitions int32) {
	r.t.Helper()
	r.do(&metadata.CreateTopics{Topics: []metadata.NewTopic{{Name: name, Partitions: partitions, ReplicationFactor: 1}}})
	r.pass(time.Second)
}

// forget takes the manifest of a partition out of the bucket, as somebody might who tidies up.
func (r *rig) forget(topic string, partition int32) {
	r.t.Helper()
	keys := r.keys(manifest.Prefix(topic, r.e.Image().Topic(topic).ID, partition))
	if len(keys) == 0 {
		r.t.Fatalf("the bucket has nothing of %s-%d", topic, partition)
	}
	for _, key := range keys {
		if err := r.bucket.Delete(r.t.Context(), key); err != nil {
			r.t.Fatal(err)
		}
	}
}

// Safety rules 29 and 30: a clean stop makes no manifest for partitions that never had a record. The metadata says so of each by name, and a
// start with new log directories takes its word for it.
func TestSafety30PartitionsWithoutARecordNeedNoManifest(t *testing.T) {
	r := tiered(t)
	r.createMany("many", 30)
	r.create("used")
	used := ledger{}
	r.produceTo("used", used)
	for range 2 {
		r.stop()
		if keys := r.keys("topics/many."); len(keys) > 0 {
			t.Errorf("of partitions that never had a record the bucket has %v", keys)
		}
		for i, p := range r.committed().Topic("many").Partitions {
			if !p.Empty || p.Leader != wire.NoBroker {
				t.Errorf("partition %d: empty %v, leader %d", i, p.Empty, p.Leader)
			}
		}
		r.wipe()
		r.open()
		r.settled()
		r.has("used", used)
		if report, ok := r.e.Recovery(); !ok || !report.Complete {
			t.Errorf("report %+v, %t", report, ok)
		}
	}
	many := ledger{}
	r.produceTo("many", many)
	if _, ok := many[0]; !ok {
		t.Errorf("it begins with a gap: %v", many)
	}
	r.stop()
	r.wipe()
	r.open()
	r.settled()
	r.has("many", many)
	r.has("used", used)
}

// A recovery that has died before anybody led a partition leaves it as empty as it was.
func TestSafety30AnEmptyPartitionIsEmptyAfterARecoveryThatDied(t *testing.T) {
	r := tiered(t)
	r.createMany("many", 3)
	r.stop()
	r.wipe()
	r.open()
	recovered := func() bool { return r.committed().ClusterIncarnation() == 1 }
	r.faults = func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.Put && strings.HasPrefix(c.Key, cluster.MetadataPrefix) && recovered() {
			return faultstore.Refuse
		}
		return faultstore.None
	}
	r.until("the recovery is committed", recovered)
	r.wipe()
	r.faults = nil
	r.open()
	r.settled()
	if report, ok := r.e.Recovery(); !ok || !report.Complete || report.Incarnation != 2 {
		t.Errorf("report %+v, %t", report, ok)
	}
}

// Safety rule 30: that a manifest is missing says nothing. Only a partition that is named as empty may lack it.
func TestSafety30AManifestThatWasTakenAwayIsNotThatOfAnEmptyPartition(t *testing.T) {
	r := tiered(t)
	r.createMany("many", 3)
	r.create("used")
	r.produceTo("used", ledger{})
	r.stop()
	r.forget("used", 0)
	r.wipe()
	err := r.tryOpen()
	if !errors.Is(err, ErrDataMissing) || !strings.Contains(fmt.Sprint(err), "used-0 from offset 0 on") || strings.Contains(fmt.Sprint(err), "many") {
		t.Errorf("opened with %v", err)
	}
}

// Safety rule 30: who leads a partition after it was called empty may have taken records that are in no bucket.
func TestSafety30AnEmptyPartitionThatWasLedSinceIsNotEmpty(t *testing.T) {
	r := tiered(t, "tier.max.unsealed.ms=600000")
	r.createMany("many", 3)
	r.stop()
	r.open()
	r.settled()
	r.produceTo("many", ledger{})
	r.wipe()
	if err := r.tryOpen(); !errors.Is(err, ErrDataMissing) || !strings.Contains(err.Error(), "many-0 to 2 from offset 0 on") {
		t.Errorf("opened with %v", err)
	}
}

// Without controlled.shutdown.enable nobody hears what is empty: then the manifests say so.
func TestSafety29WithoutAWordToTheControllerEveryManifestIsClosed(t *testing.T) {
	r := tiered(t, "controlled.shutdown.enable=false")
	r.createMany("many", 3)
	r.stop()
	if keys := r.keys("topics/many."); !slices.ContainsFunc(keys, func(key string) bool { return strings.Contains(key, "/2/manifest/") }) {
		t.Errorf("the bucket has %v", keys)
	}
	r.wipe()
	r.open()
	r.settled()
	if report, ok := r.e.Recovery(); !ok || !report.Complete {
		t.Errorf("report %+v, %t", report, ok)
	}
}

// A stop that has begun to close manifests takes no record any more: what it acknowledged, the bucket would lack.
func TestSafety29NothingIsAppendedOnceAStopHasBegun(t *testing.T) {
	r := tiered(t)
	r.createMany("many", 3)
	r.create("used")
	used := ledger{}
	r.produceTo("used", used)
	r.closed[LaneTier] = true
	r.e.Stop()
	r.turn()
	for _, topic := range []string{"used", "many"} {
		if code := r.produce(topic); code != wire.NotLeaderOrFollower {
			t.Errorf("produce to %s: %v", topic, code)
		}
	}
	r.release(LaneTier)
	r.until("it has stopped", func() bool { return isClosed(r.e.Stopped()) })
	if code := r.produce("used"); code != wire.NotLeaderOrFollower {
		t.Errorf("produce after the stop: %v", code)
	}
	r.wipe()
	r.open()
	r.settled()
	r.has("used", used)
}
