package engine

import (
	"context"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// publish makes committed metadata this broker's: settings first, then partitions, then what clients see, then coordinators, so
// that nobody is sent to a partition that is not there.
func (e *Engine) publish(now time.Time, image *metadata.Image, delta metadata.Delta) {
	if image.ClusterIncarnation() < e.clusterIncarnation {
		delta.Topics = nil // nothing is this broker's before its recovery of the cluster is committed
	}
	e.applySettings(now, image, delta)
	e.tier.warnOfLarge(image, delta)
	e.tier.registered = e.registeredIn(image)
	e.replicas.Apply(now, image, delta)
	e.image.Store(image)
	e.applyOffsetsTopic(now, image, delta)
	e.placementsDue = e.placementsDue || len(delta.Topics) > 0
	var deleted []string
	for _, t := range delta.Topics {
		if t.After == nil {
			deleted = append(deleted, t.Before.Name)
		}
	}
	if len(deleted) > 0 {
		e.groups.TopicsDeleted(now, deleted)
	}
}

// applySettings takes over dynamic settings of this broker and of all brokers.
func (e *Engine) applySettings(now time.Time, image *metadata.Image, delta metadata.Delta) {
	own := metadata.ConfigResource{Type: metadata.BrokerResource, Name: e.self.String()}
	all := metadata.ConfigResource{Type: metadata.BrokerResource}
	for _, r := range delta.Configs {
		if r == own || r == all {
			settings, err := e.config.WithDynamic(image.Configs(all), image.Configs(own))
			if err != nil {
				e.logger.Error("dynamic settings are not usable; the former ones stay", "err", err)
				return
			}
			e.adopt(settings)
			e.replicas.SetConfig(now, settings)
			return
		}
	}
}

// adopt makes settings, with the dynamic ones, this broker's.
func (e *Engine) adopt(settings *config.Broker) {
	e.settings.Store(settings)
	e.lanes.width[LaneCold] = settings.RemoteReaderThreads
	if e.reconfigured != nil {
		e.reconfigured(settings)
	}
}

// applyOffsetsTopic loads the partitions of __consumer_offsets that this broker has begun to lead, and unloads the others.
func (e *Engine) applyOffsetsTopic(now time.Time, image *metadata.Image, delta metadata.Delta) {
	for _, t := range delta.Topics {
		var name string
		if t.After != nil {
			name = t.After.Name
		} else {
			name = t.Before.Name
		}
		if name != wire.ConsumerOffsetsTopic {
			continue
		}
		count := 0
		if topic := image.Topic(wire.ConsumerOffsetsTopic); topic != nil {
			count = len(topic.Partitions)
		}
		e.groups.SetPartitionCount(int32(count))
		for _, p := range t.Partitions {
			switch {
			case p.After != nil && p.After.Leader == e.self && !e.registeredIn(image):
				// A leadership of a former incarnation: the registration's own commit brings the next epoch.
			case p.After != nil && p.After.Leader == e.self && e.held(p.Index):
				// The tier's release comes first.
			case p.After != nil && p.After.Leader == e.self:
				e.loadGroups(p.Index, p.After.LeaderEpoch)
			case p.After != nil:
				e.groups.Unload(p.Index, p.After.LeaderEpoch)
			default:
				e.groups.Unload(p.Index, p.Before.LeaderEpoch+1)
			}
		}
		e.forgetGone(now)
	}
}

// forgetGone lets the partitions of __consumer_offsets that are loading forget the topics that were deleted when this broker's former
// incarnation died: it may have died before its groups heard of it. One that was made anew since is another topic.
func (e *Engine) forgetGone(now time.Time) {
	var gone []string
	for _, name := range e.gone {
		if e.Image().Topic(name) == nil {
			gone = append(gone, name)
		}
	}
	if len(gone) > 0 {
		e.groups.TopicsDeleted(now, gone)
	}
}

// held tells whether a partition of __consumer_offsets waits for its manifest.
func (e *Engine) held(partition int32) bool {
	info, _ := e.replicas.Partition(wire.TopicPartition{Topic: wire.ConsumerOffsetsTopic, Partition: partition})
	return info.Held
}

// registeredIn tells whether an image has this incarnation's registration.
func (e *Engine) registeredIn(image *metadata.Image) bool {
	b := image.Broker(e.self)
	return b != nil && b.Incarnation == e.incarnation
}

// loadGroups reads a partition of __consumer_offsets into memory, as a task.
func (e *Engine) loadGroups(partition int32, epoch wire.LeaderEpoch) {
	load := e.groups.StartLoad(partition, epoch)
	if load == nil {
		return
	}
	tp := wire.TopicPartition{Topic: wire.ConsumerOffsetsTopic, Partition: partition}
	e.lanes.add(LaneLoad, func(ctx context.Context) Completion {
		err := load.Replay(ctx, e.replicas.ReadLocal(ctx, tp))
		return func(now time.Time) {
			info, _ := e.replicas.Partition(tp)
			e.groups.FinishLoad(now, load, info.HighWatermark, err)
			if err != nil {
				e.loadFailed(now, partition, epoch)
			}
		}
	})
}

// offsetsLog appends to __consumer_offsets for the group coordinator.
type offsetsLog struct{ engine *Engine }

func (l offsetsLog) Append(now time.Time, partition int32, epoch wire.LeaderEpoch, batch record.Batch) (wire.Offset, error) {
	tp := wire.TopicPartition{Topic: wire.ConsumerOffsetsTopic, Partition: partition}
	return l.engine.replicas.AppendAsCoordinator(now, tp, epoch, batch)
}

func (l offsetsLog) MaxBatchBytes() int {
	overrides := l.engine.Image().Configs(metadata.ConfigResource{Type: metadata.TopicResource, Name: wire.ConsumerOffsetsTopic})
	topic, _ := config.ResolveTopic(l.engine.settings.Load(), overrides) // usable even with an error
	return topic.MaxMessageBytes
}

// topicID is the id that a topic has now, or zero.
func (e *Engine) topicID(name string) (id wire.TopicID) {
	if t := e.Image().Topic(name); t != nil {
		id = t.ID
	}
	return id
}

// highWatermark passes on how far internal partitions are replicated.
func (e *Engine) highWatermark(_ time.Time, tp wire.TopicPartition, offset wire.Offset) {
	if tp.Topic == wire.ConsumerOffsetsTopic {
		e.groups.HighWatermark(tp.Partition, offset)
	}
}
