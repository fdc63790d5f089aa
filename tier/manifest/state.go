package manifest

import (
	"slices"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
)

// State is a manifest at one place of its chain. It is immutable, and so is what it hands out.
//
// The live segments are those that serve reads: Pages, then Tail, in the order of their offsets, without overlap. What is
// between two of them is lost, or lies below the log start. LogStart <= End.
type State struct {
	Position chain.Position `json:"-"` // the place in the chain
	LogStart wire.Offset    `json:"log_start"`
	End      wire.Offset    `json:"end"`                // the tiered end, exclusive; LogStart while nothing is there
	Closed   bool           `json:"closed,omitempty"`   // the last entry says that the log ends at End
	Epochs   []EpochStart   `json:"epochs,omitempty"`   // lineage of [LogStart, End)
	Pages    []Page         `json:"pages,omitempty"`    // the older live segments; Manifest.Load has them
	Tail     []Segment      `json:"segments,omitempty"` // the newer ones
	Lost     []Range        `json:"lost,omitempty"`     // lost ranges above the log start, oldest first
	Dropped  []Dropped      `json:"dropped,omitempty"`  // off the list and not deleted yet, in the order in which they were dropped

	Segments int   `json:"-"` // how many are live
	Bytes    int64 `json:"-"` // of the live segments' .log objects
	AuxBytes int64 `json:"-"`
}

// Range is a range of offsets; End is exclusive.
type Range struct {
	Start wire.Offset `json:"start"`
	End   wire.Offset `json:"end"`
}

// Dropped is a segment, or a page of the manifest, that waits for its deletion.
type Dropped struct {
	DroppedRange
	Page   bool  `json:"page,omitempty"`
	TimeMs int64 `json:"time_ms"` // when it was dropped, by the leader's clock
}

// LeaderEpoch is that of the leader that wrote the newest entry, NoLeaderEpoch without an entry.
func (s *State) LeaderEpoch() wire.LeaderEpoch { return wire.LeaderEpoch(s.Position.Epoch - 1) }

// Has tells whether an upload is among the segments of Tail: whoever doesn't know what became of its AddRecord asks after a
// Refresh.
func (s *State) Has(name Name) bool {
	return slices.ContainsFunc(s.Tail, func(t Segment) bool { return t.Name == name })
}

// LostAtEnd is the lost range with which the manifest ends; false where it ends with a record.
func (s *State) LostAtEnd() (Range, bool) {
	if n := len(s.Lost); n > 0 && s.Lost[n-1].End == s.End {
		return s.Lost[n-1], true
	}
	return Range{}, false
}

// SkipLost is where a read at the offset goes on: the end of the lost range that it lies in, or the offset itself.
func (s *State) SkipLost(offset wire.Offset) wire.Offset {
	for _, r := range s.Lost {
		if r.Start <= offset && offset < r.End {
			return r.End
		}
	}
	return offset
}

// ReadStart is where reads begin: the log start, or the end of what is lost right there. A recovery that finds nothing does not move the log
// start, so that what is lost stays named until somebody moves it.
func (s *State) ReadStart() wire.Offset { return s.SkipLost(s.LogStart) }

// count works out the totals.
func (s *State) count() {
	s.Segments, s.Bytes, s.AuxBytes = len(s.Tail), 0, 0
	for _, p := range s.Pages {
		s.Segments, s.Bytes, s.AuxBytes = s.Segments+p.Segments, s.Bytes+p.Bytes, s.AuxBytes+p.AuxBytes
	}
	for _, t := range s.Tail {
		s.Bytes, s.AuxBytes = s.Bytes+t.Size, s.AuxBytes+t.AuxSize
	}
}

// check tells what is wrong with a state that no records could have led to.
func (s *State) check() error {
	if s.LogStart < 0 || s.End < s.LogStart {
		return illegal("log start %d, end %d", s.LogStart, s.End)
	}
	var at wire.Offset // all before it has been seen
	for _, p := range s.Pages {
		if err := p.check(); err != nil {
			return err
		}
		if p.Start < at {
			return illegal("page at %d, behind %d", p.Start, at)
		}
		at = p.End
	}
	for _, t := range s.Tail {
		if err := t.check(); err != nil {
			return err
		}
		if t.Start < at {
			return illegal("segment at %d, behind %d", t.Start, at)
		}
		at = t.End
	}
	if at > s.End {
		return illegal("segments end at %d, the manifest at %d", at, s.End)
	}
	if err := checkLineage(s.Epochs, s.LogStart, s.End); err != nil {
		return err
	}
	at = s.LogStart
	for _, r := range s.Lost {
		if r.End <= at || r.Start >= r.End || r.End > s.End || r.Start < 0 {
			return illegal("lost range [%d, %d)", r.Start, r.End)
		}
		at = r.End
	}
	return s.checkGaps()
}

// checkGaps makes sure that what lies between live segments is lost, or below the log start. Of pages only their ends are known.
func (s *State) checkGaps() error {
	at := s.LogStart
	reach := func(start, end wire.Offset) error {
		if start > at && s.SkipLost(at) < start {
			return illegal("nothing serves the offsets from %d to %d", at, start)
		}
		at = max(at, end)
		return nil
	}
	for _, p := range s.Pages {
		if err := reach(p.Start, p.End); err != nil {
			return err
		}
	}
	for _, t := range s.Tail {
		if err := reach(t.Start, t.End); err != nil {
			return err
		}
	}
	return reach(s.End, s.End)
}
