package cold

import (
	"context"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// Cached is Read for whoever can wait for nothing, as when too many wait for a store that hangs: it returns what is in memory, up to the
// first byte that is not, and leaves the results of the other partitions empty. Of those it asks for an index at most.
func (r *Reader) Cached(now time.Time, q *Request) []Result {
	results := make([]Result, len(q.Partitions))
	over, cancel := context.WithCancel(context.Background())
	cancel()
	jobs := r.share(q)
	crowd := r.crowd(jobs) // which takes turns: this is none
	for _, j := range jobs {
		t := &task{Reader: r, job: j, ctx: over, room: over, look: over, now: now, idle: crowd}
		if !t.keepToMemory() {
			continue
		}
		if result := t.run(); result.Records.Length > 0 || result.Code == wire.OffsetOutOfRange {
			results[j.row] = result
		}
	}
	return results
}

// keepToMemory takes back the limit to what is in memory; false where that is nothing, not even the way to it.
func (t *task) keepToMemory() bool {
	s, ok, code, err := t.locate()
	if err != nil || !ok {
		return code == wire.OffsetOutOfRange
	}
	block := t.cache.BlockBytes()
	end := s.position - s.position%block
	for end < min(s.position+max(t.limit, 1), s.object.Size) && t.cache.Has(s.object, end) {
		end += block
	}
	t.limit = min(t.limit, end-s.position)
	return end > s.position
}
