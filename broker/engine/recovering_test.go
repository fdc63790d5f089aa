package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

// A recovery that dies anywhere, over a store that is not always there, is begun again, and comes to the same end.
func TestARecoveryThatDiesIsBegunAgain(t *testing.T) {
	for turns := range 45 {
		t.Run(fmt.Sprint(turns), func(t *testing.T) {
			r := tiered(t)
			r.create("t")
			r.pass(time.Second)
			used := ledger{}
			r.produceTo("t", used)
			r.pass(10 * time.Second)
			kept := maps.Clone(used)
			r.produceTo("t", used)
			r.recover = true
			r.wipe()
			r.faults = func(c faultstore.Call) faultstore.Fault {
				if c.Op != faultstore.Put || strings.HasPrefix(c.Key, "check/") || r.random.IntN(6) > 0 {
					return faultstore.None
				}
				return []faultstore.Fault{faultstore.Refuse, faultstore.LoseAnswer, faultstore.Throttle, faultstore.Conflict}[r.random.IntN(4)]
			}
			r.open()
			for range 26 + turns {
				r.step()
			}
			if turns%2 == 1 { // the machine dies, and not only the process
				r.files, r.boot = r.files.CrashClone(r.random), "another"
			}
			r.kill()
			image := r.committed()
			over := image.ClusterIncarnation() == 1 && image.Partition("t", 0).Recovery == metadata.Recovered
			r.open()
			report, ok := r.e.Recovery()
			if ok == over || ok && (report.Incarnation != 1 || len(report.Lost) != 1 || report.Lost[0].First != 1 || report.Lost[0].Next != 1+gap) {
				t.Errorf("report %+v, %t", report, ok)
			}
			r.settled()
			if ok {
				r.hasReport(report)
			}
			r.has("t", kept)
			r.produceTo("t", used)
			if _, ok := used[1+gap]; !ok {
				t.Errorf("used are %v", slices.Sorted(maps.Keys(used)))
			}
			if image := r.e.Image(); image.ClusterIncarnation() != 1 {
				t.Errorf("incarnation %d", image.ClusterIncarnation())
			}
			r.consistent()
		})
	}
}

// step does one thing: a Step, or one task.
func (r *rig) step() {
	r.e.Step(r.now)
	r.held = append(r.held, r.e.Ready()...)
	if len(r.held) == 0 {
		if next := r.e.NextWake(); !next.IsZero() {
			r.now = later(r.now.Add(time.Millisecond), next)
		}
		return
	}
	task := r.held[0]
	r.held = r.held[1:]
	r.e.Complete(r.now, task.Lane, task.Run(r.t.Context()))
}

// A partition that serves after its recovery keeps what it takes, even if the broker dies at once.
func TestWhatARecoveredPartitionTakesIsKept(t *testing.T) {
	r := tiered(t)
	r.create("t")
	r.pass(time.Second)
	r.recover = true
	r.wipe()
	r.open()
	r.until("it serves", r.e.Serving)
	served := ledger{}
	r.until("the partition serves", func() bool { return r.produce("t") == wire.None })
	r.produceTo("t", served)
	r.recover = false
	r.kill()
	r.open()
	r.settled()
	got := r.consume("t")
	for offset, value := range served {
		if got[offset] != value {
			t.Errorf("at %d there is %q, not %q", offset, got[offset], value)
		}
	}
}
