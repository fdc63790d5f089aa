// Package plan decides what the leader of a tiered partition should do next: what to seal, copy and delete, and why each segment
// is kept.
//
// What it promises: a plan follows from its View alone. It never lets go of what the manifest does not have, unless total
// retention passed it; it copies nothing above the last stable offset; the log start only grows; whoever does what it says and
// asks again comes to an end. It never looks at a clock, a disk or the store.
package plan

import (
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// View is what a leader knows of one partition.
type View struct {
	Config Config
	Local  Local
	Bucket Bucket

	LeaderEpoch wire.LeaderEpoch
	Internal    bool // an internal topic: all live data stays here (safety.md 25)
	// Confirmed: the controller has confirmed this leader epoch within the session time. Without it nothing in the bucket is
	// dropped (safety.md 23).
	Confirmed bool
	// ClockKnown: the store's Date was seen once; ClockSkew is what the local clock was ahead of it the last time.
	ClockKnown bool
	ClockSkew  time.Duration
	// Copying are the bases of the local segments whose copies are under way.
	Copying []wire.Offset
	// Closing: a clean stop; nothing is appended any more, and everything is to go to the bucket.
	Closing bool
}

// Config are the settings in force, of the topic and the broker. Sizes are in bytes.
type Config struct {
	Tiered          bool // remote.storage.enable
	CopyDisabled    bool // remote.log.copy.disable
	DeleteOnDisable bool // remote.log.delete.on.disable
	CleanupDelete   bool // cleanup.policy contains delete
	CleanupCompact  bool // cleanup.policy contains compact

	RetentionMs         int64 // -1: no limit
	RetentionBytes      int64 // -1: no limit
	LocalRetentionMs    int64 // -2: as RetentionMs; -1: no limit
	LocalRetentionBytes int64 // -2: as RetentionBytes; -1: no limit
	CopyLagMs           int64 // remote.copy.lag.ms: 0: none; -1: as LocalRetentionMs
	CopyLagBytes        int64 // remote.copy.lag.bytes: 0: none; -1: as LocalRetentionBytes

	MaxUnsealed time.Duration // tier.max.unsealed.ms
	DeleteGrace time.Duration // tier.delete.grace.ms

	PageSegments int // how many segments go into a page of the manifest; 0: 1,000
}

// Local is the log as it lies here.
type Local struct {
	LogStart         wire.Offset
	Start            wire.Offset // the first offset that is here
	HighWatermark    wire.Offset
	LastStableOffset wire.Offset
	End              wire.Offset
	Segments         []LocalSegment // oldest first; the last one is active
	UnsealedSince    time.Time      // of the oldest append to the active segment; zero while it is empty
}

// LocalSegment is a segment on disk.
type LocalSegment struct {
	Base     wire.Offset
	Next     wire.Offset // exclusive
	Size     int64
	LatestMs int64 // the largest timestamp, or the file's time where the records have none
	Damaged  bool  // it can't be copied
}

// Bucket is the manifest in short. All but Read is zero until it was read.
type Bucket struct {
	// Read: the manifest was read, and its lineage is the log's. The store may be away since.
	Read     bool
	LogStart wire.Offset
	End      wire.Offset     // the tiered end, exclusive
	Oldest   []RemoteSegment // the oldest live segments, oldest first; a page of them will do
	// PageUnread: the oldest page can't be read. Oldest then has all that is live, each page as if it were one segment, and nothing
	// can be dropped.
	PageUnread bool
	Segments   int       // live
	Bytes      int64     // of the live segments' .log objects
	Tail       int       // of the live segments, those that are in no page
	Dropped    []Dropped // waiting for their deletion, in the order in which they were dropped
	Closed     bool      // the last entry says that the log ends at End
}

// RemoteSegment is a live segment of the manifest.
type RemoteSegment struct {
	Start        wire.Offset
	End          wire.Offset // exclusive
	Size         int64
	MaxTimestamp int64 // -1 when the records have none
	UploadedMs   int64
}

// Dropped is an object that no reader is sent to any more.
type Dropped struct {
	TimeMs int64
}

// Kind says what a Task is.
type Kind int8

// The kinds of tasks. A plan has them in the order in which they are to be done; whoever can't do one of the local kinds or
// can't commit asks again later.
const (
	MoveStart     Kind = iota + 1 // raise the log start here to Offset: by retention, or since the manifest says so. Needs no store
	DeleteLocal                   // let the log retain: there are segments that may go
	Seal                          // begin a new active segment
	RecordStart                   // commit that the log starts at Offset
	RecordLost                    // commit that [Offset, End) is lost: nobody has it. An alarm
	Drop                          // commit that the oldest Count live segments are dropped
	Copy                          // copy the local segment that begins at Segment; it serves [Offset, End)
	Page                          // move the oldest Count segments of the tail into a page
	DeleteObjects                 // delete the objects of the first Count dropped ones, and commit that they are gone
	Close                         // commit that the log ends at Offset
)

// Task is something to do.
type Task struct {
	Kind    Kind
	Segment wire.Offset
	Offset  wire.Offset
	End     wire.Offset // exclusive
	Count   int
	Why     string // for the log
}

// Plan says what is to be done next, in order. It is empty when there is nothing to do until something changes or NextWake.
func Plan(now time.Time, v View) []Task {
	p := newPlanner(now, v)
	p.moveStart()
	p.deleteLocal()
	p.seal()
	closed := v.Closing && v.Bucket.Closed && v.Bucket.End == v.Local.End // not by a stop before, since when something was written
	if v.Bucket.Read && !closed {
		p.recordStart()
		p.drop()
		p.copy()
		p.page()
		p.deleteObjects()
		p.close()
	}
	return p.tasks
}

// Bounds of one plan, so that what it brings about is seen before more is begun.
const (
	maxCopies  = 16
	maxDeletes = 500 // a DeleteObjects of an S3 store takes 1,000 keys, two for each segment
)

// defaultPageSegments is how many segments go into a page: some hundred KB, one get.
const defaultPageSegments = 1000

// clockTolerance is how far the local clock may be off the store's where something goes because it is old (safety.md 23).
const clockTolerance = 5 * time.Minute

// internalUnsealed bounds MaxUnsealed of internal topics: a group's offsets are little data, and are missed at once.
const internalUnsealed = time.Minute

// planner makes one plan.
type planner struct {
	View
	now   time.Time
	tasks []Task
	start wire.Offset // the log start, as it is when the tasks so far are done
	end   wire.Offset // the tiered end, likewise
	live  int         // segments in the bucket, likewise
}

func newPlanner(now time.Time, v View) *planner {
	return &planner{View: v, now: now, start: v.Local.LogStart, end: v.Bucket.End, live: v.Bucket.Segments}
}

func (p *planner) add(t Task) { p.tasks = append(p.tasks, t) }

// copies tells whether the topic's data goes to the bucket.
func (p *planner) copies() bool { return p.Config.Tiered && !p.Config.CopyDisabled }

// active is the segment that is appended to; false while there is nothing in it.
func (p *planner) active() (LocalSegment, bool) {
	if n := len(p.Local.Segments); n > 0 {
		s := p.Local.Segments[n-1]
		return s, s.Next > s.Base
	}
	return LocalSegment{}, false
}

// sealed are the segments to which nothing is appended.
func (p *planner) sealed() []LocalSegment {
	return p.Local.Segments[:max(0, len(p.Local.Segments)-1)]
}

// moveStart raises the log start here, at once: what has gone from it must not fill the disk while the store is away (BO-090).
func (p *planner) moveStart() {
	to, why := p.start, ""
	if target, reason := p.retained(); target > to && p.mayPass(target) {
		to, why = target, reason
	}
	if p.Bucket.LogStart > to {
		to, why = p.Bucket.LogStart, "the manifest says so"
	}
	if p.Bucket.Read && !p.Config.Tiered && p.Config.DeleteOnDisable && p.Local.Start > to {
		to, why = p.Local.Start, "remote.log.delete.on.disable"
	}
	if to = min(to, p.Local.HighWatermark); to > p.start {
		p.start = to
		p.add(Task{Kind: MoveStart, Offset: to, Why: why})
	}
}

// mayPass tells whether total retention may move the log start that far. While the controller has not confirmed the epoch, it does so
// only to let go of what is here and in no bucket.
func (p *planner) mayPass(target wire.Offset) bool {
	return p.Confirmed || !p.Bucket.Read || target > p.Bucket.End
}

// deleteLocal is for the log to do, which goes by the same rule as goes.
func (p *planner) deleteLocal() {
	segments := p.sealed()
	if len(segments) == 0 {
		return
	}
	if gone, why := p.goes(segments[0], p.localBytes()); gone {
		p.add(Task{Kind: DeleteLocal, Segment: segments[0].Base, Why: why})
	}
}

// seal begins a new active segment where the present one is to be copied or to go.
func (p *planner) seal() {
	s, ok := p.active()
	if !ok || !p.Config.Tiered {
		return
	}
	why := ""
	switch {
	case p.start >= s.Next:
		why = "the log start has passed it"
	case !p.copies() || !p.Bucket.Read:
	case p.Closing:
		why = "clean stop"
	case p.unsealedFor() >= p.maxUnsealed() && p.Local.LastStableOffset > s.Base && p.Bucket.End >= s.Base:
		why = "tier.max.unsealed.ms"
	}
	if why != "" {
		p.add(Task{Kind: Seal, Segment: s.Base, Why: why})
	}
}

func (p *planner) unsealedFor() time.Duration {
	if p.Local.UnsealedSince.IsZero() {
		return 0
	}
	return p.now.Sub(p.Local.UnsealedSince)
}

func (p *planner) maxUnsealed() time.Duration {
	if p.Internal {
		return min(p.Config.MaxUnsealed, internalUnsealed)
	}
	return p.Config.MaxUnsealed
}

// recordStart comes before any other entry: what total retention took before it was copied must not look like a hole.
func (p *planner) recordStart() {
	if p.start <= p.Bucket.LogStart || !p.Confirmed {
		return
	}
	p.end = max(p.end, p.start)
	p.add(Task{Kind: RecordStart, Offset: p.start, Why: "the log starts there"})
}

// mayDrop tells whether something may leave the bucket (safety.md 23).
func (p *planner) mayDrop() bool { return p.Confirmed && p.clockHolds() && !p.Closing }

// clockHolds tells whether the age of something can be told.
func (p *planner) clockHolds() bool { return p.ClockKnown && p.ClockSkew.Abs() <= clockTolerance }

func (p *planner) drop() {
	if !p.mayDrop() || p.Bucket.PageUnread {
		return
	}
	count := 0
	for _, s := range p.Bucket.Oldest {
		if s.End > p.start {
			break
		}
		count++
	}
	p.live -= count
	if count > 0 {
		p.add(Task{Kind: Drop, Count: count, Why: "the log start has passed it"})
	}
}

// copy goes on at the tiered end, oldest first, without a gap.
func (p *planner) copy() {
	if !p.copies() || len(p.Local.Segments) == 0 || p.start > p.end {
		return
	}
	if first := p.Local.Segments[0].Base; first > p.end {
		if !p.Confirmed {
			return
		}
		p.add(Task{Kind: RecordLost, Offset: p.end, End: first, Why: "neither here nor in the bucket"})
		p.end = first
	}
	copies := 0
	for i, s := range p.sealed() {
		if s.Next <= p.end {
			continue
		}
		if held, _ := p.holds(i); held || copies == maxCopies {
			return
		}
		from := max(s.Base, p.end)
		if !slices.Contains(p.Copying, s.Base) {
			copies++
			p.add(Task{Kind: Copy, Segment: s.Base, Offset: from, End: s.Next, Why: "sealed and stable"})
		}
		p.end = s.Next
	}
}

func (p *planner) page() {
	size := p.Config.PageSegments
	if size <= 0 {
		size = defaultPageSegments
	}
	if min(p.Bucket.Tail, p.live) >= 2*size && !p.Closing {
		p.add(Task{Kind: Page, Count: size, Why: "the manifest's tail is long"})
	}
}

func (p *planner) deleteObjects() {
	if !p.mayDrop() {
		return
	}
	count := 0
	for _, d := range p.Bucket.Dropped {
		if p.now.UnixMilli()-d.TimeMs < p.Config.DeleteGrace.Milliseconds() || count == maxDeletes {
			break
		}
		count++
	}
	if count > 0 {
		p.add(Task{Kind: DeleteObjects, Count: count, Why: "tier.delete.grace.ms"})
	}
}

// close says that all is in the bucket, when it is.
func (p *planner) close() {
	if p.Closing && p.Config.Tiered && p.Bucket.End == p.Local.End && len(p.Copying) == 0 {
		p.add(Task{Kind: Close, Offset: p.Bucket.End, Why: "clean stop"})
	}
}
