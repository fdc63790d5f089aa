// Package controller decides the changes of the cluster: it turns Changes, sessions of brokers and its own timers into metadata
// records.
//
// A Controller is a core: time comes in, records and answers go out; it never sees the store. It works on the speculative
// image, which holds the committed records, those of the entry in flight and those that are queued behind it, so that each
// change is judged against all that will be true when it commits (safety.md 5). Who drives it commits the records in the order
// in which they came out, and sends an answer only once the metadata is committed up to the answer's offset. When an entry is
// lost or the role is given up, it calls Resign and answers NOT_CONTROLLER to everything that waits.
package controller

import (
	"math/rand/v2"
	"time"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Options are what a Controller needs to know and does not find in the image.
type Options struct {
	BrokerID  wire.BrokerID
	ClusterID string
	Rand      *rand.Rand // topic ids and placement; seeded by the caller
}

// Controller is the cluster's controller, active between Elected and Resign.
type Controller struct{}

// Outcome is what Step wants done.
type Outcome struct {
	Records []metadata.Record // to commit, after all that came out before
	Answer  metadata.Answer
	// Offset up to which the metadata has to be committed before Answer is true. It is reached with Records, or with records that
	// came out before.
	Offset wire.Offset
}

// New controller, not active.
func New(o Options) *Controller { panic("soon") }

// Elected makes the controller active under a lease epoch, on the committed image up to the end of the chain. The records are
// to be committed first. All sessions of brokers start anew.
func (c *Controller) Elected(now time.Time, image *metadata.Image, epoch wire.LeaderEpoch) []metadata.Record {
	panic("soon")
}

// Active tells whether the controller has the role.
func (c *Controller) Active() bool { panic("soon") }

// Resign gives the role up and drops the speculative image. Everything that is not yet committed, or not known to be, is to be
// answered with NOT_CONTROLLER.
func (c *Controller) Resign() { panic("soon") }

// Step judges a change. It must not be called unless the controller is active.
func (c *Controller) Step(now time.Time, change metadata.Change) Outcome { panic("soon") }

// Tick does what is due: it fences brokers whose session has ended.
func (c *Controller) Tick(now time.Time) []metadata.Record { panic("soon") }

// NextWake is when Tick has something to do; zero if never.
func (c *Controller) NextWake() time.Time { panic("soon") }

// Image is the speculative image, nil unless the controller is active.
func (c *Controller) Image() *metadata.Image { panic("soon") }
