package manifest

import (
	"reflect"
	"slices"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// rangeOf is the segment as records that drop it name it.
func rangeOf(s Segment) DroppedRange { return DroppedRange{s.Name, s.Start, s.End, s.Size, s.AuxSize} }

// drop takes the oldest live segments off the list. What a page holds is not known here, but where it begins and ends and what it
// adds up to.
func (s *State) drop(r *DropRecord) error {
	if len(r.Segments) == 0 {
		return illegal("nothing is dropped")
	}
	s.Pages = slices.Clone(s.Pages)
	for _, d := range r.Segments {
		if d.End > s.LogStart {
			return illegal("segment [%d, %d) does not lie below the log start %d", d.Start, d.End, s.LogStart)
		}
		if len(s.Pages) == 0 {
			if len(s.Tail) == 0 || d != rangeOf(s.Tail[0]) {
				return illegal("%+v is not the oldest segment", d)
			}
			s.Tail = s.Tail[1:]
		} else if p := &s.Pages[0]; !p.remove(d, d.End, p.End) {
			return illegal("%+v is not the oldest segment of the page at %d", d, p.Start)
		}
		s.leave(d, r.TimeMs)
		if len(s.Pages) > 0 && s.Pages[0].Segments == 0 {
			s.leavePage(s.Pages[0], r.TimeMs)
			s.Pages = s.Pages[1:]
		}
	}
	return nil
}

// remove takes a segment from the live part of a page, and its totals. What is left, if anything, lies in [start, end).
func (p *Page) remove(d DroppedRange, start, end wire.Offset) bool {
	if !d.valid() || d.Start < p.Start || d.End > p.End || d.End <= d.Start || d.Size < 1 || d.AuxSize < 1 {
		return false
	}
	left := *p
	left.Start, left.End = start, end
	left.Segments, left.Bytes, left.AuxBytes = p.Segments-1, p.Bytes-d.Size, p.AuxBytes-d.AuxSize
	if left.Segments > 0 && left.check() != nil || left.Segments == 0 && (left.Bytes != 0 || left.AuxBytes != 0) {
		return false
	}
	*p = left
	return true
}

// leave puts a segment among those that wait for their deletion.
func (s *State) leave(d DroppedRange, timeMs int64) {
	s.Dropped = append(s.Dropped, Dropped{DroppedRange: d, TimeMs: timeMs})
	s.total(-1, -d.Size, -d.AuxSize)
}

func (s *State) leavePage(p Page, timeMs int64) {
	d := DroppedRange{Name: p.Name, Start: p.Base, End: max(p.Base, p.End), Size: p.Size}
	s.Dropped = append(s.Dropped, Dropped{DroppedRange: d, Page: true, TimeMs: timeMs})
}

// deleted forgets dropped objects.
func (s *State) deleted(r *DeletedRecord) error {
	gone := make(map[upload]bool, len(r.Segments)+len(r.Pages))
	for _, n := range r.Segments {
		gone[upload{n, false}] = true
	}
	for _, n := range r.Pages {
		gone[upload{n, true}] = true
	}
	if len(gone) == 0 {
		return illegal("nothing is deleted")
	}
	left := make([]Dropped, 0, len(s.Dropped))
	for _, d := range s.Dropped {
		if !gone[upload{d.Name, d.Page}] {
			left = append(left, d)
		}
	}
	if len(s.Dropped)-len(left) != len(gone) {
		return illegal("of %d deleted objects, %d were dropped", len(gone), len(s.Dropped)-len(left))
	}
	s.Dropped = left
	return nil
}

// cut moves the end back.
func (s *State) cut(r *CutRecord) error {
	if r.End < s.LogStart || r.End >= s.End {
		return illegal("cut at %d, the manifest has [%d, %d)", r.End, s.LogStart, s.End)
	}
	// What follows must not be written over: readers have it.
	s.Tail, s.Epochs, s.Lost, s.Pages = slices.Clip(s.Tail), slices.Clip(s.Epochs), slices.Clip(s.Lost), slices.Clone(s.Pages)
	var pages []Page
	for _, d := range slices.Backward(r.Segments) {
		emptied, err := s.cutNewest(d, r.End)
		if err != nil {
			return err
		}
		pages = append(pages, emptied...)
	}
	if r.Clipped != nil {
		emptied, err := s.clipNewest(*r.Clipped, r.End)
		if err != nil {
			return err
		}
		pages = append(pages, emptied...)
	}
	if end := s.liveEnd(); end > r.End {
		return illegal("cut at %d leaves a segment that ends at %d", r.End, end)
	}
	for _, d := range r.Segments {
		s.leave(d, r.TimeMs)
	}
	for _, p := range pages {
		s.leavePage(p, r.TimeMs)
	}
	s.Epochs = cutFrom(s.Epochs, func(e EpochStart) bool { return e.Start >= r.End })
	s.Lost = cutFrom(s.Lost, func(l Range) bool { return l.Start >= r.End || r.End == s.LogStart })
	if n := len(s.Lost); n > 0 && s.Lost[n-1].End > r.End {
		s.Lost = slices.Clone(s.Lost)
		s.Lost[n-1].End = r.End
	}
	s.End = r.End
	return nil
}

// cutFrom is the list up to the first element that is gone; what is appended to it does not touch the rest.
func cutFrom[T any](list []T, gone func(T) bool) []T {
	if i := slices.IndexFunc(list, gone); i >= 0 {
		return list[:i:i]
	}
	return list
}

// liveEnd is where the newest live segment ends.
func (s *State) liveEnd() wire.Offset {
	if n := len(s.Tail); n > 0 {
		return s.Tail[n-1].End
	}
	if n := len(s.Pages); n > 0 {
		return s.Pages[n-1].End
	}
	return 0
}

// cutNewest takes the newest segment off the list, and its page if that is empty then.
func (s *State) cutNewest(d DroppedRange, end wire.Offset) (emptied []Page, err error) {
	if d.Start < end {
		return nil, illegal("segment [%d, %d) does not lie behind the cut at %d", d.Start, d.End, end)
	}
	if n := len(s.Tail) - 1; n >= 0 {
		if d != rangeOf(s.Tail[n]) {
			return nil, illegal("%+v is not the newest segment", d)
		}
		s.Tail = s.Tail[:n:n]
		return nil, nil
	}
	return s.takeFromNewestPage(d)
}

// takeFromNewestPage takes the newest segment from the newest page.
func (s *State) takeFromNewestPage(d DroppedRange) (emptied []Page, err error) {
	n := len(s.Pages) - 1
	if n < 0 {
		return nil, illegal("%+v is not the newest segment", d)
	}
	p := &s.Pages[n]
	// What is left of the page ends where the segment begins, or where the lost range before it does: a later cut may lie there.
	end := d.Start
	if i := slices.IndexFunc(s.Lost, func(l Range) bool { return l.End == end }); i >= 0 {
		end = s.Lost[i].Start
	}
	if whole := *p; !p.remove(d, p.Start, end) {
		return nil, illegal("%+v is not the newest segment of the page at %d", d, p.Start)
	} else if p.Segments == 0 {
		s.Pages = s.Pages[:n:n]
		return []Page{whole}, nil
	}
	return nil, nil
}

// clipNewest puts in place of the newest segment what the cut leaves of it.
func (s *State) clipNewest(c Segment, end wire.Offset) (emptied []Page, err error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if !c.Clipped || c.End != end {
		return nil, illegal("segment [%d, %d) is not clipped at %d", c.Start, c.End, end)
	}
	if n := len(s.Tail) - 1; n >= 0 {
		if whole := s.Tail[n]; end >= whole.End || !reflect.DeepEqual(c, clip(whole, end)) {
			return nil, illegal("segment [%d, %d) clipped at %d is no %+v", whole.Start, whole.End, end, c)
		}
		s.Tail = s.Tail[:n:n] // the next append copies
	} else {
		if s.liveEnd() <= end {
			return nil, illegal("nothing has to be clipped at %d", end)
		}
		if emptied, err = s.takeFromNewestPage(rangeOf(c)); err != nil {
			return nil, err
		}
	}
	s.Tail = append(s.Tail, c)
	return emptied, nil
}

// clip is a segment that is served only below end.
func clip(s Segment, end wire.Offset) Segment {
	s.End, s.Clipped, s.Epochs = end, true, Lineage(s.Epochs, s.Start, end)
	return s
}
