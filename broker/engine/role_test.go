package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/membership/lease"
	"github.com/tidemark-io/tidemark/tier/object/cluster"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

func TestAChangeIsAnsweredAndVisibleOnceItIsCommitted(t *testing.T) {
	r := serving(t)
	r.closed[LaneChain] = true
	a := r.submit(topicNamed("t"))
	r.turn()
	if a.done() || r.e.Image().Topic("t") != nil {
		t.Fatal("answered or visible before its entry was written")
	}
	r.release(LaneChain)
	r.until("it is answered", a.done)
	if a.code() != wire.None || a.seen.Topic("t") == nil || r.committed().Topic("t") == nil {
		t.Errorf("code %v, visible at its answer: %t", a.code(), a.seen.Topic("t") != nil)
	}
	r.consistent()
}

// What queues up while an entry is on its way goes into the next one.
func TestChangesAreCommittedInGroups(t *testing.T) {
	r := serving(t)
	r.closed[LaneChain] = true
	var all []*asked
	all = append(all, r.submit(topicNamed("first")))
	r.turn()
	before := len(r.entries())
	for i := range 100 {
		all = append(all, r.submit(topicNamed(fmt.Sprint("t", i))))
	}
	r.turn()
	r.release(LaneChain)
	r.until("all are answered", func() bool { return !slices.ContainsFunc(all, func(a *asked) bool { return !a.done() }) })
	for _, a := range all {
		if a.code() != wire.None {
			t.Fatal(a.code())
		}
	}
	if n := len(r.entries()) - before; n < 2 || n > 4 { // the logs' directories are reported in another
		t.Errorf("101 changes took %d entries", n)
	}
	r.consistent()
}

// Whatever a crash leaves of a group, no change is there by half.
func TestAChangeIsNeverSpreadOverEntries(t *testing.T) {
	r := serving(t)
	r.closed[LaneChain] = true
	var all []*asked
	for i := range 3 {
		change := &metadata.CreateTopics{}
		for _, part := range []string{"a", "b", "c"} {
			change.Topics = append(change.Topics, metadata.NewTopic{Name: fmt.Sprint(i, part), Partitions: 800, ReplicationFactor: 1})
		}
		all = append(all, r.submit(change))
	}
	r.turn()
	r.release(LaneChain)
	r.until("all are answered", func() bool { return all[2].done() })
	fold := &imageFold{image: metadata.Empty()}
	var entries []int64 // that brought the changes
	for _, entry := range r.entries() {
		if err := fold.Apply(entry); err != nil {
			t.Fatal(err)
		}
		for i := range all {
			first, last := fold.image.Topic(fmt.Sprint(i, "a")), fold.image.Topic(fmt.Sprint(i, "c"))
			if (first == nil) != (last == nil) {
				t.Fatalf("entry %d has a part of change %d", entry.Number, i)
			}
			if i == len(entries) && first != nil {
				entries = append(entries, entry.Number)
			}
		}
	}
	if len(entries) != len(all) || entries[0] == entries[len(all)-1] {
		t.Errorf("the changes came with entries %d: the test shows nothing", entries)
	}
}

// An answer that the store loses is settled by reading back.
func TestALostAnswerIsSettled(t *testing.T) {
	for _, fault := range []faultstore.Fault{
		faultstore.LoseAnswer, faultstore.Twice, faultstore.Refuse, faultstore.Throttle, faultstore.Conflict,
	} {
		t.Run(fmt.Sprint(fault), func(t *testing.T) {
			r := serving(t)
			epoch := r.controllerEpoch()
			r.faults = times(1, on(faultstore.Put, cluster.MetadataPrefix+"/0", fault))
			r.create("t")
			if r.controllerEpoch() != epoch {
				t.Error("the controller gave up")
			}
			r.consistent()
		})
	}
}

// When nobody knows what became of an entry, its waiters hear NOT_CONTROLLER, and a new term finds out.
func TestAnUnknownEntryEndsTheTermAndIsFoundOutInTheNext(t *testing.T) {
	for _, lands := range []bool{false, true} {
		t.Run(fmt.Sprint("lands ", lands), func(t *testing.T) {
			r := serving(t)
			epoch := r.controllerEpoch()
			r.faults = on(faultstore.Put, cluster.MetadataPrefix+"/0", faultstore.Late)
			a := r.submit(topicNamed("t"))
			r.until("it is answered", a.done)
			if a.code() != wire.NotController {
				t.Errorf("answered %v", a.code())
			}
			if r.e.Image().Topic("t") != nil {
				t.Error("visible though nobody knows")
			}
			r.faults = nil
			if lands {
				for range r.store.Late() {
					_ = r.store.Release(t.Context(), 0)
				}
			}
			r.until("there is a new term", func() bool { return r.controllerEpoch() > epoch })
			if !lands { // too late: its number is taken
				for range r.store.Late() {
					_ = r.store.Release(t.Context(), 0)
				}
			}
			if there := r.e.Image().Topic("t") != nil; there != lands {
				t.Errorf("topic is there: %t", there)
			}
			again := r.submit(topicNamed("t"))
			r.until("it is answered", again.done)
			want := wire.None
			if lands {
				want = wire.TopicAlreadyExists
			}
			if again.code() != want {
				t.Errorf("the second try is answered %v", again.code())
			}
			r.consistent()
		})
	}
}

// The lease runs out while an entry is on its way: the waiters hear NOT_CONTROLLER, the next term begins behind the entry, and what was
// queued behind it is dropped.
func TestALeaseThatIsLostInMidFlight(t *testing.T) {
	r := serving(t)
	epoch := r.controllerEpoch()
	r.closed[LaneChain] = true
	a := r.submit(topicNamed("t"))
	r.turn()
	queued := r.submit(topicNamed("queued"))
	r.faults = on(faultstore.Put, lease.Key, faultstore.Refuse)
	r.until("the lease is lost", func() bool { return a.done() && queued.done() })
	if a.code() != wire.NotController || queued.code() != wire.NotController {
		t.Errorf("answered %v and %v", a.code(), queued.code())
	}
	r.faults = nil
	r.until("the lease is taken again", func() bool { return r.e.role.state == preparing })
	if r.e.Image().Topic("t") != nil {
		t.Error("visible before its entry was written")
	}
	parked := r.submit(topicNamed("u"))
	r.turn()
	// The old term's entry comes first, then the chain is read.
	r.release(LaneChain)
	if r.e.role.state != preparing {
		t.Error("the entry of the former term made the next one active")
	}
	r.until("there is a new term", func() bool { return r.controllerEpoch() > epoch })
	r.until("the parked change is answered", parked.done)
	if parked.code() != wire.None || r.e.Image().Topic("t") == nil {
		t.Errorf("code %v, image %v", parked.code(), r.e.Image().Topic("t"))
	}
	if r.e.Image().Topic("queued") != nil {
		t.Error("what was queued in the former term is committed in the next")
	}
	r.consistent()
}

// A late failure of a former term's entry does not end the present term.
func TestAnEntryOfAFormerTermEndsNoLaterOne(t *testing.T) {
	r := serving(t)
	r.closed[LaneChain] = true
	a := r.submit(topicNamed("t"))
	r.faults = on(faultstore.Put, lease.Key, faultstore.Refuse)
	r.until("the lease is lost", a.done)
	r.faults = nil
	r.until("the lease is taken again", func() bool { return r.e.role.state == preparing })
	term := r.e.role.lease.term
	r.faults = on(faultstore.Put, cluster.MetadataPrefix, faultstore.Refuse)
	r.release(LaneChain)
	r.faults = nil
	r.until("there is a new controller", func() bool { return r.e.role.state == active })
	if r.e.role.lease.term != term {
		t.Errorf("term %d ended for what term %d had on its way", term, term-1)
	}
	r.create("t")
	r.consistent()
}

// Another controller has committed under a higher epoch: this one stops, and comes back above it at once.
func TestAnEntryOfAnotherControllerEndsTheTerm(t *testing.T) {
	r := serving(t)
	r.rival(50, &metadata.ControllerElectedRecord{BrokerID: 2, Epoch: 50}, &metadata.FeatureLevelRecord{Name: "f", Level: 1})
	a := r.submit(topicNamed("t"))
	r.until("it is answered", a.done)
	if a.code() != wire.NotController {
		t.Errorf("answered %v", a.code())
	}
	lost := r.now
	r.until("there is a new term", func() bool { return r.controllerEpoch() > 50 })
	if took := r.now.Sub(lost); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if r.e.Image().Features().Level("f") != 1 {
		t.Error("the other one's commit is missing")
	}
	r.create("t")
	r.consistent()
}

// A chain that is damaged ends the candidacy: going on could hide a lost commit.
func TestADamagedChainIsNotWrittenTo(t *testing.T) {
	r := serving(t)
	r.rival(50, &metadata.ControllerElectedRecord{BrokerID: 2, Epoch: 50})
	keys := r.keys(cluster.MetadataPrefix + "/0")
	r.damage(keys[len(keys)-1])
	r.faults = on(faultstore.Put, lease.Key, faultstore.Refuse) // the term ends
	r.until("the lease is lost", func() bool { return r.e.role.state == follower })
	r.faults = nil
	r.until("it has given up", func() bool { return r.e.role.lease.term == 0 && r.leaseRecord().State == lease.Released })
	r.pass(time.Minute)
	if n := len(r.keys(cluster.MetadataPrefix + "/0")); n != len(keys) {
		t.Errorf("%d entries became %d", len(keys), n)
	}
	if r.leaseRecord().State != lease.Released {
		t.Error("it holds the lease again")
	}
}

// A broker that starts serves nobody before it has a controller. That the store takes no lease is told, once.
func TestAStoreThatTakesNoLeaseIsTold(t *testing.T) {
	r := serving(t)
	r.kill()
	r.faults = on(faultstore.Put, lease.Key, faultstore.Refuse)
	r.open()
	r.pass(time.Minute)
	told := func() int { return strings.Count(r.logged.String(), "can't be reached for the controller's lease") }
	if n := told(); n != 1 || r.e.Serving() {
		t.Errorf("told %d times, serving %v:\n%s", n, r.e.Serving(), r.logged.String())
	}
	r.faults = nil
	r.until("it serves", r.e.Serving)
	r.faults = on(faultstore.Put, lease.Key, faultstore.Refuse)
	r.pass(time.Minute)
	if n := told(); n != 2 {
		t.Errorf("told %d times after it failed anew:\n%s", n, r.logged.String())
	}
}

// A lease that nobody can read stops elections until a person has looked at it: that person is told, once.
func TestALeaseThatIsNotReadable(t *testing.T) {
	r := serving(t)
	r.damage(lease.Key)
	r.until("the lease is lost", func() bool { return r.e.role.state == follower })
	r.pass(time.Minute)
	if n := strings.Count(r.logged.String(), "there will be no controller"); n != 1 {
		t.Errorf("told %d times:\n%s", n, r.logged.String())
	}
	if r.e.role.state != follower {
		t.Error("somebody is the controller")
	}
}

// A chain that can't be read just now is tried again.
func TestAChainThatCannotBeReadIsTriedAgain(t *testing.T) {
	r := serving(t)
	r.faults = func(c faultstore.Call) faultstore.Fault {
		if strings.HasPrefix(c.Key, cluster.MetadataPrefix) {
			return faultstore.Refuse
		}
		return faultstore.None
	}
	a := r.submit(topicNamed("t"))
	r.until("it is answered", a.done)
	before := len(r.puts)
	r.pass(20 * time.Second)
	if n := len(r.puts) - before; n > 100 {
		t.Errorf("%d puts in 20 seconds", n)
	}
	r.faults = nil
	r.until("there is a controller", func() bool { return r.e.role.state == active })
	r.create("t")
	r.consistent()
}

func TestAChangeIsGivenUpAtItsDeadline(t *testing.T) {
	r := serving(t)
	r.closed[LaneChain] = true
	inFlight := r.submitFor(topicNamed("t"), time.Second)
	r.turn()
	queued := r.submitFor(topicNamed("u"), time.Second)
	late := r.submitFor(topicNamed("v"), 0)
	r.until("all are answered", func() bool { return inFlight.done() && queued.done() && late.done() })
	for _, a := range []*asked{inFlight, queued, late} {
		if a.code() != wire.RequestTimedOut {
			t.Errorf("answered %v", a.code())
		}
	}
	if took := r.now.Sub(start); took > 3*time.Second {
		t.Errorf("after %v", took)
	}
	// Nothing was known of the first two, and they are committed.
	r.release(LaneChain)
	r.until("they are committed", func() bool { return r.e.Image().Topic("u") != nil })
	if r.e.Image().Topic("t") == nil || r.e.Image().Topic("v") != nil {
		t.Error("the first is missing, or what came too late was done")
	}
}

func TestChangesWaitForAController(t *testing.T) {
	r := newRig(t)
	r.open()
	r.faults = on(faultstore.Put, lease.Key, faultstore.Refuse)
	short := r.submitFor(topicNamed("short"), time.Second)
	patient := r.submit(topicNamed("t"))
	r.pass(5 * time.Second)
	if !short.done() || short.code() != wire.RequestTimedOut || patient.done() {
		t.Fatalf("after 5 s without a controller: %t, %t", short.done(), patient.done())
	}
	r.faults = nil
	r.until("it is answered", patient.done)
	// Nobody is unfenced when the first entry is made.
	if code := patient.code(); code != wire.InvalidReplicationFactor {
		t.Errorf("answered %v", code)
	}
}

// What waits is bounded, in the inbox and behind it.
func TestWhatWaitsIsBounded(t *testing.T) {
	r := serving(t)
	submit := func(n int) (all []*asked) {
		for range n {
			all = append(all, r.submit(&metadata.AllocateProducerIDs{BrokerID: 1, BrokerEpoch: r.e.member.epoch}))
		}
		return all
	}
	refused := func(all []*asked) (n int) {
		for _, a := range all {
			if a.done() && a.code() == wire.RequestTimedOut {
				n++
			}
		}
		return n
	}
	r.closed[LaneChain] = true
	first := submit(config.MetadataQueueMax + 1)
	if n := refused(first); n != 1 {
		t.Errorf("inbox: %d refused", n)
	}
	r.turn()
	more := submit(10)
	r.turn()
	if n := refused(more); n != 10 {
		t.Errorf("behind a full queue: %d of 10 refused", n)
	}
	r.release(LaneChain)
	r.until("all are answered", first[config.MetadataQueueMax-1].done)
	r.create("t") // there is room again
}

func TestRecordsThatWaitAreBoundedInBytes(t *testing.T) {
	r := serving(t)
	r.closed[LaneChain] = true
	r.submit(topicNamed("t"))
	r.turn()
	large := &metadata.CreateTopics{Topics: []metadata.NewTopic{{Name: "x", Partitions: 9000, ReplicationFactor: 1}}}
	refused := 0
	for i := range 12 {
		change := *large
		change.Topics = slices.Clone(change.Topics)
		change.Topics[0].Name = fmt.Sprint("x", i)
		a := r.submit(&change)
		r.turn()
		if a.done() {
			refused++
		}
	}
	if refused == 0 || r.e.role.queuedBytes > queueBytesMax+8<<20 {
		t.Errorf("%d refused, %d bytes wait", refused, r.e.role.queuedBytes)
	}
}
