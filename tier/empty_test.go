package tier

import (
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

// Safety rule 29: a clean stop has nothing to do for what never had a record, and says which that is.
func TestSafety29WhatNeverHadARecordCostsAStopNothing(t *testing.T) {
	r := newRig(t, "idle", "used")
	r.lead(StartHere)
	r.append("used", "value")
	used := manifest.Prefix("used", testTopicID, 0)
	asked := 0
	r.faults = func(c faultstore.Call) faultstore.Fault {
		if c.Op != faultstore.List && len(c.Key) > len(used) && c.Key[:len(used)] != used {
			asked++
		}
		return faultstore.None
	}
	r.m.Close(r.now, r.now.Add(30*time.Second))
	r.pass(5 * time.Second)
	if over, whole := r.m.Closed(r.now); !over || !whole || asked > 0 {
		t.Errorf("over %v, whole %v with %d requests for what was never used", over, whole, asked)
	}
	if empty := r.m.Empty(); !slices.Equal(empty[testTopicID], []int32{0}) {
		t.Errorf("empty are %v", empty)
	}
	if s := r.state("used"); !s.Closed {
		t.Error("what was used is not closed")
	}
}

// A log that may have lost what it had is not empty, nor is one whose manifest has something that it lacks.
func TestSafety30ALogThatMayHaveLostAllIsNotEmpty(t *testing.T) {
	r := newRig(t, "idle", "used")
	r.lead(StartHere)
	r.append("used", "value")
	r.pass(2 * testUnsealed)
	r.faults = away
	r.loseDisk()
	r.crash(log.StopPowerLoss)
	r.lead(StartVerified)
	r.step()
	if empty := r.m.Empty(); len(empty) > 0 {
		t.Errorf("before the manifests were read %v are empty", empty)
	}
	r.faults = nil
	r.pass(time.Minute)
	if empty := r.m.Empty(); !slices.Equal(empty[testTopicID], []int32{0}) {
		t.Errorf("empty are %v", empty)
	}
}
