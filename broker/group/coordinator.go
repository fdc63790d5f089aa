package group

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/broker/coordinator"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Config is what the groups of a broker go by; Kafka's settings of the like names.
type Config struct {
	MinSessionTimeout      time.Duration // group.min.session.timeout.ms
	MaxSessionTimeout      time.Duration // group.max.session.timeout.ms
	InitialRebalanceDelay  time.Duration // group.initial.rebalance.delay.ms
	MaxSize                int           // group.max.size
	OffsetMetadataMaxBytes int           // offset.metadata.max.bytes
	OffsetsRetention       time.Duration // offsets.retention.minutes
	OffsetsRetentionCheck  time.Duration // offsets.retention.check.interval.ms
	OffsetsCommitTimeout   time.Duration // offsets.commit.timeout.ms

	Appender coordinator.Appender           // onto __consumer_offsets
	TopicID  func(name string) wire.TopicID // now, zero for none; called with a shard's lock held; nil when nobody knows
	UUID     func() [16]byte                // random, for member ids; called by several goroutines
	Wake     func(at time.Time)             // told when NextWake has become earlier; no locks held; may be nil
	Logger   *slog.Logger
}

func (c *Config) topicID(name string) wire.TopicID {
	if c.TopicID == nil {
		return wire.TopicID{}
	}
	return c.TopicID(name)
}

// Client is who sent a request; DescribeGroups shows it.
type Client struct {
	ID   string // client.id
	Host string // as Kafka prints it: "/192.0.2.7"
}

// Coordinator answers the group APIs for the groups whose partition this broker leads. Loading, unloading, timers and high
// watermarks are those of the Runtime inside it.
//
// Each done is called exactly once, without locks, before or after the method returns. Responses carry the error codes
// of the request's version; throttle times and authorized operations are the caller's. Callers have checked permissions
// and, for offsets, have resolved topic ids: topics and partitions come by name, and answers follow the request's order.
// Requests' strings are kept, their byte slices are copied.
type Coordinator struct {
	*coordinator.Runtime[*shard]
	cfg     Config
	deleted map[int32][]string // topics that a loading partition has yet to forget; see TopicsDeleted
}

// New returns a Coordinator that leads no partition yet.
func New(cfg Config) *Coordinator {
	c := &Coordinator{cfg: cfg, deleted: make(map[int32][]string)}
	c.Runtime = coordinator.NewRuntime(coordinator.Config[*shard]{
		NewShard:      func(int32) *shard { return newShard(&c.cfg) },
		Appender:      cfg.Appender,
		CommitTimeout: cfg.OffsetsCommitTimeout,
		Wake:          cfg.Wake,
		Logger:        cfg.Logger,
	})
	return c
}

// handle runs fn in the shard of a group, or refuses with a code when this broker does not have it.
func (c *Coordinator) handle(now time.Time, group string, fn func(*shard) coordinator.Result, refuse func(wire.Code)) {
	partition, err := c.PartitionFor(group)
	if err == nil {
		err = c.Handle(now, partition, fn)
	}
	if err != nil {
		refuse(wire.CodeOf(err))
	}
}

// orRefuse is a reply that is done unless what it rests on could not be stored.
func orRefuse(refuse func(wire.Code), done func()) func(error) {
	return func(err error) {
		if err != nil {
			refuse(wire.CodeOf(err))
			return
		}
		done()
	}
}

// each calls begin for 0 to n-1 and done once all of them have called finish.
func each(n int, begin func(i int, finish func()), done func()) {
	var left atomic.Int64
	left.Store(int64(n) + 1)
	finish := func() {
		if left.Add(-1) == 0 {
			done()
		}
	}
	for i := range n {
		begin(i, finish)
	}
	finish()
}
