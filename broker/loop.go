package broker

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/broker/engine"
)

// loop drives an engine: it runs its tasks on goroutines, brings their completions back, and wakes it when its time has come.
// Only the loop's goroutine calls Step.
type loop struct {
	engine  *engine.Engine
	wake    chan struct{} // holds one: somebody has work for the engine
	results chan finished
	tasks   sync.WaitGroup
	watch   sleepWatch
}

// finished is a task that has run.
type finished struct {
	lane     engine.Lane
	complete engine.Completion
}

func newLoop() *loop {
	return &loop{wake: make(chan struct{}, 1), results: make(chan finished), watch: newSleepWatch(timeAsleep)}
}

// now is the time. An engine whose machine slept hears of that first.
func (l *loop) now() time.Time {
	now := time.Now()
	if l.watch.woke() {
		l.engine.Slept(now)
	}
	return now
}

// Wake asks for a step soon. It never blocks.
func (l *loop) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run steps the engine until ctx ends and all tasks are back. Tasks see ctx end, too.
func (l *loop) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer l.drain()
	for {
		now := l.now()
		l.engine.Step(now)
		for _, task := range l.engine.Ready() {
			l.start(ctx, task)
		}
		next := time.Hour
		if at := l.engine.NextWake(); !at.IsZero() {
			next = max(at.Sub(now), 0)
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-l.wake:
		case f := <-l.results:
			l.engine.Complete(l.now(), f.lane, f.complete)
		}
	}
}

func (l *loop) start(ctx context.Context, task engine.Task) {
	l.tasks.Go(func() {
		l.results <- finished{lane: task.Lane, complete: task.Run(ctx)}
	})
}

// drain takes back the tasks that are still out, without acting on them.
func (l *loop) drain() {
	done := make(chan struct{})
	go func() {
		l.tasks.Wait()
		close(done)
	}()
	for {
		select {
		case <-l.results:
		case <-done:
			return
		}
	}
}
