package chain

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
)

// location is where a chain lies, and how its keys are made.
type location struct {
	store  object.Store
	prefix string
}

const (
	entrySuffix    = ".json"
	snapshotSuffix = ".snapshot.json.zst"
	boundaryFolder = "boundary/"
	digits         = 20
)

func (l location) entry(n int64) string { return fmt.Sprintf("%s/%020d%s", l.prefix, n, entrySuffix) }

func (l location) snapshot(n int64) string {
	return fmt.Sprintf("%s/%020d%s", l.prefix, n, snapshotSuffix)
}

func (l location) boundary(n int64) string {
	return fmt.Sprintf("%s/%s%020d", l.prefix, boundaryFolder, n)
}

// kind is what a key of a chain names.
type kind int8

const (
	foreign kind = iota
	entryKey
	snapshotKey
	boundaryKey
)

func (l location) parse(key string) (kind, int64) {
	name := strings.TrimPrefix(key, l.prefix+"/")
	what := entryKey
	if rest, ok := strings.CutPrefix(name, boundaryFolder); ok {
		name, what = rest, boundaryKey
	} else if rest, ok := strings.CutSuffix(name, snapshotSuffix); ok {
		name, what = rest, snapshotKey
	} else if rest, ok := strings.CutSuffix(name, entrySuffix); ok {
		name = rest
	} else {
		return foreign, 0
	}
	n, err := strconv.ParseInt(name, 10, 64)
	if err != nil || len(name) != digits || n < 1 {
		return foreign, 0
	}
	return what, n
}

// listed is an object of a chain, as a list shows it.
type listed struct {
	kind    kind
	number  int64
	modTime time.Time
}

// list yields what the chain holds behind entry number after, in no order that counts, and every boundary.
func (l location) list(ctx context.Context, after int64) iter.Seq2[listed, error] {
	return func(yield func(listed, error) bool) {
		for info, err := range l.store.List(ctx, l.prefix+"/", l.entry(after)) {
			if err != nil {
				yield(listed{}, err)
				return
			}
			what, n := l.parse(info.Key)
			if what == foreign {
				continue
			}
			if !yield(listed{what, n, info.ModTime}, nil) {
				return
			}
		}
	}
}

// survey is what a list tells at one glance: boundaries sort behind the numbers, so one list shows both.
type survey struct {
	boundary  int64   // the highest, 0 for none
	last      int64   // the highest entry behind the number asked for, 0 for none
	snapshots []int64 // those of at least the number asked for
}

func (l location) surveyed(ctx context.Context, after int64) (survey, error) {
	var s survey
	for o, err := range l.list(ctx, after) {
		switch {
		case err != nil:
			return survey{}, fmt.Errorf("survey: %w", err)
		case o.kind == boundaryKey:
			s.boundary = max(s.boundary, o.number)
		case o.kind == entryKey:
			s.last = max(s.last, o.number)
		case o.kind == snapshotKey:
			s.snapshots = append(s.snapshots, o.number)
		}
	}
	return s, nil
}

// boundaryFrom is a boundary of at least n, 0 if there is none. It looks into the boundaries' folder only, which holds few
// objects: every commit asks this.
func (l location) boundaryFrom(ctx context.Context, n int64) (int64, error) {
	for info, err := range l.store.List(ctx, l.prefix+"/"+boundaryFolder, l.boundary(n-1)) {
		if err != nil {
			return 0, fmt.Errorf("look for boundaries: %w", err)
		}
		if what, boundary := l.parse(info.Key); what == boundaryKey {
			return boundary, nil
		}
	}
	return 0, nil
}

// fetch reads entry n. What does not decode is read once more, so that a byte that fell over on the way is not taken for
// damage.
func (l location) fetch(ctx context.Context, n int64) (e Entry, damage, err error) {
	for range 2 {
		body, _, err := object.Read(ctx, l.store, l.entry(n), EntryBytesMax)
		if errors.Is(err, object.ErrTooLarge) {
			return Entry{}, err, nil
		} else if err != nil {
			return Entry{}, nil, err
		}
		if e, damage = decodeEntry(body, n); damage == nil {
			break
		}
	}
	return e, damage, nil
}

// The bounds of what one Refresh returns.
const (
	batchEntries = 256
	batchBytes   = 16 << 20
)

// batch is a run of entries, each checked against the one before, and what comes behind them.
type batch struct {
	entries []Entry
	ended   bool  // there is nothing behind them
	damage  error // or this
}

func (l location) batch(ctx context.Context, p Position) (batch, error) {
	var b batch
	for size := 0; len(b.entries) < batchEntries && size < batchBytes; {
		e, damage, err := l.fetch(ctx, p.Number+1)
		if errors.Is(err, object.ErrNotExist) {
			b.ended = true
			return b, nil
		} else if err != nil {
			return batch{}, err
		}
		if damage == nil {
			damage = p.check(e)
		}
		if damage != nil {
			b.damage = damage
			return b, nil //nolint:nilerr // damage is what was found, not what went wrong
		}
		b.entries, p = append(b.entries, e), e.Position()
		for _, r := range e.Records {
			size += len(r)
		}
	}
	return b, nil
}

// follow reads the entries behind p, and tells whether there may be more. Without entries and more, p is the tail: the
// next number is missing, no boundary covers it, and a list shows nothing behind it (safety rule 3).
func (l location) follow(ctx context.Context, p Position) (entries []Entry, more bool, err error) {
	var s survey
	for range 2 { // an entry may be created between the look that misses it and the list that shows its successor
		b, err := l.batch(ctx, p)
		if err != nil {
			return nil, false, err
		}
		s, err = l.surveyed(ctx, p.Number+1+int64(len(b.entries)))
		switch {
		case err != nil:
			return nil, false, err
		case s.boundary > p.Number:
			// Looked at after the entries: had one of them been deleted and put again before it was read, the boundary
			// would cover it by now. What lies behind the boundary counts as if it were not there, damaged or not.
			return nil, false, errTrimmed
		case len(b.entries) > 0:
			return b.entries, !b.ended || s.last > 0, nil
		case b.damage != nil:
			return nil, false, halt(p.Number+1, b.damage)
		case s.last == 0:
			return nil, false, nil
		}
	}
	return nil, false, halt(p.Number+1, fmt.Errorf("missing, but there is entry %d", s.last))
}

// Read yields the entries from number first on to the tail, checked as by Refresh, for tools that show a chain. Entries
// that were deleted are left out: with first at or below the boundary the sequence begins right after it. An error ends it.
func Read(ctx context.Context, s object.Store, prefix string, first int64) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		l := location{s, prefix}
		p, err := l.before(ctx, first)
		for more := true; more && err == nil; {
			var entries []Entry
			entries, more, err = l.follow(ctx, p)
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
				p = e.Position()
			}
		}
		if err != nil {
			yield(Entry{}, fmt.Errorf("read chain %s: %w", prefix, err))
		}
	}
}

// before is the place before entry first, or that of the boundary if it is higher.
func (l location) before(ctx context.Context, first int64) (Position, error) {
	s, err := l.surveyed(ctx, 0)
	if err != nil {
		return Position{}, err
	}
	last := max(first-1, s.boundary)
	switch {
	case last <= 0:
		return Position{}, nil
	case last == s.boundary:
		snap, err := l.readSnapshot(ctx, last)
		return snap.Position, err
	}
	e, damage, err := l.fetch(ctx, last)
	if damage != nil {
		err = halt(last, damage)
	}
	return e.Position(), err
}
