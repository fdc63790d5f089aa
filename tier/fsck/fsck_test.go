package fsck_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/fsck"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/cluster"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
	"github.com/tidemark-io/tidemark/tier/tiertest"
)

const grace = 7 * 24 * time.Hour

var topicID = wire.TopicID{1, 2, 3}

// rig is a bucket with one partition, and the time of its store.
type rig struct {
	t     *testing.T
	store object.Store
	*tiertest.Partition
	now time.Time
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, now: tiertest.Start}
	r.store = memstore.New(func() time.Time { return r.now })
	r.put(cluster.Key, []byte(`{"cluster_id":"AAAAAAAAAAAAAAAAAAAAAA","version":1,"created_ms":1}`))
	r.Partition = tiertest.New(t, r.store, "orders.eu", topicID, 3)
	return r
}

func (r *rig) put(key string, body []byte) {
	r.t.Helper()
	if _, err := r.store.Put(r.t.Context(), key, bytes.NewReader(body), object.Condition{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) get(key string) []byte {
	r.t.Helper()
	body, _, err := object.Read(r.t.Context(), r.store, key, 1<<30)
	if err != nil {
		r.t.Fatal(err)
	}
	return body
}

func (r *rig) delete(keys ...string) {
	r.t.Helper()
	for _, key := range keys {
		if err := r.store.Delete(r.t.Context(), key); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) keys(part string) (keys []string) {
	r.t.Helper()
	for info, err := range r.store.List(r.t.Context(), "", "") {
		if err != nil {
			r.t.Fatal(err)
		}
		if strings.Contains(info.Key, part) {
			keys = append(keys, info.Key)
		}
	}
	return keys
}

// segment is the key of an object of the i-th segment.
func (r *rig) segment(i int, kind manifest.Kind) string {
	r.t.Helper()
	for s, err := range r.Manifest.All(r.t.Context()) {
		if err != nil {
			r.t.Fatal(err)
		}
		if i--; i < 0 {
			return r.Manifest.Key(s.Name, kind)
		}
	}
	r.t.Fatal("no such segment")
	return ""
}

func (r *rig) options() fsck.Options {
	return fsck.Options{Store: r.store, Level: fsck.List, Grace: grace}
}

func (r *rig) check(o fsck.Options) ([]fsck.Finding, fsck.Summary) {
	r.t.Helper()
	var found []fsck.Finding
	sum, err := fsck.Check(r.t.Context(), r.now, o, func(f fsck.Finding) { found = append(found, f) })
	if err != nil {
		r.t.Fatal(err)
	}
	return found, sum
}

// finds checks at a level and compares the kinds of what is found.
func (r *rig) finds(level fsck.Level, want ...fsck.Kind) []fsck.Finding {
	r.t.Helper()
	o := r.options()
	o.Level = level
	found, _ := r.check(o)
	var kinds []fsck.Kind
	for _, f := range found {
		kinds = append(kinds, f.Kind)
	}
	if !slices.Equal(kinds, want) {
		r.t.Errorf("level %d finds %v, not %v: %+v", level, kinds, want, found)
	}
	return found
}

func topicConfig(string) config.Topic { return tiertest.TopicConfig() }

var levels = []fsck.Level{fsck.List, fsck.Aux, fsck.All, fsck.Verify}

func TestASoundBucketHasNoFindings(t *testing.T) {
	r := newRig(t)
	r.Upload(5, 20)
	r.Page()
	r.Lead()
	r.Upload(3, 20)
	r.Drop(61)
	for _, level := range levels {
		r.finds(level)
	}
	o := r.options()
	o.Level = fsck.Verify
	if _, sum := r.check(o); sum.Segments != 7 || sum.Dropped != 1 || sum.Batches != 7*20 || sum.Records != 7*60 || sum.ObjectsRead != 14 || sum.Partitions != 1 {
		t.Errorf("%+v", sum)
	}
	o.Level, o.SamplePercent = fsck.Sample, 50
	if _, sum := r.check(o); sum.ObjectsRead <= 7 || sum.ObjectsRead >= 14 {
		t.Errorf("half of 7 segments and all sidecars are %d objects", sum.ObjectsRead)
	}
}

// TestFM41Orphans: what nobody names and nobody can ever name goes after the grace, and nothing else, also while a slow leader writes.
func TestFM41Orphans(t *testing.T) {
	r := newRig(t)
	r.Upload(2, 3)
	lost := r.Put // an upload whose leader dies before the entry
	r.Append(3)
	orphan := lost()
	for i := range 1000 {
		r.put(r.Prefix()+"/"+manifest.Name{Base: 9, Epoch: 0, Nonce: fmt.Sprint("lost", i)}.Key(manifest.LogObject), []byte("x"))
	}
	named := r.keys("/0000")
	r.now = r.now.Add(2 * grace)
	o := r.options()
	o.Repair = true

	// The leader of epoch 0 may still name them, however slow it is.
	if found, _ := r.check(o); len(found) != 1 || found[0].Kind != fsck.KindManifest {
		t.Errorf("while epoch 0 is the last: %+v", found)
	}
	if got := r.keys("/0000"); len(got) != len(named) {
		t.Fatal("something was deleted")
	}

	r.Lead()
	fresh := r.Put() // of the new leader, who is slow
	r.now = r.now.Add(2 * grace)
	young := r.Prefix() + "/" + manifest.Name{Base: 9, Epoch: 0, Nonce: "young"}.Key(manifest.LogObject)
	r.Commit() // it fences epoch 0 off
	r.put(young, []byte("x"))

	o.Repair = false
	found, _ := r.check(o)
	if i := slices.IndexFunc(found, func(f fsck.Finding) bool { return f.Kind == fsck.KindOrphan }); i < 0 || found[i].Count != 1002 || found[i].Data {
		t.Fatalf("found %+v", found)
	}
	o.Repair = true
	found, _ = r.check(o)
	if i := slices.IndexFunc(found, func(f fsck.Finding) bool { return f.Kind == fsck.KindOrphan }); i < 0 || found[i].Repaired == "" {
		t.Fatalf("repaired %+v", found)
	}
	left := r.keys("/0000")
	if slices.Contains(left, r.Manifest.Key(orphan.Name, manifest.LogObject)) || !slices.Contains(left, young) {
		t.Errorf("left are %v", left)
	}
	r.Commit(&manifest.AddRecord{Segment: fresh}) // and its entry comes at last
	r.finds(fsck.Verify)
}

// A dropped object is no orphan, however old.
func TestSafety22DroppedObjectsAreTheLeadersToDelete(t *testing.T) {
	r := newRig(t)
	r.Upload(4, 3)
	r.Drop(18)
	r.Lead()
	r.Commit()
	r.now = r.now.Add(grace)
	o := r.options()
	o.Repair = true
	before := r.keys("/0000")
	if found, sum := r.check(o); len(found) != 0 || sum.Dropped != 2 {
		t.Errorf("%+v, %+v", found, sum)
	}
	r.now = r.now.Add(30 * time.Hour)
	if found, _ := r.check(o); len(found) != 1 || found[0].Kind != fsck.KindOverdue || found[0].Count != 2 {
		t.Errorf("%+v", found)
	}
	if got := r.keys("/0000"); !slices.Equal(got, before) {
		t.Error("something was deleted")
	}
}

func TestFM44ManifestLostOrRolledBack(t *testing.T) {
	t.Run("lost", func(t *testing.T) {
		r := newRig(t)
		r.Upload(3, 3)
		r.delete(r.keys("/manifest/")...)
		if f := r.finds(fsck.List, fsck.KindManifest); !f[0].Data || f[0].Count != 3 {
			t.Errorf("%+v", f)
		}
	})
	t.Run("rolled back", func(t *testing.T) {
		r := newRig(t)
		r.Upload(5, 3)
		r.delete(r.keys("/manifest/")[3:]...)
		if f := r.finds(fsck.List, fsck.KindManifest); f[0].Start != 27 {
			t.Errorf("%+v", f)
		}
	})
	t.Run("an entry in the middle is gone", func(t *testing.T) {
		r := newRig(t)
		r.Upload(3, 3)
		r.delete(r.keys("/manifest/")[1])
		r.finds(fsck.List, fsck.KindChain)
	})
	t.Run("an old version of an entry", func(t *testing.T) {
		r := newRig(t)
		r.Upload(3, 3)
		entries := r.keys("/manifest/")
		r.put(entries[1], bytes.Replace(r.get(entries[1]), []byte("n"), []byte("m"), 1))
		r.finds(fsck.List, fsck.KindChain)
	})
	t.Run("a page is gone", func(t *testing.T) {
		r := newRig(t)
		r.Upload(6, 3)
		r.Page()
		r.delete(r.keys("/pages/")...)
		if f := r.finds(fsck.Verify, fsck.KindPage); f[0].Count != 4 || f[0].End != 36 {
			t.Errorf("%+v", f)
		}
	})
	t.Run("one upload that is not committed yet is nothing", func(t *testing.T) {
		r := newRig(t)
		r.Upload(2, 3)
		r.Append(3)
		r.Put()
		r.finds(fsck.List)
	})
}

func TestFM46BucketGoneOrWiped(t *testing.T) {
	r := newRig(t)
	r.Upload(6, 3)
	r.Page()
	check := func() error {
		_, err := fsck.Check(t.Context(), r.now, r.options(), func(fsck.Finding) {})
		return err
	}

	all := r.keys("topics/")
	data := slices.DeleteFunc(slices.Clone(all), func(key string) bool { return strings.Contains(key, "/manifest/") || strings.Contains(key, "/pages/") })
	r.delete(data...)
	f := r.finds(fsck.Verify, fsck.KindMissing)
	if f[0].Count != 12 || f[0].Start != 0 || f[0].End != 54 || !f[0].Data || f[0].Advice == "" {
		t.Errorf("%+v", f)
	}
	r.delete(cluster.Key)
	r.finds(fsck.List, fsck.KindCluster, fsck.KindMissing)
	r.delete(all...)
	if err := check(); !errors.Is(err, fsck.ErrNoCluster) {
		t.Errorf("the bucket is empty: %v", err)
	}
	r.store = faultstore.New(r.store, func(faultstore.Call) faultstore.Fault { return faultstore.Refuse })
	if err := check(); !errors.Is(err, object.ErrUnavailable) {
		t.Errorf("the store is away: %v", err)
	}
}

// TestFM49DamagedObjects: what is found at which level.
func TestFM49DamagedObjects(t *testing.T) {
	const none = fsck.Kind("")
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte {
			b = bytes.Clone(b)
			b[(at+len(b))%len(b)] ^= 4
			return b
		}
	}
	for _, c := range []struct {
		name string
		kind manifest.Kind
		edit func([]byte) []byte // nil: deleted
		want [4]fsck.Kind        // by level
	}{
		{"segment truncated", manifest.LogObject, func(b []byte) []byte { return b[:len(b)-7] }, [4]fsck.Kind{fsck.KindSize, fsck.KindSize, fsck.KindSize, fsck.KindSize}},
		{"segment longer", manifest.LogObject, func(b []byte) []byte { return append(bytes.Clone(b), 0) }, [4]fsck.Kind{fsck.KindSize, fsck.KindSize, fsck.KindSize, fsck.KindSize}},
		{"bit flipped in a record", manifest.LogObject, flip(-3), [4]fsck.Kind{none, none, fsck.KindChecksum, fsck.KindChecksum}},
		{"bit flipped in an offset", manifest.LogObject, flip(7), [4]fsck.Kind{none, none, fsck.KindChecksum, fsck.KindChecksum}},
		{"segment gone", manifest.LogObject, nil, [4]fsck.Kind{fsck.KindMissing, fsck.KindMissing, fsck.KindMissing, fsck.KindMissing}},
		{"sidecar truncated", manifest.AuxObject, func(b []byte) []byte { return b[:len(b)-1] }, [4]fsck.Kind{fsck.KindSize, fsck.KindSize, fsck.KindSize, fsck.KindSize}},
		{"bit flipped in an index", manifest.AuxObject, flip(-30), [4]fsck.Kind{none, fsck.KindChecksum, fsck.KindChecksum, fsck.KindChecksum}},
		{"sidecar gone", manifest.AuxObject, nil, [4]fsck.Kind{fsck.KindMissing, fsck.KindMissing, fsck.KindMissing, fsck.KindMissing}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.Upload(3, 5)
			key := r.segment(1, c.kind)
			if c.edit == nil {
				r.delete(key)
			} else {
				r.put(key, c.edit(r.get(key)))
			}
			for i, level := range levels {
				if c.want[i] == none {
					r.finds(level)
					continue
				}
				if f := r.finds(level, c.want[i]); len(f) == 1 && (f[0].Key != key || f[0].Start != 15 || f[0].End != 30) {
					t.Errorf("%+v", f)
				}
			}
		})
	}
	t.Run("two segments of one size swapped", func(t *testing.T) {
		r := newRig(t)
		r.Append(40)
		r.Commit(&manifest.AddRecord{Segment: r.Put()})
		r.Upload(2, 5)
		a, b := r.segment(1, manifest.LogObject), r.segment(2, manifest.LogObject)
		first, second := r.get(a), r.get(b)
		r.put(a, second)
		r.put(b, first)
		r.finds(fsck.Aux)
		r.finds(fsck.All, fsck.KindChecksum, fsck.KindChecksum)
	})
	t.Run("a batch that was damaged before its upload", func(t *testing.T) {
		r := newRig(t)
		r.Upload(1, 2)
		r.Append(4)
		s := r.Put()
		key := r.Manifest.Key(s.Name, manifest.LogObject)
		b := flip(-2)(r.get(key)) // and its checksum is that of the damage
		r.put(key, b)
		aux := r.Manifest.Key(s.Name, manifest.AuxObject)
		s.CRC, s.AuxCRC, s.AuxSize = tiertest.Redescribe(t, r.store, aux, b)
		r.Commit(&manifest.AddRecord{Segment: s})
		r.finds(fsck.All)
		if f := r.finds(fsck.Verify, fsck.KindBatch); f[0].Start != 15 || f[0].End != 18 {
			t.Errorf("%+v", f)
		}
	})
}

// What a list does not show may be there (FM-48), and one wrong byte on the way is not damage.
func TestFM48AStaleListProvesNothing(t *testing.T) {
	r := newRig(t)
	r.Upload(2, 3)
	inner := r.store
	r.store = faultstore.New(inner, func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.List && c.Key == "topics/" {
			return faultstore.Stale
		}
		return faultstore.None
	})
	r.finds(fsck.Verify)
	corrupted := map[string]bool{}
	r.store = faultstore.New(inner, func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.Get && !corrupted[c.Key] && strings.HasSuffix(c.Key, ".log") {
			corrupted[c.Key] = true
			return faultstore.Corrupt
		}
		return faultstore.None
	})
	r.finds(fsck.All)
	if len(corrupted) != 2 {
		t.Error(corrupted)
	}
}

func TestRepairPutsASidecarBackThatIsEqualToTheByte(t *testing.T) {
	r := newRig(t)
	r.Upload(2, 10)
	r.Lead()
	r.Upload(2, 10)
	o := r.options()
	o.Repair = true
	mem := vfs.NewMem()
	o.Scratch = fsck.Scratch{FS: mem, Dir: "/scratch", Config: topicConfig}
	for i := range 4 {
		key := r.segment(i, manifest.AuxObject)
		want := r.get(key)
		r.delete(key)
		found, sum := r.check(o)
		if len(found) != 1 || found[0].Kind != fsck.KindMissing || found[0].Repaired == "" || sum.DataFindings != 0 {
			t.Fatalf("segment %d: %+v", i, found)
		}
		if !bytes.Equal(r.get(key), want) {
			t.Errorf("sidecar %d is another one", i)
		}
	}
	r.finds(fsck.Verify)
	if left, _ := mem.List("/scratch"); len(left) != 0 {
		t.Errorf("left in the scratch folder: %v", left)
	}

	key := r.segment(1, manifest.AuxObject)
	r.delete(key)
	o.Scratch.Config = func(string) config.Topic { // not how it was made
		c := tiertest.TopicConfig()
		c.IndexIntervalBytes = 64
		return c
	}
	if found, _ := r.check(o); len(found) != 1 || found[0].Repaired != "" || found[0].Advice == "" {
		t.Errorf("another sidecar: %+v", found)
	}
	if _, err := r.store.Head(t.Context(), key); !errors.Is(err, object.ErrNotExist) {
		t.Error("another sidecar came under the old name")
	}
}

// An entry of a manifest may arrive after all that there was of a deleted topic is gone, and forgotten.
func TestAStragglerOfAForgottenTopicIsNoLostData(t *testing.T) {
	for _, c := range []struct {
		entry int // the straggler
		kind  fsck.Kind
	}{{1, fsck.KindMissing}, {2, fsck.KindChain}} {
		r := newRig(t)
		r.Upload(2, 3)
		straggler := fmt.Sprintf("%s/manifest/%020d.json", r.Prefix(), c.entry)
		for _, key := range r.keys(r.Prefix()) {
			if key != straggler {
				r.delete(key)
			}
		}
		o := r.options()
		for _, known := range []bool{true, false} {
			o.Metadata = func(context.Context) ([]fsck.Topic, error) {
				if !known {
					return nil, nil
				}
				return []fsck.Topic{{Name: "orders.eu", ID: topicID, Partitions: 4}}, nil
			}
			found, _ := r.check(o)
			i := slices.IndexFunc(found, func(f fsck.Finding) bool { return f.Kind == c.kind })
			if i < 0 || found[i].Data != known {
				t.Errorf("entry %d, known %v: %+v", c.entry, known, found)
			}
		}
	}
}

func TestWhatTheMetadataSays(t *testing.T) {
	r := newRig(t)
	r.Upload(1, 3)
	o := r.options()
	known := fsck.Topic{Name: "orders.eu", ID: topicID, Partitions: 4}
	stored := fsck.Topic{Name: "orders.eu", ID: topicID, Partitions: 4, Stored: []int32{2, 3}}
	var reads int
	for _, c := range []struct {
		name string
		err  error
		// what it says the first time, and later
		first, later []fsck.Topic
		want         []fsck.Kind
	}{
		{"known", nil, []fsck.Topic{known}, nil, nil},
		{"created meanwhile", nil, nil, []fsck.Topic{known}, nil},
		{"unknown", nil, nil, nil, []fsck.Kind{fsck.KindTopic}},
		{"fewer partitions", nil, []fsck.Topic{{Name: "orders.eu", ID: topicID, Partitions: 3}}, nil, []fsck.Kind{fsck.KindTopic}},
		{"a partition is gone", nil, []fsck.Topic{stored}, []fsck.Topic{stored}, []fsck.Kind{fsck.KindManifest}},
		{"it is led meanwhile", nil, []fsck.Topic{stored}, []fsck.Topic{known}, nil},
		{"it may have nothing yet", nil, []fsck.Topic{{Name: "orders.eu", ID: topicID, Partitions: 4, Unsure: []int32{2, 3}}}, nil, nil},
		{"on its way out", nil, []fsck.Topic{{Name: "orders.eu", ID: topicID, Removing: true}}, nil, nil},
		{"damaged", chain.ErrHalt, nil, nil, []fsck.Kind{fsck.KindMetadata}},
	} {
		reads = 0
		o.Metadata = func(context.Context) ([]fsck.Topic, error) {
			if reads++; reads > 1 {
				return c.later, c.err
			}
			return c.first, c.err
		}
		found, _ := r.check(o)
		var kinds []fsck.Kind
		for _, f := range found {
			kinds = append(kinds, f.Kind)
		}
		if !slices.Equal(kinds, c.want) {
			t.Errorf("%s: %+v", c.name, found)
		}
	}
	r.put(r.Prefix()+"/notes.txt", []byte("x"))
	r.put("topics/readme", []byte("x"))
	r.finds(fsck.List, fsck.KindForeign, fsck.KindForeign)
}

func FuzzParsePrefix(f *testing.F) {
	f.Add("topics/orders.eu.AQIDAAAAAAAAAAAAAAAAAA/3")
	f.Add("topics//")
	f.Fuzz(func(t *testing.T, prefix string) {
		if tp, id, ok := fsck.ParsePrefix(prefix); ok && manifest.Prefix(tp.Topic, id, tp.Partition) != prefix {
			t.Errorf("%q is %v, %v", prefix, tp, id)
		}
	})
}
