package engine

import (
	"context"
	"encoding/hex"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/group"
	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier"
	"github.com/tidemark-io/tidemark/tier/cold"
	"github.com/tidemark-io/tidemark/tier/object"
)

// Options are what an engine is made of. All are required unless they say otherwise.
type Options struct {
	Config      *config.Broker
	FS          vfs.FS
	Store       object.Store
	Advertised  []metadata.Listener // where clients reach this broker
	Incarnation string              // of this process: new with every start
	BootID      string              // of the kernel; "" if unknown
	// Rand is the one source of randomness: ids, nonces, jitter, placement. Session ids must not be guessed: seed it well
	// outside of the simulator.
	Rand *rand.Rand
	// Run is the executor for parallel recovery; nil: one by one.
	Run func(n int, work func(i int))
	// Go runs a function beside the caller: downloads, which outlive whoever asked for them; nil: before it returns. Clock is
	// the time while tasks run, nil: that of the last step. Sleep waits, for rates; nil: there are none. Yield is called between pieces of
	// long work, to let requests be answered; nil: none come meanwhile.
	Go     func(func())
	Clock  func() time.Time
	Sleep  func(ctx context.Context, d time.Duration) error
	Yield  func()
	Logger *slog.Logger
	// Wake is called, by any goroutine and with no locks held, when Step has something to do before NextWake.
	Wake func()
	// Recover brings the cluster back from its bucket alone where this broker's log directories are new, at the price of what was
	// never uploaded (safety.md 30). Without it only a cluster of which nothing is lost is taken up so.
	Recover bool
	// Reconfigured is told of the settings, with the dynamic ones: by Open, before it opens the logs, and by whoever calls Step
	// whenever they change. It must not block. May be nil.
	Reconfigured func(*config.Broker)
}

// Engine is one broker.
type Engine struct {
	config    *config.Broker                // static
	settings  atomic.Pointer[config.Broker] // with the dynamic settings
	self      wire.BrokerID
	clusterID string
	// clusterIncarnation counts recoveries of the cluster from its bucket: that of the log directories.
	clusterIncarnation int64
	fs                 vfs.FS
	incarnation        string
	logger             *slog.Logger
	wake               func()
	reconfigured       func(*config.Broker)
	random             *lockedRand

	logs     *log.Manager
	replicas *replica.Manager
	groups   *group.Coordinator
	tier     tiering
	api      *api.Server

	image atomic.Pointer[metadata.Image] // as applied by this broker

	inbox inbox
	lanes lanes

	// The following belong to whoever calls Step.
	role       controllerRole
	member     member
	producers  producerIDs
	upkeep     upkeep
	reloads    reloads
	stepped    time.Time // the newest now
	keeping    bool      // keptFile is being written
	keepDue    time.Time
	keptOffset wire.Offset // of the image in keptFile

	recovery   *recovery  // of the cluster from its bucket; nil: there is none in this run
	recovering recovering // partitions

	gone []string // topics that were deleted between the former incarnation's death and the start

	placementsDue bool // the controller may not know yet where logs lie
	placing       bool // it is being told

	stopAsked atomic.Bool
	left      bool          // the lease was given up for good
	stopped   chan struct{} // closed when nothing is left to do but Close

	failure atomic.Pointer[error]
	failed  chan struct{} // closed with failure
}

// Handle answers a request or parks it. It may be called by many goroutines at once, as soon as Ready to serve is true.
func (e *Engine) Handle(now time.Time, request *api.Request) api.Reply {
	if err := e.Failure(); err != nil {
		return api.Reply{Outcome: api.Close, Reason: err}
	}
	return e.api.Handle(now, request)
}

// Serving tells whether clients can be answered: the broker is registered, unfenced and not about to stop.
func (e *Engine) Serving() bool { return e.member.serving.Load() }

// Image is the cluster's metadata as this broker has applied it.
func (e *Engine) Image() *metadata.Image { return e.image.Load() }

// Tier does the tier's work for the partitions that this broker leads, for metrics.
func (e *Engine) Tier() *tier.Manager { return e.tier.worker }

// ColdReads counts the reads of what is in the bucket alone, and what their cache has done.
func (e *Engine) ColdReads() cold.Stats { return e.tier.reader.Stats() }

// Replicas are the partitions of this broker, for metrics.
func (e *Engine) Replicas() *replica.Manager { return e.replicas }

// ClusterID is the cluster's id.
func (e *Engine) ClusterID() string { return e.clusterID }

// Step does what is due at now: it takes what waits in the inbox and runs timers.
func (e *Engine) Step(now time.Time) {
	e.stepped = now
	for _, submission := range e.inbox.take() {
		e.role.submit(now, submission)
	}
	e.role.step(now)
	e.member.step(now)
	if proposal := e.replicas.Advance(now); proposal != nil {
		e.proposeISR(now, proposal)
	}
	if !e.tier.closing { // what groups would append now, the bucket would lack
		e.groups.Advance(now)
	}
	e.stepReloads(now)
	e.upkeep.step(now)
	e.tier.step(now)
	e.recovering.step(now)
	e.reportPlacements(now)
	e.role.flush(now)
	e.keepMetadata(now)
	e.stepStop(now)
}

// Slept tells that the machine slept: its clock stood still, so a lease that looks valid may be another broker's by now
// (safety.md 12). What is not committed is given up.
func (e *Engine) Slept(now time.Time) {
	e.logger.Warn("the machine slept: the lease is given up, if it is held")
	e.role.lease.resign(now, 0)
}

// Ready hands out the tasks that may start now. Each is to be run once and its completion given to Complete.
func (e *Engine) Ready() []Task { return e.lanes.take() }

// Complete takes back a task of a lane.
func (e *Engine) Complete(now time.Time, lane Lane, complete Completion) {
	e.stepped = now
	e.lanes.done(lane)
	if complete != nil {
		complete(now)
	}
	e.role.flush(now)
}

// NextWake is when Step has something to do by itself.
func (e *Engine) NextWake() time.Time {
	var groups time.Time
	if !e.tier.closing {
		groups = e.groups.NextWake()
	}
	return earliest(e.role.nextWake(), e.member.nextWake(), e.upkeep.nextWake(), e.replicas.NextWake(), groups, e.reloads.due,
		e.tier.worker.NextWake(), e.tier.reads.wake, e.recovering.nextWake())
}

// earliest of the times that are not zero; zero if all are.
func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// proposeISR asks the controller for what the leaders of this broker want.
func (e *Engine) proposeISR(now time.Time, proposal *metadata.AlterPartition) {
	proposal.BrokerEpoch = e.member.epoch
	e.Submit(now, proposal, now.Add(e.requestTimeout()), func(answer metadata.Answer, err error) {
		decided, _ := answer.(*metadata.AlterPartitionAnswer)
		e.replicas.ISRDecided(now, proposal, decided)
	})
}

// reportPlacements tells the controller in which log directories this broker has put its replicas (KIP-858).
func (e *Engine) reportPlacements(now time.Time) {
	if !e.placementsDue || e.placing || e.member.state != registered || e.member.leaving {
		return
	}
	e.placementsDue = false
	replicas := e.replicas.Placements()
	if len(replicas) == 0 {
		return
	}
	e.placing = true
	change := &metadata.AssignReplicasToDirs{BrokerID: e.self, BrokerEpoch: e.member.epoch, Replicas: replicas}
	e.Submit(now, change, now.Add(e.requestTimeout()), func(answer metadata.Answer, err error) {
		e.placing = false
		// Our own assignments come back as a change of the topics: another look finds nothing more to say.
		e.placementsDue = e.placementsDue || err != nil
	})
}

func (e *Engine) requestTimeout() time.Duration {
	return time.Duration(e.config.RequestTimeoutMs) * time.Millisecond
}

// lockedRand is the engine's randomness for callers on many goroutines.
type lockedRand struct {
	mu     sync.Mutex
	source *rand.Rand
}

// Uint32 is a random number.
func (r *lockedRand) Uint32() uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.source.Uint32()
}

// Nonce is a text that is never used again.
func (r *lockedRand) Nonce() string {
	return hex.EncodeToString(func() []byte { id := r.UUID(); return id[:] }())
}

// Uint64 is a random number.
func (r *lockedRand) Uint64() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.source.Uint64()
}

// UUID is a random one (version 4).
func (r *lockedRand) UUID() (id [16]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := 0; i < len(id); i += 8 {
		for j, v := 0, r.source.Uint64(); j < 8; j, v = j+1, v>>8 {
			id[i+j] = byte(v)
		}
	}
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}
