package tier

import (
	"context"
	"log/slog"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/object"
)

// Options are what a Manager is made of. All are required unless they say otherwise.
type Options struct {
	Store       object.Store
	Broker      wire.BrokerID
	Incarnation string        // of this process
	Nonce       func() string // a value that nobody has ever used: letters and digits; called by jobs, on any goroutine
	Random      func() uint64 // for jitter
	// Config gives the settings in force; called often, and must be cheap.
	Config func() Config
	// Confirmed tells whether the controller has confirmed this broker within its session time: without it nothing is
	// dropped (safety rule 23). It is called by Due. nil: always.
	Confirmed func(now time.Time) bool
	// Released is called by a Completion, on the loop that runs it, when a held partition may serve. May be nil.
	Released func(now time.Time, r Release)
	// Wake is called, by any goroutine and with no lock held, when Due has something before NextWake. May be nil.
	Wake   func()
	Logger *slog.Logger // nil: silent
	// CloseEmpty: a clean stop closes the manifests of partitions without any record, too. Else whoever drives it says elsewhere what
	// Empty names.
	CloseEmpty bool
	// PageSegments is how many segments a page of a manifest holds: 1,000 where it is 0. Tests make it smaller.
	PageSegments int
	// Hook is called at every point of Points, for crash tests; nil in production. A hook that panics leaves the bucket and
	// the disk as a crash there would.
	Hook func(point string)
}

// Config are the settings of the broker that concern the tier.
type Config struct {
	Parallel          int           // tier.upload.parallel: uploads at a time, over all partitions
	BytesPerSecond    int64         // tier.upload.bytes.per.second
	MaxUnsealed       time.Duration // tier.max.unsealed.ms
	DeleteGrace       time.Duration // tier.delete.grace.ms
	ManifestRetention time.Duration // of chain entries behind a snapshot; 24 h at least
	RecoveryGap       int64         // tier.recovery.offset.gap
}

// Job is work that may block on the store and the disk. Jobs may run beside each other; of one partition there is one at a
// time.
type Job struct {
	Partition wire.TopicPartition
	Run       func(ctx context.Context) Completion
}

// Completion applies what a job found out. It is run once, by whoever calls Due, also when the job's ctx was cancelled; it
// does no I/O.
type Completion func(now time.Time)

// Start says how a leader begins.
type Start int8

// The ways to begin.
const (
	// StartHere: the log is what it was. Also for a partition that was never led before.
	StartHere Start = iota
	// StartVerified: the log may lack what it had, after what may have been a power loss, or was made anew though the
	// partition is older: the manifest is read before the first append (safety rule 21). What the log itself knows of that
	// (log.MayLackEnd) needs no telling.
	StartVerified
	// StartRecovered: every replica of the partition is proven lost, or an operator said so (safety rule 19): a fencing entry
	// is committed, the offsets that may have been lost are recorded, and the log starts above them.
	StartRecovered
	// StartUnclean: an unclean election: the manifest is cut back to the leader's history before anything is appended (safety
	// rule 18).
	StartUnclean
)

// Leadership is what Lead is told.
type Leadership struct {
	wire.TopicPartition
	TopicID  wire.TopicID
	Epoch    wire.LeaderEpoch
	Log      *log.Log
	Internal bool // keeps all live data locally (safety rule 25)
	Start    Start
	// RecoverySince is the leader epoch with which a recovery began, above all that led before it; 0 where nobody knows.
	RecoverySince wire.LeaderEpoch
}

// Release tells how a held partition begins to serve.
type Release struct {
	TopicPartition wire.TopicPartition
	Epoch          wire.LeaderEpoch
	// Restarted says that the local log was dropped and begins anew from the bucket: the leader's epoch has to be assigned
	// at its new end, and the high watermark is there.
	Restarted bool
	// Lost are the offsets that the manifest records as lost, First to Next-1; equal where there are none.
	LostFirst, LostNext wire.Offset
}
