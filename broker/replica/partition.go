package replica

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/isr"
	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// partition is a partition of this broker, for as long as it is here under one topic id.
type partition struct {
	tp       wire.TopicPartition
	topicID  wire.TopicID
	internal bool
	ended    *atomic.Bool // the Manager's

	// appends is held for reading over an append, which may wait for the disk, and for writing by a change of the role, which so
	// waits for the appends under way. mu guards isr and the role too, and is held for moments. Ranks: Manager.mu, appends,
	// mu, then the locks of package log.
	appends sync.RWMutex
	mu      sync.Mutex
	role    atomic.Pointer[role] // what readers see
	isr     *isr.State           // nil unless this broker leads
}

// lock is for a change of the role.
func (p *partition) lock() {
	p.appends.Lock()
	p.mu.Lock()
}

func (p *partition) unlock() {
	p.mu.Unlock()
	p.appends.Unlock()
}

// role is what a partition is on this broker at a moment. It never changes.
type role struct {
	log         *log.Log // nil when it could not be opened, or is gone
	gone        bool     // the partition is no longer on this broker
	leads       bool
	held        bool // it leads, and serves nobody before the tier has compared the log with the bucket
	leaderEpoch wire.LeaderEpoch
	epochStart  wire.Offset // log end offset when the leader epoch began; of a leader
	metadata    *metadata.Partition
	settings    *settings
}

// settings are what a topic's config means here. They never change.
type settings struct {
	topic  config.Topic
	policy record.Policy // but for what the request and the partition add
}

func newSettings(topic config.Topic) *settings {
	return &settings{topic: topic, policy: record.Policy{
		MaxMessageBytes: topic.MaxMessageBytes,
		MaxDecompressed: topic.MaxDecompressedBytes,
		Compacted:       topic.CleanupCompact,
		AppendTime:      topic.TimestampAppendTime,
		BeforeMaxMs:     topic.TimestampBeforeMaxMs,
		AfterMaxMs:      topic.TimestampAfterMaxMs,
		Target:          compression(topic),
	}}
}

// compression is what batches are stored in; nil keeps the producer's.
func compression(topic config.Topic) *record.Compression {
	if topic.CompressionType == "producer" {
		return nil
	}
	codec, err := record.ParseCodec(topic.CompressionType)
	if err != nil { // the setting's check lets none but codecs through
		return nil
	}
	c := &record.Compression{Codec: codec}
	switch codec {
	case record.Gzip:
		c.Level = topic.GzipLevel
	case record.LZ4:
		c.Level = topic.LZ4Level
	case record.Zstd:
		c.Level = topic.ZstdLevel
	}
	return c
}

// checkEpoch compares the leader epoch that a client knows with ours.
func (r *role) checkEpoch(current wire.LeaderEpoch) wire.Code {
	switch {
	case current > r.leaderEpoch:
		return wire.UnknownLeaderEpoch
	case current < r.leaderEpoch:
		return wire.FencedLeaderEpoch
	default:
		return wire.None
	}
}

// checkLeader tells whether requests that only a leader may answer can be answered.
func (r *role) checkLeader() wire.Code {
	switch {
	case r.gone:
		return wire.NotLeaderOrFollower
	case r.log == nil:
		return wire.KafkaStorageError
	case !r.leads || r.held:
		return wire.NotLeaderOrFollower
	default:
		return wire.None
	}
}

// appended is what an append did.
type appended struct {
	log.AppendInfo
	epoch wire.LeaderEpoch // under which it was appended
	moved bool             // the high watermark moved
}

// appendRules are what an append asks for.
type appendRules struct {
	all    bool             // the ISR is not below its minimum
	epoch  wire.LeaderEpoch // the leader epoch is this one; NoLeaderEpoch: any
	origin log.Origin
}

// append appends a validated batch as the leader.
func (p *partition) append(now time.Time, batch record.Batch, rules appendRules) (appended, error) {
	p.appends.RLock()
	defer p.appends.RUnlock()
	r := p.role.Load()
	if code := r.checkLeader(); code != wire.None {
		return appended{}, code
	}
	if p.ended.Load() {
		return appended{}, wire.NotLeaderOrFollower
	}
	if rules.epoch != wire.NoLeaderEpoch && rules.epoch != r.leaderEpoch {
		return appended{}, wire.NotLeaderOrFollower
	}
	if rules.all && !p.enoughInSync() {
		return appended{}, wire.NotEnoughReplicas
	}
	info, err := r.log.AppendAsLeader(now, batch, r.leaderEpoch, rules.origin)
	if err != nil {
		return appended{}, err
	}
	moved := p.change(func(s *isr.State) bool { return s.Appended(now, r.log.EndOffset()) })
	return appended{AppendInfo: info, epoch: r.leaderEpoch, moved: moved}, nil
}

// enoughInSync tells whether the ISR reaches its minimum; of a leader.
func (p *partition) enoughInSync() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isr != nil && p.isr.EnoughInSync()
}

// acknowledged tells whether everything below end, appended under epoch, is on enough replicas, or what became of it instead:
// NOT_LEADER_OR_FOLLOWER when another leader may have cut it off, NOT_ENOUGH_REPLICAS_AFTER_APPEND when the ISR shrank below
// its minimum meanwhile.
func (p *partition) acknowledged(epoch wire.LeaderEpoch, end wire.Offset) (bool, wire.Code) {
	r := p.role.Load()
	if code := r.checkLeader(); code != wire.None {
		return true, code
	}
	if r.leaderEpoch != epoch {
		return true, wire.NotLeaderOrFollower
	}
	if r.log.HighWatermark() < end {
		return false, wire.None
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.isr == nil: // it has lost its role since
		return true, wire.NotLeaderOrFollower
	case !p.isr.EnoughInSync():
		return true, wire.NotEnoughReplicasAfterAppend
	}
	return true, wire.None
}

// change runs f on the leader's view of its replicas, which tells whether the high watermark moved. It does nothing on others.
func (p *partition) change(f func(*isr.State) bool) (moved bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isr == nil || !f(p.isr) {
		return false
	}
	p.role.Load().log.UpdateHighWatermark(p.isr.HighWatermark())
	return true
}
