package engine

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/controller"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/membership/lease"
	"github.com/tidemark-io/tidemark/tier/chain"
)

// controllerRole is this broker's part as a candidate for the controller, and as the controller while it holds the lease.
//
//	follower   ── lease acquired ──────►  preparing: read the chain to its end
//	preparing  ── read ────────────────►  active: judge changes, commit them in groups, one entry in flight
//	any        ── lease or entry lost ──►  follower: everything that waits for a commit gets NOT_CONTROLLER
//
// The first entry of a term begins with ControllerElected and takes along what has waited for a controller. The lease only
// decides who tries; the chain decides who wins.
type controllerRole struct {
	engine *Engine
	core   *controller.Controller
	log    *metadataLog
	lease  leaseHolder

	removals removals
	followAt time.Time // when to look into another controller's chain again

	state       roleState
	queued      []entryPart // judged, not yet in an entry
	queuedBytes int
	waiters     []waiter     // in the order in which they were judged
	parked      []submission // came in while there was no controller
}

type roleState int8

const (
	follower roleState = iota
	preparing
	active
)

// entryPart is what one change makes: its records are never spread over two entries, since a crash could come between them.
type entryPart struct {
	records []metadata.Record
	raw     []json.RawMessage
	bytes   int
}

// waiter is an answer that becomes true when the metadata is committed up to offset.
type waiter struct {
	offset   wire.Offset
	answer   metadata.Answer
	deadline time.Time
	done     func(metadata.Answer, error)
}

func (r *controllerRole) init(e *Engine, o Options, by claim, link *chain.Chain) error {
	r.engine = e
	seed := func() *rand.Rand { return rand.New(rand.NewPCG(e.random.Uint64(), e.random.Uint64())) }
	r.core = controller.New(controller.Options{ClusterID: e.clusterID, Config: o.Config, Rand: seed()})
	r.log = &metadataLog{
		chain: link, tail: link.Tail(), retention: time.Duration(o.Config.MetadataLogRetentionMs) * time.Millisecond, logger: e.logger,
	}
	r.removals.init(e, e.tier.worker)
	return r.lease.init(r, o, by, seed())
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

// queueBytesMax bounds the records that wait for the entry in flight: a store that hangs must not fill the memory.
const queueBytesMax = 16 * config.MetadataEntryBytesMax

// submit judges a change, or keeps it until there is a controller.
func (r *controllerRole) submit(now time.Time, s submission) {
	switch {
	case !s.deadline.After(now):
		s.done(nil, wire.RequestTimedOut)
	case len(r.parked) >= config.MetadataQueueMax, len(r.waiters) >= config.MetadataQueueMax, r.queuedBytes >= queueBytesMax:
		s.done(nil, wire.RequestTimedOut) // as the inbox
	case r.state != active:
		r.parked = append(r.parked, s)
	default:
		outcome := r.core.Step(now, s.change)
		r.enqueue(outcome.Records)
		r.waiters = append(r.waiters, waiter{outcome.Offset, outcome.Answer, s.deadline, s.done})
	}
}

// enqueue records for the next entry.
func (r *controllerRole) enqueue(records []metadata.Record) {
	if len(records) == 0 {
		return
	}
	part := entryPart{records: records, raw: make([]json.RawMessage, len(records))}
	for i, record := range records {
		raw, err := metadata.MarshalRecord(record)
		if err != nil {
			panic("engine: the controller made a record that is no JSON: " + err.Error())
		}
		part.raw[i] = raw
		part.bytes += len(raw)
	}
	r.queued = append(r.queued, part)
	r.queuedBytes += part.bytes
}

// nextEntry takes from the queue what goes into one entry: the first part, and as many more as stay within its size.
func (r *controllerRole) nextEntry() entryPart {
	var entry entryPart
	n := 0
	for _, part := range r.queued {
		if n > 0 && entry.bytes+part.bytes > config.MetadataEntryBytesMax {
			break
		}
		entry.records = append(entry.records, part.records...)
		entry.raw = append(entry.raw, part.raw...)
		entry.bytes += part.bytes
		n++
	}
	r.queued = r.queued[n:]
	r.queuedBytes -= entry.bytes
	return entry
}

// step runs the timers of lease and controller, and gives up on requests whose time is over.
func (r *controllerRole) step(now time.Time) {
	r.lease.step(now)
	if r.state == active {
		r.enqueue(r.core.Tick(now))
	}
	r.followController(now)
	r.removals.step(now)
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
		next = earliest(next, r.core.NextWake(), r.removals.nextWake())
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
	if len(r.queued) > 0 && r.engine.lanes.idle(LaneChain) && r.lease.valid(now) {
		r.commit(now, r.nextEntry())
	}
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
func (r *controllerRole) commit(now time.Time, entry entryPart) {
	term := r.lease.term
	r.engine.lanes.add(LaneChain, r.log.append(now, entry, func(now time.Time, err error) {
		if err != nil {
			r.engine.logger.Warn("metadata entry is lost or unknown", "controller_epoch", term, "err", err)
			if term == r.lease.term { // a later term reads the chain before it writes
				r.lease.resign(now, 0)
			}
			return
		}
		// What is committed is true, whoever holds the lease by now.
		r.apply(now, entry.records)
		r.engine.keepMetadata(now)
		if r.log.snapshotDue(now) {
			r.engine.lanes.add(LaneSnapshot, r.log.snapshot(now, r.engine.Image()))
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

// chainRetry is how long a broker leaves the role to others that can't read the chain.
const chainRetry = time.Second

// elected begins a term: the chain is read to its end before anything is written to it.
func (r *controllerRole) elected(term int64) {
	r.state = preparing
	r.catchUp(func(now time.Time, err error) {
		if term != r.lease.term {
			return
		}
		if err != nil {
			r.unreadable(now, err)
			return
		}
		// Ends the term if the chain has a higher epoch.
		r.lease.event(now, lease.ChainTail{Epoch: r.log.tail.Epoch})
		if term == r.lease.term {
			r.activate(now, term)
		}
	})
}

// catchUp applies what others have added to the chain.
func (r *controllerRole) catchUp(done func(now time.Time, err error)) {
	r.engine.lanes.add(LaneChain, r.log.catchUp(r.engine.Image, func(now time.Time, image *metadata.Image, err error) {
		// A broker that the cluster was recovered without keeps what it has as it is.
		if before := r.engine.Image(); image != before && r.engine.partOf(now, image) {
			r.engine.publish(now, image, image.Since(before))
		}
		done(now, err)
	}))
}

// followController looks into the chain now and then while another broker is the controller: it may have recovered the cluster without
// this one, which was taken for dead.
func (r *controllerRole) followController(now time.Time) {
	record, ok := r.lease.core.Current()
	if !ok || record.Holder == r.engine.self || record.State != lease.Held || r.state != follower || now.Before(r.followAt) ||
		!r.engine.lanes.idle(LaneChain) {
		return
	}
	r.followAt = now.Add(time.Duration(record.TTLMs) * time.Millisecond)
	r.catchUp(func(now time.Time, err error) {
		if err != nil {
			r.engine.logger.Warn("metadata chain can't be read", "err", err)
		}
	})
}

// unreadable ends a term whose chain can't be read: for a while, or for good if it is damaged, since going on could hide a
// commit that was lost.
func (r *controllerRole) unreadable(now time.Time, err error) {
	if errors.Is(err, chain.ErrHalt) {
		r.engine.logger.Error("the metadata chain is damaged: this broker is no candidate for the controller any more", "err", err)
		r.lease.leave(now)
		return
	}
	r.engine.logger.Warn("metadata chain can't be read", "err", err)
	r.lease.resign(now, chainRetry)
}

// activate starts the controller, and judges what has waited for one.
func (r *controllerRole) activate(now time.Time, term int64) {
	r.state = active
	r.log.epoch = term
	r.enqueue(r.core.Elected(now, r.engine.Image(), wire.LeaderEpoch(term)))
	if recovery := r.engine.recovery; recovery != nil && !recovery.done {
		recovery.begin(now, term)
	}
	r.removals.begin()
	r.engine.logger.Info("controller elected", "controller_epoch", term)
	parked := r.parked
	r.parked = nil
	for _, s := range parked {
		r.submit(now, s)
	}
}

// deposed ends a term. What is in flight may still land; nobody here acts on it before it has.
func (r *controllerRole) deposed() {
	if r.state == follower {
		return
	}
	r.state = follower
	r.core.Resign()
	r.queued, r.queuedBytes = nil, 0
	waiters := r.waiters
	r.waiters = nil
	for _, w := range waiters {
		w.done(nil, wire.NotController)
	}
}
