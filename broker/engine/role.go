package engine

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/controller"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/membership/lease"
	"github.com/tidemark-io/tidemark/tier/chain"
)

// controllerRole is this broker's part as a candidate for the controller, and as the controller while it holds the lease.
//
//	follower   ── lease acquired ──►  preparing: read the chain to its end, commit ControllerElected
//	preparing  ── committed ───────►  active: judge changes, commit them in groups, one entry in flight
//	any        ── lease or entry lost ──►  follower: everything that waits gets NOT_CONTROLLER
//
// The lease only decides who tries; the chain decides who wins.
type controllerRole struct {
	engine *Engine
	core   *controller.Controller
	log    *metadataLog
	lease  leaseHolder

	state    roleState
	queued   []metadata.Record // judged, not yet in an entry
	inFlight bool              // an entry is on its way, or the chain is being read
	waiters  []waiter          // in the order in which they were judged
	parked   []submission      // came in while there was no controller
}

type roleState int8

const (
	follower roleState = iota
	preparing
	active
)

// waiter is an answer that becomes true when the metadata is committed up to offset.
type waiter struct {
	offset   wire.Offset
	answer   metadata.Answer
	deadline time.Time
	done     func(metadata.Answer, error)
}

func (r *controllerRole) init(e *Engine, o Options, former string, link *chain.Chain) error {
	r.engine = e
	seed := func() *rand.Rand { return rand.New(rand.NewPCG(e.random.Uint64(), e.random.Uint64())) }
	r.core = controller.New(controller.Options{ClusterID: e.clusterID, Config: o.Config, Rand: seed()})
	r.log = &metadataLog{
		chain: link, tail: link.Tail(), retention: time.Duration(o.Config.MetadataLogRetentionMs) * time.Millisecond, logger: e.logger,
	}
	return r.lease.init(r, o, former, seed())
}

// begin lets the lease know the chain's end: from now on this broker is a candidate.
func (r *controllerRole) begin(now time.Time) {
	r.lease.event(now, lease.ChainTail{Epoch: r.log.tail.Epoch})
}

// Quorum describes the controller; see api.Controller.
func (e *Engine) Quorum() api.Quorum {
	image := e.Image()
	q := api.Quorum{
		Leader: image.Controller().BrokerID, Epoch: image.Controller().Epoch, HighWatermark: image.Offset() + 1,
	}
	if b := image.Broker(q.Leader); b != nil && len(b.Directories) > 0 {
		if id, err := wire.ParseTopicID(b.Directories[0]); err == nil {
			q.DirectoryID = id
		}
	}
	return q
}

// entryRecordsMax bounds the records of one entry, and so its size.
const entryRecordsMax = 4096

// submit judges a change, or keeps it until there is a controller.
func (r *controllerRole) submit(now time.Time, s submission) {
	switch {
	case !s.deadline.After(now):
		s.done(nil, wire.RequestTimedOut)
	case r.state != active && len(r.parked) < inboxLimit:
		r.parked = append(r.parked, s)
	case r.state != active:
		s.done(nil, wire.NotController)
	default:
		outcome := r.core.Step(now, s.change)
		r.queued = append(r.queued, outcome.Records...)
		r.waiters = append(r.waiters, waiter{outcome.Offset, outcome.Answer, s.deadline, s.done})
	}
}

// step runs the timers of lease and controller, and gives up on requests whose time is over.
func (r *controllerRole) step(now time.Time) {
	r.lease.step(now)
	if r.state == active {
		r.queued = append(r.queued, r.core.Tick(now)...)
	}
	r.expire(now)
}

// expire answers requests that waited too long. What was judged may still be committed: the code says that nothing is known.
func (r *controllerRole) expire(now time.Time) {
	var late []func(metadata.Answer, error)
	kept := r.waiters[:0]
	for _, w := range r.waiters {
		if w.deadline.After(now) {
			kept = append(kept, w)
		} else {
			late = append(late, w.done)
		}
	}
	r.waiters = kept
	waiting := r.parked[:0]
	for _, s := range r.parked {
		if s.deadline.After(now) {
			waiting = append(waiting, s)
		} else {
			late = append(late, s.done)
		}
	}
	r.parked = waiting
	for _, done := range late {
		done(nil, wire.RequestTimedOut)
	}
}

func (r *controllerRole) nextWake() time.Time {
	next := r.lease.nextWake()
	if r.state == active {
		next = earliest(next, r.core.NextWake())
	}
	for _, w := range r.waiters {
		next = earliest(next, w.deadline)
	}
	for _, s := range r.parked {
		next = earliest(next, s.deadline)
	}
	return next
}

// flush answers what is committed and sends what is queued, if nothing is in flight.
func (r *controllerRole) flush(now time.Time) {
	for r.release() {
	}
	if r.inFlight || len(r.queued) == 0 || !r.lease.valid(now) {
		return
	}
	n := min(len(r.queued), entryRecordsMax)
	records := r.queued[:n:n]
	r.queued = r.queued[n:]
	r.commit(now, records)
}

// release answers the waiters whose offset is committed, and tells whether there was one. An answer may lead to another change,
// which is judged in the next Step.
func (r *controllerRole) release() bool {
	if len(r.waiters) == 0 || r.waiters[0].offset > r.engine.Image().Offset() {
		return false
	}
	w := r.waiters[0]
	r.waiters = r.waiters[1:]
	w.done(w.answer, nil)
	return true
}

// commit appends one entry to the chain. Nobody hears of it, and nothing is applied, before it has won.
func (r *controllerRole) commit(now time.Time, records []metadata.Record) {
	r.inFlight = true
	r.engine.lanes.add(LaneChain, r.log.append(now, records, func(now time.Time, err error) {
		r.inFlight = false
		if err != nil {
			r.engine.logger.Warn("metadata entry is lost or unknown", "err", err)
			r.lease.resign(now)
			return
		}
		// What is committed is true, whoever holds the lease by now.
		r.apply(now, records)
		r.activate(now)
		r.engine.keepMetadata(now)
		if r.log.snapshotDue(now) {
			r.engine.lanes.add(LaneChain, r.log.snapshot(now, r.engine.Image()))
		}
	}))
}

// apply makes committed records visible.
func (r *controllerRole) apply(now time.Time, records []metadata.Record) {
	image := r.engine.Image()
	next, delta, err := image.Apply(image.Offset()+1, records)
	if err != nil {
		// Our own records don't fit our own image: going on would fork what this broker believes from what is committed.
		panic("engine: committed records do not apply: " + err.Error())
	}
	r.engine.publish(now, next, delta)
}

// elected begins a term: the chain is read to its end, under the lease's epoch, before anything is written to it.
func (r *controllerRole) elected(now time.Time, epoch wire.LeaderEpoch) {
	r.state = preparing
	r.inFlight = true
	r.engine.lanes.add(LaneChain, r.log.catchUp(r.engine.Image, epoch, func(now time.Time, image *metadata.Image, err error) {
		r.inFlight = false
		if before := r.engine.Image(); image != before {
			r.engine.publish(now, image, image.Since(before))
		}
		if r.state != preparing {
			return
		}
		if errors.Is(err, chain.ErrHalt) {
			r.engine.logger.Error("metadata chain is damaged: this broker does not try to be the controller again", "err", err)
			r.lease.leave(now)
			return
		}
		if err != nil {
			r.engine.logger.Warn("metadata chain can't be read", "err", err)
			r.lease.resign(now)
			return
		}
		r.queued = append(r.queued, r.core.Elected(now, image, epoch)...)
	}))
}

// activate ends the preparation once ControllerElected is committed, and judges what has waited for a controller.
func (r *controllerRole) activate(now time.Time) {
	if r.state != preparing {
		return
	}
	r.state = active
	r.engine.logger.Info("controller elected", "controller_epoch", int32(r.engine.Image().Controller().Epoch))
	parked := r.parked
	r.parked = nil
	for _, s := range parked {
		r.submit(now, s)
	}
}

// deposed ends a term. What is in flight may still land; nobody here acts on it.
func (r *controllerRole) deposed() {
	if r.state == follower {
		return
	}
	r.state = follower
	r.core.Resign()
	r.queued = nil
	waiters := r.waiters
	r.waiters = nil
	for _, w := range waiters {
		w.done(nil, wire.NotController)
	}
}
