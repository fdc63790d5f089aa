package cold

import (
	"log/slog"
	"sync"
	"time"
)

// rate keeps gets to so many bytes a second.
type rate struct {
	now func() time.Time

	mu   sync.Mutex // guards what follows; a leaf
	free time.Time  // when all that was spent is paid for
}

// spend notes bytes that are to be read, and says how long to wait before.
func (r *rate) spend(bytes, perSecond int64) time.Duration {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.free.Before(now) {
		r.free = now
	}
	wait := r.free.Sub(now)
	r.free = r.free.Add(time.Duration(float64(bytes) / float64(max(perSecond, 1)) * float64(time.Second)))
	return wait
}

// debt is how long the next get would wait.
func (r *rate) debt() time.Duration {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.free.Sub(now), 0)
}

const (
	// alarmEvery is how often the same object is complained about: clients ask again and again.
	alarmEvery = time.Minute
	// badFor is for how long a place that could not be read is not tried again, so that it costs a get now and then, and not
	// several for each request of each client.
	badFor = 5 * time.Second
	// alarmsMax bounds what is remembered of either.
	alarmsMax = 1000
)

// alarms are log lines for what somebody has to look at, and the places that they are about.
type alarms struct {
	logger *slog.Logger
	now    func() time.Time

	mu   sync.Mutex // guards what follows; a leaf
	last map[string]time.Time
	bad  map[place]time.Time // until when it is not tried again
}

// known tells whether a place could not be read a moment ago.
func (a *alarms) known(p place) bool {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	until, ok := a.bad[p]
	return ok && now.Before(until)
}

// remember notes that a place can't be read.
func (a *alarms) remember(p place) {
	until := a.now().Add(badFor)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bad == nil || len(a.bad) >= alarmsMax {
		a.bad = map[place]time.Time{}
	}
	a.bad[p] = until
}

// raise tells people of a segment that can't be read.
func (a *alarms) raise(p Partition, key string, err error) {
	if a.due(key) {
		a.logger.Error("a segment in the object store can't be read", "topic", p.Topic, "partition", p.TopicPartition.Partition, "key", key, "err", err)
	}
}

// warn tells people that reads fail, for want of the store or of room; of one of them in a while.
func (a *alarms) warn(p Partition, err error) {
	if a.due("") {
		a.logger.Warn("a read from the object store failed", "topic", p.Topic, "partition", p.TopicPartition.Partition, "err", err)
	}
}

// due tells whether people were not told of something in a while.
func (a *alarms) due(key string) bool {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if last, known := a.last[key]; known && now.Sub(last) < alarmEvery {
		return false
	}
	if a.last == nil || len(a.last) >= alarmsMax {
		a.last = map[string]time.Time{}
	}
	a.last[key] = now
	return true
}
