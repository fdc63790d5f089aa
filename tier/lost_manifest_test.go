package tier

import (
	"errors"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
)

// A manifest that is gone, or was rolled back, while the objects that it named are there is to be made anew of them, and they are to stay
// until then.
func TestFM44AManifestThatForgetsCostsNoObject(t *testing.T) {
	for name, c := range map[string]struct {
		kept  string // and all keys before
		start wire.Offset
	}{
		"gone": {kept: "manifest/"}, "rolled back": {kept: "manifest/00000000000000000002~"},
		"gone, and all that it lacks is in one object": {kept: "manifest/", start: 14},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.topic.LocalRetentionBytes = 3 << 10
			r.lead(StartHere)
			r.produce(40)
			if err := r.log("orders").AdvanceStart(c.start); err != nil {
				t.Fatal(err)
			}
			r.settle()
			prefix := manifest.Prefix("orders", testTopicID, 0) + "/"
			objects := func() (n int) {
				for info := range r.bucket.List(t.Context(), prefix, "") {
					if _, _, ok := manifest.ParseKey(strings.TrimPrefix(info.Key, prefix)); ok {
						n++
					}
				}
				return n
			}
			var forgotten []string
			for info := range r.bucket.List(t.Context(), prefix+"manifest/", "") {
				if info.Key > prefix+c.kept {
					forgotten = append(forgotten, info.Key)
				}
			}
			for _, key := range forgotten {
				if err := r.bucket.Delete(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
			there, local := objects(), r.log("orders").LocalStartOffset()
			if there == 0 || r.state("orders").End >= local {
				t.Fatalf("%d objects, local start %d, tiered end %d", there, local, r.state("orders").End)
			}
			r.crash(log.StopProcessCrash)
			r.lead(StartHere)
			r.produce(20)
			r.pass(4 * testGrace)
			if s := r.stats("orders"); !s.Stopped || !errors.Is(s.Err, errHistory) {
				t.Errorf("%+v", s)
			}
			if got := objects(); got != there {
				t.Errorf("%d objects are left of %d", got, there)
			}
			if l := r.log("orders"); l.StartOffset() != c.start || l.LocalStartOffset() != local {
				t.Errorf("the log starts at %d, here at %d", l.StartOffset(), l.LocalStartOffset())
			}
		})
	}
}
