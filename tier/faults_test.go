package tier

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

func isData(c faultstore.Call) bool {
	return c.Op == faultstore.Put && strings.HasSuffix(c.Key, ".log")
}

func TestBO085SegmentsWithoutTransactionsHaveAnEmptyIndexAndSaySo(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(20)
	r.settle()
	p := r.m.partitions[tpOf("orders")]
	for s, err := range r.open("orders").All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		aux, err := p.sidecar(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if list, _ := aux.Aborted(0, math.MaxInt64); s.Aborted || len(list) > 0 {
			t.Errorf("segment %d: aborted %v, %v", s.Base, s.Aborted, list)
		}
	}
}

func TestBO086OnlyFinishedCopiesCount(t *testing.T) {
	r := newRig(t)
	r.topic.RetentionBytes, r.topic.LocalRetentionBytes = 20<<10, 1<<10
	r.lead(StartHere)
	puts := 0
	r.faults = func(c faultstore.Call) faultstore.Fault {
		if !isData(c) {
			return faultstore.None
		}
		if puts++; puts%2 == 0 {
			return faultstore.LoseAnswer // the object is there, and nobody knows
		}
		return faultstore.None
	}
	for range 10 {
		r.produce(6)
		r.pass(time.Minute)
	}
	r.faults = nil
	r.pass(time.Minute)
	s := r.state("orders")
	if s.LogStart != 0 || r.stats("orders").RemoteBytes != s.Bytes || s.Bytes > 20<<10 {
		t.Errorf("log start %d, %d bytes, %d by the numbers", s.LogStart, s.Bytes, r.stats("orders").RemoteBytes)
	}
	if left := r.unnamed("orders"); len(left) > 0 || puts < 10 {
		t.Errorf("%d puts, left over: %v", puts, left)
	}
	r.check()
}

func TestBO087LogStartMovesFirstAndObjectsGoAfterTheGrace(t *testing.T) {
	r := newRig(t)
	r.topic.RetentionBytes, r.topic.LocalRetentionBytes = 5<<10, 1<<10
	r.lead(StartHere)
	deletes := 0
	r.faults = func(c faultstore.Call) faultstore.Fault {
		if c.Op != faultstore.Delete {
			return faultstore.None
		}
		deletes++
		m := r.open("orders")
		name, _, _ := manifest.ParseKey(strings.TrimPrefix(c.Key, m.Prefix()+"/"))
		i := slices.IndexFunc(m.State().Dropped, func(d manifest.Dropped) bool { return d.Name == name })
		if i < 0 || m.State().Dropped[i].End > m.State().LogStart || r.now.Sub(time.UnixMilli(m.State().Dropped[i].TimeMs)) < testGrace {
			t.Errorf("%s goes at log start %d, dropped %+v", c.Key, m.State().LogStart, m.State().Dropped)
		}
		return faultstore.LoseAnswer
	}
	for range 8 {
		r.produce(11)
		r.pass(time.Minute)
	}
	r.pass(testGrace)
	if deletes == 0 {
		t.Fatal("nothing was deleted")
	}
	r.faults = nil
	r.pass(2 * testGrace)
	if s := r.state("orders"); len(s.Dropped) > 0 || s.LogStart == 0 {
		t.Errorf("log start %d, still dropped: %v", s.LogStart, s.Dropped)
	}
	r.check()
}

func TestBO088ChangesOfLeaderInMidUpload(t *testing.T) {
	r := newRig(t)
	r.topic.RetentionBytes, r.topic.LocalRetentionBytes = 9<<10, 1<<10
	starts := []wire.Offset{0}
	for i, point := range []string{pointPutData, pointPutAux, pointUpload + pointCommit, pointUpload + pointCommitted, pointTell, pointPutAux} {
		r.lead(StartHere)
		uploads := 0
		r.hook = func(p string) {
			if p == point {
				if uploads++; uploads == 2 {
					panic(errCrash)
				}
			}
		}
		r.produce(17)
		if r.step() {
			t.Fatalf("leader %d came to its end", i)
		}
		r.hook = nil
		r.crash(log.StopProcessCrash)
		starts = append(starts, r.state("orders").LogStart)
	}
	r.lead(StartHere)
	r.produce(17)
	r.pass(3 * testGrace)
	r.check()
	starts = append(starts, r.state("orders").LogStart)
	if left := r.unnamed("orders"); !slices.IsSorted(starts) || starts[len(starts)-1] == 0 || len(left) > 0 {
		t.Errorf("log starts %v, left over %v", starts, left)
	}
}

func TestBO089TheManifestCatchesUpByItself(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.hook = func(p string) {
		if p == pointPutAux {
			panic(errCrash)
		}
	}
	r.produce(8)
	r.step()
	r.hook = nil
	r.crash(log.StopProcessCrash)
	r.lead(StartHere)
	r.settle() // and nothing is written
	if got := r.remote("orders"); len(got) < 6 {
		t.Errorf("%d records in the bucket", len(got))
	}
}

func TestBO090TheBucketIsAwayForHours(t *testing.T) {
	r := newRig(t)
	r.topic.LocalRetentionMs, r.topic.RetentionMs = time.Minute.Milliseconds(), time.Hour.Milliseconds()
	r.lead(StartHere)
	r.produce(11)
	r.pass(time.Minute)
	r.faults = away
	end := r.state("orders").End
	var ages []time.Duration
	for range 18 {
		r.produce(11)
		r.pass(10 * time.Minute)
		ages = append(ages, r.stats("orders").BehindAge)
	}
	l := r.log("orders")
	if kept := r.local("orders"); l.LocalStartOffset() <= end || len(kept) < 6*11 || len(kept) > 8*11 {
		t.Errorf("%d records are here, from %d on; the bucket has them up to %d", len(kept), l.LocalStartOffset(), end)
	}
	if s := r.stats("orders"); s.Err == nil || s.BehindBytes == 0 || s.ErrSince.IsZero() || !slices.IsSorted(ages[:6]) || ages[5] < 50*time.Minute {
		t.Errorf("%+v; ages %v", s, ages)
	}
	var order []string
	r.faults = func(c faultstore.Call) faultstore.Fault {
		if isData(c) {
			order = append(order, c.Key)
		}
		return faultstore.None
	}
	r.pass(2 * time.Minute)
	if s := r.stats("orders"); s.BehindSegments > 0 || s.Err != nil || !slices.IsSorted(order) || len(order) < 6 {
		t.Errorf("afterwards: %+v, uploads %v", s, order)
	}
	r.check()
}

func TestBO090TheBucketIsAwayFromTheStart(t *testing.T) {
	r := newRig(t)
	r.topic.LocalRetentionMs, r.topic.RetentionMs = time.Minute.Milliseconds(), time.Hour.Milliseconds()
	r.lead(StartHere)
	r.produce(11)
	r.faults = away
	r.crash(log.StopProcessCrash)
	r.lead(StartHere)
	for range 18 {
		r.produce(11)
		r.pass(10 * time.Minute)
	}
	if kept := r.local("orders"); len(kept) < 6*11 || len(kept) > 9*11 || r.log("orders").StartOffset() == 0 {
		t.Errorf("%d records are here, log start %d", len(kept), r.log("orders").StartOffset())
	}
	r.faults = nil
	r.pass(2 * time.Minute)
	if s := r.stats("orders"); s.Err != nil || s.BehindSegments > 0 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
	r.check()
}

func TestBO094EverySealedSegmentOfEveryPartitionGoesUp(t *testing.T) {
	topics := make([]string, 14)
	for i := range topics {
		topics[i] = fmt.Sprint("topic", i)
	}
	r := newRig(t, topics...)
	r.topic.RemoteStorageEnable = false
	r.lead(StartHere)
	r.produce(20)
	r.pass(time.Minute)
	if r.objects() != 0 || len(r.m.Stats(r.now)) != 0 {
		t.Fatalf("%d objects of topics that are not tiered, %d with numbers", r.objects(), len(r.m.Stats(r.now)))
	}
	r.topic.RemoteStorageEnable = true
	for _, topic := range topics {
		r.log(topic).UpdateConfig(r.topic)
		r.m.Changed(tpOf(topic))
		if s := r.stats(topic); s.BehindSegments != 3 || s.BehindBytes == 0 {
			t.Fatalf("before: %+v", s)
		}
	}
	r.settle()
	for _, topic := range topics {
		if s := r.stats(topic); s.BehindSegments != 0 || s.RemoteSegments < 3 || s.TieredEnd < 18 {
			t.Errorf("%+v", s)
		}
	}
	r.check()
}

func TestBO095DamagedIndexesDoNotGoToTheBucket(t *testing.T) {
	r := newRig(t)
	r.topic.SegmentBytes, r.topic.IndexIntervalBytes = 4<<10, 100
	r.topic.RemoteStorageEnable = false
	r.lead(StartHere)
	r.produce(60)
	if err := r.log("orders").Flush(); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{".index", ".timeindex"} {
		f, err := r.disk.Open("/data/orders-0/00000000000000000000" + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(bytes.Repeat([]byte{0x5a}, 40), 8); err != nil {
			t.Fatal(err)
		}
	}
	r.topic.RemoteStorageEnable = true
	r.crash(log.StopProcessCrash)
	r.lead(StartHere)
	r.settle()
	p := r.m.partitions[tpOf("orders")]
	for s, err := range r.open("orders").All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		aux, err := p.sidecar(t.Context(), s) // Decode checks that the indexes rise
		if err != nil {
			t.Fatal(err)
		}
		if aux.Position(s.End-1) == 0 || aux.Position(s.Start) != 0 {
			t.Errorf("segment %d: its end is looked for at %d", s.Base, aux.Position(s.End-1))
		}
	}
	r.check()
}
