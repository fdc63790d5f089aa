package tier

import (
	"testing"
)

func TestSealedSegmentsGoToTheBucketOldestFirst(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	r.produce(40)
	r.settle()
	s := r.state("orders")
	sealed := r.log("orders").Segments()
	if want := sealed[len(sealed)-1].Base; s.End != want || s.Segments != len(sealed)-1 {
		t.Fatalf("tiered end %d with %d segments, the active segment begins at %d behind %d others", s.End, s.Segments, want, len(sealed)-1)
	}
	if r.log("orders").TieredEndOffset() != s.End {
		t.Errorf("the log knows of %d", r.log("orders").TieredEndOffset())
	}
	r.check()
}
