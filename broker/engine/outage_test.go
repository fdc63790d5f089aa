package engine

import (
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

// A partition whose upload has failed for as long as the store was away does not wait for its next try: the lease has found the store first.
func TestUploadsGoOnOnceTheLeaseIsRenewed(t *testing.T) {
	r := tiered(t)
	r.create("t")
	r.pass(time.Second)
	r.produceTo("t", ledger{})
	r.faults = func(faultstore.Call) faultstore.Fault { return faultstore.Refuse }
	r.pass(10 * time.Minute)
	r.faults = nil
	back := r.now
	uploaded := func() bool {
		s, ok := r.e.Tier().Partition(r.now, wire.TopicPartition{Topic: "t"})
		return ok && s.TieredEnd == 1
	}
	r.until("it is uploaded", uploaded)
	if took := r.now.Sub(back); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}
