package plan

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// world is a partition that does what plans say, or a part of it, while others append to it.
type world struct {
	view View
	now  time.Time
	live []RemoteSegment
	away bool // the store
	page bool // the oldest page can't be read
}

// TestModel holds plans to what they must never do, in every order of events, and to coming to an end.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{now: testTime, view: View{
			Config: Config{
				Tiered: true, CleanupDelete: true, MaxUnsealed: time.Minute, DeleteGrace: time.Hour, PageSegments: 2,
				RetentionMs: -1, RetentionBytes: -1, LocalRetentionMs: asTotal, LocalRetentionBytes: asTotal, CopyLagBytes: -1,
			},
			Local: Local{Segments: []LocalSegment{{}}}, LeaderEpoch: 1, Confirmed: true, ClockKnown: true,
		}}
		t.Repeat(map[string]func(*rapid.T){
			"append":    w.append,
			"replicate": w.replicate,
			"delete":    w.deleteRecords,
			"wait": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "seconds")) * time.Second)
			},
			"configure":  w.configure,
			"store":      func(t *rapid.T) { w.away = rapid.Bool().Draw(t, "away") },
			"page":       func(t *rapid.T) { w.page = rapid.Bool().Draw(t, "unread") },
			"controller": func(t *rapid.T) { w.view.Confirmed = rapid.Bool().Draw(t, "confirmed") },
			"clock": func(t *rapid.T) {
				w.view.ClockSkew = time.Duration(rapid.IntRange(0, 10).Draw(t, "minutes")) * time.Minute
			},
			"work":   w.work,
			"settle": w.settle,
		})
	})
}

func (w *world) active() *LocalSegment { return &w.view.Local.Segments[len(w.view.Local.Segments)-1] }

func (w *world) append(t *rapid.T) {
	s := w.active()
	if s.Next == s.Base {
		w.view.Local.UnsealedSince = w.now
	}
	s.Next += wire.Offset(rapid.IntRange(1, 5).Draw(t, "records"))
	s.Size += rapid.Int64Range(1, 100).Draw(t, "bytes")
	s.LatestMs = max(s.LatestMs, w.now.UnixMilli()-rapid.Int64Range(-1000, 1000).Draw(t, "late"))
	w.view.Local.End = s.Next
	if rapid.Bool().Draw(t, "roll") {
		w.roll()
	}
}

func (w *world) roll() {
	w.view.Local.Segments = append(w.view.Local.Segments, LocalSegment{Base: w.view.Local.End, Next: w.view.Local.End})
	w.view.Local.UnsealedSince = time.Time{}
}

func (w *world) replicate(t *rapid.T) {
	l := &w.view.Local
	l.HighWatermark = wire.Offset(rapid.Int64Range(int64(l.HighWatermark), int64(l.End)).Draw(t, "high watermark"))
	l.LastStableOffset = wire.Offset(rapid.Int64Range(int64(max(l.LastStableOffset, l.LogStart)), int64(l.HighWatermark)).Draw(t, "last stable offset"))
}

func (w *world) deleteRecords(t *rapid.T) {
	l := &w.view.Local
	l.LogStart = wire.Offset(rapid.Int64Range(int64(l.LogStart), int64(l.HighWatermark)).Draw(t, "log start"))
	l.LastStableOffset = max(l.LastStableOffset, l.LogStart)
}

func (w *world) configure(t *rapid.T) {
	c := &w.view.Config
	c.RetentionBytes = rapid.SampledFrom([]int64{-1, -1, 0, 300, 600}).Draw(t, "retention.bytes")
	c.RetentionMs = rapid.SampledFrom([]int64{-1, -1, 60_000, 3_600_000}).Draw(t, "retention.ms")
	c.LocalRetentionBytes = rapid.SampledFrom([]int64{asTotal, -1, 0, 200}).Draw(t, "local.retention.bytes")
	c.LocalRetentionMs = rapid.SampledFrom([]int64{asTotal, -1, 0, 30_000}).Draw(t, "local.retention.ms")
	c.CopyLagMs = rapid.SampledFrom([]int64{0, 0, 20_000}).Draw(t, "remote.copy.lag.ms")
	c.CopyDisabled = rapid.IntRange(0, 4).Draw(t, "copy.disable") == 0
	c.CleanupDelete = rapid.IntRange(0, 4).Draw(t, "delete") > 0
	w.view.Internal = rapid.IntRange(0, 4).Draw(t, "internal") == 0
}

// look brings the view up to date. The manifest is not read before the store was there.
func (w *world) look() View {
	v := w.view
	b := &v.Bucket
	if b.Read = b.Read || !w.away; !b.Read {
		return v
	}
	w.view.Bucket.Read = true
	b.Oldest, b.Segments, b.Bytes = w.live[:min(len(w.live), 3)], len(w.live), 0
	for _, s := range w.live {
		b.Bytes += s.Size
	}
	if b.PageUnread = w.page && len(w.live) > 0; b.PageUnread {
		b.Oldest = w.pages()
	}
	v.Local.Start = max(v.Local.LogStart, v.Local.Segments[0].Base)
	return v
}

// pages are the live segments by pairs, as if each were one.
func (w *world) pages() (pages []RemoteSegment) {
	for pair := range slices.Chunk(w.live, 2) {
		page := pair[0]
		for _, s := range pair[1:] {
			page.End, page.Size, page.MaxTimestamp = s.End, page.Size+s.Size, max(page.MaxTimestamp, s.MaxTimestamp)
		}
		pages = append(pages, page)
	}
	return pages
}

// work does some of what a plan says.
func (w *world) work(t *rapid.T) {
	for _, task := range Plan(w.now, w.look()) {
		if rapid.IntRange(0, 5).Draw(t, "fails") == 0 {
			return
		}
		if !w.do(t, task) {
			return
		}
	}
}

// settle does all of it until nothing is left, with everybody there and all replicated, and looks at what came of it.
func (w *world) settle(t *rapid.T) {
	w.away, w.page, w.view.Confirmed, w.view.ClockSkew = false, false, true, 0
	l := &w.view.Local
	l.HighWatermark, l.LastStableOffset = l.End, l.End
	for round := 0; ; round++ {
		tasks := Plan(w.now, w.look())
		if len(tasks) == 0 {
			break
		}
		if round > 10*(len(l.Segments)+len(w.live)+10) {
			t.Fatalf("no end: %+v for %+v", tasks, w.view)
		}
		for _, task := range tasks {
			if !w.do(t, task) {
				t.Fatalf("%+v could not be done", task)
			}
		}
	}
	c, last := w.view.Config, l.Segments[len(l.Segments)-1]
	if !c.CopyDisabled && c.CopyLagMs == 0 && w.view.Bucket.End < last.Base {
		t.Fatalf("sealed up to %d, copied up to %d", last.Base, w.view.Bucket.End)
	}
	if w.view.Bucket.LogStart != l.LogStart {
		t.Fatalf("the log starts at %d, the manifest says %d", l.LogStart, w.view.Bucket.LogStart)
	}
	if len(w.live) > 0 && w.live[0].End <= l.LogStart {
		t.Fatalf("%+v is below the log start %d", w.live[0], l.LogStart)
	}
	if len(l.Segments) > 1 && l.Segments[0].Next <= l.LogStart {
		t.Fatalf("%+v is below the log start %d", l.Segments[0], l.LogStart)
	}
	if next := NextWake(w.now, w.look()); !next.IsZero() && !next.After(w.now) {
		t.Fatalf("wakes at %v, it is %v", next, w.now)
	}
}

// do does one task, and says what must never be; false where the store is away.
func (w *world) do(t *rapid.T, task Task) bool {
	l, b := &w.view.Local, &w.view.Bucket
	switch task.Kind {
	case MoveStart:
		w.mayMove(t, task.Offset)
		l.LogStart = task.Offset
		l.LastStableOffset = max(l.LastStableOffset, l.LogStart)
		return true
	case DeleteLocal:
		s := l.Segments[0]
		if s.Base != task.Segment || len(l.Segments) == 1 || s.Next > l.HighWatermark {
			t.Fatalf("%+v deletes %+v, high watermark %d", task, s, l.HighWatermark)
		}
		if s.Next > l.LogStart && (s.Next > b.End || w.view.Internal) {
			t.Fatalf("%+v deletes %+v: the log starts at %d, the bucket ends at %d", task, s, l.LogStart, b.End)
		}
		l.Segments = slices.Clone(l.Segments[1:])
		return true
	case Seal:
		if s := w.active(); s.Next > s.Base {
			w.roll()
		}
		return true
	}
	if w.away {
		return false
	}
	if !w.view.Confirmed && task.Kind != Copy && task.Kind != Page {
		t.Fatalf("%+v without the controller", task)
	}
	switch task.Kind {
	case RecordStart:
		if task.Offset != l.LogStart || task.Offset <= b.LogStart {
			t.Fatalf("%+v: the log starts at %d, the manifest said %d", task, l.LogStart, b.LogStart)
		}
		b.LogStart, b.End = task.Offset, max(b.End, task.Offset)
	case Drop:
		if last := w.live[task.Count-1]; last.End > b.LogStart {
			t.Fatalf("%+v drops %+v: the log starts at %d", task, last, b.LogStart)
		}
		b.Dropped = append(slices.Clone(b.Dropped), slices.Repeat([]Dropped{{w.now.UnixMilli()}}, task.Count)...)
		w.live = w.live[task.Count:]
		b.Tail = min(b.Tail, len(w.live))
	case Copy:
		w.copy(t, task)
	case Page:
		if b.Tail -= task.Count; b.Tail < 0 {
			t.Fatalf("%+v", task)
		}
	case DeleteObjects:
		if last := b.Dropped[task.Count-1]; w.now.Sub(time.UnixMilli(last.TimeMs)) < w.view.Config.DeleteGrace {
			t.Fatalf("%+v at %v deletes what was dropped at %d", task, w.now, last.TimeMs)
		}
		b.Dropped = b.Dropped[task.Count:]
	default:
		t.Fatalf("%+v", task) // nothing is lost here, and nobody stops
	}
	return true
}

func (w *world) copy(t *rapid.T, task Task) {
	l, b := &w.view.Local, &w.view.Bucket
	i := slices.IndexFunc(l.Segments, func(s LocalSegment) bool { return s.Base == task.Segment })
	if i < 0 || i+1 == len(l.Segments) || l.Segments[i].Next != task.End {
		t.Fatalf("%+v is no sealed segment of %+v", task, l.Segments)
	}
	if task.End > l.LastStableOffset || task.Offset != b.End || task.Offset < task.Segment {
		t.Fatalf("%+v: the bucket ends at %d, stable is %d", task, b.End, l.LastStableOffset)
	}
	s := l.Segments[i]
	w.live = append(slices.Clone(w.live), RemoteSegment{Start: task.Offset, End: task.End, Size: s.Size, MaxTimestamp: s.LatestMs})
	b.End = task.End
	b.Tail++
}

// mayMove holds a move of the log start to total retention, segment by segment.
func (w *world) mayMove(t *rapid.T, to wire.Offset) {
	l, b, c := &w.view.Local, &w.view.Bucket, &w.view.Config
	if to <= l.LogStart || to > l.HighWatermark {
		t.Fatalf("log start from %d to %d, high watermark %d", l.LogStart, to, l.HighWatermark)
	}
	old := func(ms int64) bool {
		return c.RetentionMs >= 0 && w.view.ClockSkew <= 5*time.Minute && w.now.UnixMilli()-ms > c.RetentionMs
	}
	for i, s := range l.Segments {
		if s.Next > to || s.Next <= l.LogStart || s.Next <= b.End {
			continue
		}
		var newer int64
		for _, n := range l.Segments[i+1:] {
			newer += n.Size
		}
		if big := c.RetentionBytes >= 0 && newer >= c.RetentionBytes; !c.CleanupDelete || !big && !old(s.LatestMs) {
			t.Fatalf("the log start passes %+v, which is in no bucket: %d bytes are newer; %+v", s, newer, *c)
		}
	}
	for _, s := range w.live {
		if s.End <= l.LogStart || s.End > to {
			continue
		}
		newer := int64(0)
		for _, n := range w.live {
			if n.Start >= s.End {
				newer += n.Size
			}
		}
		for _, n := range l.Segments {
			if n.Next > b.End {
				newer += n.Size // of one that is in the bucket in part, too much
			}
		}
		if big := c.RetentionBytes >= 0 && newer >= c.RetentionBytes; !c.CleanupDelete || !big && !old(s.MaxTimestamp) {
			t.Fatalf("the log start passes %+v: %d bytes are newer; %+v", s, newer, *c)
		}
	}
}
