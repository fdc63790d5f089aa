package tier

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
)

const (
	// looksMax bounds the jobs that are out beside uploads: enough to read some thousand manifests within a minute of a start.
	looksMax = 16
	// pulse is how often Due takes up what Changed has said, and looks after the jobs that are out.
	pulse = 500 * time.Millisecond
	// idleLook is how long a partition may go without a look, for what only time changes.
	idleLook         = 5 * time.Minute
	idleLookInternal = time.Minute // they are sealed after that
	// pagesMax bounds the pages of manifests in memory: 64 KB each at most.
	pagesMax = 512

	backoffFirst = time.Second
	backoffMax   = time.Minute
	backoffHeld  = 5 * time.Second
)

// Manager does the tier's work for the partitions that this broker leads. Its methods may be called by several goroutines
// at once, but for Due, Close and the completions, which belong to one loop.
type Manager struct {
	o     Options
	pages *manifest.PageCache
	// partial: the clean stop that is under way does not bring all of all partitions to the bucket.
	partial atomic.Bool

	mu         sync.Mutex // guards what follows, and what partitions say it guards; a leaf
	partitions map[wire.TopicPartition]*partition
	queue      queue
	ready      []*partition // with an upload that waits for its turn, in the order in which they were planned
	hints      []*partition // that Changed was called for since the last Due
	out        []*running
	uploads    int // of out
	pace       pace
	waiters    []logStartWaiter
	answered   []logStartWaiter // to be told by the next Due or completion
	pulsed     time.Time        // the last Due
	closing    time.Time        // the deadline of a clean stop; zero: there is none
	reached    time.Time        // when a request to the store last succeeded
	cutOff     bool             // partitions may be
}

// running is a job that is out.
type running struct {
	p      *partition
	upload int64 // bytes of the segment; 0 for other jobs
	begun  time.Time
	steps  int64     // the partition's steps when they were last looked at
	moved  time.Time // when they last grew
	ended  error     // why it was cancelled
	cancel context.CancelFunc
}

// New returns a Manager of no partitions.
func New(o Options) *Manager {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Manager{o: o, pages: manifest.NewPageCache(pagesMax), partitions: map[wire.TopicPartition]*partition{}}
}

// Lead says that this broker leads a partition under a new epoch. It does no I/O. held tells that the partition must not
// serve before Options.Released was called with this epoch. It is also called for topics that are not tiered: they may
// become so. The same epoch again changes nothing.
func (m *Manager) Lead(now time.Time, l Leadership) (held bool) {
	p := &partition{
		Leadership: l, o: &m.o, pages: m.pages, partial: &m.partial, place: notQueued, unfinished: true,
		prefix: manifest.Prefix(l.Topic, l.TopicID, l.Partition),
		logger: m.o.Logger.With("topic", l.Topic, "partition", l.Partition, "leader_epoch", l.Epoch),
	}
	p.Start = beginning(l)
	p.held = p.Start != StartHere

	m.mu.Lock()
	defer m.mu.Unlock()
	former := m.partitions[l.TopicPartition]
	if former != nil && former.Epoch == l.Epoch && former.TopicID == l.TopicID {
		return former.held
	}
	m.resignLocked(former)
	m.partitions[l.TopicPartition] = p
	due := now
	switch {
	case p.held:
		due = now.Add(-idleLook) // clients wait for it
	case p.untouched():
		due = m.idleLocked(now, p)
	}
	if r := m.runningLocked(l.TopicPartition); r != nil {
		r.p.successor = p // queued when that job is back
		p.due = due
	} else {
		m.queue.put(p, due)
	}
	return p.held
}

// runningLocked is the job of a partition that is out, of whatever leadership; nil if there is none.
func (m *Manager) runningLocked(tp wire.TopicPartition) *running {
	for _, r := range m.out {
		if r.p.TopicPartition == tp {
			return r
		}
	}
	return nil
}

// beginning is how a leadership has to begin: not as it was told where the log says otherwise.
func beginning(l Leadership) Start {
	switch {
	case l.Start != StartHere && l.Start != StartVerified:
		return l.Start
	case !l.Log.Config().RemoteStorageEnable && l.Log.LocalStartOffset() == l.Log.StartOffset():
		return StartHere // never tiered: the bucket knows nothing of it
	case l.Log.MayLackEnd():
		return StartVerified
	}
	return l.Start
}

// Resign says that this broker does not lead the partition any more, or that it is gone. A job that is out is cancelled and
// changes nothing here afterwards.
func (m *Manager) Resign(tp wire.TopicPartition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.partitions[tp]
	delete(m.partitions, tp)
	m.resignLocked(p)
}

// resignLocked ends a leadership, nil for none. Who waited for it hears so from the next Due: the caller may hold locks.
func (m *Manager) resignLocked(p *partition) {
	if p == nil {
		return
	}
	p.resigned = true
	m.queue.drop(p)
	m.withdrawLocked(p)
	if p.running != nil {
		p.running.stop(context.Canceled)
	}
	m.answerLocked(wire.NotLeaderOrFollower, func(w *logStartWaiter) bool { return w.p == p })
}

// stop cancels a job; Manager.mu is held.
func (r *running) stop(why error) {
	if r.ended != nil {
		return
	}
	r.ended = why
	if r.cancel != nil {
		r.cancel()
	}
}

// Changed says that something of a partition has changed that may make work: a segment was sealed, the high watermark or
// the last stable offset moved, the configuration is another. It is cheap enough for every such move.
func (m *Manager) Changed(tp wire.TopicPartition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.partitions[tp]; p != nil && !p.changed {
		p.changed = true
		m.hints = append(m.hints, p)
	}
}

// Manifest is the manifest of a partition that this broker leads; nil while it was not read, which is then done next.
func (m *Manager) Manifest(tp wire.TopicPartition) *manifest.Manifest {
	open, _ := m.manifest(tp)
	return open
}

// Reading tells whether a partition's manifest was not read yet and is now, before those that nobody has asked for. One that failed to
// be read is not waited for.
func (m *Manager) Reading(tp wire.TopicPartition) bool {
	_, reading := m.manifest(tp)
	return reading
}

func (m *Manager) manifest(tp wire.TopicPartition) (open *manifest.Manifest, reading bool) {
	m.mu.Lock()
	asked := false
	if p := m.partitions[tp]; p != nil {
		open = p.manifest.Load()
		reading = open == nil && p.failures == 0
		if asked = reading && p.place != notQueued && !p.due.IsZero(); asked {
			m.queue.hasten(p, time.Time{})
		}
	}
	m.mu.Unlock()
	if asked {
		m.wake()
	}
	return open, reading
}

func (m *Manager) wake() {
	if m.o.Wake != nil {
		m.o.Wake()
	}
}

// Due hands out the jobs that may start now, and lets go of jobs that make no progress.
func (m *Manager) Due(now time.Time) []Job {
	confirmed := m.o.Confirmed == nil || m.o.Confirmed(now)
	config := m.o.Config()
	m.mu.Lock()
	m.pulsed = now
	m.takeHintsLocked(now)
	m.watchLocked(now)
	m.answerLocked(wire.RequestTimedOut, func(w *logStartWaiter) bool { return !w.deadline.After(now) })
	answered := m.takeAnsweredLocked()
	var jobs []Job
	closing := !m.closing.IsZero()
	if !closing || now.Before(m.closing) {
		jobs = m.uploadsLocked(now, config)
		jobs = append(jobs, m.looksLocked(now, confirmed, closing)...)
	}
	m.mu.Unlock()
	for _, w := range answered {
		w.done(now, w.answer)
	}
	return jobs
}

func (m *Manager) takeHintsLocked(now time.Time) {
	m.hints = slices.DeleteFunc(m.hints, func(p *partition) bool {
		if p.running != nil && !p.resigned {
			return false // the job may have looked already: once it is back, it is looked at again
		}
		p.changed = false
		if p.failures == 0 && p.upload == nil { // else the upload is followed by a look
			m.queue.hasten(p, laterOf(now, p.looked.Add(pulse)))
		}
		return true
	})
}

// looksLocked begins the looks that are due.
func (m *Manager) looksLocked(now time.Time, confirmed, closing bool) []Job {
	var jobs []Job
	for len(m.out)-m.uploads < looksMax {
		p := m.queue.next(now)
		if p == nil {
			break
		}
		p.looked = now
		if !p.tiered() || !closing && p.untouched() || closing && m.nothingToCloseLocked(p) {
			m.queue.put(p, m.idleLocked(now, p))
			continue
		}
		jobs = append(jobs, m.beginLocked(now, &running{p: p}, func(ctx context.Context) outcome {
			return p.look(ctx, now, confirmed, closing)
		}))
	}
	return jobs
}

// uploadsLocked begins as many uploads as may run beside each other and as the byte rate allows.
func (m *Manager) uploadsLocked(now time.Time, c Config) []Job {
	var jobs []Job
	for m.uploads < max(c.Parallel, 1) && m.pace.free(now, c.BytesPerSecond) {
		p := m.nextUploadLocked()
		if p == nil {
			break
		}
		task := *p.upload
		m.withdrawLocked(p)
		m.queue.drop(p)
		m.uploads++
		m.pace.spend(p.uploadSize)
		jobs = append(jobs, m.beginLocked(now, &running{p: p, upload: max(p.uploadSize, 1)}, func(ctx context.Context) outcome {
			return p.copy(ctx, now, task)
		}))
	}
	return jobs
}

// nextUploadLocked is the first partition whose upload may begin; nil if there is none. One that is looked at keeps its place.
func (m *Manager) nextUploadLocked() *partition {
	for _, p := range m.ready {
		if p.running == nil {
			return p
		}
	}
	return nil
}

// withdrawLocked takes back the upload that a partition waits with, if any.
func (m *Manager) withdrawLocked(p *partition) {
	if p.upload != nil {
		p.upload = nil
		m.ready = slices.DeleteFunc(m.ready, func(q *partition) bool { return q == p })
	}
}

func (m *Manager) beginLocked(now time.Time, r *running, work func(ctx context.Context) outcome) Job {
	r.begun, r.moved, r.steps = now, now, r.p.steps.Load()
	r.p.running = r
	m.out = append(m.out, r)
	return Job{Partition: r.p.TopicPartition, Run: func(ctx context.Context) Completion {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		m.mu.Lock()
		r.cancel = cancel
		if r.ended != nil {
			cancel()
		}
		m.mu.Unlock()
		result := work(ctx)
		return func(now time.Time) { m.complete(now, r, result) }
	}}
}

// idleLocked is when a partition with nothing to do is looked at again: not all of them at once, and soon enough for records
// that come meanwhile, of which nobody tells, to be sealed in about the time that is asked for.
func (m *Manager) idleLocked(now time.Time, p *partition) time.Time {
	wait := min(idleLook, m.o.Config().MaxUnsealed)
	if p.Internal {
		wait = min(wait, idleLookInternal)
	}
	return now.Add(m.jitter(wait))
}

// jitter is between a half and the whole of d.
func (m *Manager) jitter(d time.Duration) time.Duration {
	half := d / 2
	return half + time.Duration(m.o.Random()%uint64(half+1))
}

// backoff is how long a partition waits after so many failures in a row; one that serves nobody meanwhile, less.
func (m *Manager) backoff(failures int, held bool) time.Duration {
	limit := backoffMax
	if held {
		limit = backoffHeld
	}
	d := backoffFirst
	for range failures - 1 {
		d = min(2*d, limit)
	}
	return m.jitter(d)
}

// NextWake is when Due has something by itself; zero if there is nothing to wait for.
func (m *Manager) NextWake() time.Time {
	c := m.o.Config()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.partitions) == 0 && len(m.out) == 0 {
		return time.Time{}
	}
	wake := m.pulsed.Add(pulse)
	if len(m.answered) > 0 {
		return m.pulsed
	}
	if !m.closing.IsZero() && !m.pulsed.Before(m.closing) {
		return wake
	}
	if due := m.queue.wake(); len(m.queue) > 0 && len(m.out)-m.uploads < looksMax {
		wake = earlierOf(wake, due)
	}
	if m.uploads < max(c.Parallel, 1) && m.nextUploadLocked() != nil {
		wake = earlierOf(wake, m.pace.freeAt(c.BytesPerSecond))
	}
	for _, w := range m.waiters {
		wake = earlierOf(wake, w.deadline)
	}
	return wake
}

func earlierOf(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
