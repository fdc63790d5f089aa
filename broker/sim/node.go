package sim

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/engine"
	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/object"
)

// node is a broker over all its runs: what the shell and the machine under it are to an engine.
type node struct {
	c        *cluster
	settings *config.Broker
	random   *rand.Rand // when tasks run and what the engine draws
	disk     *disk

	run      int       // counts starts of the process
	opened   time.Time // when the run's engine was
	boot     int       // counts starts of the machine
	engine   *engine.Engine
	state    nodeState
	wipeNext bool   // the disks are lost after the next clean stop
	ended    ending // of the run before
	joined   bool   // some run has opened: before, the store is on trial, and a fault would be a reason to refuse it

	recovery recovery
	stale    bool // the disks are lost soon after the next start
	pumping  bool // what is read from the bucket is there at once

	wakeAt time.Time // of the step that is scheduled; zero: none
	out    []*task   // tasks that are out, in the order in which they were handed out
	conns  []*conn
}

type nodeState int8

const (
	down     nodeState = iota
	starting           // the engine steps, clients can't connect yet
	auditing           // clients could connect, if what the run before has left were not looked at first
	serving
	stopping // clients are cut off, the engine hands over
)

func (s nodeState) String() string {
	return [...]string{"down", "starting", "audited", "serving", "stopping"}[s]
}

// ending is how a run ended.
type ending int8

const (
	never          ending = iota // there was none
	cleanly                      // Close has returned without an error
	killed                       // by a process crash, or by a stop that failed
	powerless                    // by a power loss
	cleanPowerless               // cleanly, and then the machine lost its power
	wiped                        // somehow, and then the disks were lost
)

func (e ending) String() string {
	return [...]string{"the first start", "a clean stop", "a process crash", "a power loss", "a clean stop and a power loss", "the loss of its disks"}[e]
}

// lossy tells whether what was not flushed may be gone.
func (e ending) lossy() bool { return e == powerless || e == cleanPowerless }

// task is a task of the engine that is out.
type task struct {
	engine.Task
	started bool
}

func newNode(c *cluster, settings *config.Broker) *node {
	return &node{c: c, settings: settings, random: c.stream("node"), disk: newDisk(c)}
}

// guard runs a piece of the broker. A crash inside it ends the run; any other panic is a finding.
func (n *node) guard(f func()) {
	run := n.run
	defer func() {
		switch r := recover().(type) {
		case nil:
		case crash:
			n.crash(r)
		default:
			n.c.fail("run %d panics: %v\n%s", run, r, debug.Stack())
		}
	}()
	f()
}

// later makes f happen after d if the run lasts that long. f is guarded.
func (n *node) later(d time.Duration, f func()) {
	run := n.run
	n.c.clock.after(d, func() {
		if n.run == run && n.engine != nil {
			n.guard(f)
		}
	})
}

// start opens the engine. Where it refuses, it is started again a little later, as any supervisor would.
func (n *node) start() {
	n.run++
	n.c.trace.add("broker", "run %d opens, boot %d, after %s", n.run, n.boot, n.ended)
	n.guard(func() {
		seed := n.c.stream("engine-" + strconv.Itoa(n.run))
		e, err := engine.Open(context.Background(), n.c.clock.now, engine.Options{
			Config: n.settings, FS: n.disk.fs, Store: n.c.bucket.view,
			Advertised:  []metadata.Listener{{Name: "PLAINTEXT", Host: "sim", Port: 9092, Protocol: "PLAINTEXT"}},
			Incarnation: "run-" + strconv.Itoa(n.run), BootID: "boot-" + strconv.Itoa(n.boot),
			Rand: seed, Logger: slog.New(logHandler{trace: n.c.trace}), Wake: n.wake, Recover: n.recovery.asked,
		})
		if n.dataMissing(err) {
			return
		}
		if err != nil {
			n.refused(err)
			return
		}
		n.noteRecovery(e)
		n.engine, n.state, n.joined, n.opened = e, starting, true, n.c.clock.now
		n.wakeAt = time.Time{}
		n.wake()
	})
}

// refused ends a run that did not begin. Where the store or the disk is at fault, that is all right.
func (n *node) refused(err error) {
	n.c.trace.add("broker", "run %d is refused: %v", n.run, err)
	n.c.stats.Refused++
	excused := errors.Is(err, object.ErrUnavailable) || n.disk.full && (errors.Is(err, vfs.ErrNoSpace) || errors.Is(err, log.ErrStorage)) ||
		n.disk.failing != "" && errors.Is(err, log.ErrStorage)
	if !excused {
		n.c.fail("run %d does not open: %v", n.run, err)
		return
	}
	n.disk.crashed(processCrash) // the process ends
	n.end(killed)
}

// end forgets the run and plans the next one.
func (n *node) end(how ending) {
	n.engine, n.state = nil, down
	n.out, n.wakeAt = nil, time.Time{}
	// Whether a flush took place that nobody noted does not matter: the weaker promise holds on until a restart has shown
	// what there is.
	n.ended = max(n.ended, how)
	n.disk.setFailing("")
	if n.random.IntN(3) > 0 {
		n.disk.setFull(false)
	}
	n.c.clock.after(n.between(50*time.Millisecond, 3*time.Second), n.start)
}

// between draws a duration, short ones more often.
func (n *node) between(low, high time.Duration) time.Duration {
	f := n.random.Float64()
	return low + time.Duration(f*f*f*float64(high-low))
}

// wake is engine.Options.Wake: there is something to do before the moment it asked for.
func (n *node) wake() {
	n.wakeBy(n.c.clock.now.Add(time.Duration(n.random.IntN(300)) * time.Microsecond))
}

func (n *node) wakeBy(at time.Time) {
	if !n.wakeAt.IsZero() && !at.Before(n.wakeAt) {
		return
	}
	n.wakeAt = at
	run := n.run
	n.c.clock.at(at, func() {
		if n.run == run && n.engine != nil && n.wakeAt.Equal(at) {
			n.wakeAt = time.Time{}
			n.guard(n.step)
		}
	})
}

// step is one turn of the shell's loop.
func (n *node) step() {
	e := n.engine
	e.Step(n.c.clock.now)
	for _, t := range e.Ready() {
		n.launch(t)
	}
	if e.Failure() != nil && n.ended == wiped { // its recovery met a renewal or an entry that was late: its process ends, and is started again
		n.crash(processCrash)
		return
	}
	if next := e.NextWake(); !next.IsZero() {
		n.wakeBy(next)
	}
	select {
	case <-e.Served():
		if n.state == starting {
			n.state = auditing
			n.c.trace.add("broker", "run %d serves", n.run)
			n.audit()
		}
	default:
	}
	select {
	case <-e.Stopped():
		n.close()
	default:
	}
}

// launch runs a task at a moment of its own and brings its completion back at another.
func (n *node) launch(t engine.Task) {
	if n.pumping && t.Lane == engine.LaneCold {
		n.c.bucket.quiet = true
		complete := t.Run(context.Background())
		n.c.bucket.quiet = false
		n.engine.Complete(n.c.clock.now, t.Lane, complete)
		return
	}
	out := &task{Task: t}
	n.out = append(n.out, out)
	if t.Lane == engine.LaneCold {
		n.c.stats.ColdReads++
	}
	n.later(n.taskDelay(t.Lane), func() {
		out.started = true
		n.c.trace.add("task", "%s runs", t.Lane)
		complete := t.Run(context.Background())
		n.later(n.taskDelay(t.Lane), func() {
			n.returned(out)
			n.c.trace.add("task", "%s is back", t.Lane)
			n.engine.Complete(n.c.clock.now, t.Lane, complete)
			n.step()
		})
	})
}

func (n *node) returned(t *task) {
	for i := range n.out {
		if n.out[i] == t {
			n.out = append(n.out[:i:i], n.out[i+1:]...)
			return
		}
	}
}

// taskDelay is how long a task waits to run, or its outcome to be heard of. Half of a slow store call is before the call.
func (n *node) taskDelay(lane engine.Lane) time.Duration {
	slow := n.c.plan.slowTasks && n.random.IntN(40) == 0
	switch {
	case slow && onStore(lane):
		return n.between(100*time.Millisecond, 4*time.Second)
	case slow:
		return n.between(100*time.Millisecond, 10*time.Second)
	}
	return n.between(50*time.Microsecond, 30*time.Millisecond)
}

// onStore tells whether the tasks of a lane are calls to the store.
func onStore(lane engine.Lane) bool {
	return lane == engine.LaneLease || lane == engine.LaneChain || lane == engine.LaneSnapshot || lane == engine.LaneTier
}

// crash ends the run. Of the answers that were on their way some arrive, and calls to the store that were on their way may
// still be carried out.
func (n *node) crash(kind crash) {
	n.c.trace.add("broker", "run %d ends: %s", n.run, kind)
	n.c.bucket.crashIn = 0
	if kind == powerLoss {
		n.noteFlushed()
		n.c.ledger.uploaded()
	}
	n.disk.crashed(kind)
	out := n.out
	n.engine, n.state = nil, down
	n.disconnectAll()
	if kind == powerLoss {
		n.boot++
		n.c.stats.PowerLosses++
		n.end(powerless)
	} else {
		n.c.stats.ProcessCrashes++
		n.end(killed)
	}
	for _, t := range out {
		// Work of the tier uses logs, whose locks died with whoever held them.
		if onStore(t.Lane) && t.Lane != engine.LaneTier && !t.started && n.random.IntN(3) == 0 {
			n.c.trace.add("task", "%s was on its way", t.Lane)
			n.c.bucket.ghost = true
			t.Run(context.Background())
			n.c.bucket.ghost = false
		}
	}
}

// flushSlack is how much later than flush.ms a flush may be: the scheduler's interval, tasks of the disk before it, the task itself.
const flushSlack = 2 * time.Second

// noteFlushed notes what log.flush.interval.ms has brought to disk by now, where nothing kept it from that.
func (n *node) noteFlushed() {
	p := &n.c.plan
	since := n.c.clock.now.Add(-time.Duration(p.flushMs)*time.Millisecond - flushSlack)
	audited := n.ended == never // else the ledger does not know yet what the run before has lost
	if p.flushMs > 0 && !p.slowTasks && audited && n.opened.Before(since) && n.disk.sound(since) {
		n.c.ledger.flushedBefore(since)
	}
}

func (n *node) disconnectAll() {
	conns := n.conns
	n.conns = nil
	for _, x := range conns {
		x.cut(n.random.IntN(2) == 0)
	}
}

// stopLimit is the shell's: what a controlled stop has not done by then is left undone.
const stopLimit = 30 * time.Second

// stop begins a controlled stop.
func (n *node) stop() {
	n.c.trace.add("broker", "run %d is asked to stop", n.run)
	n.state = stopping
	n.disconnectAll()
	n.guard(n.engine.Stop)
	n.later(stopLimit, func() {
		n.c.trace.add("broker", "run %d is out of patience", n.run)
		n.close()
	})
}

// close ends a controlled stop: tasks that are out see their context end, nobody acts on what they bring.
func (n *node) close() {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, t := range n.out {
		if !t.started {
			t.Run(over)
		}
	}
	err := n.engine.Close(n.c.clock.now)
	n.c.trace.add("broker", "run %d is closed: %s", n.run, outcome(err))
	n.c.stats.CleanStops++
	n.disk.crashIn, n.c.bucket.crashIn = 0, 0
	how := cleanly
	if err != nil {
		how = killed
		n.disk.crashed(processCrash)
	} else {
		n.c.ledger.flushed()
	}
	if n.c.plan.powerLosses && n.random.IntN(4) == 0 {
		n.c.trace.add("fault", "power loss after the stop")
		n.disk.crashed(powerLoss)
		n.boot++
		if how = cleanPowerless; err != nil {
			how = powerless
		}
	} else if err == nil {
		n.disk.crashed(processCrash) // open files do not outlive the process
	}
	n.end(how)
	whole := err == nil && n.c.plan.tier.wipes && n.saysWhole()
	if n.wipeNext && !whole && n.c.plan.tier.shutdownMs >= longShutdownMs {
		n.c.fail("after a clean stop with time enough and nothing in the way the bucket has not all")
	}
	if n.wipeNext || n.c.plan.tier.wipes && n.random.IntN(3) == 0 {
		n.wipe(whole)
	} else if whole && n.random.IntN(2) == 0 {
		n.stale = true
	}
}

// handle gives a request to the broker.
func (n *node) handle(request *api.Request) api.Reply {
	reply := api.Reply{Outcome: api.Close}
	n.guard(func() { reply = n.engine.Handle(n.c.clock.now, request) })
	return reply
}

// The audit of a run is tried again while coordinators load, and has to succeed in time.
const (
	auditRetry = 20 * time.Millisecond
	auditLimit = 30 * time.Second
)

// audit holds what the run before has left against the ledger, and then lets the clients in.
func (n *node) audit() {
	began := n.c.clock.now
	var try func()
	try = func() {
		if n.state != auditing {
			return
		}
		a := audit{c: n.c, ended: n.ended}
		n.disk.paused(func() { a.run() })
		switch {
		case a.notYet == "":
			n.ended, n.state, n.recovery = never, serving, recovery{}
			if n.stale {
				n.stale = false
				n.wipeSoon()
			}
		case n.c.clock.now.Sub(began) > n.c.plan.tier.auditLimit():
			n.giveUpFailingDisk()
			n.c.fail("after %s, for %s: %s", n.ended, n.c.plan.tier.auditLimit(), a.notYet)
		default:
			n.later(auditRetry, try)
		}
	}
	try()
}

// giveUpFailingDisk ends the run where a log directory has failed since it began: what lies there can't be read before the next one.
func (n *node) giveUpFailingDisk() {
	if n.disk.failing != "" {
		panic(processCrash)
	}
}

// pumpsMax is more turns than any request needs.
const pumpsMax = 100

// pump lets the broker read at once, and past all faults, what only the bucket has: this moment goes on until done.
func (n *node) pump(done func() bool) {
	n.pumping = true
	for i := 0; i < pumpsMax && !done() && n.engine != nil; i++ {
		n.guard(n.step)
	}
	n.pumping = false
}

// ask puts a request to the broker that it has to answer at once, but for what it has to read from the bucket.
func (n *node) ask(request kmsg.Request) kmsg.Response {
	response, answered := n.tryAsk(request)
	if !answered {
		n.c.fail("%s v%d is not answered at once", kmsg.NameForKey(request.Key()), request.GetVersion())
	}
	return response
}

// tryAsk is ask where the answer may come later: nobody hears it then.
func (n *node) tryAsk(request kmsg.Request) (response kmsg.Response, answered bool) {
	e := &exchange{request: request, body: request.AppendTo(nil), response: request.ResponseKind()}
	e.response.SetVersion(request.GetVersion())
	name := kmsg.NameForKey(request.Key())
	late := false
	reply := n.handle(&api.Request{
		RequestHeader: wire.RequestHeader{Key: wire.APIKey(request.Key()), Version: request.GetVersion()},
		Session:       &api.Session{ID: "audit", Listener: "PLAINTEXT", Principal: "User:ANONYMOUS"}, Body: e.body, Arrived: n.c.clock.now,
		Complete: func(reply api.Reply) {
			if late {
				release(reply)
				return
			}
			e.answered, e.reply = true, reply
		},
	})
	if reply.Outcome == api.Parked {
		n.pump(func() bool { return e.answered })
		reply, late = e.reply, !e.answered
	}
	if reply.Outcome != api.Respond || len(reply.Parts) == 0 {
		return nil, false
	}
	frame, err := assemble(reply)
	release(reply)
	if err == nil {
		err = e.decode(frame)
	}
	if err != nil {
		n.c.fail("answer to %s v%d: %v", name, request.GetVersion(), err)
		return nil, true
	}
	return e.response, true
}
