package tier

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

// behind counts the partitions that have something to upload.
func (r *rig) behind() (n int) {
	for _, s := range r.m.Stats(r.now) {
		if s.BehindSegments > 0 {
			n++
		}
	}
	return n
}

// Once the store is back, who waits for the next try does not wait for a minute: the first success, here that of the first partition
// whose time has come, has the others try, and not all at once.
func TestAfterAnOutageASuccessHastensTheOthers(t *testing.T) {
	r := newRig(t, manyTopics(40)...)
	r.m.o.Random = rand.New(rand.NewPCG(1, 2)).Uint64
	r.lead(StartHere)
	r.faults = away
	r.produce(8)
	r.pass(10 * time.Minute)
	var first time.Time
	requests := map[int]int{} // by second after the first one
	r.faults = func(faultstore.Call) faultstore.Fault {
		if first.IsZero() {
			first = r.now
		}
		requests[int(r.now.Sub(first)/time.Second)]++
		return faultstore.None
	}
	for range 90 {
		if r.pass(time.Second); !first.IsZero() && r.now.Sub(first) > 5*time.Second {
			break
		}
	}
	if n := r.behind(); n > 0 {
		t.Errorf("%v after the first success %d partitions wait still", r.now.Sub(first), n)
	}
	all := 0
	for _, n := range requests {
		all += n
	}
	if requests[0] > all*2/3 {
		t.Errorf("%d of %d requests came within a second", requests[0], all)
	}
	r.check()
}

// A broker reaches the store for other things, too: a partition alone need not find out by itself that it is back.
func TestAfterAnOutageAPartitionHearsThatTheStoreIsBack(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.faults = away
	r.produce(8)
	r.pass(10 * time.Minute)
	r.faults = nil
	r.m.StoreReached(r.now)
	r.settle()
	if n := r.behind(); n > 0 {
		t.Error("it waits still")
	}
	r.check()
}

// A store that answers a few requests of many is in trouble still, and one that refuses a partition's alone is none of the others'.
func TestFM47AStoreThatAnswersNowAndThenIsNotStormed(t *testing.T) {
	topics := manyTopics(40)
	r := newRig(t, topics...)
	r.m.o.Random = rand.New(rand.NewPCG(1, 2)).Uint64
	r.lead(StartHere)
	r.produce(8)
	calls, passed := 0, 0
	r.faults = func(faultstore.Call) faultstore.Fault {
		if calls++; calls%10 == 0 {
			passed++
			return faultstore.None
		}
		return faultstore.Throttle
	}
	for range 600 { // what else the broker asks of the store succeeds now and then
		r.m.StoreReached(r.now)
		r.pass(time.Second)
	}
	calls = 0
	for range 600 {
		r.m.StoreReached(r.now)
		r.pass(time.Second)
	}
	if perMinute := calls / 10; perMinute > 4*len(topics) || passed == 0 {
		t.Errorf("%d requests a minute, %d of them all passed", perMinute, passed)
	}
}
