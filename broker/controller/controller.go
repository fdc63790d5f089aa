// Package controller decides the changes of the cluster: it turns Changes, the sessions of brokers and time into metadata
// records.
//
// A Controller is a core: time comes in, records and answers go out; it never sees the store. It works on the speculative
// image, which holds the committed records, those of the entry in flight and those that are queued behind it, so that each
// change is judged against all that will be true when it commits (safety.md 5). Who drives it commits the records in the order
// in which they came out, and sends an answer only once the metadata is committed up to the answer's offset. When an entry is
// lost or the role is given up, it calls Resign and answers NOT_CONTROLLER to everything that waits.
//
// It trusts its caller: who may ask for what is decided before. Codes and texts of refusals are Kafka's.
package controller

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Options are what a Controller needs to know and does not find in the image. All are required.
type Options struct {
	ClusterID string
	Config    *config.Broker // of the broker that the controller runs in
	Rand      *rand.Rand     // topic ids and placement; seeded by the caller
}

// Controller is the cluster's controller, active between Elected and Resign. It is driven by one goroutine at a time.
type Controller struct {
	self      wire.BrokerID
	clusterID string
	config    *config.Broker
	rand      *rand.Rand
	image     *metadata.Image // speculative; nil while not active
	sessions  map[wire.BrokerID]*session
	effective effective
}

// Outcome is what Step wants done.
type Outcome struct {
	Records []metadata.Record // to commit, behind all that came out before
	Answer  metadata.Answer
	// Offset up to which the metadata has to be committed before Answer is true. It is reached with Records, or with records that
	// came out before.
	Offset wire.Offset
}

// New controller, not active.
func New(o Options) *Controller {
	return &Controller{self: o.Config.NodeID, clusterID: o.ClusterID, config: o.Config, rand: o.Rand}
}

// Elected makes the controller active under a lease epoch above the image's, on the committed image up to the end of the chain.
// The records are to be committed first. All sessions of brokers start anew.
func (c *Controller) Elected(now time.Time, image *metadata.Image, epoch wire.LeaderEpoch) []metadata.Record {
	c.image = image
	c.sessions = make(map[wire.BrokerID]*session, image.BrokerCount())
	for b := range image.Brokers() {
		c.sessions[b.ID] = &session{heard: now, offset: wire.NoOffset, shutdownAt: image.Offset()}
	}
	s := c.begin(now)
	s.add(&metadata.ControllerElectedRecord{BrokerID: c.self, Epoch: epoch})
	if image.Features().Level(metadata.MetadataVersion) == 0 {
		s.bootstrap()
	}
	c.image = s.image
	return s.records
}

// bootstrap writes what a new cluster begins with.
func (s *step) bootstrap() {
	for _, f := range metadata.SupportedFeatures() {
		s.add(&metadata.FeatureLevelRecord{Name: f.Name, Level: f.Max})
	}
	// As in Kafka, the minimum is the cluster's and not each broker's: who counts the ISR must not depend on who is asked.
	minimum, _ := s.config.Value(minInSyncReplicas)
	s.add(&metadata.ConfigRecord{ResourceType: metadata.BrokerResource, Name: minInSyncReplicas, Value: &minimum})
}

// Active tells whether the controller has the role.
func (c *Controller) Active() bool { return c.image != nil }

// Resign gives the role up and drops the speculative image. Everything that is not yet committed, or not known to be, is to be
// answered with NOT_CONTROLLER.
func (c *Controller) Resign() { c.image, c.sessions = nil, nil }

// Image is the speculative image, nil unless the controller is active.
func (c *Controller) Image() *metadata.Image { return c.image }

// Step judges a change. It must not be called unless the controller is active.
func (c *Controller) Step(now time.Time, change metadata.Change) Outcome {
	s := c.begin(now)
	answer, validateOnly := s.judge(change)
	if validateOnly {
		return Outcome{Answer: answer, Offset: c.image.Offset()}
	}
	c.image = s.image
	return Outcome{Records: s.records, Answer: answer, Offset: s.image.Offset()}
}

func (s *step) judge(change metadata.Change) (answer metadata.Answer, validateOnly bool) {
	switch change := change.(type) {
	case *metadata.CreateTopics:
		return s.createTopics(change), change.ValidateOnly
	case *metadata.DeleteTopics:
		return s.deleteTopics(change), false
	case *metadata.RemovalDone:
		return s.removalDone(change), false
	case *metadata.CreatePartitions:
		return s.createPartitions(change), change.ValidateOnly
	case *metadata.IncrementalAlterConfigs:
		return s.incrementalAlterConfigs(change), change.ValidateOnly
	case *metadata.AlterConfigs:
		return s.alterConfigs(change), change.ValidateOnly
	case *metadata.UpdateFeatures:
		return s.updateFeatures(change), change.ValidateOnly
	case *metadata.AllocateProducerIDs:
		return s.allocateProducerIDs(change), false
	case *metadata.RegisterBroker:
		return s.registerBroker(change), false
	case *metadata.RecoverCluster:
		return s.recoverCluster(change), false
	case *metadata.UnregisterBroker:
		return s.unregisterBroker(change), false
	case *metadata.BrokerHeartbeat:
		return s.heartbeat(change), false
	case *metadata.AlterPartition:
		return s.alterPartition(change), false
	case *metadata.AssignReplicasToDirs:
		return s.assignReplicasToDirs(change), false
	default:
		panic(fmt.Sprintf("no rule for %T", change))
	}
}

// step is one change in the making: the records so far, and the image that they lead to.
type step struct {
	*Controller
	now     time.Time
	image   *metadata.Image
	records []metadata.Record
}

func (c *Controller) begin(now time.Time) *step {
	return &step{Controller: c, now: now, image: c.image}
}

// add records, which have to fit the image.
func (s *step) add(records ...metadata.Record) {
	image, _, err := s.image.Apply(s.image.Offset()+1, records)
	if err != nil {
		panic(fmt.Sprintf("the controller made records that don't fit its image: %v", err))
	}
	s.image = image
	s.records = append(s.records, records...)
}

// refusal of a change with Kafka's code and text.
func refusal(code wire.Code, format string, args ...any) error {
	return wire.NewError(code, fmt.Sprintf(format, args...))
}
