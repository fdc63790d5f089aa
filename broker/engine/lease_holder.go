package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/membership/lease"
	"github.com/tidemark-io/tidemark/tier/object"
)

// leaseHolder steps the lease, hands its actions out as tasks, and tells the role when a term begins and ends.
type leaseHolder struct {
	role  *controllerRole
	core  *lease.Lease
	store object.Store
	term  int64 // lease epoch of the running term; 0: none
	held  int64 // the last epoch that was held at any time; 0: none

	unreadable bool     // people have been told of a lease that is not readable
	failing    lease.Op // and of these requests, which fail
}

// claim is what lets this broker take the lease without waiting; see lease.Config.
type claim struct {
	former  string // incarnation
	founder bool
}

func (h *leaseHolder) init(role *controllerRole, o Options, by claim, jitter *rand.Rand) error {
	h.role, h.store = role, o.Store
	var err error
	h.core, err = lease.New(lease.Config{
		ClusterID: role.engine.clusterID, Broker: role.engine.self, Incarnation: o.Incarnation, Former: by.former, Founder: by.founder,
		Endpoint: clusterEndpoint(o.Config), TTL: time.Duration(o.Config.LeaseTTLMs) * time.Millisecond,
		Renew: time.Duration(o.Config.LeaseRenewMs) * time.Millisecond,
		Nonce: role.engine.random.Nonce,
		Jitter: func(below time.Duration) time.Duration {
			if below <= 0 {
				return 0
			}
			return time.Duration(jitter.Int64N(int64(below)))
		},
	})
	if err != nil {
		return fmt.Errorf("lease.ttl.ms and lease.renew.ms: %w", err)
	}
	return nil
}

// clusterEndpoint is where other brokers reach this one.
func clusterEndpoint(c *config.Broker) string { return c.ClusterListener.Address() }

func (h *leaseHolder) step(now time.Time) { h.event(now, lease.Tick{}) }

// event steps the lease and does what it says.
func (h *leaseHolder) event(now time.Time, ev lease.Event) {
	action := h.core.Step(now, ev)
	h.follow(now)
	h.tellUnreadable()
	if record, ok := h.core.Current(); ok {
		if h.replacedBy(record) {
			h.role.engine.fail(now, errReplaced)
		}
		if recovery := h.role.engine.recovery; recovery != nil {
			recovery.meets(now, record)
		}
	}
	if action.Op == lease.OpNone {
		return
	}
	h.role.engine.lanes.add(LaneLease, func(ctx context.Context) Completion {
		done := lease.Do(ctx, h.store, action)
		return func(now time.Time) {
			h.tellFailing(done)
			if reached(done) {
				h.role.engine.tier.worker.StoreReached(now)
			}
			h.event(now, done)
		}
	})
}

// reached tells whether the store has answered, whatever it said.
func reached(done lease.Event) bool {
	switch done := done.(type) {
	case lease.ReadDone:
		return done.Err == nil
	case lease.WriteDone:
		return done.Outcome == object.Done
	}
	return false
}

// tellUnreadable tells people of a lease that nobody can take until one of them has looked at it.
func (h *leaseHolder) tellUnreadable() {
	err := h.core.Unreadable()
	if err != nil && !h.unreadable {
		h.role.engine.logger.Error("the controller's lease is not readable: there will be no controller", "key", lease.Key, "err", err)
	}
	h.unreadable = err != nil
}

// tellFailing tells people when requests for the lease begin to fail, and when they succeed again: until there is a controller a
// broker that starts serves nobody, and would not say why.
func (h *leaseHolder) tellFailing(done lease.Event) {
	var op lease.Op
	var err error
	switch done := done.(type) {
	case lease.ReadDone:
		op, err = lease.OpRead, done.Err
	case lease.WriteDone:
		op, err = lease.OpWrite, done.Err
	}
	switch {
	case errors.Is(err, lease.ErrRecord): // told elsewhere
	case err != nil && h.failing == lease.OpNone:
		h.failing = op
		h.role.engine.logger.Warn("the object store can't be reached for the controller's lease", "err", err)
	case err == nil && op != lease.OpNone && h.failing == op:
		h.failing = lease.OpNone
		h.role.engine.logger.Info("the object store can be reached for the controller's lease")
	}
}

// follow makes the role follow the lease.
func (h *leaseHolder) follow(now time.Time) {
	epoch, _ := h.core.Holds(now)
	if epoch == h.term {
		return
	}
	if h.term != 0 {
		h.term = 0
		h.role.deposed()
	}
	if epoch != 0 {
		h.term, h.held = epoch, epoch
		h.role.elected(epoch)
	}
}

// valid tells whether this broker may commit at this moment.
func (h *leaseHolder) valid(now time.Time) bool {
	_, ok := h.core.Holds(now)
	return ok
}

// resign gives the lease up; this broker may try for it again after a pause.
func (h *leaseHolder) resign(now time.Time, pause time.Duration) {
	h.event(now, lease.Resign{StayOut: pause})
}

// leave gives the lease up for good.
func (h *leaseHolder) leave(now time.Time) { h.event(now, lease.Resign{StayOut: -1}) }

// nextWake is when the lease has something to do; one that waits since ever is due at once.
func (h *leaseHolder) nextWake() time.Time {
	at, ok := h.core.NextWake()
	switch {
	case !ok:
		return time.Time{}
	case at.IsZero():
		return h.role.engine.stepped
	default:
		return at
	}
}
