package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

var testTime = time.UnixMilli(1_800_000_000_000)

// hour is what the segments of a test view lie apart.
const hour = int64(time.Hour / time.Millisecond)

// view is a partition of five sealed segments of 10 offsets and 100 bytes and an active one, each an hour newer than the one
// before it and the last one as old as testTime; the first two are in the bucket.
func view(edits ...func(*View)) View {
	v := View{
		Config: Config{
			Tiered: true, CleanupDelete: true, RetentionMs: -1, RetentionBytes: -1, LocalRetentionMs: asTotal, LocalRetentionBytes: asTotal,
			CopyLagBytes: -1, MaxUnsealed: 5 * time.Minute, DeleteGrace: 7 * 24 * time.Hour,
		},
		Local: Local{HighWatermark: 60, LastStableOffset: 60, End: 60},
		Bucket: Bucket{
			Read: true, End: 20, Segments: 2, Bytes: 200, Tail: 2,
			Oldest: []RemoteSegment{{Start: 0, End: 10, Size: 100, MaxTimestamp: ago(5)}, {Start: 10, End: 20, Size: 100, MaxTimestamp: ago(4)}},
		},
		LeaderEpoch: 3, Confirmed: true, ClockKnown: true,
	}
	for i := range 6 {
		base := wire.Offset(10 * i)
		v.Local.Segments = append(v.Local.Segments, LocalSegment{Base: base, Next: base + 10, Size: 100, LatestMs: ago(5 - i)})
	}
	v.Local.UnsealedSince = testTime
	for _, edit := range edits {
		edit(&v)
	}
	return v
}

func ago(hours int) int64 { return testTime.UnixMilli() - int64(hours)*hour }

// localFrom leaves away the first count local segments.
func localFrom(count int) func(*View) {
	return func(v *View) {
		v.Local.Segments = v.Local.Segments[count:]
		v.Local.Start = v.Local.Segments[0].Base
	}
}

// copied says that the bucket has everything below an offset.
func copied(end wire.Offset) func(*View) {
	return func(v *View) {
		v.Bucket.Oldest = nil
		for at := wire.Offset(0); at < end; at += 10 {
			v.Bucket.Oldest = append(v.Bucket.Oldest, RemoteSegment{Start: at, End: at + 10, Size: 100, MaxTimestamp: ago(5 - int(at)/10)})
		}
		n := len(v.Bucket.Oldest)
		v.Bucket.End, v.Bucket.Segments, v.Bucket.Bytes, v.Bucket.Tail = end, n, int64(100*n), n
	}
}

// pageUnread says that what the bucket has is in a page that can't be read.
func pageUnread(v *View) {
	v.Bucket.PageUnread, v.Bucket.Tail = true, 0
	v.Bucket.Oldest = []RemoteSegment{{Start: 0, End: 20, Size: 200, MaxTimestamp: ago(4)}}
}

// unread is what is known while the store is away from the start on.
func unread(v *View) { v.Bucket, v.ClockKnown = Bucket{}, false }

var kindNames = map[Kind]string{
	MoveStart: "move-start", DeleteLocal: "delete-local", Seal: "seal", RecordStart: "record-start", RecordLost: "record-lost",
	Drop: "drop", Copy: "copy", Page: "page", DeleteObjects: "delete-objects", Close: "close",
}

func text(tasks []Task) string {
	var words []string
	for _, t := range tasks {
		word := kindNames[t.Kind]
		switch t.Kind {
		case MoveStart, RecordStart, Close:
			word += fmt.Sprintf(" %d", t.Offset)
		case RecordLost:
			word += fmt.Sprintf(" %d-%d", t.Offset, t.End)
		case Copy:
			word += fmt.Sprintf(" %d:%d-%d", t.Segment, t.Offset, t.End)
		case Drop, Page, DeleteObjects:
			word += fmt.Sprintf(" %d", t.Count)
		case DeleteLocal, Seal:
			word += fmt.Sprintf(" %d", t.Segment)
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

type planCase struct {
	edits []func(*View)
	want  string
}

// rest are the copies of what a test view has here alone.
const rest = "copy 20:20-30, copy 30:30-40, copy 40:40-50"

func keepLocally(v *View) { v.Config.LocalRetentionMs = -1 }

func checkPlans(t *testing.T, cases map[string]planCase) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			v := view(c.edits...)
			before := fmt.Sprintf("%+v", v)
			tasks := Plan(testTime, v)
			if got := text(tasks); got != c.want {
				t.Errorf("plan is %q, want %q", got, c.want)
			}
			for _, task := range tasks {
				if task.Why == "" {
					t.Errorf("%+v gives no reason", task)
				}
			}
			if fmt.Sprintf("%+v", v) != before {
				t.Error("the view was changed")
			}
		})
	}
}

func TestPlan(t *testing.T) {
	checkPlans(t, map[string]planCase{
		// Copies.
		"oldest first, from the tiered end, all that is sealed":  {nil, rest},
		"BO-094 tiering that begins late takes the old segments": {[]func(*View){func(v *View) { v.Bucket = Bucket{Read: true} }}, "copy 0:0-10, copy 10:10-20, " + rest},
		"tiering that begins late, with a log start": {
			[]func(*View){localFrom(2), func(v *View) { v.Bucket = Bucket{Read: true}; v.Local.LogStart = 23 }},
			"record-start 23, copy 20:23-30, copy 30:30-40, copy 40:40-50",
		},
		"a range that begins inside its object":   {[]func(*View){func(v *View) { v.Bucket.End = 24 }}, "copy 20:24-30, copy 30:30-40, copy 40:40-50"},
		"what is under way is not begun again":    {[]func(*View){func(v *View) { v.Copying = []wire.Offset{20, 30} }}, "copy 40:40-50"},
		"BO-095 a damaged segment holds back":     {[]func(*View){func(v *View) { v.Local.Segments[3].Damaged = true }}, "copy 20:20-30"},
		"no copies by remote.log.copy.disable":    {[]func(*View){func(v *View) { v.Config.CopyDisabled = true }}, ""},
		"nothing of a topic that is not tiered":   {[]func(*View){func(v *View) { v.Config.Tiered = false }}, ""},
		"nothing without the manifest":            {[]func(*View){unread}, ""},
		"a log that ends before the bucket waits": {[]func(*View){func(v *View) { v.Bucket.End = 100 }}, ""},
		"what nobody has is lost":                 {[]func(*View){localFrom(3)}, "record-lost 20-30, copy 30:30-40, copy 40:40-50"},
		"but not without the controller":          {[]func(*View){localFrom(3), func(v *View) { v.Confirmed = false }}, ""},

		// Lag (KIP-1241).
		"remote.copy.lag.ms":                     {[]func(*View){func(v *View) { v.Config.CopyLagMs = 2 * hour }}, "copy 20:20-30, copy 30:30-40"},
		"remote.copy.lag.bytes":                  {[]func(*View){func(v *View) { v.Config.CopyLagMs, v.Config.CopyLagBytes = -1, 300 }}, "copy 20:20-30"},
		"one of the two lags is enough":          {[]func(*View){func(v *View) { v.Config.CopyLagMs, v.Config.CopyLagBytes = 2*hour, 300 }}, "copy 20:20-30, copy 30:30-40"},
		"a lag of 0 bytes is none":               {[]func(*View){func(v *View) { v.Config.CopyLagMs, v.Config.CopyLagBytes = 9*hour, 0 }}, rest},
		"-1 is the local retention":              {[]func(*View){func(v *View) { v.Config.CopyLagMs, v.Config.LocalRetentionMs = -1, 3*hour }}, "delete-local 0, copy 20:20-30"},
		"without any limit it never comes":       {[]func(*View){func(v *View) { v.Config.CopyLagMs = -1 }}, ""},
		"a timestamp from the future has waited": {[]func(*View){func(v *View) { v.Config.CopyLagMs = hour; v.Local.Segments[4].LatestMs = math.MaxInt64 }}, rest},

		// Local retention.
		"local.retention.ms":                       {[]func(*View){func(v *View) { v.Config.LocalRetentionMs = 4*hour + 1 }}, "delete-local 0, " + rest},
		"local.retention.ms, not older":            {[]func(*View){func(v *View) { v.Config.LocalRetentionMs = 5 * hour }}, rest},
		"local.retention.bytes":                    {[]func(*View){func(v *View) { v.Config.LocalRetentionBytes = 500 }}, "delete-local 0, " + rest},
		"local.retention.bytes, a byte more":       {[]func(*View){func(v *View) { v.Config.LocalRetentionBytes = 501 }}, rest},
		"FM-43 never what is not in the bucket":    {[]func(*View){localFrom(2), func(v *View) { v.Config.LocalRetentionMs, v.Config.LocalRetentionBytes = 1, 1 }}, rest},
		"FM-43 never while the manifest is unread": {[]func(*View){unread, func(v *View) { v.Config.LocalRetentionMs = 1 }}, ""},
		"compacted ones have no retention.ms": {[]func(*View){func(v *View) {
			v.Config.CleanupDelete, v.Config.CleanupCompact, v.Config.RetentionMs = false, true, 1
		}}, rest},
		"not above the high watermark": {[]func(*View){copied(40), func(v *View) {
			v.Config.LocalRetentionMs, v.Local.HighWatermark, v.Local.LastStableOffset = 1, 5, 5
		}}, ""},

		// Total retention.
		"retention.ms over what is in the bucket": {
			[]func(*View){localFrom(2), keepLocally, func(v *View) { v.Config.RetentionMs = 4*hour + 1 }},
			"move-start 10, record-start 10, drop 1, " + rest,
		},
		"retention.bytes counts each byte once": {
			[]func(*View){keepLocally, func(v *View) { v.Config.RetentionBytes = 400 }},
			"move-start 20, delete-local 0, record-start 20, drop 2, " + rest,
		},
		"retention.bytes, a byte more":         {[]func(*View){keepLocally, func(v *View) { v.Config.RetentionBytes = 501 }}, rest},
		"BO-086 only finished copies count":    {[]func(*View){keepLocally, func(v *View) { v.Config.RetentionBytes, v.Copying = 501, []wire.Offset{20} }}, "copy 30:30-40, copy 40:40-50"},
		"an older one that is kept keeps them": {[]func(*View){keepLocally, func(v *View) { v.Config.RetentionMs, v.Bucket.Oldest[0].MaxTimestamp = hour, math.MaxInt64 }}, rest},
		"without timestamps the copy's time counts": {[]func(*View){localFrom(2), keepLocally, func(v *View) {
			v.Config.RetentionMs, v.Bucket.Oldest[0].MaxTimestamp, v.Bucket.Oldest[0].UploadedMs = 4*hour, -1, ago(5)
		}}, "move-start 10, record-start 10, drop 1, " + rest},
		"BO-090 what it passes before it was copied goes at once": {
			[]func(*View){keepLocally, func(v *View) { v.Config.RetentionMs = 2*hour + 1 }},
			"move-start 30, delete-local 0, record-start 30, drop 2, copy 30:30-40, copy 40:40-50",
		},
		"BO-090 also while the store is away": {
			[]func(*View){keepLocally, func(v *View) { v.Config.RetentionMs, v.Confirmed = 2*hour+1, false }},
			"move-start 30, delete-local 0",
		},
		"BO-090 also while it was away from the start": {
			[]func(*View){unread, keepLocally, func(v *View) { v.Config.RetentionBytes, v.Confirmed = 250, false }},
			"move-start 30, delete-local 0",
		},
		"all of it": {[]func(*View){func(v *View) { v.Config.RetentionBytes = 0 }}, "move-start 60, delete-local 0, seal 50, record-start 60, drop 2"},
		"BO-080 not above the high watermark": {[]func(*View){func(v *View) {
			v.Config.RetentionBytes, v.Local.HighWatermark, v.Local.LastStableOffset = 0, 45, 45
		}}, "move-start 40, delete-local 0, record-start 40, drop 2"},
		"compacted only: never": {[]func(*View){func(v *View) {
			v.Config.CleanupDelete, v.Config.CleanupCompact, v.Config.RetentionMs, v.Config.RetentionBytes = false, true, 1, 0
		}}, rest},
		"of a page at a time": {[]func(*View){copied(40), localFrom(4), keepLocally, func(v *View) {
			v.Config.RetentionBytes = 0
			v.Bucket.Oldest = v.Bucket.Oldest[:3]
		}}, "move-start 30, record-start 30, drop 3, copy 40:40-50"},

		// A page that can't be read counts as one segment, and nothing of it can be dropped.
		"a page unread, by size":          {[]func(*View){pageUnread, func(v *View) { v.Config.RetentionBytes = 300 }}, "move-start 30, delete-local 0, record-start 30, " + "copy 30:30-40, copy 40:40-50"},
		"a page unread, half of it to go": {[]func(*View){pageUnread, func(v *View) { v.Config.RetentionBytes = 450 }}, "delete-local 0, " + rest},
		"a page unread, by time":          {[]func(*View){pageUnread, func(v *View) { v.Config.RetentionMs = 3*hour + 1 }}, "move-start 20, delete-local 0, record-start 20, " + rest},
		"a page unread, DeleteRecords":    {[]func(*View){pageUnread, func(v *View) { v.Local.LogStart = 12 }}, "delete-local 0, record-start 12, " + rest},

		// The log start.
		"DeleteRecords is recorded":                  {[]func(*View){func(v *View) { v.Local.LogStart = 12 }}, "delete-local 0, record-start 12, drop 1, " + rest},
		"FM-44 the manifest's log start counts":      {[]func(*View){func(v *View) { v.Bucket.LogStart, v.Bucket.Oldest, v.Bucket.Segments = 10, v.Bucket.Oldest[1:], 1 }}, "move-start 10, delete-local 0, " + rest},
		"BO-087 nothing is dropped before it":        {[]func(*View){func(v *View) { v.Local.LogStart = 9 }}, "record-start 9, " + rest},
		"what is recorded is dropped later, too":     {[]func(*View){func(v *View) { v.Local.LogStart, v.Bucket.LogStart = 10, 10 }}, "delete-local 0, drop 1, " + rest},
		"no drop by a clock that is off":             {[]func(*View){func(v *View) { v.Local.LogStart, v.ClockSkew = 12, time.Hour }}, "delete-local 0, record-start 12, " + rest},
		"tiering that is switched off with its data": {[]func(*View){localFrom(1), func(v *View) { v.Config.Tiered, v.Config.DeleteOnDisable = false, true }}, "move-start 10, record-start 10, drop 1"},
		"tiering that is switched off without":       {[]func(*View){localFrom(1), func(v *View) { v.Config.Tiered = false }}, ""},

		// Seals.
		"tier.max.unsealed.ms":                {[]func(*View){copied(50), func(v *View) { v.Local.UnsealedSince = testTime.Add(-5 * time.Minute) }}, "seal 50"},
		"not yet":                             {[]func(*View){copied(50), func(v *View) { v.Local.UnsealedSince = testTime.Add(-5*time.Minute + 1) }}, ""},
		"an internal topic, after a minute":   {[]func(*View){copied(50), func(v *View) { v.Internal = true; v.Local.UnsealedSince = testTime.Add(-time.Minute) }}, "seal 50"},
		"not while older ones wait":           {[]func(*View){func(v *View) { v.Local.UnsealedSince = testTime.Add(-time.Hour) }}, rest},
		"not while nothing of it is stable":   {[]func(*View){copied(50), func(v *View) { v.Local.LastStableOffset = 50; v.Local.UnsealedSince = testTime.Add(-time.Hour) }}, ""},
		"not without copies":                  {[]func(*View){copied(50), func(v *View) { v.Config.CopyDisabled = true; v.Local.UnsealedSince = testTime.Add(-time.Hour) }}, ""},
		"not while the store was never there": {[]func(*View){unread, func(v *View) { v.Local.UnsealedSince = testTime.Add(-time.Hour) }}, ""},

		// Pages and deletes.
		"a long tail gets a page": {[]func(*View){copied(50), func(v *View) { v.Bucket.Tail, v.Bucket.Segments, v.Bucket.Oldest = 2000, 2000, nil }}, "page 1000"},
		"of the size that is set": {[]func(*View){copied(50), func(v *View) { v.Bucket.Tail, v.Bucket.Segments, v.Config.PageSegments = 25, 30, 10 }}, "page 10"},
		"tier.delete.grace.ms":    {[]func(*View){copied(50), dropped(8, 7, 6)}, "delete-objects 2"},
	})
}

func TestSafety20NothingUnstableIsCopied(t *testing.T) {
	checkPlans(t, map[string]planCase{
		"nothing above the last stable offset": {[]func(*View){func(v *View) { v.Local.LastStableOffset = 39 }}, "copy 20:20-30"},
	})
}

func TestSafety23WhoMayLetGo(t *testing.T) {
	checkPlans(t, map[string]planCase{
		"not without the controller":               {[]func(*View){keepLocally, func(v *View) { v.Config.RetentionMs, v.Confirmed = 4*hour+1, false }}, rest},
		"not by a clock that is off":               {[]func(*View){keepLocally, func(v *View) { v.Config.RetentionMs, v.ClockSkew = 2*hour+1, -6*time.Minute }}, rest},
		"no objects go without the controller":     {[]func(*View){copied(50), dropped(8), func(v *View) { v.Confirmed = false }}, ""},
		"no objects go by a clock that is off":     {[]func(*View){copied(50), dropped(8), func(v *View) { v.ClockSkew = 6 * time.Minute }}, ""},
		"not by a clock of which nothing is known": {[]func(*View){keepLocally, func(v *View) { v.Config.RetentionMs, v.ClockKnown = 2*hour+1, false }}, rest},
	})
}

func TestSafety25InternalTopicsStayHere(t *testing.T) {
	checkPlans(t, map[string]planCase{
		"internal topics keep it here": {[]func(*View){func(v *View) { v.Config.LocalRetentionMs = 1; v.Internal = true }}, rest},
	})
}

func TestSafety29ACleanStop(t *testing.T) {
	checkPlans(t, map[string]planCase{
		"it seals and copies all, whatever the lag": {[]func(*View){closing, func(v *View) { v.Config.CopyLagMs = 9 * hour }}, "seal 50, " + rest},
		"it closes what is whole": {[]func(*View){closing, copied(60), func(v *View) {
			v.Local.Segments = append(v.Local.Segments, LocalSegment{Base: 60, Next: 60})
		}}, "close 60"},
		"it deletes nothing, for want of time":    {[]func(*View){closing, copied(60), dropped(8)}, "seal 50, close 60"},
		"it leaves a closed manifest alone":       {[]func(*View){closing, copied(60), func(v *View) { v.Bucket.Closed = true; v.Local.LogStart = 20 }}, "delete-local 0, seal 50"},
		"what was closed by the stop before, too": {[]func(*View){closing, func(v *View) { v.Bucket.Closed = true }}, "seal 50, " + rest},
		"it does not close while a copy is out":   {[]func(*View){closing, copied(60), func(v *View) { v.Copying = []wire.Offset{50} }}, "seal 50"},
		"an empty partition is closed, too":       {[]func(*View){closing, func(v *View) { v.Bucket = Bucket{Read: true}; v.Local = Local{Segments: []LocalSegment{{}}} }}, "close 0"},
		"an open transaction keeps it from that":  {[]func(*View){closing, copied(50), func(v *View) { v.Local.LastStableOffset = 55 }}, "seal 50"},
	})
}

func closing(v *View) { v.Closing = true }

// dropped says how many days ago objects were dropped.
func dropped(days ...int) func(*View) {
	return func(v *View) {
		for _, d := range days {
			v.Bucket.Dropped = append(v.Bucket.Dropped, Dropped{TimeMs: testTime.UnixMilli() - int64(d)*24*hour})
		}
	}
}

func TestPlansAreBounded(t *testing.T) {
	v := view(func(v *View) {
		v.Local.Segments = nil
		for i := range wire.Offset(100) {
			v.Local.Segments = append(v.Local.Segments, LocalSegment{Base: 20 + i, Next: 21 + i, Size: 1})
		}
		v.Local.End, v.Local.HighWatermark, v.Local.LastStableOffset = 120, 120, 120
		v.Bucket.Dropped = slices.Repeat([]Dropped{{TimeMs: 0}}, 2000)
	})
	copies, deletes := 0, 0
	for _, task := range Plan(testTime, v) {
		switch task.Kind {
		case Copy:
			copies++
		case DeleteObjects:
			deletes = task.Count
		}
	}
	if copies != maxCopies || deletes != maxDeletes {
		t.Errorf("%d copies, %d deletes", copies, deletes)
	}
}

func TestNextWake(t *testing.T) {
	in := func(hours int64) time.Time { return testTime.Add(time.Duration(hours) * time.Hour) }
	for name, c := range map[string]struct {
		edits []func(*View)
		want  time.Time
	}{
		"the active segment is to be sealed": {[]func(*View){copied(50)}, testTime.Add(5 * time.Minute)},
		"nothing to wait for":                {[]func(*View){copied(50), func(v *View) { v.Local.UnsealedSince = time.Time{} }}, time.Time{}},
		"older ones wait: no seal":           {nil, time.Time{}},
		"total retention":                    {[]func(*View){func(v *View) { v.Config.RetentionMs, v.Config.LocalRetentionMs = 7*hour, -1 }}, in(2).Add(time.Millisecond)},
		"local retention":                    {[]func(*View){func(v *View) { v.Config.LocalRetentionMs = 6 * hour }}, in(1).Add(time.Millisecond)},
		"the lag":                            {[]func(*View){func(v *View) { v.Config.CopyLagMs = 4 * hour }}, in(1)},
		"the grace":                          {[]func(*View){dropped(6)}, in(24)},
		"the first of several":               {[]func(*View){dropped(6), func(v *View) { v.Config.CopyLagMs = 4 * hour }}, in(1)},
		"what is due already is no reason":   {[]func(*View){dropped(8)}, time.Time{}},
		"a time that there never is": {[]func(*View){func(v *View) {
			v.Config.RetentionMs, v.Bucket.Oldest[0].MaxTimestamp = 5, math.MaxInt64
			v.Config.LocalRetentionMs = -1
		}}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NextWake(testTime, view(c.edits...)); !got.Equal(c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	const remote, local = true, false
	for name, c := range map[string]struct {
		edits  []func(*View)
		remote bool
		start  wire.Offset
		why    string
		until  time.Time
	}{
		"in the bucket without a limit":      {nil, remote, 0, "nothing limits it", time.Time{}},
		"in the bucket by time":              {[]func(*View){func(v *View) { v.Config.RetentionMs = 7 * hour }}, remote, 10, "retention.ms", testTime.Add(3*time.Hour + time.Millisecond)},
		"in the bucket by size":              {[]func(*View){func(v *View) { v.Config.RetentionBytes = 1000 }}, remote, 10, "retention.bytes", time.Time{}},
		"in the bucket, about to go":         {[]func(*View){func(v *View) { v.Config.RetentionMs = 4*hour + 1 }}, remote, 0, "it is about to be dropped", testTime},
		"in the bucket, below the start":     {[]func(*View){func(v *View) { v.Local.LogStart = 10 }}, remote, 0, "it is about to be dropped", testTime},
		"in the bucket, for the controller":  {[]func(*View){func(v *View) { v.Config.RetentionMs, v.Confirmed = 4*hour+1, false }}, remote, 0, "it is to go, but the controller has not confirmed the leader epoch", time.Time{}},
		"in the bucket, for the clock":       {[]func(*View){func(v *View) { v.Config.RetentionMs, v.ClockSkew = 4*hour+1, time.Hour }}, remote, 0, "retention.ms has passed, but the clocks of broker and store differ, or are not compared", time.Time{}},
		"in the bucket, behind an older one": {[]func(*View){func(v *View) { v.Config.RetentionMs, v.Bucket.Oldest[0].MaxTimestamp = 1, math.MaxInt64 }}, remote, 10, "an older one is kept", time.Time{}},
		"in the bucket, tiering is off":      {[]func(*View){func(v *View) { v.Config.Tiered = false }}, remote, 0, "tiering is off: it goes with what is here of its offsets", time.Time{}},

		"here, in the bucket too, by time":  {[]func(*View){func(v *View) { v.Config.LocalRetentionMs = 6 * hour }}, local, 0, "local.retention.ms", testTime.Add(time.Hour + time.Millisecond)},
		"here, in the bucket too, by size":  {[]func(*View){func(v *View) { v.Config.LocalRetentionBytes = 1000 }}, local, 0, "local.retention.bytes", time.Time{}},
		"here, in the bucket too, no limit": {nil, local, 0, "nothing limits what is here", time.Time{}},
		"here, about to go":                 {[]func(*View){func(v *View) { v.Config.LocalRetentionMs = 1 }}, local, 0, "it is about to be deleted: local.retention.ms", testTime},
		"here, behind an older one":         {[]func(*View){func(v *View) { v.Config.LocalRetentionMs, v.Local.Segments[0].LatestMs = 1, math.MaxInt64 }}, local, 10, "an older one is kept", time.Time{}},
		"here, total retention passes it":   {[]func(*View){func(v *View) { v.Config.RetentionMs = 2*hour + 1 }}, local, 20, "it is about to be deleted: retention has passed it", testTime},
		"here, to be copied":                {[]func(*View){func(v *View) { v.Config.RetentionMs = 9 * hour }}, local, 20, "it is not in the bucket: it is to be copied next", testTime.Add(6*time.Hour + time.Millisecond)},
		"here, waits for its turn":          {nil, local, 30, "it is not in the bucket: it waits for an older one", time.Time{}},
		"here, being copied":                {[]func(*View){func(v *View) { v.Copying = []wire.Offset{20} }}, local, 20, "it is not in the bucket: the copy is under way", time.Time{}},
		"here, not stable":                  {[]func(*View){func(v *View) { v.Local.LastStableOffset = 25 }}, local, 20, "it is not in the bucket: the last stable offset is 25", time.Time{}},
		"here, damaged":                     {[]func(*View){func(v *View) { v.Local.Segments[2].Damaged = true }}, local, 20, "it is not in the bucket: it is damaged", time.Time{}},
		"here, with a lag":                  {[]func(*View){func(v *View) { v.Config.CopyLagMs = 5 * hour }}, local, 20, "it is not in the bucket: remote.copy.lag", time.Time{}},
		"here, no copies":                   {[]func(*View){func(v *View) { v.Config.CopyDisabled = true }}, local, 20, "it is not in the bucket: remote.log.copy.disable", time.Time{}},
		"here, the manifest is not read":    {[]func(*View){unread}, local, 0, "the manifest was not read", time.Time{}},
		"here, internal":                    {[]func(*View){func(v *View) { v.Internal = true }}, local, 0, "internal topics keep their live data here", time.Time{}},
		"here, not replicated":              {[]func(*View){func(v *View) { v.Local.HighWatermark = 5 }}, local, 0, "it is not replicated whole", time.Time{}},
		"the active one":                    {nil, local, 50, "it is appended to", time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			v := view(c.edits...)
			reasons := Explain(testTime, v)
			if len(reasons) != len(v.Bucket.Oldest)+len(v.Local.Segments) {
				t.Fatalf("%d reasons", len(reasons))
			}
			i := slices.IndexFunc(reasons, func(r Reason) bool { return r.Remote == c.remote && r.Start == c.start })
			if i < 0 || reasons[i].Why != c.why || !reasons[i].Until.Equal(c.until) {
				t.Errorf("%+v, want %q until %v", reasons, c.why, c.until)
			}
		})
	}
}
