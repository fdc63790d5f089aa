package engine

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

// deleter is a store that holds some objects of each topic and gives one up a call.
type deleter struct {
	left  map[string]int
	away  bool
	calls []string
}

func (d *deleter) DeleteTopic(_ context.Context, topic string, _ wire.TopicID) (more bool, err error) {
	d.calls = append(d.calls, topic)
	if d.away {
		return false, object.ErrUnavailable
	}
	d.left[topic] = max(d.left[topic]-1, 0)
	return d.left[topic] > 0, nil
}

// removing is a rig with topics that may have something in the bucket, deleted, and a deleter in place of the tier's.
func removing(t *testing.T, d *deleter, topics ...string) *rig {
	t.Helper()
	r := serving(t, "tier.delete.grace.ms=60000")
	r.e.role.removals.deleter = d
	for _, name := range topics {
		no := "false"
		r.do(&metadata.CreateTopics{Topics: []metadata.NewTopic{{
			Name: name, Partitions: 1, ReplicationFactor: 1, Configs: []metadata.ConfigEntry{{Name: "remote.storage.enable", Value: &no}},
		}}})
	}
	r.pass(time.Second)
	for _, name := range topics {
		r.do(&metadata.DeleteTopics{Topics: []metadata.TopicRef{{Name: &name}}})
	}
	return r
}

// do has a change made.
func (r *rig) do(change metadata.Change) {
	r.t.Helper()
	a := r.submit(change)
	r.until("it is answered", a.done)
	if code := a.code(); code != wire.None {
		r.t.Fatalf("%T is answered %v", change, code)
	}
}

// restart kills the broker and starts it again.
func (r *rig) restart(d *deleter) {
	r.t.Helper()
	r.kill()
	r.open()
	r.e.role.removals.deleter = d
	r.until("it serves", r.e.Serving)
}

// Safety rule 28: what the bucket holds of a deleted topic goes in small steps, and once more after the grace; then the task is gone.
func TestSafety28ARemovedTopicIsDeletedAndLookedAtAgainAfterTheGrace(t *testing.T) {
	d := &deleter{left: map[string]int{"a": 3}}
	r := removing(t, d, "a")
	r.pass(10 * time.Second)
	if len(d.calls) != 3 || d.left["a"] != 0 {
		t.Fatalf("%d calls left %d objects", len(d.calls), d.left["a"])
	}
	if r.e.Image().RemovalCount() != 1 || r.committed().RemovalCount() != 1 {
		t.Fatal("the task is done before the grace is over")
	}
	d.left["a"] = 2 // by a leader that had not heard of the deletion
	r.pass(time.Minute)
	if d.left["a"] != 0 || len(d.calls) != 5 {
		t.Errorf("%d calls left %d objects", len(d.calls), d.left["a"])
	}
	if r.e.Image().RemovalCount() != 0 {
		t.Error("the task is not done")
	}
	r.consistent()
	calls := len(d.calls)
	r.pass(5 * time.Minute)
	if len(d.calls) != calls {
		t.Error("a task that is done was run again")
	}
}

// Safety rule 28: neither a crash nor a new term loses a task.
func TestSafety28ARemovalSurvivesRestarts(t *testing.T) {
	d := &deleter{left: map[string]int{"a": 1000}, away: true}
	r := removing(t, d, "a")
	r.pass(10 * time.Second)
	for range 3 {
		r.restart(d)
		if r.e.Image().RemovalCount() != 1 {
			t.Fatal("the task is lost")
		}
	}
	d.away, d.left["a"] = false, 2
	r.pass(2 * time.Minute)
	if d.left["a"] != 0 || r.e.Image().RemovalCount() != 0 {
		t.Errorf("%d objects and %d tasks are left", d.left["a"], r.e.Image().RemovalCount())
	}
	r.consistent()
}

// A store that is away is asked less and less often, and a topic that can't be deleted does not hold up the others.
func TestRemovalsBackOffAndTakeTurns(t *testing.T) {
	d := &deleter{left: map[string]int{"a": 2, "b": 2, "c": 2}, away: true}
	r := removing(t, d, "a", "b", "c")
	r.pass(30 * time.Second)
	d.calls = nil
	r.pass(5 * time.Minute)
	if n := len(d.calls); n < 4 || n > 8 {
		t.Errorf("%d calls in five minutes", n)
	}
	asked := slices.Compact(slices.Sorted(slices.Values(d.calls)))
	if !slices.Equal(asked, []string{"a", "b", "c"}) {
		t.Errorf("asked for %v", asked)
	}
	d.away = false
	r.pass(2 * time.Minute)
	if r.e.Image().RemovalCount() != 0 {
		t.Errorf("%d tasks are left", r.e.Image().RemovalCount())
	}
}

// Waiting for the grace takes no steps.
func TestRemovalsThatWaitDoNothing(t *testing.T) {
	d := &deleter{left: map[string]int{}}
	r := removing(t, d, "a")
	r.pass(5 * time.Second)
	if wake := r.e.role.removals.nextWake(); wake.Before(r.now.Add(40 * time.Second)) {
		t.Errorf("wakes at %v, now is %v", wake, r.now)
	}
}

// Safety rule 28: the bucket holds nothing of a deleted topic any more, also when the store was away at first.
func TestSafety28TheBucketLosesADeletedTopic(t *testing.T) {
	r := tiered(t, "tier.delete.grace.ms=60000")
	r.create("t")
	r.create("other")
	r.pass(time.Second)
	r.produceTo("t", ledger{})
	r.produceTo("other", ledger{})
	r.pass(2 * time.Minute)
	if len(r.keys("topics/t.")) == 0 {
		t.Fatal("the topic is not in the bucket")
	}
	others := r.keys("topics/other.")
	name := "t"
	r.do(&metadata.DeleteTopics{Topics: []metadata.TopicRef{{Name: &name}}})
	r.faults = func(c faultstore.Call) faultstore.Fault {
		if strings.HasPrefix(c.Key, "topics/") {
			return faultstore.Refuse
		}
		return faultstore.None
	}
	r.pass(5 * time.Minute)
	r.faults = nil
	r.pass(5 * time.Minute)
	if keys := r.keys("topics/t."); len(keys) != 0 || r.e.Image().RemovalCount() != 0 {
		t.Errorf("%d tasks are left, and %v", r.e.Image().RemovalCount(), keys)
	}
	if keys := r.keys("topics/other."); len(keys) < len(others) {
		t.Errorf("the other topic has lost something: %v", keys)
	}
	r.consistent()
}
