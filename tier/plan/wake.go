package plan

import "time"

// NextWake is when time alone makes a new plan worth while; zero if it does not.
func NextWake(now time.Time, v View) time.Time {
	p := newPlanner(now, v)
	var next time.Time
	for _, t := range []time.Time{p.sealTime(), p.retentionTime(), p.localRetentionTime(), p.lagTime(), p.graceTime()} {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	return next
}

func (p *planner) sealTime() time.Time {
	if s, ok := p.active(); !ok || !p.copies() || !p.Bucket.Read || p.Bucket.End < s.Base || p.Local.UnsealedSince.IsZero() {
		return time.Time{}
	}
	return p.Local.UnsealedSince.Add(p.maxUnsealed())
}

func (p *planner) retentionTime() time.Time {
	list, _, _ := p.pieces()
	limit := p.Config.total().ms
	if !p.Config.Tiered || limit < 0 || len(list) == 0 {
		return time.Time{}
	}
	return at(list[0].latestMs, limit+1)
}

func (p *planner) localRetentionTime() time.Time {
	limit := p.Config.local().ms
	if segments := p.sealed(); p.Config.Tiered && !p.Internal && limit >= 0 && len(segments) > 0 && segments[0].Next <= p.Bucket.End {
		return at(segments[0].LatestMs, limit+1)
	}
	return time.Time{}
}

func (p *planner) lagTime() time.Time {
	limit := p.lag().ms
	if !p.copies() || limit <= 0 {
		return time.Time{}
	}
	for _, s := range p.sealed() {
		if s.Next > p.Bucket.End {
			return at(s.LatestMs, limit)
		}
	}
	return time.Time{}
}

func (p *planner) graceTime() time.Time {
	if len(p.Bucket.Dropped) == 0 {
		return time.Time{}
	}
	return time.UnixMilli(p.Bucket.Dropped[0].TimeMs).Add(p.Config.DeleteGrace)
}
