package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
)

// Op is a kind of request.
type Op string

// The requests of an object.Store.
const (
	Get    Op = "get"
	Head   Op = "head"
	Put    Op = "put"
	Delete Op = "delete"
	List   Op = "list"

	BeginUpload    Op = "begin-upload" // those of an object.Parted
	PutPart        Op = "put-part"
	CompleteUpload Op = "complete-upload"
	AbortUpload    Op = "abort-upload"
)

// Observation is what an observer is told of one try of one call.
type Observation struct {
	Op       Op
	Cause    object.Cause
	Requests int           // how many requests the store counts; 0 if the budget refused the try
	Bytes    int64         // of bodies: read so far, or put
	Duration time.Duration // to the end of the body; of a list without the caller's own time
	Again    bool          // the call was tried before
	Err      error
}

// Clock is what the guard knows of time. The simulator and tests have clocks of their own.
type Clock interface {
	Now() time.Time
	// Sleep returns after d, or as soon as ctx is done.
	Sleep(ctx context.Context, d time.Duration)
	// AfterFunc calls f after d, unless the timer is stopped or reset before, as time.AfterFunc does.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is what of *time.Timer is needed.
type Timer interface {
	Stop() bool
	Reset(d time.Duration) bool
}

// System is the system's clock.
func System() Clock { return system{} }

type system struct{}

func (system) Now() time.Time { return time.Now() }

func (system) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

func (system) Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// errDeadline is the cause of a context that a call's deadline has ended.
var errDeadline = errors.New("deadline")

// call is one try: its deadline, and what is going to be told of it.
type call struct {
	store  *Store
	ctx    context.Context // of the inner call; ends with the parent or the deadline
	parent context.Context
	cancel context.CancelCauseFunc
	timer  Timer
	limit  time.Duration
	begun  time.Time
	idle   time.Duration // spent with the caller
	since  time.Time     // begin of the pause that is on
	seen   Observation
}

func (s *Store) begin(ctx context.Context, op Op, size int64, n int) *call {
	cause := object.CauseOf(ctx)
	c := &call{
		store: s, parent: ctx, begun: s.o.Clock.Now(), limit: s.limit(cause, size),
		seen: Observation{Op: op, Cause: cause, Requests: 1, Again: n > 1},
	}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.timer = s.o.Clock.AfterFunc(c.limit, func() { c.cancel(errDeadline) })
	return c
}

// limit is the deadline of a call that moves so many bytes.
func (s *Store) limit(cause object.Cause, size int64) time.Duration {
	if cause.Kind == object.CauseLease {
		return min(s.o.LeaseDeadline, s.o.Deadline)
	}
	return s.o.Deadline + time.Duration(float64(size)/float64(s.o.Slowest)*float64(time.Second))
}

// extend gives the call the deadline for a body whose size came with the answer.
func (c *call) extend(size int64) {
	c.limit = c.store.limit(c.seen.Cause, size)
	c.timer.Reset(c.limit - c.store.o.Clock.Now().Sub(c.begun))
}

// pause stops the clock while the caller is at work, resume starts it anew.
func (c *call) pause() {
	c.timer.Stop()
	c.since = c.store.o.Clock.Now()
}

func (c *call) resume() {
	c.idle += c.store.o.Clock.Now().Sub(c.since)
	c.since = time.Time{}
	c.timer.Reset(c.limit)
}

// sent is end for a call that puts a body.
func (c *call) sent(size int64, err error) error {
	if err == nil {
		c.seen.Bytes = size
	}
	return c.end(err)
}

// end closes the call, tells of it, and returns its error, which names the deadline if that was it.
func (c *call) end(err error) error {
	c.timer.Stop()
	overdue := errors.Is(context.Cause(c.ctx), errDeadline)
	c.cancel(nil)
	if err != nil && overdue {
		err = fmt.Errorf("%w: no answer within %s: %w", object.ErrUnavailable, c.limit, err)
	}
	now := c.store.o.Clock.Now()
	if !c.since.IsZero() {
		c.idle += now.Sub(c.since)
	}
	c.seen.Duration, c.seen.Err = now.Sub(c.begun)-c.idle, err
	if c.parent.Err() == nil { // whoever is called off says nothing about the store
		c.store.budget.note(!retriable(err))
	}
	c.store.o.Observe(c.seen)
	return err
}
