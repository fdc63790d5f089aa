package engine

import (
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// With the settings as they are nothing is flushed by time, and yet a recovery reads no more than the last segment.
func TestASealedSegmentIsSyncedWithinSeconds(t *testing.T) {
	r := serving(t, "tier.enable=false")
	r.create("t")
	l, ok := r.e.logs.Get(wire.TopicPartition{Topic: "t"})
	if !ok {
		t.Fatal("no log")
	}
	for range 3 {
		if code := r.produce("t"); code != wire.None {
			t.Fatal(code)
		}
		if err := l.Roll(r.now); err != nil {
			t.Fatal(err)
		}
	}
	if code := r.produce("t"); code != wire.None {
		t.Fatal(code)
	}
	r.pass(3 * time.Second)
	if l.RecoveryPoint() != 3 {
		t.Errorf("flushed up to %d", l.RecoveryPoint())
	}
}
