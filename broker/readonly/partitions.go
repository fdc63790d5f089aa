package readonly

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
)

// partition is one of the metadata, with what the bucket has of it.
type partition struct {
	tp       wire.TopicPartition
	id       wire.TopicID
	manifest *manifest.Manifest
	err      error
}

// damaged tells that the bucket has a manifest of it that says nothing.
func (p *partition) damaged() bool { return errors.Is(p.err, chain.ErrHalt) }

// pagesKept is how many pages of manifests are kept in memory: some 60 KB each.
const pagesKept = 256

// openManifests reads the manifests of all partitions that are to be served.
func openManifests(ctx context.Context, o *Options) ([]*partition, error) {
	var all []*partition
	for t := range o.Image.Topics("") {
		for i := range t.Partitions {
			all = append(all, &partition{tp: wire.TopicPartition{Topic: t.Name, Partition: int32(i)}, id: t.ID})
		}
	}
	pages := manifest.NewPageCache(pagesKept)
	o.Run(len(all), func(i int) { all[i].open(ctx, o, pages) })
	if !o.At.IsZero() {
		if err := leaveOutDeleted(ctx, o); err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(p *partition) bool { return o.Image.TopicByID(p.id) == nil })
	}
	for _, p := range all {
		if p.damaged() {
			o.Logger.Error("a partition is not served: its manifest is damaged", "topic", p.tp.Topic, "partition", p.tp.Partition, "err", p.err)
		} else if p.err != nil {
			return nil, fmt.Errorf("%s partition %d: %w", p.tp.Topic, p.tp.Partition, p.err)
		}
	}
	return all, nil
}

// leaveOutDeleted takes topics from the image that were deleted since: of those the bucket has nothing any more, or not all, and the
// manifests don't say so. It comes after they were read, which a deletion may have overtaken.
func leaveOutDeleted(ctx context.Context, o *Options) error {
	today, err := o.Today(ctx)
	if errors.Is(err, chain.ErrHalt) {
		o.Logger.Warn("the metadata of today can't be read: topics that were deleted since may look empty", "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the metadata of today: %w", err)
	}
	var deleted []metadata.Record
	for t := range o.Image.Topics("") {
		if today.TopicByID(t.ID) == nil {
			o.Logger.Warn("a topic of that time was deleted since, and is left out", "topic", t.Name)
			deleted = append(deleted, &metadata.RemoveTopicRecord{ID: t.ID})
		}
	}
	o.Image, _, err = o.Image.Apply(o.Image.Offset()+1, deleted)
	return err
}

func (p *partition) open(ctx context.Context, o *Options, pages *manifest.PageCache) {
	ctx = object.WithCause(ctx, object.Cause{Kind: object.CauseManifest, Topic: p.tp.Topic})
	prefix := manifest.Prefix(p.tp.Topic, p.id, p.tp.Partition)
	mo := manifest.Options{Pages: pages, Logger: o.Logger}
	if o.At.IsZero() {
		p.manifest, p.err = manifest.Open(ctx, o.Store, prefix, mo)
		return
	}
	p.manifest, p.err = manifest.OpenAt(ctx, o.Store, prefix, o.At, mo)
	if errors.Is(p.err, chain.ErrTooOld) {
		p.err = fmt.Errorf("%w: %w", ErrTooOld, p.err)
	}
	if p.err == nil {
		p.err = p.allThere(ctx, o.Store, o.At)
	}
}

// allThere makes sure that nothing that was served then is deleted by now.
func (p *partition) allThere(ctx context.Context, s object.Store, at time.Time) error {
	if p.manifest.State().Segments == 0 {
		return nil
	}
	there := map[string]bool{}
	for info, err := range s.List(ctx, p.manifest.Prefix()+"/", "") {
		if err != nil {
			return fmt.Errorf("look for its objects: %w", err)
		}
		there[info.Key] = true
	}
	for segment, err := range p.manifest.All(ctx) {
		if errors.Is(err, manifest.ErrPage) {
			return fmt.Errorf("%w: %w", ErrTooOld, err)
		} else if err != nil {
			return err
		}
		key := p.manifest.Key(segment.Name, manifest.LogObject)
		if segment.End > p.manifest.State().LogStart && (!there[key] || !there[p.manifest.Key(segment.Name, manifest.AuxObject)]) {
			return fmt.Errorf("%w: the offsets %d to %d, which were served at %s, are deleted", ErrTooOld,
				segment.Start, segment.End-1, at.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

func topicResource(topic string) metadata.ConfigResource {
	return metadata.ConfigResource{Type: metadata.TopicResource, Name: topic}
}

// lostDir is a log directory that this server does not have: what lies there is offline.
const lostDir = "damaged"

// serving is the cluster as clients see it: its topics and their settings, with this server as the only broker, which leads all.
func serving(o *Options, found []*partition) (*metadata.Image, error) {
	epochs := make(map[wire.TopicPartition]wire.LeaderEpoch, len(found))
	directories := make(map[wire.TopicPartition]string)
	tiered := make(map[string]bool)
	for _, p := range found {
		if p.damaged() {
			directories[p.tp] = lostDir
			continue
		}
		state := p.manifest.State()
		epochs[p.tp] = state.LeaderEpoch()
		tiered[p.tp.Topic] = tiered[p.tp.Topic] || state.Position.Number > 0
	}
	records := []metadata.Record{&metadata.BrokerRegistrationRecord{Broker: metadata.Broker{
		ID: Self, Incarnation: "read-only", CleanStopEpoch: -1, Listeners: o.Listeners,
	}}}
	for _, f := range o.Image.Features().Levels {
		records = append(records, &metadata.FeatureLevelRecord{Name: f.Name, Level: f.Level})
	}
	for t := range o.Image.Topics("") {
		records = append(records, &metadata.TopicRecord{Name: t.Name, ID: t.ID})
		for i, p := range t.Partitions {
			tp := wire.TopicPartition{Topic: t.Name, Partition: int32(i)}
			records = append(records, &metadata.PartitionRecord{TopicID: t.ID, Index: int32(i), Partition: metadata.Partition{
				Replicas: []wire.BrokerID{Self}, ISR: []wire.BrokerID{Self}, Directories: []string{directories[tp]}, Leader: Self,
				LeaderEpoch: max(p.LeaderEpoch, epochs[tp]), PartitionEpoch: p.PartitionEpoch,
			}})
		}
		configs := o.Image.Configs(topicResource(t.Name))
		if tiered[t.Name] && !isTiered(o.Config, configs) { // it was, when its data came into the bucket
			configs = maps.Clone(configs)
			configs["remote.storage.enable"] = "true"
		}
		for _, name := range slices.Sorted(maps.Keys(configs)) {
			value := configs[name]
			records = append(records, &metadata.ConfigRecord{
				ResourceType: metadata.TopicResource, ResourceName: t.Name, Name: name, Value: &value,
			})
		}
	}
	image, _, err := metadata.Empty().Apply(0, records)
	return image, err
}

func isTiered(b *config.Broker, configs map[string]string) bool {
	t, err := config.ResolveTopic(b, configs)
	return err == nil && t.RemoteStorageEnable
}
