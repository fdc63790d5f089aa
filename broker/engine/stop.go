package engine

import (
	"errors"
	"time"
)

// Served is closed when clients can be answered for the first time.
func (e *Engine) Served() <-chan struct{} { return e.member.served }

// Stop begins a controlled stop: leaderships move away, then the lease is released. It may be called by any goroutine and
// returns at once; Stopped tells the end.
func (e *Engine) Stop() {
	e.stopAsked.Store(true)
	e.wake()
}

// Stopped is closed when a controlled stop is over and Close may follow.
func (e *Engine) Stopped() <-chan struct{} { return e.stopped }

// stepStop takes a controlled stop further: what the bucket lacks goes there while this broker still leads, the heartbeat asks for
// leave, the controller moves everything away and fences this broker, the lease goes last, so that this broker can commit its own
// departure.
func (e *Engine) stepStop(now time.Time) {
	if e.stopAsked.Load() && e.Failure() != nil {
		e.endStop() // there is nothing left to hand over
		return
	}
	if !e.stopAsked.Load() || e.left && !e.lanes.idle(LaneLease) {
		return
	}
	if e.member.serve(false); !e.tier.close(now) {
		return
	}
	if !e.member.leaving {
		e.member.leave(now)
		return
	}
	if !e.member.mayStop || !e.lanes.idle(LaneChain) {
		return
	}
	if !e.left {
		e.left = true
		e.role.lease.leave(now)
		if !e.lanes.idle(LaneLease) {
			return
		}
	}
	e.endStop()
}

func (e *Engine) endStop() {
	select {
	case <-e.stopped:
	default:
		close(e.stopped)
	}
}

// Close flushes and closes the logs. The clean-shutdown marker carries the broker epoch, so that the controller can tell this stop
// from a crash; that of the stop before, where this incarnation came to none. It is called once, when nobody drives the engine any
// more.
func (e *Engine) Close(now time.Time) error {
	epoch := e.member.epoch
	if e.member.brokerEpoch() < 0 {
		epoch = e.logs.CleanEpoch()
	}
	return errors.Join(e.tier.end(), e.logs.Close(now, epoch))
}
