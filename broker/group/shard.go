package group

import (
	"container/heap"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/broker/coordinator"
)

// shard holds the groups of one partition of __consumer_offsets.
type shard struct {
	cfg    *Config
	groups map[string]*group
	timers timers

	nextCheck time.Time // of expired offsets
	unchecked []string  // groups that the check under way has not come to
}

func newShard(cfg *Config) *shard { return &shard{cfg: cfg, groups: make(map[string]*group)} }

// settle ends every change of a group: it forgets one that holds nothing more, and sees to it that the group's next deadline
// is not missed. A deadline that has moved away stays in the heap until it comes: a heartbeat costs nothing there.
func (s *shard) settle(g *group) {
	if g.disposable() {
		delete(s.groups, g.id)
		if g.slot >= 0 {
			heap.Remove(&s.timers, g.slot)
		}
		return
	}
	s.groups[g.id] = g
	next := g.nextDeadline()
	switch {
	case next.IsZero():
	case g.slot < 0:
		g.wake = next
		heap.Push(&s.timers, g)
	case next.Before(g.wake):
		g.wake = next
		heap.Fix(&s.timers, g.slot)
	}
}

// Loaded implements coordinator.Shard.
func (s *shard) Loaded(now time.Time) {
	s.nextCheck = now.Add(s.cfg.OffsetsRetentionCheck)
	for _, name := range slices.Sorted(maps.Keys(s.groups)) {
		g := s.groups[name]
		for _, m := range g.members {
			m.alive(now)
		}
		if len(g.members) > s.cfg.MaxSize { // since group.max.size was lowered: those who come back last are turned away
			g.prepare(now, s.cfg.InitialRebalanceDelay, new(coordinator.Result))
		}
		s.settle(g)
	}
}

// NextWake implements coordinator.Shard.
func (s *shard) NextWake() time.Time {
	if len(s.timers) > 0 && s.timers[0].wake.Before(s.nextCheck) {
		return s.timers[0].wake
	}
	return s.nextCheck
}

// Advance implements coordinator.Shard.
func (s *shard) Advance(now time.Time) (coordinator.Result, bool) {
	if len(s.timers) > 0 && due(s.timers[0].wake, now) {
		g := heap.Pop(&s.timers).(*group)
		var out coordinator.Result
		g.expire(now, s.cfg.InitialRebalanceDelay, &out)
		s.settle(g)
		return out, true
	}
	if due(s.nextCheck, now) {
		s.nextCheck = now.Add(s.cfg.OffsetsRetentionCheck)
		s.unchecked = slices.Sorted(maps.Keys(s.groups))
	}
	return s.expireOffsets(now)
}

// Unload implements coordinator.Shard.
func (s *shard) Unload() []func(error) {
	var out coordinator.Result
	for _, name := range slices.Sorted(maps.Keys(s.groups)) {
		for _, m := range s.groups[name].members {
			if m.join != nil {
				m.answerJoin(&out)
			}
			if m.sync != nil {
				m.answerSync(&out)
			}
		}
	}
	return out.Replies
}

// timers is a heap of groups by their next deadline.
type timers []*group

func (t timers) Len() int { return len(t) }

func (t timers) Less(i, j int) bool {
	if c := t[i].wake.Compare(t[j].wake); c != 0 {
		return c < 0
	}
	return strings.Compare(t[i].id, t[j].id) < 0
}

func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].slot, t[j].slot = i, j
}

// Push implements heap.Interface.
func (t *timers) Push(g any) {
	*t = append(*t, g.(*group))
	g.(*group).slot = len(*t) - 1
}

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	last := len(*t) - 1
	g := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	g.slot = -1
	return g
}
