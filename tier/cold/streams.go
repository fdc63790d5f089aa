package cold

import (
	"container/list"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/cache"
	"github.com/tidemark-io/tidemark/tier/manifest"
)

const (
	// placesMax bounds what is remembered of where reads left off: a few for each of a thousand readers.
	placesMax = 8192
	// streamIdle is for how long a stream without a read counts among those that share the room for read-ahead.
	streamIdle = 5 * time.Second
)

// place is where in a partition a read begins.
type place struct {
	topic     wire.TopicID
	partition int32
	offset    wire.Offset
}

// mark is what is known of a place where a read has left off: where its bytes are, and how it was read so far. Several
// readers may come by; they then share the stream.
type mark struct {
	stream   *stream
	name     manifest.Name // of the segment that the read has left off in
	object   cache.Object  // that it lies in
	position int64         // of the next batch in it
	ahead    int64         // up to which position bytes were asked for already
}

// stream is a sequence of reads, each of which begins where the one before has left off. It is guarded by streams.mu.
type stream struct {
	target int64     // bytes to be ahead by, before the room is shared out
	last   time.Time // of the last read
	rate   float64   // bytes a second, smoothed
}

// streams remembers where reads left off, which is how a sequential one is known: clients need not be told apart.
type streams struct {
	mu     sync.Mutex              // guards what follows; a leaf
	places map[place]*list.Element // of placed
	order  list.List               // oldest first
	active map[*stream]struct{}
	swept  time.Time // when active was last looked through
}

type placed struct {
	place
	mark
}

func newStreams() *streams {
	return &streams{places: map[place]*list.Element{}, active: map[*stream]struct{}{}}
}

func (s *streams) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.active)
}

// find is the mark at a place; ok is false where no read has left off of late.
func (s *streams) find(p place) (m mark, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.places[p]
	if !ok {
		return mark{}, false
	}
	s.order.MoveToBack(e)
	return e.Value.(placed).mark, true
}

// queue is the mark at a place, and since when its reader waits for a turn: since its last read, or from now on.
func (s *streams) queue(now time.Time, p place) (m mark, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.places[p]; ok {
		m = e.Value.(placed).mark
		return m, m.stream.last
	}
	s.putLocked(p, mark{stream: &stream{last: now}})
	return mark{}, now
}

// window is how many bytes to be ahead by at a mark, when so many may be ahead of all streams together: a chunk at least, as
// several may read the same bytes. The cache has the last word.
func (s *streams) window(m mark, room, chunk int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	share := max(room/int64(max(len(s.active), 1)), chunk)
	return min(m.stream.target, share)
}

// left is a read that was answered.
type left struct {
	at      mark // where it began; without a stream if nothing was known of the place
	next    place
	mark    mark // where it left off; its stream is filled in
	bytes   int64
	stalled bool          // it had to wait for bytes
	get     time.Duration // what a get of a whole chunk takes
}

// note remembers where a read left off, and fits the stream's window to what was seen: it grows by a chunk each time that a
// read had to wait, and shrinks when it is far more than what the reader takes while a get is under way.
func (s *streams) note(now time.Time, l left, chunk, most int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := l.at.stream
	if t == nil {
		t = &stream{target: min(chunk, most), last: now}
	} else {
		t.follow(now, l, chunk, most)
	}
	s.active[t] = struct{}{}
	s.sweepLocked(now)
	l.mark.stream = t
	s.putLocked(l.next, l.mark)
}

func (s *streams) putLocked(p place, m mark) {
	if e, ok := s.places[p]; ok {
		e.Value = placed{p, m}
		s.order.MoveToBack(e)
		return
	}
	s.places[p] = s.order.PushBack(placed{p, m})
	if s.order.Len() > placesMax {
		oldest := s.order.Remove(s.order.Front()).(placed)
		delete(s.places, oldest.place)
	}
}

func (t *stream) follow(now time.Time, l left, chunk, most int64) {
	if took := now.Sub(t.last).Seconds(); took > 0 {
		const weight = 0.3 // of the newest read
		t.rate += weight * (float64(l.bytes)/took - t.rate)
	}
	t.last = now
	need := int64(t.rate*l.get.Seconds()) + chunk
	switch {
	case l.stalled:
		t.target += chunk
	case t.target > 2*need:
		t.target -= chunk
	}
	t.target = max(min(t.target, most), 0)
}

// sweepLocked drops the streams that nobody reads on from the list of those that share the room.
func (s *streams) sweepLocked(now time.Time) {
	if now.Sub(s.swept) < streamIdle/5 {
		return
	}
	s.swept = now
	for t := range s.active {
		if now.Sub(t.last) > streamIdle {
			delete(s.active, t)
		}
	}
}
