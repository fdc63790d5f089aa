package cold

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/cache"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
)

const (
	// tasksMax bounds the partitions that are being read at a time, with those that nobody waits for any more.
	tasksMax = 256
	// aheadSegmentsMax bounds how many small segments one read looks ahead.
	aheadSegmentsMax = 16
)

// Read reads the partitions of a request side by side, and returns a result for each, in their order: when all have come, at the
// latest when ctx is over, with what has come until then. With a context that is over already it returns what is in memory and
// begins to bring in the rest.
//
// The limits are shared out before anything is read, in the order of the partitions: so an answer never exceeds them, but for one
// batch of the first partition. What q says must not change any more: a partition that comes too late is still being read.
func (r *Reader) Read(ctx context.Context, now time.Time, q *Request) []Result {
	results := make([]Result, len(q.Partitions))
	jobs, others := r.turns(now, r.share(q))
	r.readAll(ctx, now, jobs, results)
	if len(others) > 0 && ctx.Err() == nil && !slices.ContainsFunc(results, Result.said) {
		r.readAll(ctx, now, others, results)
	}
	return results
}

// said tells whether the result has anything to say.
func (r Result) said() bool { return r.Records.Length > 0 || r.Code != wire.None }

// readAll reads jobs side by side, and sets their results until ctx is over.
func (r *Reader) readAll(ctx context.Context, now time.Time, jobs []job, results []Result) {
	room, cancel := context.WithCancel(ctx)
	defer cancel()
	a := &answer{room: cancel, results: results, pending: len(jobs), enough: 1, done: make(chan struct{})}
	if len(jobs) > 0 && jobs[0].crowded {
		a.enough = (len(jobs) + 1) / 2
	}
	for _, j := range jobs {
		select {
		case r.tasks <- struct{}{}:
		default:
			r.alarms.warn(j.Partition, errBusy)
			a.deliver(j.row, Result{Code: wire.KafkaStorageError}) // whoever gets nothing and no error asks again at once
			continue
		}
		t := &task{Reader: r, job: j, ctx: ctx, room: room, look: r.ctx, now: now}
		if ctx.Err() != nil && t.atOnce(a) {
			<-r.tasks
			continue
		}
		r.o.Go(func() {
			defer func() { <-r.tasks }()
			a.deliver(j.row, t.run())
			t.readAhead()
		})
	}
	a.wait(ctx)
}

// job is a partition with its share of the limits.
type job struct {
	*Fetch
	row       int
	limit     int64
	first     bool // its first batch may be larger than the limit
	committed bool
	crowded   bool // one of many: it reads no further ahead than to the end of its turn
}

// share gives each partition its part of the bytes. Those that get nothing are not read.
func (r *Reader) share(q *Request) []job {
	var jobs []job
	left := q.MaxBytes
	for i := range q.Partitions {
		f := &q.Partitions[i]
		limit := max(min(f.MaxBytes, left), 0)
		first := q.MinOneBatch && len(jobs) == 0
		if f.Offset >= f.UpTo || limit == 0 && !first {
			continue
		}
		left -= limit
		jobs = append(jobs, job{Fetch: f, row: i, limit: int64(limit), first: first, committed: q.Committed})
	}
	return jobs
}

// answer gathers the results of a request until it is over.
type answer struct {
	room context.CancelFunc // called when there is enough: who still waits for room in the cache, or for a crowd's bytes, then gives up
	done chan struct{}      // closed when all results are there

	mu      sync.Mutex // guards what follows; a leaf
	results []Result
	pending int
	enough  int // results with records that are still wanted
	over    bool
}

// deliver sets a result, or lets go of it when it is too late.
func (a *answer) deliver(row int, result Result) {
	a.mu.Lock()
	late := a.over
	if result.Records.Length > 0 {
		a.enough--
	}
	enough := a.enough <= 0
	if !late {
		a.results[row] = result
		if a.pending--; a.pending == 0 {
			close(a.done)
		}
	}
	a.mu.Unlock()
	if enough {
		a.room()
	}
	if late && result.Records.Length > 0 {
		result.Records.Release()
	}
}

func (a *answer) wait(ctx context.Context) {
	if a.pendingNow() > 0 {
		select {
		case <-a.done:
		case <-ctx.Done():
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
}

func (a *answer) pendingNow() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pending
}

// task reads one partition for one request. What finds the place goes on when the request is over: it is what a next one would have
// to begin with, too.
type task struct {
	*Reader
	job
	ctx  context.Context // until the request is over
	room context.Context // until there is enough to answer with
	look context.Context // for look-ups in manifest and sidecars
	now  time.Time
	idle bool // nothing is brought in ahead
	seen spot // what was read last
	next int64
}

// atOnce answers without any wait, if everything is in memory.
func (t *task) atOnce(a *answer) bool {
	t.look = t.ctx
	result := t.run()
	t.look = t.Reader.ctx
	if result.Records.Length == 0 && result.Code != wire.OffsetOutOfRange {
		return false
	}
	a.deliver(t.row, result)
	t.o.Go(t.readAhead)
	return true
}

// run reads, and once more where the manifest may have moved on or bytes were damaged.
func (t *task) run() Result {
	if t.alarms.known(t.place(t.Offset)) {
		return Result{Code: wire.KafkaStorageError}
	}
	var err error
	for range 2 {
		var result Result
		if result, err = t.read(); err == nil {
			return result
		}
		switch {
		case errors.Is(err, object.ErrNotExist): // safety rule 27
			if _, refresh := t.Manifest.Refresh(t.look); refresh != nil {
				return t.failed(refresh)
			}
		case !lasting(err):
			return t.failed(err)
		}
	}
	return t.failed(err)
}

// lasting tells whether an error says something about an object rather than about the store.
func lasting(err error) bool {
	return errors.Is(err, errDamaged) || errors.Is(err, errLarge) || errors.Is(err, cache.ErrShort) || errors.Is(err, object.ErrRange) || errors.Is(err, object.ErrNotExist)
}

// failed is the answer with an error. Whoever had no time or no room gets an empty one; that the store took its time is an error.
func (t *task) failed(err error) Result {
	// When ctx ends, those who wait for it may be woken before room has ended, too.
	over := (t.ctx.Err() != nil || t.room.Err() != nil) && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled))
	switch {
	case over, errors.Is(err, cache.ErrFull):
		return Result{}
	case lasting(err):
		t.alarms.remember(t.place(t.Offset))
		t.alarms.raise(t.Partition, t.seen.object.Key, err)
	default:
		t.alarms.warn(t.Partition, err)
	}
	return Result{Code: wire.KafkaStorageError}
}

// spot is where in a segment a read begins.
type spot struct {
	segment  manifest.Segment
	object   cache.Object
	offset   wire.Offset // that is looked for: that of the fetch, or the next one that is there
	position int64       // of a batch that holds it or lies before it
	exact    bool        // no batch before position+1 has to be passed over
	mark     mark        // with a stream where reads have come to before
}

// locate finds the segment and the position. ok is false where there is nothing to read.
func (t *task) locate() (s spot, ok bool, code wire.Code, err error) {
	state := t.Manifest.State()
	if t.Offset < state.LogStart {
		return spot{}, false, wire.OffsetOutOfRange, nil
	}
	offset := state.SkipLost(t.Offset)
	if offset >= min(state.End, t.UpTo) {
		return spot{}, false, wire.None, nil
	}
	segment, ok, err := t.Manifest.Find(t.look, offset)
	if err != nil || !ok {
		return spot{}, false, wire.None, err
	}
	s, err = t.enter(segment, offset)
	return s, err == nil, wire.None, err
}

// enter finds where in a segment to begin to look for an offset.
func (t *task) enter(segment manifest.Segment, offset wire.Offset) (spot, error) {
	s := spot{segment: segment, object: t.segmentOf(segment), offset: max(offset, segment.Start)}
	m, known := t.streams.find(t.place(t.Offset))
	if known {
		s.mark = m
	}
	switch {
	case known && m.name == segment.Name:
		s.position, s.exact = m.position, true
	case s.offset <= segment.Base:
		s.exact = true
	default:
		index, err := t.sidecars.get(t.look, t.Partition, segment)
		if err != nil {
			return s, err
		}
		s.position = min(index.Position(s.offset), segment.Size)
	}
	return s, nil
}

func (t *task) place(offset wire.Offset) place {
	return place{t.TopicID, t.TopicPartition.Partition, offset}
}

// read is one try.
func (t *task) read() (Result, error) {
	s, ok, code, err := t.locate()
	if err != nil || !ok {
		return Result{Code: code}, err
	}
	for {
		t.seen = s
		w := walk{task: t, spot: s}
		result, end, err := w.run()
		if err != nil || !end {
			return result, err
		}
		// The segment has no more batches although its range goes on: the next one.
		next, ok, err := t.Manifest.After(t.look, s.segment)
		if err != nil || !ok || next.Start >= t.UpTo {
			return Result{}, err
		}
		if s, err = t.enter(next, s.offset); err != nil {
			return Result{}, err
		}
	}
}

// readAhead begins to bring in what follows the segment that was read, as far as the window goes.
func (t *task) readAhead() {
	rest, segment := t.next, t.seen.segment
	for range aheadSegmentsMax {
		if rest <= 0 {
			return
		}
		next, ok, err := t.Manifest.After(t.Reader.ctx, segment)
		if err != nil || !ok || next.Start > next.Base || next.Start >= t.UpTo {
			return
		}
		o := t.segmentOf(next)
		t.cache.Load(o, 0, t.align(rest))
		rest, segment = rest-o.Size, next
	}
}

// align is the end of the chunk that a position lies in.
func (r *Reader) align(position int64) int64 {
	chunk := r.o.Cache.RangeBytes
	return (position + chunk - 1) / chunk * chunk
}
