package plan

import (
	"fmt"
	"math"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// asTotal stands in local.retention.* for the value of retention.*.
const asTotal = -2

// limits are those of one retention: -1 is no limit.
type limits struct{ bytes, ms int64 }

// total is what retention.* allows of the whole, in the bucket and here.
func (c *Config) total() limits {
	if !c.CleanupDelete {
		return limits{-1, -1}
	}
	return limits{c.RetentionBytes, c.RetentionMs}
}

// local is what local.retention.* allows of what is here and in the bucket. Without copies the settings mean nothing, and the total
// rules. What is only compacted has no retention.* to stand for them.
func (c *Config) local() limits {
	l := c.total()
	if c.CopyDisabled {
		return l
	}
	if !c.CleanupCompact {
		l = limits{c.RetentionBytes, c.RetentionMs}
	}
	if c.LocalRetentionBytes != asTotal {
		l.bytes = c.LocalRetentionBytes
	}
	if c.LocalRetentionMs != asTotal {
		l.ms = c.LocalRetentionMs
	}
	return l
}

// piece is a part of the partition that retention takes whole: a live segment in the bucket, or what of a segment here is in no
// bucket.
type piece struct {
	end      wire.Offset
	size     int64
	latestMs int64
	copied   bool
}

// pieces are those above the log start, oldest first, and the bytes of all. What the bucket holds behind Bucket.Oldest is left out of
// the list: whole tells whether there is nothing of it.
func (p *planner) pieces() (list []piece, bytes int64, whole bool) {
	bytes = p.Bucket.Bytes
	for _, s := range p.Bucket.Oldest {
		if s.End > p.start {
			list = append(list, piece{end: s.End, size: s.Size, latestMs: s.latestMs(), copied: true})
		} else {
			bytes -= s.Size // dropped soon
		}
	}
	whole = p.Bucket.PageUnread || len(p.Bucket.Oldest) == p.Bucket.Segments
	for _, s := range p.Local.Segments {
		if above := s.above(max(p.Bucket.End, p.start)); above > 0 {
			bytes += above
			if whole {
				list = append(list, piece{end: s.Next, size: above, latestMs: s.LatestMs})
			}
		}
	}
	return list, bytes, whole
}

// latestMs is what retention goes by: where records have no timestamps, when they were copied.
func (s *RemoteSegment) latestMs() int64 {
	if s.MaxTimestamp < 0 {
		return s.UploadedMs
	}
	return s.MaxTimestamp
}

// above is about how many of the segment's bytes lie at an offset or behind it: each byte counts once, here or in the bucket.
func (s *LocalSegment) above(offset wire.Offset) int64 {
	switch {
	case offset <= s.Base:
		return s.Size
	case offset >= s.Next:
		return 0
	}
	return int64(float64(s.Size) * float64(s.Next-offset) / float64(s.Next-s.Base))
}

// retained is where total retention lets the log start, and by which setting; no further than the high watermark. The bytes of what
// is newer than a piece decide, or the age of it and of all before it. What is in a bucket that was not read is older than
// what is here.
func (p *planner) retained() (wire.Offset, string) {
	target, why := wire.Offset(0), ""
	if !p.Config.Tiered {
		return target, why
	}
	limits := p.Config.total()
	list, newer, _ := p.pieces()
	for _, s := range list {
		newer -= s.size
		big := limits.bytes >= 0 && newer >= limits.bytes
		old := limits.ms >= 0 && p.clockHolds() && p.age(s.latestMs) > limits.ms
		if s.end > p.Local.HighWatermark || !big && !old {
			break
		}
		target, why = s.end, "retention.ms"
		if big {
			why = "retention.bytes"
		}
		if !s.copied {
			why += ", before it was copied"
		}
	}
	return target, why
}

// age is how many milliseconds ago that was.
func (p *planner) age(ms int64) int64 { return p.now.UnixMilli() - ms }

func (p *planner) localBytes() int64 {
	var bytes int64
	for _, s := range p.Local.Segments {
		bytes += s.Size
	}
	return bytes
}

// goes tells whether a sealed segment may be deleted here, and why; bytes are those of what is here from it on.
func (p *planner) goes(s LocalSegment, bytes int64) (bool, string) {
	limits := p.Config.local()
	switch {
	case s.Next > p.Local.HighWatermark:
		return false, "it is not replicated whole"
	case s.Next <= p.start:
		return true, "the log start has passed it"
	case !p.Config.Tiered:
		return false, "the topic is not tiered: the log retains by itself"
	case !p.Bucket.Read:
		return false, "the manifest was not read"
	case s.Next > p.Bucket.End:
		return false, "it is not in the bucket"
	case p.Internal:
		return false, "internal topics keep their live data here"
	case limits.bytes >= 0 && bytes-s.Size >= limits.bytes:
		return true, "local.retention.bytes"
	case limits.ms >= 0 && p.age(s.LatestMs) > limits.ms:
		return true, "local.retention.ms"
	case limits.ms >= 0:
		return false, "local.retention.ms"
	case limits.bytes >= 0:
		return false, "local.retention.bytes"
	}
	return false, "nothing limits what is here"
}

// holds tells whether sealed segment i can't be copied yet, and why.
func (p *planner) holds(i int) (bool, string) {
	s := p.Local.Segments[i]
	switch {
	case s.Damaged:
		return true, "it is damaged"
	case s.Next > p.Local.LastStableOffset:
		return true, fmt.Sprintf("the last stable offset is %d", p.Local.LastStableOffset)
	case p.Closing || p.lagging(i):
		return false, ""
	}
	return true, "remote.copy.lag"
}

// lagging tells whether sealed segment i is as far behind as remote.copy.lag.* asks for: one of the two is enough (KIP-1241).
func (p *planner) lagging(i int) bool {
	lag, local := p.lag(), p.Local.Segments
	if lag.ms == 0 || lag.bytes == 0 {
		return true
	}
	if age := p.age(local[i].LatestMs); lag.ms > 0 && (age < 0 || age >= lag.ms) {
		return true
	}
	var newer int64
	for _, s := range local[i+1:] {
		newer += s.Size
	}
	return lag.bytes > 0 && newer >= lag.bytes
}

// lag are the limits of remote.copy.lag.*; -1 stands for those of what is here.
func (p *planner) lag() limits {
	lag, local := limits{p.Config.CopyLagBytes, p.Config.CopyLagMs}, p.Config.local()
	if lag.bytes < 0 {
		lag.bytes = local.bytes
	}
	if lag.ms < 0 {
		lag.ms = local.ms
	}
	return lag
}

// at is a time in milliseconds since the epoch, plus some; zero where that is no time.
func at(ms, plus int64) time.Time {
	if ms < 0 || plus < 0 || ms > math.MaxInt64-plus {
		return time.Time{}
	}
	return time.UnixMilli(ms + plus)
}
