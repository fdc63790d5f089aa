package api

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/group"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Controller takes changes to the active controller, wherever it is.
type Controller interface {
	// Submit asks for a change. done is called exactly once, with no lock held, when the change is committed and visible in
	// this broker's image, or refused; err is a wire.Code (NOT_CONTROLLER, REQUEST_TIMED_OUT) when its fate is not known here.
	// It is given up at deadline.
	Submit(now time.Time, change metadata.Change, deadline time.Time, done func(metadata.Answer, error))
	// Quorum describes the controller's lease and log, for DescribeQuorum.
	Quorum() Quorum
}

// Quorum is the control plane in the shape that Kafka's tools read.
type Quorum struct {
	Leader        wire.BrokerID
	Epoch         wire.LeaderEpoch
	HighWatermark wire.Offset // one above the last committed metadata record
	DirectoryID   [16]byte    // of the holder's first log directory
}

// ProducerIDs hands out producer ids from the blocks that the controller allocates.
type ProducerIDs interface {
	// Next gives an id that nobody else has; done is called exactly once, with no lock held.
	Next(now time.Time, done func(wire.ProducerID, error))
}

// Options are what a Server is made of. All are required.
type Options struct {
	Self        wire.BrokerID
	ClusterID   string
	Config      func() *config.Broker  // with the newest dynamic settings
	Image       func() *metadata.Image // the newest that this broker has applied
	Replicas    *replica.Manager
	Sessions    *replica.FetchSessionCache
	Groups      *group.Coordinator
	Controller  Controller
	ProducerIDs ProducerIDs
	// Only are the keys that are served; what they need of the above has to be there. nil: all.
	Only []wire.APIKey
}

// Server answers requests. Its methods may be called by many goroutines at once.
type Server struct {
	self        wire.BrokerID
	clusterID   string
	Config      func() *config.Broker
	Image       func() *metadata.Image
	replicas    *replica.Manager
	sessions    *replica.FetchSessionCache
	groups      *group.Coordinator
	controller  Controller
	producerIDs ProducerIDs
	announced   []kmsg.ApiVersionsResponseApiKey
	only        []wire.APIKey

	creatingOffsets atomic.Bool // __consumer_offsets has been asked for, and there is no answer yet
}

// New makes a Server.
func New(o Options) *Server {
	s := &Server{
		self: o.Self, clusterID: o.ClusterID, Config: o.Config, Image: o.Image, replicas: o.Replicas, sessions: o.Sessions,
		groups: o.Groups, controller: o.Controller, producerIDs: o.ProducerIDs, only: o.Only,
	}
	for i := range table {
		if s.serves(table[i].Key) {
			s.announced = append(s.announced, announced(&table[i]))
		}
	}
	return s
}

func (s *Server) serves(key wire.APIKey) bool { return s.only == nil || slices.Contains(s.only, key) }

// Handle answers a request, or parks it. Unknown keys and versions close the connection, as Kafka does; only ApiVersions
// answers a version that it does not know.
func (s *Server) Handle(now time.Time, request *Request) Reply {
	entry := lookup(request.Key)
	if entry == nil || !s.serves(request.Key) || (request.Version < entry.Min || request.Version > entry.Max) && request.Key != keyApiVersions {
		return Reply{Outcome: Close, Reason: fmt.Errorf("API key %d in version %d is not served", request.Key, request.Version)}
	}
	c := &call{Request: request, now: now, entry: entry}
	if err := entry.checkLayout(request.Version, request.Body); err != nil {
		c.close(err)
	} else {
		entry.handle(s, c, request.Body)
	}
	return c.result()
}
