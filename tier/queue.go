package tier

import (
	"container/heap"
	"time"
)

// queue holds the partitions that are not at work, by the time at which they are to be looked at: a heap in place of a timer each.
type queue []*partition

// Len implements heap.Interface.
func (q queue) Len() int { return len(q) }

// Less implements heap.Interface; equal times go by name, so that the order is always the same.
func (q queue) Less(i, j int) bool {
	if !q[i].due.Equal(q[j].due) {
		return q[i].due.Before(q[j].due)
	}
	return comparePartitions(q[i].TopicPartition, q[j].TopicPartition) < 0
}

// Swap implements heap.Interface.
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	p := x.(*partition)
	p.place = len(*q)
	*q = append(*q, p)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	p := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	p.place = notQueued
	return p
}

// notQueued is the place of a partition that is not in the queue.
const notQueued = -1

// put sets when a partition is to be looked at.
func (q *queue) put(p *partition, due time.Time) {
	p.due = due
	if p.place == notQueued {
		heap.Push(q, p)
	} else {
		heap.Fix(q, p.place)
	}
}

// hasten looks at a partition that waits at due already, if that is earlier.
func (q *queue) hasten(p *partition, due time.Time) {
	if p.place != notQueued && due.Before(p.due) {
		q.put(p, due)
	}
}

// drop takes a partition out.
func (q *queue) drop(p *partition) {
	if p.place != notQueued {
		heap.Remove(q, p.place)
	}
}

// next takes the first partition that is due; nil if none is.
func (q *queue) next(now time.Time) *partition {
	if len(*q) == 0 || (*q)[0].due.After(now) {
		return nil
	}
	return heap.Pop(q).(*partition)
}

// wake is when the first one is due; zero for an empty queue.
func (q queue) wake() time.Time {
	if len(q) == 0 {
		return time.Time{}
	}
	return q[0].due
}

// pace holds uploads to a byte rate, over all of them: each leaves its size as a debt that time pays off, and none begins
// while there is one. So a rate that is asked for is kept over a few segments, without anybody having to wait inside an
// upload.
type pace struct {
	debt float64 // bytes
	at   time.Time
}

// free pays off what time has earned and tells whether an upload may begin.
func (p *pace) free(now time.Time, rate int64) bool {
	if elapsed := now.Sub(p.at); elapsed > 0 && !p.at.IsZero() {
		p.debt = max(0, p.debt-elapsed.Seconds()*float64(rate))
	}
	p.at = now
	return p.debt <= float64(rate)*paceGrain.Seconds()
}

// spend notes an upload that begins.
func (p *pace) spend(bytes int64) { p.debt += float64(bytes) }

// freeAt is when the debt is paid off.
func (p *pace) freeAt(rate int64) time.Time {
	seconds := min(p.debt/float64(max(rate, 1)), paceHorizon.Seconds())
	return p.at.Add(time.Duration(seconds * float64(time.Second)))
}

// paceGrain is a debt too small to wait for.
const paceGrain = time.Millisecond

// paceHorizon bounds how far ahead freeAt looks: a rate may be raised meanwhile.
const paceHorizon = time.Minute
