package tier

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
)

func (r *rig) survey() (Found, error) {
	return Survey(r.t.Context(), r.store, "orders", testTopicID, 0)
}

// A recovery gives up what no manifest names: it does not begin where that is only because a manifest was lost or rolled back.
func TestARecoveryDoesNotGiveUpWhatAManifestHasForgotten(t *testing.T) {
	for name, kept := range map[string]string{"gone": "manifest/", "rolled back": "manifest/00000000000000000002~"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.lead(StartHere)
			r.produce(40)
			r.settle()
			if _, err := r.survey(); err != nil {
				t.Fatal(err)
			}
			r.forget(kept)
			if _, err := r.survey(); !errors.Is(err, errForgotten) {
				t.Errorf("it goes on: %v", err)
			}
		})
	}
}

// An upload that came to no entry, and what retention has dropped and nobody has deleted yet, are no such sign.
func TestARecoveryGoesOnBesideAnUploadWithoutAnEntry(t *testing.T) {
	for _, uploads := range []int{0, 20} {
		r := newRig(t)
		r.topic.RetentionBytes = 2 << 10
		r.lead(StartHere)
		if uploads > 0 {
			r.produce(uploads)
			r.settle()
			r.produce(40)
			r.settle()
		}
		end := wire.Offset(0)
		if uploads > 0 {
			end = r.state("orders").End
		}
		for i := range 2 {
			name := manifest.Name{Base: end, Epoch: r.epoch, Nonce: fmt.Sprint("lost", i)}
			for _, kind := range []manifest.Kind{manifest.LogObject, manifest.AuxObject} {
				if _, err := r.bucket.Put(t.Context(), manifest.Prefix("orders", testTopicID, 0)+"/"+name.Key(kind), strings.NewReader("lost"), object.Condition{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.crash(log.StopProcessCrash)
		if found, err := r.survey(); err != nil || found.End != end {
			t.Errorf("%+v, %v", found, err)
		}
	}
}
