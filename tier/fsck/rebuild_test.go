package fsck_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/fsck"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
	"github.com/tidemark-io/tidemark/tier/tiertest"
)

func (r *rig) plan() *fsck.Rebuilding {
	r.t.Helper()
	plan, err := fsck.PlanRebuild(r.t.Context(), fsck.RebuildOptions{
		Store: r.store, Topic: r.TP.Topic, ID: r.ID, Index: r.TP.Partition, Epoch: wire.NoLeaderEpoch, LogStart: wire.NoOffset,
		Scratch: fsck.Scratch{FS: vfs.NewMem(), Dir: "/scratch", Config: topicConfig},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return plan
}

// rebuild makes the manifest anew; what it says has to hold for every byte.
func (r *rig) rebuild() *manifest.State {
	r.t.Helper()
	nonces := 0
	state, err := r.plan().Commit(r.t.Context(), r.now, chain.Writer{Broker: -1, Incarnation: "tool"}, func() string {
		nonces++
		return fmt.Sprint("tool", nonces)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.Lead()
	return state
}

func (r *rig) live() (list []manifest.Segment) {
	r.t.Helper()
	for s, err := range r.Manifest.All(r.t.Context()) {
		if err != nil {
			r.t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

func TestFM44AManifestIsRebuiltFromTheObjects(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(r *rig)
	}{
		{"its chain is gone", func(r *rig) { r.delete(r.keys("/manifest/")...) }},
		{"an entry is gone", func(r *rig) { r.delete(r.keys("/manifest/")[3]) }},
		{"it was rolled back", func(r *rig) { r.delete(r.keys("/manifest/")[5:]...) }},
		{"a page is gone", func(r *rig) { r.Page(); r.delete(r.keys("/pages/")...) }},
		{"nothing is wrong", func(*rig) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.Upload(4, 10)
			r.Lead()
			r.Upload(3, 10)
			want := r.live()
			epochs := r.Manifest.State().Epochs
			c.damage(r)
			if plan := r.plan(); plan.Sound != (c.name == "nothing is wrong" || c.name == "it was rolled back") || plan.Found != (c.name != "its chain is gone") || plan.Epoch != 1 || len(plan.Lost)+len(plan.Unused) != 0 {
				t.Errorf("planned is %+v", plan)
			}
			former := r.Manifest
			state := r.rebuild()
			if got := r.live(); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(state.Epochs, epochs) {
				t.Errorf("it has %+v, and had %+v", got, want)
			}
			r.finds(fsck.Verify)
			_, _ = former.Refresh(t.Context()) // it may have halted
			if outcome, err := former.Commit(t.Context(), r.now, 1); err == nil {
				t.Errorf("the former leader goes on: %v", outcome)
			}
			r.Upload(1, 10)
			r.finds(fsck.Verify)
		})
	}
}

func TestRebuildCopiesSegmentsWithoutASidecar(t *testing.T) {
	r := newRig(t)
	r.Upload(4, 10)
	r.Lead()
	r.Upload(2, 10)
	r.delete(r.segment(0, manifest.AuxObject))
	damaged := r.segment(4, manifest.AuxObject)
	r.put(damaged, r.get(damaged)[1:])
	logs := [][]byte{r.get(r.segment(0, manifest.LogObject)), r.get(r.segment(4, manifest.LogObject))}
	before := r.keys("/0000")
	r.rebuild()
	for i, at := range []int{0, 4} {
		if got := r.get(r.segment(at, manifest.LogObject)); !bytes.Equal(got, logs[i]) {
			t.Errorf("segment %d is another one", at)
		}
	}
	for _, key := range before {
		if !slices.Contains(r.keys("/0000"), key) {
			t.Errorf("%s is gone", key)
		}
	}
	r.finds(fsck.Verify)
	if end := r.Manifest.State().End; end != 180 {
		t.Errorf("it ends at %d", end)
	}
}

func TestRebuildChoosesTheLatestLeader(t *testing.T) {
	r := newRig(t)
	r.Upload(2, 10) // [0, 60)
	r.Append(5)
	r.Append(5)
	stale := r.Put() // [60, 90) of epoch 0, never committed
	r.Lead()
	r.Upload(0, 0)
	r.Append(10)
	own := r.Put() // [60, 90) again
	r.Commit(&manifest.AddRecord{Segment: own})
	r.Upload(1, 5)
	lost := r.segment(0, manifest.LogObject)
	broken := r.get(lost)
	r.delete(r.keys("/manifest/")...)
	r.delete(r.keys("/00000000000000000000-")...)
	r.put(lost, broken[:len(broken)-3]) // no sidecar, and not whole
	plan := r.plan()
	want := []manifest.Range(nil)
	if plan.LogStart != 30 || !reflect.DeepEqual(plan.Lost, want) || len(plan.Unused) != 2 || plan.Unused[1] != r.Manifest.Key(stale.Name, manifest.LogObject) {
		t.Errorf("planned are %+v", plan)
	}
	if names := []manifest.Name{plan.Segments[1].Name}; names[0] != own.Name {
		t.Errorf("chosen is %v", names)
	}
	gone := r.Manifest.Key(own.Name, manifest.LogObject)
	r.delete(gone, r.Manifest.Key(stale.Name, manifest.LogObject))
	if state := r.rebuild(); !reflect.DeepEqual(state.Lost, []manifest.Range{{Start: 60, End: 90}}) {
		t.Errorf("lost are %v", state.Lost)
	}
	r.finds(fsck.Verify)
}

// TestRebuildKeepsTheLogStart: what was dropped stays dropped, what was cut stays cut, as far as the old manifest tells.
func TestRebuildKeepsTheLogStart(t *testing.T) {
	r := newRig(t)
	r.Upload(4, 10)
	r.Drop(75)
	r.Upload(2, 10)
	r.put(r.keys("/manifest/")[7], []byte("{}"))
	state := r.rebuild()
	if state.LogStart != 75 || state.Segments != 4 || state.Tail[0].Start != 60 {
		t.Errorf("%+v", state)
	}
	r.finds(fsck.Verify)

	nobody, err := fsck.PlanRebuild(t.Context(), fsck.RebuildOptions{Store: r.store, Topic: "x", ID: topicID, LogStart: wire.NoOffset})
	if err != nil || nobody.Found || len(nobody.Segments) != 0 || nobody.LogStart != wire.NoOffset {
		t.Errorf("of nothing: %+v, %v", nobody, err)
	}
	r.store = refusing{r.store}
	if _, err := fsck.PlanRebuild(t.Context(), fsck.RebuildOptions{Store: r.store, Topic: "orders.eu", ID: topicID, Index: 3}); !errors.Is(err, errAway) {
		t.Errorf("the store is away: %v", err)
	}
}

// TestARebuildKeepsWhatIsLostAtTheEnd: offsets that a recovery called lost may have been used, and those behind them are in use.
func TestARebuildKeepsWhatIsLostAtTheEnd(t *testing.T) {
	lose := func(r *rig) { r.Commit(&manifest.LostRecord{Start: 60, End: 1060}) }
	cut := func(r *rig) {
		record, err := r.Manifest.MakeCut(t.Context(), r.now, 60)
		if err != nil {
			t.Fatal(err)
		}
		r.Commit(record)
	}
	snapshot := func(r *rig) {
		if err := r.Manifest.Snapshot(t.Context(), r.now); err != nil {
			t.Fatal(err)
		}
	}
	damage := func(i int) func(*rig) { return func(r *rig) { r.put(r.keys("/manifest/")[i], []byte("{}")) } }
	for name, c := range map[string]struct {
		happens []func(*rig)
		end     wire.Offset
	}{
		"the manifest is sound":                                 {[]func(*rig){lose}, 1060},
		"an entry before is damaged":                            {[]func(*rig){lose, damage(1)}, 1060},
		"a snapshot has it":                                     {[]func(*rig){lose, snapshot, damage(2)}, 1060},
		"it was cut since":                                      {[]func(*rig){lose, cut, damage(1)}, 60},
		"it was cut since, as a snapshot knows":                 {[]func(*rig){lose, cut, snapshot, damage(3)}, 60},
		"it was cut, and lost again since":                      {[]func(*rig){lose, cut, lose, damage(1)}, 1060},
		"it was cut, and lost again since, as a snapshot knows": {[]func(*rig){lose, cut, lose, snapshot, damage(4)}, 1060},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.Upload(2, 10) // [0, 60)
			r.Lead()
			for _, happen := range c.happens {
				happen(r)
			}
			want := []manifest.Range(nil)
			if c.end > 60 {
				want = []manifest.Range{{Start: 60, End: c.end}}
			}
			if plan := r.plan(); !reflect.DeepEqual(plan.Lost, want) {
				t.Errorf("planned is %+v", plan)
			}
			if state := r.rebuild(); state.End != c.end || !reflect.DeepEqual(state.Lost, want) {
				t.Errorf("it ends at %d, lost are %v", state.End, state.Lost)
			}
			r.finds(fsck.Verify)
		})
	}
}

// TestARebuildKeepsWhatIsClipped: what lies behind the end of a segment's range is another history, for good.
func TestARebuildKeepsWhatIsClipped(t *testing.T) {
	cut := func(r *rig) {
		r.Upload(2, 10) // [0, 60)
		r.Lead()
		record, err := r.Manifest.MakeCut(t.Context(), r.now, 45)
		if err != nil {
			t.Fatal(err)
		}
		r.Commit(record)
	}
	// The next leader's history departs at 45 from what an earlier one has uploaded.
	depart := func(r *rig) manifest.Segment {
		r.Append(20)
		earlier := r.Put() // [0, 60)
		next := tiertest.New(t, r.store, r.TP.Topic, r.ID, r.TP.Partition)
		next.Lead()
		next.Upload(1, 15)
		next.Upload(1, 5) // [45, 60)
		r.delete(next.Manifest.Key(next.Manifest.State().Tail[0].Name, manifest.LogObject))
		r.delete(r.keys("/manifest/")...)
		return earlier
	}
	for name, c := range map[string]struct {
		happens func(r *rig)
		end     wire.Offset
	}{
		"by a cut":                             {cut, 45},
		"by a later leader":                    {func(r *rig) { depart(r) }, 60},
		"by a later leader, without a sidecar": {func(r *rig) { r.delete(r.Manifest.Key(depart(r).Name, manifest.AuxObject)) }, 60},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c.happens(r)
			for range 2 {
				if state := r.rebuild(); state.End != c.end || len(state.Lost) > 0 {
					t.Errorf("it ends at %d, lost are %v", state.End, state.Lost)
				}
				r.finds(fsck.Verify)
			}
		})
	}
}

func TestARebuildReadsWhatItCopiesTwice(t *testing.T) {
	r := newRig(t)
	r.Upload(1, 1000)
	key := r.segment(0, manifest.LogObject)
	r.delete(r.segment(0, manifest.AuxObject))
	gets := 0
	r.store = faultstore.New(r.store, func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.Get && c.Key == key {
			gets++
		}
		return faultstore.None
	})
	r.rebuild()
	if gets != 2 { // to describe it, and to make its sidecar
		t.Errorf("it was asked for %d times", gets)
	}
	r.finds(fsck.Verify)
}

var errAway = errors.New("away")

// refusing is a store that shows what there is, and gives nothing.
type refusing struct{ object.Store }

func (refusing) Get(context.Context, string, object.Range) (*object.Object, error) {
	return nil, errAway
}
