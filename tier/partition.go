package tier

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/plan"
)

// partition is one leadership. A new epoch gets a new one, so that what a former job still does can't reach it.
type partition struct {
	Leadership
	o      *Options
	pages  *manifest.PageCache // of all partitions
	prefix string
	logger *slog.Logger

	partial  *atomic.Bool                      // the Manager's
	manifest atomic.Pointer[manifest.Manifest] // nil until it was read
	steps    atomic.Int64                      // grows with all that a job gets done, for the watchdog
	first    atomic.Pointer[firstRecord]       // that is not in the bucket

	// What follows is guarded by Manager.mu.
	due        time.Time
	place      int  // in the queue
	changed    bool // among Manager.hints
	looked     time.Time
	upload     *plan.Task // planned, and waiting for its turn
	uploadSize int64
	running    *running   // the job that is out
	successor  *partition // the next leadership, which waits for this one's job
	resigned   bool
	held       bool
	stopped    bool // for good: fenced, or the manifest is not to be trusted
	whole      bool // closed whole, or nothing is to be closed
	failures   int
	failed     time.Time // the last time
	cutOff     bool      // nobody has reached the store since the failure before the last one
	err        error
	errSince   time.Time

	// What follows belongs to the job that is out.
	m        *manifest.Manifest
	settled  bool              // the manifest and the log tell one history
	reached  bool              // the store, by the job that is out
	pending  *manifest.Segment // uploaded, and its entry is not in; it may come late
	givenUp  []manifest.Name   // attempts whose objects may be there, and that no entry was ever tried for
	oldest   oldestSegments
	unread   error     // why the oldest page can't be read; nil if it can
	sweepAt  time.Time // when orphans are looked for
	swept    bool      // there are none left of former leaders
	trimming bool      // there may be more to trim
	// unfinished: an upload that failed, or one of a former leader, may have left parts that no list shows.
	unfinished bool
}

// firstRecord is the timestamp of the first record at an offset or behind it.
type firstRecord struct {
	offset    wire.Offset
	timestamp int64
}

// oldestSegments are the live segments of the oldest page, for as long as the manifest names it so.
type oldestSegments struct {
	page manifest.Page
	list []plan.RemoteSegment
}

func comparePartitions(a, b wire.TopicPartition) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// at marks a place between two steps of a job.
func (p *partition) at(point string) {
	p.steps.Add(1)
	if p.o.Hook != nil {
		p.o.Hook(point)
	}
}

// cause labels the requests of a job.
func (p *partition) cause(ctx context.Context, kind object.CauseKind) context.Context {
	return object.WithCause(ctx, object.Cause{Kind: kind, Topic: p.Topic})
}

// tiered tells whether there is anything to do with the bucket: the topic is tiered, or was and is to leave nothing behind.
func (p *partition) tiered() bool {
	c := p.Log.Config()
	return c.RemoteStorageEnable || c.RemoteLogDeleteOnDisable || p.Start != StartHere ||
		p.manifest.Load() != nil || p.Log.LocalStartOffset() > p.Log.StartOffset()
}

// copied tells whether what the log takes goes to the bucket.
func (p *partition) copied() bool {
	c := p.Log.Config()
	return c.RemoteStorageEnable && !c.RemoteLogCopyDisable
}

// hereAlone tells whether the log may hold what no stop brings to the bucket.
func (p *partition) hereAlone() bool { return !p.copied() && p.Log.EndOffset() > 0 }

// untouched tells whether nothing was ever appended to the log, so that the manifest need not be read: thousands of idle partitions
// are to cost nothing.
func (p *partition) untouched() bool {
	return p.Start == StartHere && p.Log.EndOffset() == 0 && p.manifest.Load() == nil
}

// empty tells whether there never was a record in the log, nor in the bucket, as far as this leader may say so. Manager.mu is held.
func (p *partition) empty() bool {
	if p.stopped || p.Log.EndOffset() > 0 || p.Log.MayLackEnd() {
		return false
	}
	s := p.state()
	return s == nil && p.Start == StartHere || s != nil && s.End == 0
}

// state is the manifest's; nil until it was read.
func (p *partition) state() *manifest.State {
	if m := p.manifest.Load(); m != nil {
		return m.State()
	}
	return nil
}

// lineage is the log's, as manifests write it.
func (p *partition) lineage() []manifest.EpochStart { return lineageOf(p.Log.Epochs()) }

func lineageOf(epochs []log.EpochEntry) []manifest.EpochStart {
	lineage := make([]manifest.EpochStart, len(epochs))
	for i, e := range epochs {
		lineage[i] = manifest.EpochStart{Epoch: e.Epoch, Start: e.Start}
	}
	return lineage
}

// view is what a plan is made of. It may read the disk, and a page of the manifest, which it does without if need be.
func (p *partition) view(ctx context.Context, now time.Time, confirmed, closing bool) (plan.View, error) {
	v := plan.View{
		LeaderEpoch: p.Epoch, Internal: p.Internal, Confirmed: confirmed, Closing: closing,
		Config: p.planConfig(),
	}
	if skew, ok := object.SkewOf(p.o.Store, now); ok {
		v.ClockKnown, v.ClockSkew = true, -skew.Ahead
	}
	if err := p.viewLocal(now, &v.Local); err != nil {
		return v, err
	}
	if !p.settled {
		return v, nil
	}
	v.Bucket = p.viewBucket(ctx)
	return v, ctx.Err() // a job that was cancelled knows nothing of its page
}

func (p *partition) planConfig() plan.Config {
	t, c := p.Log.Config(), p.o.Config()
	return plan.Config{
		Tiered: t.RemoteStorageEnable, CopyDisabled: t.RemoteLogCopyDisable, DeleteOnDisable: t.RemoteLogDeleteOnDisable,
		CleanupDelete: t.CleanupDelete, CleanupCompact: t.CleanupCompact,
		RetentionMs: t.RetentionMs, RetentionBytes: t.RetentionBytes,
		LocalRetentionMs: t.LocalRetentionMs, LocalRetentionBytes: t.LocalRetentionBytes,
		CopyLagMs: t.RemoteCopyLagMs, CopyLagBytes: t.RemoteCopyLagBytes,
		MaxUnsealed: c.MaxUnsealed, DeleteGrace: c.DeleteGrace, PageSegments: p.o.PageSegments,
	}
}

// viewLocal looks at the log while others append to it: what is read first bounds what is read later.
func (p *partition) viewLocal(now time.Time, v *plan.Local) error {
	l := p.Log
	since, unsealed, err := l.UnsealedSince(now)
	if err != nil {
		return fmt.Errorf("look at the active segment: %w", err)
	}
	if unsealed {
		v.UnsealedSince = since
	}
	v.LastStableOffset = l.LastStableOffset()
	v.HighWatermark = l.HighWatermark()
	segments := l.Segments()
	sealed, err := l.SealedSegments(0)
	if err != nil {
		return fmt.Errorf("look at the sealed segments: %w", err)
	}
	described := make(map[wire.Offset]log.SealedSegment, len(sealed))
	for _, s := range sealed {
		described[s.Base] = s
	}
	for _, s := range segments {
		d, known := described[s.Base]
		if s.Sealed && !known {
			continue // retention has just taken it
		}
		if !s.Sealed {
			d.LatestMs, d.Damaged = now.UnixMilli(), false
		}
		v.Segments = append(v.Segments, plan.LocalSegment{
			Base: s.Base, Next: s.Next, Size: s.Size, LatestMs: d.LatestMs, Damaged: d.Damaged,
		})
	}
	v.End = segments[len(segments)-1].Next
	// Last: what went from here meanwhile went because this has moved, and would else look like a hole.
	v.LogStart, v.Start = l.StartOffset(), l.LocalStartOffset()
	v.HighWatermark = min(v.HighWatermark, v.End)
	v.LastStableOffset = min(v.LastStableOffset, v.HighWatermark)
	return nil
}

func (p *partition) viewBucket(ctx context.Context) plan.Bucket {
	s := p.m.State()
	oldest, err := p.oldestOf(ctx, s)
	if p.unread = err; err != nil {
		oldest = pagesAsSegments(s)
	}
	v := plan.Bucket{
		Read: true, LogStart: s.ReadStart(), End: s.End, Oldest: oldest, PageUnread: err != nil,
		Segments: s.Segments, Bytes: s.Bytes, Tail: len(s.Tail), Closed: p.closed(s),
	}
	for _, d := range s.Dropped {
		v.Dropped = append(v.Dropped, plan.Dropped{TimeMs: d.TimeMs})
	}
	return v
}

// closed tells whether the manifest says that all is in the bucket, also to a reader who does not know whether every partition was
// closed by the last stop: then it is this leader who must have said so.
func (p *partition) closed(s *manifest.State) bool {
	return s.Closed && (!p.partial.Load() || s.LeaderEpoch() == p.Epoch)
}

// oldestOf are the live segments that retention takes first: those of the first page, or the tail. A page is read once.
func (p *partition) oldestOf(ctx context.Context, s *manifest.State) ([]plan.RemoteSegment, error) {
	if len(s.Pages) == 0 {
		return remoteSegments(s.Tail), nil
	}
	first := s.Pages[0]
	if p.oldest.page == first {
		return p.oldest.list, nil
	}
	live, err := p.m.Load(p.cause(ctx, object.CauseManifest), first)
	if err != nil {
		return nil, fmt.Errorf("read the oldest page: %w", err)
	}
	p.oldest = oldestSegments{page: first, list: remoteSegments(live)}
	return p.oldest.list, nil
}

// pagesAsSegments is what of the live segments is known without reading a page.
func pagesAsSegments(s *manifest.State) []plan.RemoteSegment {
	// Segments without timestamps go by when they were uploaded, which was before those of the tail.
	uploadedMs := int64(math.MaxInt64)
	if len(s.Tail) > 0 {
		uploadedMs = s.Tail[0].UploadedMs
	}
	var list []plan.RemoteSegment
	for _, p := range s.Pages {
		list = append(list, plan.RemoteSegment{Start: p.Start, End: p.End, Size: p.Bytes, MaxTimestamp: max(p.MaxTimestamp, uploadedMs)})
	}
	return append(list, remoteSegments(s.Tail)...)
}

func remoteSegments(segments []manifest.Segment) []plan.RemoteSegment {
	list := make([]plan.RemoteSegment, len(segments))
	for i, s := range segments {
		list[i] = plan.RemoteSegment{Start: s.Start, End: s.End, Size: s.Size, MaxTimestamp: s.MaxTimestamp, UploadedMs: s.UploadedMs}
	}
	return list
}
