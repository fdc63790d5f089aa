package group

import (
	"time"

	"github.com/tidemark-io/tidemark/broker/coordinator"
)

// expiryRecords is about how many tombstones one step of the offset check states.
const expiryRecords = 1000

// expireOffsets goes on with the check under way: it removes offsets that are kept long enough, and groups that hold nothing
// more.
func (s *shard) expireOffsets(now time.Time) (out coordinator.Result, more bool) {
	for len(s.unchecked) > 0 && len(out.Records) < expiryRecords {
		if g := s.groups[s.unchecked[0]]; g != nil {
			out.Records = g.expired(now.UnixMilli(), s.cfg.OffsetsRetention, out.Records)
		}
		s.unchecked = s.unchecked[1:]
	}
	if len(out.Records) == 0 {
		s.unchecked = nil
		return out, false
	}
	out.Divisible = true
	out.Rejected = func() (out coordinator.Result) {
		s.unchecked = nil // the next check finds them again
		return out
	}
	return out, true
}

// expired appends tombstones for what the group need not keep at now.
func (g *group) expired(now int64, retention time.Duration, records []coordinator.Record) []coordinator.Record {
	kept := false
	for _, t := range g.offsets {
		for i := range t.partitions {
			if c := &t.partitions[i]; !g.subscribes(t.topic) && g.outlived(c, now, retention) {
				records = append(records, offsetTombstone(g.id, t.topic, c.partition))
			} else {
				kept = true
			}
		}
	}
	if !kept && g.state == empty && len(g.pending) == 0 {
		records = append(records, groupTombstone(g.id))
	}
	return records
}

// outlived tells whether an offset has been kept for its time: since the group became empty, or since its commit where
// nobody can come back to it (simple consumers, topics that a stable group has left).
func (g *group) outlived(c *committed, now int64, retention time.Duration) bool {
	since := c.committed
	switch {
	case g.protocolType == "":
	case g.state == empty:
		if g.since != noTime {
			since = g.since
		}
	case g.state == stable && g.topicsKnown:
	default:
		return false
	}
	if c.expires != noTime {
		return now >= c.expires
	}
	return now-since >= retention.Milliseconds()
}
