package plan

import (
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// Reason says why a segment is kept, and until when.
type Reason struct {
	Remote bool        // the copy in the bucket; else the one here
	Start  wire.Offset // of what the copy in the bucket serves; else the segment's base
	End    wire.Offset // exclusive
	Size   int64
	Why    string
	Until  time.Time // when it goes by time alone; zero if that can't be told
}

// Explain says for each of Bucket.Oldest and each local segment why it is kept, and until when.
func Explain(now time.Time, v View) []Reason {
	p := newPlanner(now, v)
	due, _ := p.retained()
	reasons := make([]Reason, 0, len(v.Bucket.Oldest)+len(v.Local.Segments))
	for _, s := range v.Bucket.Oldest {
		r := Reason{Remote: true, Start: s.Start, End: s.End, Size: s.Size}
		r.Why, r.Until = p.whyRemote(&s, due)
		reasons = append(reasons, r)
	}
	bytes := p.localBytes()
	for i, s := range v.Local.Segments {
		r := Reason{Start: s.Base, End: s.Next, Size: s.Size}
		r.Why, r.Until = p.whyLocal(i, bytes, due)
		bytes -= s.Size
		reasons = append(reasons, r)
	}
	return reasons
}

// whyRemote is for a segment in the bucket; due is where total retention lets the log start.
func (p *planner) whyRemote(s *RemoteSegment, due wire.Offset) (string, time.Time) {
	limits := p.Config.total()
	until := time.Time{}
	if limits.ms >= 0 {
		until = at(s.latestMs(), limits.ms+1)
	}
	if s.End <= max(due, p.start) {
		switch {
		case !p.Confirmed:
			return "it is to go, but the controller has not confirmed the leader epoch", time.Time{}
		case !p.clockHolds():
			return "it is to go, but the clocks of broker and store differ, or are not compared", time.Time{}
		}
		return "it is about to be dropped", p.now
	}
	switch {
	case !p.Config.Tiered:
		return "tiering is off: it goes with what is here of its offsets", time.Time{}
	case limits.ms >= 0 && !until.IsZero() && !until.After(p.now) && !p.clockHolds():
		return "retention.ms has passed, but the clocks of broker and store differ, or are not compared", time.Time{}
	case limits.ms >= 0 && !until.IsZero() && !until.After(p.now):
		return "an older one is kept", time.Time{}
	case limits.ms >= 0:
		return "retention.ms", until
	case limits.bytes >= 0:
		return "retention.bytes", time.Time{}
	}
	return "nothing limits it", time.Time{}
}

// whyLocal is for segment i here; bytes are those of what is here from it on.
func (p *planner) whyLocal(i int, bytes int64, due wire.Offset) (string, time.Time) {
	s := p.Local.Segments[i]
	switch {
	case s.Base < s.Next && s.Next <= due && p.mayPass(due):
		return "it is about to be deleted: retention has passed it", p.now
	case i+1 == len(p.Local.Segments):
		return "it is appended to", time.Time{}
	}
	gone, why := p.goes(s, bytes)
	if gone && i > 0 {
		if before, _ := p.goes(p.Local.Segments[i-1], bytes+p.Local.Segments[i-1].Size); !before {
			return "an older one is kept", time.Time{}
		}
	}
	switch {
	case gone:
		return "it is about to be deleted: " + why, p.now
	case p.Config.Tiered && p.Bucket.Read && s.Next > p.Bucket.End:
		return why + ": " + p.whyNotCopied(i), p.expiry(&s)
	case p.Config.Tiered && p.Bucket.Read && !p.Internal && s.Next <= p.Local.HighWatermark:
		if ms := p.Config.local().ms; ms >= 0 {
			return why, at(s.LatestMs, ms+1)
		}
	}
	return why, time.Time{}
}

// expiry is when total retention takes a segment that was never copied.
func (p *planner) expiry(s *LocalSegment) time.Time {
	if ms := p.Config.total().ms; ms >= 0 {
		return at(s.LatestMs, ms+1)
	}
	return time.Time{}
}

func (p *planner) whyNotCopied(i int) string {
	s := p.Local.Segments[i]
	if p.Config.CopyDisabled {
		return "remote.log.copy.disable"
	}
	if slices.Contains(p.Copying, s.Base) {
		return "the copy is under way"
	}
	if held, why := p.holds(i); held {
		return why
	}
	if i > 0 && p.Local.Segments[i-1].Next > p.Bucket.End {
		return "it waits for an older one"
	}
	return "it is to be copied next"
}
