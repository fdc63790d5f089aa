// Package guard stands between a broker and its object store. It is a Store over a Store that gives every call a deadline,
// tries again what may be tried again, keeps all callers together within a budget of requests while the store fails, and
// tells an observer of every request and what it was for.
//
// Get, Head, List, Delete and puts without a condition are tried again after an error that says nothing for good. A
// conditional put goes through exactly once and at once: its repetition would report our own success as a failure, and
// object.Settle is what decides such a put.
//
// Pauses grow exponentially and are drawn at random up to their bound, so that callers who failed together do not come
// back together. While the store fails (its last answer was no answer), every try but those for the lease, the metadata and of
// conditional puts takes a token from a bucket that refills at a fixed rate: a store that is down gets that many
// requests a second and no more, however many callers there are. A caller who would have to wait for long is refused.
//
// It starts no goroutine, and has no clock but the one that it is given.
package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
)

// Options say how a store is guarded. Zero fields take the values of the comments.
type Options struct {
	Clock   Clock             // the system's
	Random  func() float64    // at least 0 and below 1, math/rand/v2's; it must be safe for several goroutines
	Observe func(Observation) // nobody; called without a lock held, by the goroutine that made the request

	Deadline time.Duration // for a call, 15 s
	// LeaseDeadline is that for a call for the lease, 2 s: a connection that hangs must leave time for a second try while the lease holds.
	LeaseDeadline time.Duration
	Slowest       int64 // 1 MiB/s: the deadline is longer by what a body takes at this rate, in bytes a second

	Tries      int           // how often a call is tried in all, 5
	BackOff    time.Duration // bound of the first pause, 200 ms; each later one is twice the one before
	BackOffMax time.Duration // 10 s

	Rate    float64       // tries a second while the store fails, 20
	Burst   int           // tries at once while the store fails, 40
	MaxWait time.Duration // a caller who would have to wait longer for the budget is refused, 5 s
}

// The defaults. Lists and small objects of S3 take tens of milliseconds at the 99th percentile, so 15 s is an outage. A rate of
// 20 is far below the 3,500 writes a second that S3 gives a prefix, and finds a store that has come back within 50 ms.
func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = System()
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.Observe == nil {
		o.Observe = func(Observation) {}
	}
	if o.Deadline == 0 {
		o.Deadline = 15 * time.Second
	}
	if o.LeaseDeadline == 0 {
		o.LeaseDeadline = 2 * time.Second
	}
	if o.Slowest == 0 {
		o.Slowest = 1 << 20
	}
	if o.Tries == 0 {
		o.Tries = 5
	}
	if o.BackOff == 0 {
		o.BackOff = 200 * time.Millisecond
	}
	if o.BackOffMax == 0 {
		o.BackOffMax = 10 * time.Second
	}
	if o.Rate == 0 {
		o.Rate = 20
	}
	if o.Burst == 0 {
		o.Burst = 40
	}
	if o.MaxWait == 0 {
		o.MaxWait = 5 * time.Second
	}
	return o
}

// Store is a guarded store. It passes on what its inner store has beyond object.Store.
type Store struct {
	inner  object.Store
	parted object.Parted // inner, if it is that
	o      Options
	budget *budget
}

// New guards a store.
func New(inner object.Store, o Options) *Store {
	o = o.withDefaults()
	parted, _ := inner.(object.Parted)
	return &Store{inner: inner, parted: parted, o: o, budget: newBudget(o.Rate, o.Burst)}
}

// errBudget: the store fails, and too many wait for their turn to try.
var errBudget = fmt.Errorf("%w: it fails, and the budget of requests is spent", object.ErrUnavailable)

// retriable tells whether a call that failed so may succeed later.
func retriable(err error) bool {
	for _, final := range []error{
		object.ErrNotExist, object.ErrPrecondition, object.ErrRange, object.ErrKey, object.ErrTooLarge, object.ErrDenied,
	} {
		if errors.Is(err, final) {
			return false
		}
	}
	return err != nil
}

// admit waits for the budget where it has to. n counts the tries of a call from 1 on.
func (s *Store) admit(ctx context.Context, op Op, n int) error {
	cause := object.CauseOf(ctx)
	urgent := cause.Kind == object.CauseLease || cause.Kind == object.CauseMetadata
	wait, ok := s.budget.take(s.o.Clock.Now(), n > 1, urgent, s.o.MaxWait)
	if !ok {
		s.o.Observe(Observation{Op: op, Cause: cause, Again: n > 1, Err: errBudget})
		return errBudget
	}
	err := s.sleep(ctx, wait)
	if err != nil {
		s.budget.giveBack() // a caller who did not wait must not keep others waiting
	}
	return err
}

// sleep pauses for d, or says at once that ctx will be done before.
func (s *Store) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	if end, ok := ctx.Deadline(); ok && s.o.Clock.Now().Add(d).After(end) {
		return fmt.Errorf("%w: %w before the next try", object.ErrUnavailable, context.DeadlineExceeded)
	}
	s.o.Clock.Sleep(ctx, d)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", object.ErrUnavailable, err)
	}
	return nil
}

// backOff is the pause after the n-th failed try in a row.
func (s *Store) backOff(n int) time.Duration {
	bound := s.o.BackOff
	for range n - 1 {
		if bound >= s.o.BackOffMax/2 {
			bound = s.o.BackOffMax
			break
		}
		bound *= 2
	}
	return time.Duration(s.o.Random() * float64(bound))
}

// repeat calls try until it succeeds, fails for good, or has failed often enough.
func (s *Store) repeat(ctx context.Context, op Op, try func(n int) error) error {
	var last error
	for n := 1; ; n++ {
		if err := s.admit(ctx, op, n); err != nil {
			return errors.Join(last, err)
		}
		last = try(n)
		if !retriable(last) || n >= s.o.Tries || ctx.Err() != nil {
			return last
		}
		if err := s.sleep(ctx, s.backOff(n)); err != nil {
			return errors.Join(last, err)
		}
	}
}

// Get implements object.Store. The deadline holds until the body is closed. A body that breaks off is the caller's to ask for
// again, from where it broke.
func (s *Store) Get(ctx context.Context, key string, r object.Range) (*object.Object, error) {
	var got *object.Object
	err := s.repeat(ctx, Get, func(n int) error {
		c := s.begin(ctx, Get, r.Length, n)
		o, err := s.inner.Get(c.ctx, key, r)
		if err != nil {
			return c.end(err)
		}
		if size, err := r.Clip(o.Size); err == nil && r.Length == 0 {
			c.extend(size)
		}
		o.Body = &body{inner: o.Body, call: c}
		got = o
		return nil
	})
	return got, err
}

// Head implements object.Store.
func (s *Store) Head(ctx context.Context, key string) (object.Info, error) {
	var info object.Info
	err := s.repeat(ctx, Head, func(n int) error {
		c := s.begin(ctx, Head, 0, n)
		var err error
		info, err = s.inner.Head(c.ctx, key)
		return c.end(err)
	})
	return info, err
}

// Put implements object.Store. Of a body that goes in several requests each one is a call by itself.
func (s *Store) Put(ctx context.Context, key string, b object.Body, cond object.Condition) (object.Token, error) {
	if s.PartBytes(b.Size()) > 0 {
		return object.PutInParts(ctx, s, key, b, cond)
	}
	var token object.Token
	err := s.write(ctx, Put, cond, func(n int) error {
		c := s.begin(ctx, Put, b.Size(), n)
		var err error
		token, err = s.inner.Put(c.ctx, key, b, cond)
		return c.sent(b.Size(), err)
	})
	return token, err
}

// write calls try once if there is a condition, else until it succeeds.
func (s *Store) write(ctx context.Context, op Op, cond object.Condition, try func(n int) error) error {
	if cond.Kind != object.Always {
		return try(1)
	}
	return s.repeat(ctx, op, try)
}

// Delete implements object.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.repeat(ctx, Delete, func(n int) error {
		c := s.begin(ctx, Delete, 0, n)
		return c.end(s.inner.Delete(c.ctx, key))
	})
}

// pageKeys is how many keys S3 gives in an answer, to count the requests of a list.
const pageKeys = 1000

// List implements object.Store. The deadline is for the time between two keys, the caller's own not counted. After an error
// it goes on behind the last key that it has yielded.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[object.Info, error] {
	return func(yield func(object.Info, error) bool) {
		after, stopped := after, false
		page := func(n int) (progress bool, err error) {
			c := s.begin(ctx, List, 0, n)
			keys := 0
			for info, err := range s.inner.List(c.ctx, prefix, after) {
				if err != nil {
					return keys > 0, c.end(err)
				}
				if keys++; keys%pageKeys == 0 {
					c.seen.Requests++
				}
				after = info.Key
				c.pause()
				if stopped = !yield(info, nil); stopped {
					break
				}
				c.resume()
			}
			return false, c.end(nil)
		}
		for failures := 0; ; {
			err := s.admit(ctx, List, failures+1)
			if err == nil {
				var progress bool
				if progress, err = page(failures + 1); err == nil {
					return
				}
				if progress {
					failures = 0
				}
				if failures++; retriable(err) && failures < s.o.Tries && ctx.Err() == nil && s.sleep(ctx, s.backOff(failures)) == nil {
					continue
				}
			}
			yield(object.Info{}, err)
			return
		}
	}
}

// Skew implements object.Dated.
func (s *Store) Skew() (object.Skew, bool) { return object.SkewOf(s.inner, s.o.Clock.Now()) }

// sweepCalls is how many calls that take their whole deadline a sweep may be: a list and its deletes are many requests, and what they did
// not get to is the next sweep's.
const sweepCalls = 8

// SweepUploads implements object.UploadSweeper.
func (s *Store) SweepUploads(ctx context.Context, prefix string, before time.Time) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer s.o.Clock.AfterFunc(sweepCalls*s.o.Deadline, func() { cancel(errDeadline) }).Stop()
	n, err := object.SweepUploads(ctx, s.inner, prefix, before)
	if err != nil && errors.Is(context.Cause(ctx), errDeadline) {
		err = fmt.Errorf("%w: %w", errDeadline, object.ErrUnavailable)
	}
	return n, err
}

// body is an object's body that ends its call at its end, at an error, or when it is closed, whichever comes first.
type body struct {
	inner io.ReadCloser
	call  *call
	done  bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.inner.Read(p)
	b.call.seen.Bytes += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		_ = b.finish(nil)
	case err != nil:
		err = b.finish(fmt.Errorf("%w: %w", object.ErrUnavailable, err))
	}
	return n, err
}

func (b *body) Close() error {
	err := b.inner.Close()
	_ = b.finish(nil)
	return err
}

func (b *body) finish(err error) error {
	if b.done {
		return err
	}
	b.done = true
	return b.call.end(err)
}
