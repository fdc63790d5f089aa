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

// alarmEvery is how often the same object is complained about: clients ask again and again.
const alarmEvery = time.Minute

// alarmsMax bounds what is remembered of complaints.
const alarmsMax = 1000

// alarms are log lines for what somebody has to look at.
type alarms struct {
	logger *slog.Logger
	now    func() time.Time

	mu   sync.Mutex // guards last; a leaf
	last map[string]time.Time
}

func (a *alarms) raise(p Partition, key string, err error) {
	now := a.now()
	a.mu.Lock()
	last, known := a.last[key]
	quiet := known && now.Sub(last) < alarmEvery
	if !quiet {
		if a.last == nil || len(a.last) >= alarmsMax {
			a.last = map[string]time.Time{}
		}
		a.last[key] = now
	}
	a.mu.Unlock()
	if !quiet {
		a.logger.Error("a segment in the object store can't be read", "topic", p.Topic, "partition", p.TopicPartition.Partition, "key", key, "err", err)
	}
}
