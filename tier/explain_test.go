package tier

import (
	"errors"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
	"github.com/tidemark-io/tidemark/tier/reasons"
)

func TestAPartitionIsExplained(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(40)
	r.pass(2 * testUnsealed)
	r.settle()
	r.produce(3)
	r.now = r.now.Add(time.Second)
	list, err := r.m.Explain(t.Context(), r.now, "orders")
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	p, s := list[0], r.stats("orders")
	if p.Topic != "orders" || !p.Live || !p.Tiered || p.TieredEnd != s.TieredEnd || p.TieredEnd == 0 || p.End <= p.TieredEnd || p.OldestMs == 0 || p.Error != "" {
		t.Errorf("%+v", p)
	}
	places := map[reasons.Where]int{}
	for _, segment := range p.Segments {
		if places[segment.Where]++; segment.Why == "" {
			t.Errorf("no reason for %+v", segment)
		}
	}
	if places[reasons.Bucket] != s.RemoteSegments || places[reasons.Local] != len(r.log("orders").Segments()) {
		t.Errorf("explained are %v, there are %d in the bucket", places, s.RemoteSegments)
	}

	r.faults = func(faultstore.Call) faultstore.Fault { return faultstore.Refuse }
	r.pass(2 * testUnsealed)
	r.pass(time.Minute)
	if list, err = r.m.Explain(t.Context(), r.now, ""); err != nil || list[0].Error == "" || list[0].SinceMs == 0 {
		t.Errorf("with the store away: %+v, %v", list, err)
	}
	if _, err := r.m.Explain(t.Context(), r.now, "nobody"); !errors.Is(err, wire.UnknownTopicOrPartition) {
		t.Error(err)
	}
}
