package tier

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

// paged is a rig with pages in its manifest, under retention by size.
func paged(t *testing.T) *rig {
	r := newRig(t)
	r.pageSegments = 2
	r.crash(log.StopProcessCrash)
	r.topic.LocalRetentionBytes, r.topic.RetentionBytes = 2<<10, 12<<10
	r.lead(StartHere)
	r.produce(60)
	r.pass(time.Minute)
	if pages := len(r.state("orders").Pages); pages < 2 {
		t.Fatalf("%d pages", pages)
	}
	return r
}

// spoil puts something else under a key, or nothing, and returns what puts it back.
func (r *rig) spoil(key, rubbish string) (mend func()) {
	r.t.Helper()
	sound, _, err := object.Read(r.t.Context(), r.bucket, key, math.MaxInt32)
	if err != nil {
		r.t.Fatal(err)
	}
	put := func(body string) {
		if _, err := r.bucket.Put(r.t.Context(), key, strings.NewReader(body), object.Condition{}); err != nil {
			r.t.Fatal(err)
		}
	}
	if rubbish == "" {
		if err := r.bucket.Delete(r.t.Context(), key); err != nil {
			r.t.Fatal(err)
		}
	} else {
		put(rubbish)
	}
	return func() { put(string(sound)) }
}

func (r *rig) pageKey(i int) string {
	m := r.open("orders")
	return m.Key(m.State().Pages[i].Name, manifest.PageObject)
}

// Uploads, total retention and DeleteRecords do without a page that can't be read, and the disk does not fill.
func TestAnOldestPageThatCannotBeReadHoldsUpNothing(t *testing.T) {
	for name, rubbish := range map[string]string{"damaged": "rubbish", "missing": ""} {
		t.Run(name, func(t *testing.T) {
			r := paged(t)
			before := r.state("orders")
			mend := r.spoil(r.pageKey(0), rubbish)
			r.crash(log.StopProcessCrash)
			r.lead(StartHere)
			for range 20 {
				r.produce(11)
				r.pass(time.Minute)
			}
			s, l := r.stats("orders"), r.log("orders")
			if s.BehindSegments > 0 || !errors.Is(s.Err, manifest.ErrPage) || len(r.local("orders")) > 40 {
				t.Errorf("%+v, %d records are here", s, len(r.local("orders")))
			}
			// As far as whole pages let it, the log start moves over what can't be dropped.
			if state := r.state("orders"); state.LogStart <= before.End || state.LogStart != l.StartOffset() || state.Pages[0] != before.Pages[0] {
				t.Errorf("log start %d, by the manifest %d; the oldest page is %+v", l.StartOffset(), state.LogStart, state.Pages[0])
			}
			at := l.EndOffset() - 5
			if err := l.AdvanceStart(at); err != nil {
				t.Fatal(err)
			}
			answer := errors.New("none")
			r.m.ReportLogStart(r.now, tpOf("orders"), at, r.now.Add(30*time.Second), func(_ time.Time, err error) { answer = err })
			r.pass(10 * time.Second)
			if answer != nil || r.state("orders").LogStart != at {
				t.Errorf("DeleteRecords: %v, log start %d", answer, r.state("orders").LogStart)
			}
			mend()
			r.pass(3 * testGrace)
			if s, state := r.stats("orders"), r.state("orders"); s.Err != nil || len(state.Dropped) > 0 || state.Bytes > 13<<10 {
				t.Errorf("with the page as it was: %+v, dropped %v", s, state.Dropped)
			}
			r.check()
		})
	}
}

// The manifest was read, and then the bucket was away: nobody has read a page.
func TestBO090TheBucketIsAwayBeforeAPageIsRead(t *testing.T) {
	r := paged(t)
	r.topic.RetentionBytes, r.topic.RetentionMs = -1, time.Hour.Milliseconds()
	end := r.state("orders").End
	r.faults = func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.Put || strings.Contains(c.Key, "/pages/") {
			return faultstore.Refuse
		}
		return faultstore.None
	}
	r.crash(log.StopProcessCrash)
	r.lead(StartHere)
	for range 18 {
		r.produce(11)
		r.pass(10 * time.Minute)
	}
	if kept := r.local("orders"); r.log("orders").StartOffset() <= end || len(kept) < 6*11 || len(kept) > 9*11 {
		t.Errorf("%d records are here, the log starts at %d; the bucket has them up to %d", len(kept), r.log("orders").StartOffset(), end)
	}
	r.faults = nil
	r.pass(3 * testGrace)
	if s := r.stats("orders"); s.Err != nil || s.BehindSegments > 0 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
	r.check()
}

// Of what lies in a page without timestamps only this is known, and nothing goes before its time.
func TestAPageThatIsNotReadIsNoOlderThanWhatCameBehindIt(t *testing.T) {
	page := manifest.Page{Start: 0, End: 20, Segments: 2, Bytes: 200, MaxTimestamp: 5}
	for _, c := range []struct {
		tail []manifest.Segment
		want int64
	}{
		{nil, math.MaxInt64},
		{[]manifest.Segment{{Start: 20, End: 30, MaxTimestamp: 7, UploadedMs: 9}, {Start: 30, End: 40, MaxTimestamp: 10, UploadedMs: 11}}, 9},
		{[]manifest.Segment{{Start: 20, End: 30, MaxTimestamp: 2, UploadedMs: 3}}, 5},
	} {
		list := pagesAsSegments(&manifest.State{Pages: []manifest.Page{page}, Tail: c.tail})
		if len(list) != 1+len(c.tail) || list[0].End != 20 || list[0].Size != 200 || list[0].MaxTimestamp != c.want {
			t.Errorf("%+v, want the timestamp %d", list, c.want)
		}
	}
}

func TestAStopClosesWholeWithoutTheOldestPage(t *testing.T) {
	r := paged(t)
	r.spoil(r.pageKey(0), "rubbish")
	r.crash(log.StopProcessCrash)
	r.lead(StartHere)
	r.produce(3)
	r.pass(time.Second)
	r.m.Close(r.now, r.now.Add(30*time.Second))
	r.pass(5 * time.Second)
	if over, whole := r.m.Closed(r.now); !over || !whole {
		t.Errorf("over %v, whole %v", over, whole)
	}
}

// A page that was read once may be gone when its segments are to be dropped.
func TestADropThatFailsHoldsUpNoUpload(t *testing.T) {
	r := paged(t)
	r.topic.RetentionBytes = -1
	r.log("orders").UpdateConfig(r.topic)
	r.m.pages = manifest.NewPageCache(1)
	r.lead(StartHere)
	r.settle()
	p := r.m.partitions[tpOf("orders")]
	if pages := p.m.State().Pages; p.oldest.page != pages[0] {
		t.Fatal("the oldest page is not known")
	} else if _, err := p.m.Load(t.Context(), pages[1]); err != nil { // the cache has no room for another one
		t.Fatal(err)
	}
	r.spoil(r.pageKey(0), "rubbish")
	if err := r.log("orders").AdvanceStart(20); err != nil {
		t.Fatal(err)
	}
	r.produce(20)
	r.pass(time.Minute)
	if s := r.stats("orders"); s.BehindSegments > 0 || !errors.Is(s.Err, manifest.ErrPage) {
		t.Errorf("%+v", s)
	}
}

// What one part of the upkeep fails with is told, and holds up no other part.
func TestASnapshotThatIsDamagedHoldsUpNoSweep(t *testing.T) {
	r := newRig(t)
	r.lead(StartHere)
	for len(r.snapshots()) < 5 {
		r.produce(30)
		r.pass(time.Minute)
	}
	for _, key := range r.snapshots() {
		r.spoil(key, "rubbish")
	}
	orphan := manifest.Prefix("orders", testTopicID, 0) + "/" + manifest.Name{Epoch: 0, Nonce: "lost"}.Key(manifest.LogObject)
	if _, err := r.bucket.Put(t.Context(), orphan, strings.NewReader("lost"), object.Condition{}); err != nil {
		t.Fatal(err)
	}
	r.now = r.now.Add(48 * time.Hour)
	r.lead(StartHere)
	count := len(r.snapshots())
	for len(r.snapshots()) == count { // which has the manifest trimmed
		r.produce(30)
		r.pass(time.Minute)
	}
	r.pass(3 * testGrace)
	if s := r.stats("orders"); s.Err == nil || !strings.Contains(s.Err.Error(), "trim the manifest") {
		t.Errorf("%v", s.Err)
	}
	if left := r.unnamed("orders"); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	r.check()
}

// snapshots are the keys of the manifest's.
func (r *rig) snapshots() (keys []string) {
	for info, err := range r.bucket.List(r.t.Context(), manifest.Prefix("orders", testTopicID, 0)+"/manifest/", "") {
		if err != nil {
			r.t.Fatal(err)
		}
		if strings.Contains(info.Key, ".snapshot.") {
			keys = append(keys, info.Key)
		}
	}
	return keys
}

// partsStore is a store where each put of a segment that fails leaves an unfinished upload.
type partsStore struct {
	object.Store
	unfinished, refused *int
}

func (s partsStore) Put(ctx context.Context, key string, body object.Body, cond object.Condition) (object.Token, error) {
	token, err := s.Store.Put(ctx, key, body, cond)
	if err != nil && strings.HasSuffix(key, ".log") {
		*s.unfinished++
	}
	return token, err
}

func (s partsStore) SweepUploads(_ context.Context, prefix string, _ time.Time) (int, error) {
	if *s.refused > 0 {
		*s.refused--
		return 0, object.ErrUnavailable
	}
	n := *s.unfinished
	*s.unfinished = 0
	return n, nil
}

func TestUploadsThatFailLeaveNothingUnfinished(t *testing.T) {
	r := newRig(t)
	unfinished, refused := 1, 2 // a former leader has left one
	r.store = partsStore{r.store, &unfinished, &refused}
	r.crash(log.StopProcessCrash)
	r.lead(StartHere)
	if r.settle(); unfinished != 1 {
		t.Error("swept before the first entry of the leadership")
	}
	r.produce(20)
	r.pass(time.Minute)
	if unfinished > 0 || refused > 0 || r.stats("orders").Err != nil {
		t.Errorf("%d are left by the former leader, %d refusals to come, %v", unfinished, refused, r.stats("orders").Err)
	}
	puts := 0
	r.faults = func(c faultstore.Call) faultstore.Fault {
		if isData(c) {
			if puts++; puts%3 != 0 {
				return faultstore.Refuse
			}
		}
		return faultstore.None
	}
	for range 3 {
		refused = 1
		r.produce(20)
		r.pass(2 * time.Minute)
		if s := r.stats("orders"); unfinished > 0 || refused > 0 || s.Err != nil || s.BehindSegments > 0 {
			t.Errorf("%d are left, %d refusals to come; %+v", unfinished, refused, s)
		}
	}
	if puts < 9 {
		t.Errorf("%d puts", puts)
	}
	r.check()
}

// A leader that has been replaced does not know, and ends no upload of the one in its place.
func TestAFencedLeaderAbortsNoUploads(t *testing.T) {
	r := newRig(t)
	unfinished, refused := 0, 0
	r.store = partsStore{r.store, &unfinished, &refused}
	r.crash(log.StopProcessCrash)
	r.lead(StartHere)
	r.produce(20)
	r.pass(time.Minute)
	other, err := manifest.Open(t.Context(), r.bucket, manifest.Prefix("orders", testTopicID, 0), manifest.Options{
		Writer: r.m.partitions[tpOf("orders")].writer(), Nonce: func() string { return "other" },
	})
	if err != nil {
		t.Fatal(err)
	}
	if outcome, err := other.Commit(t.Context(), r.now, r.epoch+1); outcome != object.Done {
		t.Fatal(err)
	}
	r.faults = func(c faultstore.Call) faultstore.Fault {
		if isData(c) {
			return faultstore.Refuse
		}
		return faultstore.None
	}
	r.produce(20)
	r.pass(time.Minute)
	if s := r.stats("orders"); !s.Stopped || unfinished == 0 {
		t.Errorf("stopped %v, %d unfinished uploads are left", s.Stopped, unfinished)
	}
}
