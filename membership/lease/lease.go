// Package lease decides which broker tries to be the controller. One object in the store names it, swapped by If-Match.
//
// The lease is about liveness only. Taken too early it costs a duel and never a conflict, because the metadata chain
// decides who commits. Nobody compares wall clocks: the holder counts from before its last successful renewal was sent and
// stops a guard before the ttl; an observer counts from after it saw the lease change, and waits longer than the ttl
// (docs/safety.md, rule 12).
//
// Lease is the core: events in, at most one action out, no I/O and no clock. Do carries an action out against the store.
package lease

import (
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/object"
)

// Config of a Lease.
type Config struct {
	ClusterID   string
	Broker      wire.BrokerID
	Incarnation string // of this run of the broker
	Endpoint    string // where brokers reach this one

	// Former is the incarnation that used the data directories before. Holding their lock proves that it is dead, so its
	// lease is taken at once and a restart never waits for a ttl. Empty without such a proof.
	Former string

	// Founder: this broker has created the cluster in this run, so nobody else waits for the first lease.
	Founder bool

	TTL   time.Duration // lease.ttl.ms
	Renew time.Duration // lease.renew.ms

	Nonce  func() string                           // gives a value that nobody has ever used
	Jitter func(below time.Duration) time.Duration // in [0, below)
}

// The margins of time (docs/safety.md, rule 12; docs/object-store.md, section 4).
const (
	guardMin       = time.Second            // the holder stops this long, or a tenth of the ttl, before the ttl
	observerMargin = time.Second            // an observer waits a twentieth of the ttl and this longer than the ttl
	candidateDelay = 500 * time.Millisecond // candidates spread their tries, so that three of them cost one write
	earlyRenewals  = 2                      // missed ones, before a holder that is said to be dead is followed early
	holdOffTTLs    = 10                     // the longest pause after the lease lapsed again and again, in ttls
)

// guard is how long before the ttl the holder stops.
func guard(ttl time.Duration) time.Duration { return max(ttl/10, guardMin) }

// patience is how long an observer lets a lease stand unchanged.
func patience(ttl time.Duration) time.Duration { return ttl + ttl/20 + observerMargin }

// Op is a kind of action.
type Op int8

// The actions.
const (
	OpNone  Op = iota
	OpRead     // read the lease
	OpWrite    // put Record under Condition
)

// Action is a request to the store. There is one at a time: the next follows the event that Do has made of this one.
type Action struct {
	Op        Op
	Record    Record
	Condition object.Condition
}

// Event is what a Lease learns.
type Event interface{ isEvent() }

type (
	// Tick: time has passed.
	Tick struct{}

	// ReadDone: what a read has found. Without Record and Err there is no lease.
	ReadDone struct {
		Record *Record
		Token  object.Token
		Err    error
	}

	// WriteDone: what became of a write. Record and Token are what stands now, for all but Unknown.
	WriteDone struct {
		Outcome object.Outcome
		Record  *Record
		Token   object.Token
		Err     error
	}

	// HolderDead: gossip and a direct probe both say that this incarnation is dead.
	HolderDead struct {
		Broker      wire.BrokerID
		Incarnation string
	}

	// ChainTail: the metadata chain's last entry has this epoch (0: there is none). Without it nobody is a candidate.
	ChainTail struct{ Epoch int64 }

	// Resign: give the lease up, and be no candidate for that long; for good if StayOut is negative. The caller has
	// stopped committing before.
	Resign struct{ StayOut time.Duration }
)

func (Tick) isEvent()       {}
func (ReadDone) isEvent()   {}
func (WriteDone) isEvent()  {}
func (HolderDead) isEvent() {}
func (ChainTail) isEvent()  {}
func (Resign) isEvent()     {}

// Lease is one broker's part in the election. It is not safe for use by several goroutines at once.
type Lease struct {
	cfg Config

	epoch      int64 // the highest ever seen, in the lease or in the chain
	chainKnown bool  // the chain's is among them

	// What was observed.
	observed   bool // since the start or the last fall: what follows is a base for a write
	current    *Record
	token      object.Token
	changedAt  time.Time // when the present token was first seen, at the end of that request
	dead       HolderDead
	unreadable error

	// What is held.
	held       bool
	validUntil time.Time
	renewAt    time.Time
	resigning  bool

	// The request on its way, or the renewal whose outcome is unknown: that is sent again as it was.
	busy    bool
	sent    *Action
	sentAt  time.Time // of the first try
	retryAt time.Time

	// As a follower.
	readAt     time.Time
	tryAt      time.Time // when to become a candidate; zero: not decided
	lapses     int       // in a row, without a renewal between
	outUntil   time.Time
	outForGood bool
}

// New checks the configuration and returns a follower that knows nothing.
func New(cfg Config) (*Lease, error) {
	if cfg.Renew <= 0 || cfg.TTL > durationMax || cfg.TTL-guard(cfg.TTL) < 2*cfg.Renew {
		return nil, fmt.Errorf("lease of %v renewed each %v: less %v, a ttl of at most %v must leave time for two renewals",
			cfg.TTL, cfg.Renew, guard(cfg.TTL), durationMax)
	}
	return &Lease{cfg: cfg}, nil
}

// Holds tells whether this broker may act as the controller at this moment, and under which epoch. It is asked right before
// each commit.
func (l *Lease) Holds(now time.Time) (epoch int64, ok bool) {
	if !l.held || l.resigning || !now.Before(l.validUntil) {
		return 0, false
	}
	return l.current.Epoch, true
}

// ValidUntil is when Holds ends if no renewal succeeds before; zero while the lease is not held.
func (l *Lease) ValidUntil() time.Time {
	if !l.held || l.resigning {
		return time.Time{}
	}
	return l.validUntil
}

// Current is the lease as last seen, which names the controller; false if there is none.
func (l *Lease) Current() (Record, bool) {
	if l.current == nil {
		return Record{}, false
	}
	return *l.current, true
}

// Unreadable says why nobody can take the lease, nil if somebody can.
func (l *Lease) Unreadable() error { return l.unreadable }

// Step learns of an event. now must be of a clock that goes on while the machine sleeps (CLOCK_BOOTTIME): a holder whose
// clock stands still would outlive its lease.
func (l *Lease) Step(now time.Time, ev Event) Action {
	switch ev := ev.(type) {
	case ReadDone:
		l.busy = false
		l.readDone(now, ev)
	case WriteDone:
		l.busy = false
		l.writeDone(now, ev)
	case HolderDead:
		l.dead = ev
	case ChainTail:
		l.chainKnown = true
		l.epoch = max(l.epoch, ev.Epoch)
		if l.held && ev.Epoch > l.current.Epoch {
			l.fall() // somebody has the right to a higher epoch
		}
	case Resign:
		l.resigning = l.held
		l.outForGood = l.outForGood || ev.StayOut < 0
		l.outUntil = later(l.outUntil, now.Add(ev.StayOut))
	}
	if l.held && !l.resigning && !now.Before(l.validUntil) {
		l.lapse(now)
	}
	if l.busy {
		return Action{}
	}
	a := l.next(now)
	l.busy = a.Op != OpNone
	return a
}

// NextWake is when Step has something to do though nothing has happened; false while it waits for an event.
func (l *Lease) NextWake() (time.Time, bool) {
	switch {
	case l.held && !l.resigning && l.busy:
		return l.validUntil, true
	case l.busy:
		return time.Time{}, false
	case l.held && l.sent != nil:
		return earlier(l.validUntil, l.retryAt), true
	case l.held:
		return earlier(l.validUntil, l.renewAt), true
	}
	if at, ok := l.candidateAt(); ok {
		return earlier(l.readAt, at), true
	}
	return l.readAt, true
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// next picks the action that is due.
func (l *Lease) next(now time.Time) Action {
	switch {
	case l.held && l.resigning:
		return l.send(now, l.successor(l.current.Epoch, Released))
	case l.held && l.sent != nil:
		if now.Before(l.retryAt) {
			return Action{}
		}
		return *l.sent // as it was: it may have been carried out, and then this try is none
	case l.held:
		if now.Before(l.renewAt) {
			return Action{}
		}
		return l.send(now, l.successor(l.current.Epoch, Held))
	}
	if at, ok := l.candidateAt(); ok && !now.Before(at) {
		if l.tryAt.IsZero() && l.contended() {
			l.tryAt = now.Add(l.cfg.Jitter(candidateDelay))
		}
		if !now.Before(l.tryAt) {
			return l.send(now, l.successor(l.epoch+1, Held))
		}
	}
	if now.Before(l.readAt) {
		return Action{}
	}
	l.readAt = now.Add(l.cfg.Renew + l.cfg.Jitter(l.cfg.Renew/4))
	return Action{Op: OpRead}
}

// successor is the record that follows the current one.
func (l *Lease) successor(epoch int64, state State) Record {
	r := Record{
		Version: formatVersion, ClusterID: l.cfg.ClusterID, Epoch: epoch, State: state,
		Holder: l.cfg.Broker, Incarnation: l.cfg.Incarnation, Endpoint: l.cfg.Endpoint,
		Seq: 1, Nonce: l.cfg.Nonce(), TTLMs: l.cfg.TTL.Milliseconds(), RenewMs: l.cfg.Renew.Milliseconds(),
	}
	if l.current != nil {
		r.Seq, r.PrevNonce = l.current.Seq+1, l.current.Nonce
	}
	return r
}

func (l *Lease) send(now time.Time, r Record) Action {
	r.WallMs = now.UnixMilli()
	a := Action{Op: OpWrite, Record: r, Condition: object.IfAbsent()}
	if l.current != nil {
		a.Condition = object.IfMatch(l.token)
	}
	l.sent, l.sentAt = &a, now
	return a
}

// candidateAt is when this broker may try for the lease, by what it has observed.
func (l *Lease) candidateAt() (time.Time, bool) {
	if !l.observed || !l.chainKnown || l.unreadable != nil || l.outForGood {
		return time.Time{}, false
	}
	at := l.outUntil
	if l.current == nil || l.current.State == Released || l.alone() {
		return later(at, l.tryAt), true
	}
	free := l.changedAt.Add(patience(l.current.ttl()))
	if l.current.byIncarnation(l.dead.Broker, l.dead.Incarnation) {
		free = l.changedAt.Add(earlyRenewals * l.current.renew())
	}
	return later(later(at, free), l.tryAt), true
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// alone: the lease names this broker, as it is now or as it was before. Nobody else can take it now, so there is nothing
// to wait for.
func (l *Lease) alone() bool {
	c := l.current
	return c != nil && c.State == Held && (c.byIncarnation(l.cfg.Broker, l.cfg.Incarnation) || l.isFormer(c))
}

// contended: others may be about to try for the lease as well. They are not where this broker has just founded the cluster;
// and where it released the lease when it last stopped, they had the time to take it.
func (l *Lease) contended() bool {
	if l.current == nil {
		return !l.cfg.Founder
	}
	return !l.alone() && !l.isFormer(l.current)
}

func (l *Lease) isFormer(r *Record) bool {
	return l.cfg.Former != "" && r.byIncarnation(l.cfg.Broker, l.cfg.Former)
}

// observe takes in what stands in the store now.
func (l *Lease) observe(now time.Time, r *Record, token object.Token) {
	l.unreadable = nil
	if r != nil && r.ClusterID != l.cfg.ClusterID {
		l.unreadable = fmt.Errorf("%w: it belongs to cluster %q", ErrRecord, r.ClusterID)
		return
	}
	l.observed = true
	first := l.changedAt.IsZero()
	if !first && (r == nil) == (l.current == nil) && (r == nil || token == l.token && r.Seq == l.current.Seq) {
		return // stands as it stood
	}
	if !first {
		l.dead = HolderDead{} // whoever it was, something is alive
	}
	l.changeTo(now, r, token)
}

func (l *Lease) changeTo(now time.Time, r *Record, token object.Token) {
	l.current, l.token, l.changedAt = r, token, now
	l.tryAt = time.Time{}
	if r != nil {
		l.epoch = max(l.epoch, r.Epoch)
	}
}

func (l *Lease) readDone(now time.Time, ev ReadDone) {
	switch {
	case errors.Is(ev.Err, ErrRecord):
		l.unreadable = ev.Err
	case ev.Err == nil:
		l.observe(now, ev.Record, ev.Token)
	}
}

func (l *Lease) writeDone(now time.Time, ev WriteDone) {
	if l.sent == nil {
		return // fallen meanwhile; a read will tell
	}
	renewal := l.held
	switch {
	case ev.Outcome == object.Done && l.sent.Record.State == Held:
		if renewal {
			l.lapses = 0
		}
		l.held = true
		l.resigning = l.resigning || l.outForGood || now.Before(l.outUntil) // resigned while it was on its way
		l.validUntil = l.sentAt.Add(l.cfg.TTL - guard(l.cfg.TTL))
		l.renewAt = l.sentAt.Add(l.cfg.Renew)
		l.sent = nil
		l.changeTo(now, ev.Record, ev.Token)
	case ev.Outcome != object.Unknown: // lost, or released
		l.fall()
		l.observe(now, ev.Record, ev.Token)
		l.readAt = now.Add(l.cfg.Renew)
	case renewal && !l.resigning:
		l.retryAt = now.Add(l.pause())
	default:
		l.fall()
		l.readAt = now.Add(l.pause())
	}
}

// pause is between two tries at a store that does not answer.
func (l *Lease) pause() time.Duration { return l.cfg.Renew/4 + l.cfg.Jitter(l.cfg.Renew/4) }

// lapse is a fall because no renewal came through in time. A store that is too slow for the ttl must not make the lease
// go round in circles, so each lapse in a row doubles the pause before this broker tries again.
func (l *Lease) lapse(now time.Time) {
	l.fall()
	pause := min(l.cfg.Renew<<min(l.lapses, 20), holdOffTTLs*l.cfg.TTL)
	l.lapses++
	l.outUntil = later(l.outUntil, now.Add(pause))
}

// fall ends every claim. What stands in the store is not known now: only a read makes this broker a candidate again.
func (l *Lease) fall() {
	l.held, l.resigning, l.observed = false, false, false
	l.sent = nil
	l.readAt, l.tryAt = time.Time{}, time.Time{}
}
