package engine

import (
	"errors"
	"time"

	"github.com/tidemark-io/tidemark/membership/lease"
)

// errReplaced: two processes that both take themselves for this broker would each acknowledge records that the other does not have.
var errReplaced = errors.New("another process with this broker's id has taken the controller's lease")

// Failed is closed when this process must not go on as this broker. It serves nobody any more; Failure says why.
func (e *Engine) Failed() <-chan struct{} { return e.failed }

// Failure is why Failed is closed, or nil.
func (e *Engine) Failure() error {
	if p := e.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// fail ends this broker's part in the cluster.
func (e *Engine) fail(now time.Time, err error) {
	if !e.failure.CompareAndSwap(nil, &err) {
		return
	}
	if e.recovery == nil || e.recovery.done { // else it never was: whoever asked for the recovery is told
		e.logger.Error("this process is not this broker any more", "err", err)
	}
	e.member.serve(false)
	e.role.lease.leave(now)
	close(e.failed)
}

// replacedBy tells whether a lease is that of a later incarnation of this broker (safety.md 10): of an earlier one it can be only as
// long as this one has not held the lease, or in an answer that is stale.
func (h *leaseHolder) replacedBy(record lease.Record) bool {
	e := h.role.engine
	return h.held != 0 && record.Epoch > h.held && record.Holder == e.self && record.Incarnation != e.incarnation
}
