package group

import (
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/coordinator"
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

	Appender coordinator.Appender // onto __consumer_offsets
	UUID     func() [16]byte      // random, for member ids; called by several goroutines
	Wake     func(at time.Time)   // told when NextWake has become earlier; no locks held; may be nil
	Logger   *slog.Logger
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
type Coordinator struct {
	*coordinator.Runtime[*shard]
	cfg Config
}

// New returns a Coordinator that leads no partition yet.
func New(cfg Config) *Coordinator { return &Coordinator{cfg: cfg} }

// JoinGroup enters a group or a group's next generation; the answer comes when the rebalance is over.
func (c *Coordinator) JoinGroup(now time.Time, req *kmsg.JoinGroupRequest, client Client, done func(*kmsg.JoinGroupResponse)) {
}

// SyncGroup asks for a member's assignment and, from the leader, brings everybody's.
func (c *Coordinator) SyncGroup(now time.Time, req *kmsg.SyncGroupRequest, done func(*kmsg.SyncGroupResponse)) {
}

// Heartbeat keeps a member alive and tells it of a rebalance.
func (c *Coordinator) Heartbeat(now time.Time, req *kmsg.HeartbeatRequest) *kmsg.HeartbeatResponse {
	return nil
}

// LeaveGroup removes members.
func (c *Coordinator) LeaveGroup(now time.Time, req *kmsg.LeaveGroupRequest, done func(*kmsg.LeaveGroupResponse)) {
}

// OffsetCommit stores offsets. The caller has left out partitions that do not exist.
func (c *Coordinator) OffsetCommit(now time.Time, req *kmsg.OffsetCommitRequest, done func(*kmsg.OffsetCommitResponse)) {
}

// OffsetFetch reads offsets: up to version 7 of one group, from version 8 of several. With null topics the answer has all
// topics of the group by name; the caller leaves out those that it may not show and fills in topic ids.
func (c *Coordinator) OffsetFetch(now time.Time, req *kmsg.OffsetFetchRequest, done func(*kmsg.OffsetFetchResponse)) {
}

// OffsetDelete removes offsets of topics that no live member subscribes to.
func (c *Coordinator) OffsetDelete(now time.Time, req *kmsg.OffsetDeleteRequest, done func(*kmsg.OffsetDeleteResponse)) {
}

// DescribeGroups shows groups with their members.
func (c *Coordinator) DescribeGroups(req *kmsg.DescribeGroupsRequest) *kmsg.DescribeGroupsResponse {
	return nil
}

// ListGroups lists the groups of all partitions that are led, by name. It answers COORDINATOR_LOAD_IN_PROGRESS while one
// of them is loading.
func (c *Coordinator) ListGroups(req *kmsg.ListGroupsRequest) *kmsg.ListGroupsResponse { return nil }

// DeleteGroups removes groups without members, and their offsets.
func (c *Coordinator) DeleteGroups(now time.Time, req *kmsg.DeleteGroupsRequest, done func(*kmsg.DeleteGroupsResponse)) {
}

// TopicsDeleted removes the offsets of deleted topics from all groups.
func (c *Coordinator) TopicsDeleted(now time.Time, topics []string) {}
