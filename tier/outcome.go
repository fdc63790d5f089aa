package tier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/plan"
)

// outcome is what a job found out.
type outcome struct {
	err      error
	copy     *plan.Task // to be uploaded next
	copySize int64
	again    bool      // there is more to do at once
	wake     time.Time // when time alone makes another look worth while; zero: it does not
	release  *Release
	whole    bool // all is in the bucket, and the manifest says so
}

var (
	// errFenced: another leader writes the manifest. It is final for the leadership.
	errFenced = errors.New("another leader has taken the manifest over")
	// errHistory: the manifest tells another history than the log. It is final for the leadership.
	errHistory = errors.New("the manifest tells another history than the log")
	errStalled = errors.New("no progress")
)

// final tells whether an error ends what this leadership does: going on could hide a lost commit.
func final(err error) bool {
	return errors.Is(err, errFenced) || errors.Is(err, errHistory) || errors.Is(err, errForgotten) || errors.Is(err, chain.ErrHalt)
}

// complete takes a job back.
func (m *Manager) complete(now time.Time, r *running, out outcome) {
	p := r.p
	m.mu.Lock()
	m.out = slices.DeleteFunc(m.out, func(o *running) bool { return o == r })
	if r.upload > 0 {
		m.uploads--
	}
	p.running = nil
	if r.ended != nil && out.err != nil {
		out.err = fmt.Errorf("%w: %w", r.ended, out.err)
	}
	if p.reached && out.err == nil {
		m.storeReachedLocked(now)
	}
	p.reached = false
	if p.resigned {
		if next := p.successor; next != nil && !next.resigned {
			m.queue.put(next, next.due)
		}
		m.mu.Unlock()
		return
	}
	first := out.err != nil && p.err == nil
	m.noteLocked(now, p, out)
	var released *Release
	if out.release != nil && p.held {
		p.held = false
		released = out.release
	}
	m.answerLocked(nil, func(w *logStartWaiter) bool { return w.p == p && p.recorded(w.offset) })
	if p.stopped {
		m.answerLocked(stoppedCode(p.err), func(w *logStartWaiter) bool { return w.p == p })
	}
	answered := m.takeAnsweredLocked()
	m.mu.Unlock()

	if out.err != nil {
		p.report(out.err, first)
	}
	if released != nil && m.o.Released != nil {
		m.o.Released(now, *released)
	}
	for _, w := range answered {
		w.done(now, w.answer)
	}
}

// stoppedCode is what those hear who wait for a manifest that is written no more.
func stoppedCode(why error) wire.Code {
	if errors.Is(why, errFenced) {
		return wire.NotLeaderOrFollower
	}
	return wire.KafkaStorageError
}

// noteLocked says when the partition goes on.
func (m *Manager) noteLocked(now time.Time, p *partition, out outcome) {
	if out.err != nil {
		if p.err == nil {
			p.errSince = now
		}
		p.err = out.err
		m.withdrawLocked(p)
		m.failedLocked(now, p)
		p.failures++
		if p.stopped = final(out.err); !p.stopped {
			m.queue.put(p, now.Add(m.backoff(p.failures, p.held)))
		}
		return
	}
	p.whole = out.whole
	if out.copy == nil { // else the upload tells whether what failed works now
		p.err, p.failures = nil, 0
	}
	due := m.idleLocked(now, p)
	switch {
	case out.copy != nil:
		// Its turn may be long in coming, and retention and DeleteRecords don't wait for it.
		if p.upload == nil {
			m.ready = append(m.ready, p)
		}
		p.upload, p.uploadSize = out.copy, out.copySize
	case out.again:
		due = now
	default:
		m.withdrawLocked(p)
		if !out.wake.IsZero() {
			due = earlierOf(due, laterOf(out.wake, now.Add(pulse)))
		}
		if !m.closing.IsZero() && !p.whole { // it was looked at before the stop began
			due = earlierOf(due, now.Add(pulse))
		}
	}
	if m.awaitedLocked(p) { // since when it was looked at, maybe
		due = earlierOf(due, laterOf(now, p.looked.Add(pulse)))
	}
	m.queue.put(p, due)
}

// awaitedLocked tells whether somebody waits for a log start that the manifest does not have.
func (m *Manager) awaitedLocked(p *partition) bool {
	return slices.ContainsFunc(m.waiters, func(w logStartWaiter) bool { return w.p == p && !p.recorded(w.offset) })
}

// report tells people what stands in the way: loudly when somebody has to act, and once.
func (p *partition) report(err error, first bool) {
	switch {
	case errors.Is(err, errFenced):
		p.logger.Warn("another leader writes the manifest: this one has stopped", "err", err)
	case final(err):
		p.logger.Error("the tier of this partition stands still", "err", err)
	case errors.Is(err, log.ErrDamaged):
		p.logger.Error("a damaged segment is held back from the bucket, with all behind it", "err", err)
	case errors.Is(err, context.Canceled):
	case first:
		p.logger.Warn("work on the tier failed and is tried again", "err", err)
	default:
		p.logger.Debug("work on the tier failed again", "err", err)
	}
}

const (
	// stalledAfter is how long a job may go without getting anything done: longer than two tries of any one request, of which completing an
	// upload of 128 parts has 143 s.
	stalledAfter = 5 * time.Minute
	// A job that moves, but slower than anybody can want, is begun anew after uploadBase and the time that its bytes take at
	// uploadFloor a second.
	uploadBase  = 10 * time.Minute
	uploadFloor = 128 << 10
)

// watchLocked cancels jobs that make no progress, so that one that hangs holds up nobody for good.
func (m *Manager) watchLocked(now time.Time) {
	for _, r := range m.out {
		if steps := r.p.steps.Load(); steps != r.steps {
			r.steps, r.moved = steps, now
		}
		slow := r.upload > 0 && now.Sub(r.begun) > uploadBase+time.Duration(r.upload/uploadFloor)*time.Second
		if slow || now.Sub(r.moved) > stalledAfter {
			r.stop(errStalled)
		}
	}
}

// logStartWaiter waits for a log start to be in the manifest.
type logStartWaiter struct {
	p        *partition
	offset   wire.Offset
	deadline time.Time
	done     func(now time.Time, err error)
	answer   error
}

// waitersMax bounds the requests that wait; more are told to try again.
const waitersMax = 10_000

// ReportLogStart says that DeleteRecords has moved a log start, which is to be in the manifest before the request is answered
// (safety rule 23). done is called once, by whoever calls Due or a Completion, or at once: with nil when the entry is there or
// the partition is not tiered, with REQUEST_TIMED_OUT at the deadline, and NOT_LEADER_OR_FOLLOWER when the leadership ends.
func (m *Manager) ReportLogStart(now time.Time, tp wire.TopicPartition, offset wire.Offset, deadline time.Time, done func(now time.Time, err error)) {
	m.mu.Lock()
	p := m.partitions[tp]
	var answer error
	switch {
	case p == nil:
		answer = wire.NotLeaderOrFollower
	case p.stopped:
		answer = stoppedCode(p.err)
	case !p.tiered() || p.untouched() || p.recorded(offset):
	case len(m.waiters) >= waitersMax:
		answer = wire.RequestTimedOut
	default:
		m.waiters = append(m.waiters, logStartWaiter{p: p, offset: offset, deadline: deadline, done: done})
		m.queue.hasten(p, laterOf(now, p.looked.Add(pulse)))
		m.mu.Unlock()
		m.wake()
		return
	}
	m.mu.Unlock()
	done(now, answer)
}

// recorded tells whether nothing can be read below offset by the manifest.
func (p *partition) recorded(offset wire.Offset) bool {
	s := p.state()
	return s != nil && s.ReadStart() >= offset
}

// answerLocked settles the waiters that are over.
func (m *Manager) answerLocked(answer error, over func(*logStartWaiter) bool) {
	m.waiters = slices.DeleteFunc(m.waiters, func(w logStartWaiter) bool {
		if !over(&w) {
			return false
		}
		w.answer = answer
		m.answered = append(m.answered, w)
		return true
	})
}

// takeAnsweredLocked hands out those to be told, which is done with no lock held.
func (m *Manager) takeAnsweredLocked() []logStartWaiter {
	answered := m.answered
	m.answered = nil
	return answered
}

// Close begins a clean stop: every led tiered partition is sealed, uploaded whole and closed, until deadline. Nothing may be
// appended any more.
func (m *Manager) Close(now, deadline time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closing = deadline
	for _, p := range m.partitions { // the queue orders them
		if p.hereAlone() {
			m.partial.Store(true)
		}
	}
	for _, p := range m.partitions {
		p.failures, p.whole = 0, false
		m.queue.hasten(p, now)
	}
}

// nothingToCloseLocked tells whether a clean stop leaves a partition's manifest alone, since there never was a record.
func (m *Manager) nothingToCloseLocked(p *partition) bool { return !m.o.CloseEmpty && p.empty() }

// Empty are the led partitions that never had a record, by topic: a clean stop has nothing to do for them, and may not even have made
// their manifests. It holds for as long as nothing is appended.
func (m *Manager) Empty() map[wire.TopicID][]int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	empty := map[wire.TopicID][]int32{}
	for _, p := range m.partitions {
		if p.empty() {
			empty[p.TopicID] = append(empty[p.TopicID], p.Partition)
		}
	}
	for _, partitions := range empty {
		slices.Sort(partitions)
	}
	return empty
}

// Closed tells whether the clean stop is over: every partition is closed whole that is copied and ever had a record, or the deadline has passed, after
// which Due gives no more jobs. whole tells that all of every partition is in the bucket. Jobs that are still out are cancelled at
// the deadline.
func (m *Manager) Closed(now time.Time) (over, whole bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing.IsZero() {
		return false, false
	}
	whole, busy := true, false
	for _, p := range m.partitions {
		switch {
		case p.whole || m.nothingToCloseLocked(p):
		case p.copied():
			whole = false
			busy = busy || !p.stopped
		case p.hereAlone():
			whole = false
		}
	}
	if !now.Before(m.closing) {
		for _, r := range m.out {
			r.stop(context.DeadlineExceeded)
		}
		return true, whole
	}
	return !busy && len(m.out) == 0, whole
}
