package tier

import (
	"testing"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/tier/object"
)

// Some thousand manifests are read within a minute of a start: one that somebody waits for is the next.
func TestAManifestThatIsAskedForIsReadNext(t *testing.T) {
	topics := manyTopics(5 * looksMax)
	r := newRig(t, topics...)
	r.lead(StartHere)
	r.produce(1)
	r.settle()
	r.crash(log.StopClean)
	r.lead(StartHere)
	jobs := r.m.Due(r.now)
	asked := tpOf(topics[len(topics)-1])
	if r.m.Manifest(asked) != nil || !r.m.Reading(asked) || len(r.m.Due(r.now)) != 0 {
		t.Fatal("it was read already, or more are read than may be")
	}
	wakes := r.wakes
	for range 3 {
		r.m.Reading(asked) // once is enough
	}
	if r.wakes != wakes {
		t.Error("it wakes whoever drives it again and again")
	}
	jobs[0].Run(t.Context())(r.now)
	next := r.m.Due(r.now)
	if len(next) != 1 || next[0].Partition != asked {
		t.Fatalf("next is %v", next)
	}
	if r.m.Reading(asked); r.wakes != wakes {
		t.Error("it wakes for what is being read")
	}
	next[0].Run(t.Context())(r.now)
	if r.m.Manifest(asked) == nil || r.m.Reading(asked) {
		t.Error("it was read and is not known")
	}

	r.faults = away
	other := tpOf(topics[len(topics)-2])
	if !r.m.Reading(other) {
		t.Error("it is not asked for")
	}
	jobs[1].Run(t.Context())(r.now)
	r.m.Due(r.now)[0].Run(t.Context())(r.now)
	if r.m.Reading(other) {
		t.Errorf("it is waited for, though the store is %v", object.ErrUnavailable)
	}
}
