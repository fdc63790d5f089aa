package engine

import (
	"testing"
	"time"
)

// A fetch from the bucket answers at its deadline, also where it waited for its turn until then: it is not to wait once more.
func TestAReadThatWaitedForItsTurnHasItsDeadline(t *testing.T) {
	asked := time.Now().Add(-time.Minute)
	ctx, cancel := (&tiering{timed: true}).until(t.Context(), asked, asked.Add(500*time.Millisecond))
	defer cancel()
	if ctx.Err() == nil {
		t.Error("it goes on")
	}
}
