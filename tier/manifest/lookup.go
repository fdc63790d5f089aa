package manifest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sort"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/object"
)

// load gives the live part of a page.
func (m *Manifest) load(ctx context.Context, p Page) (live, error) {
	page, err := m.opts.Pages.get(ctx, pageKey{m.prefix, p.Name}, func(ctx context.Context) (*packed, error) {
		key := m.Key(p.Name, PageObject)
		body, _, err := object.Read(ctx, m.store, key, pageBytesMax)
		if errors.Is(err, object.ErrNotExist) || errors.Is(err, object.ErrTooLarge) {
			return nil, fmt.Errorf("%w: %w", ErrPage, err)
		} else if err != nil {
			return nil, fmt.Errorf("read page: %w", err)
		}
		segments, err := decodePage(body, p)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrPage, key, err)
		}
		return pack(segments), nil
	})
	if err != nil {
		return live{}, err
	}
	return page.live(p), nil
}

// Load returns the live segments of a page of the State.
func (m *Manifest) Load(ctx context.Context, p Page) ([]Segment, error) {
	l, err := m.load(ctx, p)
	if err != nil {
		return nil, err
	}
	segments := make([]Segment, 0, l.next-l.first)
	for i := l.first; i < l.next; i++ {
		segments = append(segments, l.segment(i))
	}
	return segments, nil
}

// Find is the live segment that contains the offset; false below the log start, at or above the end, and in a lost range.
func (m *Manifest) Find(ctx context.Context, offset wire.Offset) (Segment, bool, error) {
	s, ok, err := m.endingAbove(ctx, offset)
	if err != nil || !ok || !s.Contains(offset) || offset < m.State().LogStart {
		return Segment{}, false, err
	}
	return s, true, nil
}

// After is the live segment that follows s.
func (m *Manifest) After(ctx context.Context, s Segment) (Segment, bool, error) {
	return m.endingAbove(ctx, s.End)
}

// endingAbove is the first live segment that ends above the offset. A page that is gone may have been dropped meanwhile: the
// manifest is read to its tail, and the page is asked for once more, if it is still named (safety rule 27).
func (m *Manifest) endingAbove(ctx context.Context, offset wire.Offset) (Segment, bool, error) {
	found, ok, err := m.endingAboveIn(ctx, m.State(), offset)
	if !errors.Is(err, object.ErrNotExist) {
		return found, ok, err
	}
	s, refreshErr := m.Refresh(ctx)
	if refreshErr != nil {
		return Segment{}, false, errors.Join(err, refreshErr)
	}
	return m.endingAboveIn(ctx, s, offset)
}

func (m *Manifest) endingAboveIn(ctx context.Context, s *State, offset wire.Offset) (Segment, bool, error) {
	for _, p := range s.Pages[sort.Search(len(s.Pages), func(i int) bool { return s.Pages[i].End > offset }):] {
		l, err := m.load(ctx, p)
		if err != nil {
			return Segment{}, false, err
		}
		if i := l.endingAbove(offset); i < l.next {
			return l.segment(i), true, nil
		}
	}
	if i := sort.Search(len(s.Tail), func(i int) bool { return s.Tail[i].End > offset }); i < len(s.Tail) {
		return s.Tail[i], true, nil
	}
	return Segment{}, false, nil
}

// FindTime yields, in the order of offsets, the live segments that may hold records with a timestamp of ts or later at or above
// the log start. An error ends the sequence.
func (m *Manifest) FindTime(ctx context.Context, ts int64) iter.Seq2[Segment, error] {
	s := m.State()
	return func(yield func(Segment, error) bool) {
		for _, p := range s.Pages {
			if p.MaxTimestamp < ts || p.End <= s.LogStart {
				continue
			}
			l, err := m.load(ctx, p)
			if err != nil {
				yield(Segment{}, err)
				return
			}
			for i := l.first; i < l.next; i++ {
				if l.maxTimes[i] >= ts && l.end(i) > s.LogStart && !yield(l.segment(i), nil) {
					return
				}
			}
		}
		for _, t := range s.Tail {
			if t.MaxTimestamp >= ts && t.End > s.LogStart && !yield(t, nil) {
				return
			}
		}
	}
}

// All yields the live segments, oldest first, of the State at the time of the call. An error ends the sequence.
func (m *Manifest) All(ctx context.Context) iter.Seq2[Segment, error] { return m.all(ctx, m.State()) }

func (m *Manifest) all(ctx context.Context, s *State) iter.Seq2[Segment, error] {
	return func(yield func(Segment, error) bool) {
		for _, p := range s.Pages {
			l, err := m.load(ctx, p)
			if err != nil {
				yield(Segment{}, err)
				return
			}
			for i := l.first; i < l.next; i++ {
				if !yield(l.segment(i), nil) {
					return
				}
			}
		}
		for _, t := range s.Tail {
			if !yield(t, nil) {
				return
			}
		}
	}
}

// backward is all, newest first.
func (m *Manifest) backward(ctx context.Context, s *State) iter.Seq2[Segment, error] {
	return func(yield func(Segment, error) bool) {
		for _, t := range slices.Backward(s.Tail) {
			if !yield(t, nil) {
				return
			}
		}
		for _, p := range slices.Backward(s.Pages) {
			l, err := m.load(ctx, p)
			if err != nil {
				yield(Segment{}, err)
				return
			}
			for i := l.next - 1; i >= l.first; i-- {
				if !yield(l.segment(i), nil) {
					return
				}
			}
		}
	}
}
