package cold

import (
	"slices"
	"time"
)

// turnWaitMax is for how long a partition of a crowd gives way to others.
const turnWaitMax = 3 * time.Second

// turns splits the jobs of a request that are too many for a whole chunk ahead of each: into those that are read now, and those that
// give way as long as the others have anything. Few partitions that have a chunk each, by turns, come by a tenth of the gets
// that all would take that share the room. Who was read least lately has the next turn.
func (r *Reader) turns(now time.Time, jobs []job) (first, others []job) {
	if !r.crowd(jobs) {
		return jobs, nil
	}
	left, _ := r.cache.AheadBytes()
	type waiting struct {
		job
		since time.Time
		need  int64
	}
	var line []waiting
	for _, j := range jobs {
		j.crowded = true
		m, since := r.streams.queue(now, place{j.TopicID, j.TopicPartition.Partition, j.Offset})
		end := r.turnEnd(m, m.position, j.limit)
		if now.Sub(since) > turnWaitMax || m.position < m.object.Size && r.cache.Has(m.object, min(end, m.object.Size)-1) {
			first = append(first, j)
		} else {
			line = append(line, waiting{j, since, end - m.position})
		}
	}
	slices.SortStableFunc(line, func(a, b waiting) int { return a.since.Compare(b.since) })
	for _, w := range line {
		if left -= w.need; left >= 0 {
			first = append(first, w.job)
		} else {
			others = append(others, w.job)
		}
	}
	return first, others
}

// crowd tells whether there is no room for a whole chunk ahead of each job, even in an empty cache.
func (r *Reader) crowd(jobs []job) bool {
	_, most := r.cache.AheadBytes()
	return int64(len(jobs))*r.o.Cache.RangeBytes > most
}

// turnEnd is the end of the turn that a read of limit bytes belongs to: that of the one that it goes on with, unless little is left of
// it, or one get behind its position.
func (r *Reader) turnEnd(m mark, position, limit int64) int64 {
	chunk := r.o.Cache.RangeBytes
	if m.ahead-position > min(limit, chunk)/2 {
		return m.ahead
	}
	return position - position%r.cache.BlockBytes() + chunk
}
