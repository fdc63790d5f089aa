package manifest

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/tidemark-io/tidemark/broker/wire"
)

const maxOffset = wire.Offset(math.MaxInt64)

func illegal(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrIllegal}, args...)...)
}

// apply is the state after an entry of that chain epoch; its position is for the caller to fill in.
//
// States share slices: a later one may append behind what an earlier one sees, and whatever else it changes it copies first. That
// is safe because the published states of a handle form one line, each made from the one before.
func (s *State) apply(epoch int64, records []json.RawMessage) (*State, error) {
	next := *s
	next.Closed = false
	for i, raw := range records {
		r, err := UnmarshalRecord(raw)
		if err != nil {
			return nil, fmt.Errorf("%w: record %d: %w", ErrIllegal, i, err)
		}
		next.Closed = false
		if err := next.applyRecord(wire.LeaderEpoch(epoch-1), r); err != nil {
			return nil, fmt.Errorf("%s record %d: %w", r.recordType(), i, err)
		}
	}
	return &next, nil
}

func (s *State) applyRecord(leader wire.LeaderEpoch, r Record) error {
	switch r := r.(type) {
	case *AddRecord:
		return s.add(leader, r.Segment)
	case *StartRecord:
		return s.moveStart(r.LogStart)
	case *DropRecord:
		return s.drop(r)
	case *DeletedRecord:
		return s.deleted(r)
	case *CutRecord:
		return s.cut(r)
	case *LostRecord:
		return s.lose(Range{r.Start, r.End})
	case *CloseRecord:
		if r.End != s.End {
			return illegal("closed at %d, the end is %d", r.End, s.End)
		}
		s.Closed = true
		return nil
	case *PageRecord:
		return s.page(leader, r.Page)
	}
	return illegal("no such record")
}

func (s *State) add(leader wire.LeaderEpoch, added Segment) error {
	if err := added.check(); err != nil {
		return err
	}
	switch last := len(s.Epochs) - 1; {
	case added.Epoch != leader:
		return illegal("segment of leader epoch %d in an entry of %d", added.Epoch, leader)
	case added.Start != s.End:
		return illegal("segment begins at %d, the manifest ends at %d", added.Start, s.End)
	case added.Clipped || added.Epochs[len(added.Epochs)-1].Epoch > leader:
		return illegal("segment at %d of leader epoch %d is clipped, or has a later epoch", added.Start, leader)
	case last >= 0 && added.Epochs[0].Epoch < s.Epochs[last].Epoch:
		return illegal("leader epoch goes down from %d to %d", s.Epochs[last].Epoch, added.Epochs[0].Epoch)
	case s.Has(added.Name) || slices.ContainsFunc(s.Dropped, func(d Dropped) bool { return d.Name == added.Name }):
		return illegal("%s is there already", added.Key(LogObject))
	}
	s.Tail = append(s.Tail, added)
	s.Epochs = extend(s.Epochs, added.Epochs)
	s.End = added.End
	s.total(1, added.Size, added.AuxSize)
	return nil
}

func (s Segment) check() error {
	switch {
	case !s.valid() || s.Start < s.Base || s.End <= s.Start:
		return illegal("segment %+v at %d to %d", s.Name, s.Start, s.End)
	case s.Size <= 0 || s.AuxSize <= 0 || s.MinTimestamp > s.MaxTimestamp || s.SHA256 != "" && !isSHA256(s.SHA256):
		return illegal("segment at %d has %d and %d bytes, timestamps %d to %d, hash %q", s.Start, s.Size, s.AuxSize, s.MinTimestamp, s.MaxTimestamp, s.SHA256)
	case len(s.Epochs) == 0 || s.Epochs[0].Start != s.Start:
		return illegal("the lineage %+v does not begin at %d", s.Epochs, s.Start)
	}
	return checkLineage(s.Epochs, s.Start, s.End)
}

func isSHA256(text string) bool {
	sum, err := hex.DecodeString(text)
	return err == nil && len(sum) == 32
}

func (s *State) moveStart(offset wire.Offset) error {
	if offset <= s.LogStart {
		return illegal("log start goes from %d to %d", s.LogStart, offset)
	}
	s.LogStart, s.End = offset, max(s.End, offset)
	if offset == s.End {
		s.Epochs = nil
	} else if i := epochIndex(s.Epochs, offset); i >= 0 {
		s.Epochs = slices.Clone(s.Epochs[i:])
		s.Epochs[0].Start = offset
	}
	s.Lost = slices.DeleteFunc(slices.Clone(s.Lost), func(r Range) bool { return r.End <= offset })
	return nil
}

// lose moves the end over a range that is lost.
func (s *State) lose(lost Range) error {
	if lost.Start != s.End || lost.End <= lost.Start {
		return illegal("lost are %d to %d, the manifest ends at %d", lost.Start, lost.End, s.End)
	}
	if n := len(s.Lost); n > 0 && s.Lost[n-1].End == lost.Start {
		s.Lost = slices.Clone(s.Lost)
		s.Lost[n-1].End = lost.End
	} else {
		s.Lost = append(s.Lost, lost)
	}
	s.End = lost.End
	return nil
}

// total moves the totals.
func (s *State) total(segments int, size, auxSize int64) {
	s.Segments, s.Bytes, s.AuxBytes = s.Segments+segments, s.Bytes+size, s.AuxBytes+auxSize
}

// page moves the oldest segments of the tail into a page.
func (s *State) page(leader wire.LeaderEpoch, p Page) error {
	if err := p.check(); err != nil {
		return err
	}
	if p.Segments > len(s.Tail) || p.Epoch != leader {
		return illegal("page of %d segments and leader epoch %d, the tail has %d, the entry %d", p.Segments, p.Epoch, len(s.Tail), leader)
	}
	want := p // with what is to be said about the segments
	want.describe(s.Tail[:p.Segments])
	if p != want {
		return illegal("page at %d is %+v, its segments make %+v", p.Start, p, want)
	}
	s.Pages = append(s.Pages, p)
	s.Tail = s.Tail[p.Segments:]
	return nil
}

// describe fills in what a page says about the segments in it.
func (p *Page) describe(segments []Segment) {
	first, last := segments[0], segments[len(segments)-1]
	p.Base, p.Start, p.End, p.Segments = first.Start, first.Start, last.End, len(segments)
	p.Bytes, p.AuxBytes, p.MaxTimestamp = 0, 0, first.MaxTimestamp
	for _, t := range segments {
		p.Bytes, p.AuxBytes, p.MaxTimestamp = p.Bytes+t.Size, p.AuxBytes+t.AuxSize, max(p.MaxTimestamp, t.MaxTimestamp)
	}
}

func (p Page) check() error {
	if !p.valid() || p.Start < p.Base || p.End <= p.Start || p.Segments < 1 || p.Bytes < 1 || p.AuxBytes < 1 || p.Size < 1 || !isSHA256(p.SHA256) {
		return illegal("page %+v", p)
	}
	return nil
}
