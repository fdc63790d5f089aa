package tier

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

// forget deletes the keys of the manifest behind kept.
func (r *rig) forget(kept string) {
	r.t.Helper()
	prefix := manifest.Prefix("orders", testTopicID, 0) + "/"
	for info, err := range r.bucket.List(r.t.Context(), prefix+"manifest/", prefix+kept) {
		if err == nil {
			err = r.bucket.Delete(r.t.Context(), info.Key)
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// A manifest that is gone, or was rolled back, while the objects that it named are there is to be made anew of them, and they are to stay
// until then.
func TestFM44AManifestThatForgetsCostsNoObject(t *testing.T) {
	for name, c := range map[string]struct {
		kept     string // and all keys before
		start    wire.Offset
		disabled bool // copies are, from then on
	}{
		"gone": {kept: "manifest/"}, "rolled back": {kept: "manifest/00000000000000000002~"},
		"gone, and all that it lacks is in one object": {kept: "manifest/", start: 14},
		"gone, and nothing is copied any more":         {kept: "manifest/", start: 14, disabled: true},
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
			r.forget(c.kept)
			there, local := objects(), r.log("orders").LocalStartOffset()
			if there == 0 || r.state("orders").End >= local {
				t.Fatalf("%d objects, local start %d, tiered end %d", there, local, r.state("orders").End)
			}
			r.crash(log.StopProcessCrash)
			r.topic.RemoteLogCopyDisable = c.disabled
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

// Where the log is gone, too, nobody knows its end: it must not begin where the bucket has records already.
func TestSafety21NothingIsServedByAManifestThatForgets(t *testing.T) {
	for name, kept := range map[string]string{"gone": "manifest/", "rolled back": "manifest/00000000000000000002~"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.lead(StartHere)
			r.produce(40)
			r.settle()
			r.forget(kept)
			r.disk = vfs.NewMem()
			r.crash(log.StopPowerLoss)
			r.lead(StartVerified)
			r.pass(time.Minute)
			if s := r.stats("orders"); !s.Held || !s.Stopped || !errors.Is(s.Err, errForgotten) || len(r.released) > 0 {
				t.Errorf("%+v, released %+v", s, r.released)
			}
		})
	}
}

// A part of the bucket that is gone with its entries is lost, which is recorded. Where that fails nothing is tried again at once, though
// there is something to copy behind it.
func TestWhatIsLostIsRecordedOnceEntriesCanBeWritten(t *testing.T) {
	r := newRig(t)
	r.topic.LocalRetentionBytes = 3 << 10
	r.lead(StartHere)
	r.produce(40)
	r.settle()
	r.forget("manifest/00000000000000000002~")
	for _, key := range r.unnamed("orders") {
		if err := r.bucket.Delete(t.Context(), manifest.Prefix("orders", testTopicID, 0)+"/"+key); err != nil {
			t.Fatal(err)
		}
	}
	s, local := r.state("orders"), r.log("orders").LocalStartOffset()
	if s.Segments < 2 || s.End >= local {
		t.Fatalf("%d segments, tiered end %d, local start %d", s.Segments, s.End, local)
	}
	r.crash(log.StopProcessCrash)
	r.lead(StartHere)
	if err := r.log("orders").AdvanceStart(s.Tail[0].End); err != nil { // that segment is to be dropped
		t.Fatal(err)
	}
	entries := 0
	r.faults = func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.Put && strings.Contains(c.Key, "/manifest/") {
			if entries++; entries > 1 { // that of the log start
				return faultstore.Refuse
			}
		}
		return faultstore.None
	}
	r.pass(time.Minute)
	if r.stats("orders").Err == nil || r.state("orders").LogStart != s.Tail[0].End {
		t.Fatalf("%v, log start %d", r.stats("orders").Err, r.state("orders").LogStart)
	}
	r.faults = nil
	r.pass(2 * time.Minute)
	if got := r.state("orders"); len(got.Lost) != 1 || got.Lost[0] != (manifest.Range{Start: s.End, End: local}) || r.stats("orders").BehindSegments > 0 {
		t.Errorf("lost %v; %+v", got.Lost, r.stats("orders"))
	}
	for offset := s.End; offset < local; offset++ {
		r.ledger["orders"][offset] = ""
	}
	r.check()
}
