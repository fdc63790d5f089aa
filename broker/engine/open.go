package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/group"
	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/cluster"
	"github.com/tidemark-io/tidemark/tier/object/storecheck"
)

// Open starts a broker as far as it can come alone: it locks its log directories, finds its cluster in the store, reads the
// metadata chain, recovers the logs, and takes up its partitions. It blocks on the store and the disk. Whoever drives the engine
// then steps it until it is Serving.
//
// It refuses a bucket that is not the one its directories belong to, a chain that ends before what this broker has seen, and a
// store that does not keep its promises.
func Open(ctx context.Context, now time.Time, o Options) (_ *Engine, err error) {
	ctx = object.WithCause(ctx, object.Cause{Kind: object.CauseMetadata})
	logger := o.Logger.With("broker", int32(o.Config.NodeID))
	e := &Engine{
		config: o.Config, self: o.Config.NodeID, fs: o.FS,
		incarnation: o.Incarnation, logger: logger.With("component", "engine"), wake: o.Wake, reconfigured: o.Reconfigured,
		random: &lockedRand{source: o.Rand}, stopped: make(chan struct{}), failed: make(chan struct{}),
	}
	e.settings.Store(o.Config)
	e.image.Store(metadata.Empty())

	// Locked before anything is read: what another process still writes, here or to the chain, would be taken for all that there
	// is, and the logs of its newest topics for strays.
	locks, err := log.LockDirs(o.FS, o.Config.LogDirs)
	if err != nil {
		return nil, err
	}
	defer locks.Close()
	id, err := readIdentity(o, locks.Dirs())
	if err != nil {
		return nil, err
	}
	found, founder, err := e.findCluster(ctx, now, o, id.cluster)
	if err != nil {
		return nil, err
	}
	e.clusterID = found.ID
	kept, err := loadKept(o.FS, locks.Dirs())
	if err != nil {
		return nil, err
	}
	fold := &imageFold{image: metadata.Empty()}
	link, err := chain.Open(ctx, o.Store, cluster.MetadataPrefix, chain.Options{
		Writer: chain.Writer{Broker: int32(e.self), Incarnation: o.Incarnation},
		Nonce:  e.random.Nonce, Seen: kept.position, Logger: logger.With("component", "chain"),
	}, fold)
	if err != nil {
		return nil, fmt.Errorf("read the metadata chain: %w", err)
	}
	if err := e.settleIncarnation(ctx, now, o, &id, fold.image); err != nil {
		return nil, err
	}
	if err := e.openLogs(now, o, locks, fold.image); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close(now))
		}
	}()
	if err := e.assemble(now, o, claim{former: kept.incarnation, founder: founder}, link); err != nil {
		return nil, err
	}
	e.role.log.replayed(now, fold)
	delta := sinceStart(fold.image, kept.image)
	for _, t := range delta.Topics {
		if t.After == nil {
			e.gone = append(e.gone, t.Before.Name)
		}
	}
	e.publish(now, fold.image, delta)
	e.replicas.SetStraysAside(now)
	// From here on the lease may name this incarnation: the next one must know that it was ours.
	if err := e.storeKept(keptState{link.Tail(), o.Incarnation, fold.image}); err != nil {
		return nil, fmt.Errorf("write %s: %w", keptFile, err)
	}
	e.keptOffset = fold.image.Offset()
	e.role.begin(now)
	return e, nil
}

// findCluster reads cluster.json, or creates it in a new bucket that has been tried, which makes this broker the founder. known is the
// cluster that the log directories belong to, "" if they are new. What is to be recovered has to be there.
func (e *Engine) findCluster(ctx context.Context, now time.Time, o Options, known string) (_ cluster.Cluster, founder bool, _ error) {
	if o.Recover && known == "" {
		if found, err := cluster.Load(ctx, o.Store); err != nil {
			return found, false, err
		}
	}
	if known == "" {
		if err := storecheck.Quick(ctx, o.Store, "check/"+e.random.Nonce(), o.Run); err != nil {
			return cluster.Cluster{}, false, err
		}
	}
	fresh := cluster.Cluster{
		ID: wire.TopicID(e.random.UUID()).String(), Version: cluster.FormatVersion, CreatedMs: now.UnixMilli(),
	}
	found, err := cluster.Ensure(ctx, o.Store, known, fresh)
	return found, found.ID == fresh.ID, err
}

func (e *Engine) openLogs(now time.Time, o Options, locks *log.DirLocks, image *metadata.Image) error {
	settings, err := o.Config.WithDynamic(
		image.Configs(metadata.ConfigResource{Type: metadata.BrokerResource}),
		image.Configs(metadata.ConfigResource{Type: metadata.BrokerResource, Name: e.self.String()}))
	if err != nil {
		settings = o.Config // publish says why
	}
	e.adopt(settings)
	e.logs, err = log.OpenManager(now, log.ManagerOptions{
		FS: o.FS, Dirs: o.Config.LogDirs, Locks: locks, ClusterID: e.clusterID, ClusterIncarnation: e.clusterIncarnation, BrokerID: e.self, BootID: o.BootID,
		DefaultConfig: func(topic string) config.Topic {
			overrides := image.Configs(metadata.ConfigResource{Type: metadata.TopicResource, Name: topic})
			resolved, err := config.ResolveTopic(settings, overrides)
			if err != nil {
				resolved, _ = config.ResolveTopic(settings, nil)
			}
			return resolved
		},
		TopicID: func(topic string) (id wire.TopicID) {
			if t := image.Topic(topic); t != nil {
				id = t.ID
			}
			return id
		},
		Run: o.Run, NewUUID: e.random.UUID,
		Logger: o.Logger.With("component", "log"), Yield: o.Yield,
	})
	return err
}

// assemble makes the parts and ties them together.
func (e *Engine) assemble(now time.Time, o Options, by claim, link *chain.Chain) error {
	wakeAt := func(time.Time) { e.wake() }
	if err := e.tier.init(e, o); err != nil {
		return err
	}
	e.replicas = replica.New(replica.Options{
		Self: e.self, Logs: e.logs, Config: o.Config, Logger: o.Logger, Wake: wakeAt, HighWatermark: e.highWatermark,
		Tier: &e.tier,
	})
	c := o.Config
	e.groups = group.New(group.Config{
		MinSessionTimeout:      millis(c.GroupMinSessionTimeoutMs),
		MaxSessionTimeout:      millis(c.GroupMaxSessionTimeoutMs),
		InitialRebalanceDelay:  millis(c.GroupInitialRebalanceDelayMs),
		MaxSize:                c.GroupMaxSize,
		OffsetMetadataMaxBytes: c.OffsetMetadataMaxBytes,
		OffsetsRetention:       time.Duration(c.OffsetsRetentionMinutes) * time.Minute,
		OffsetsRetentionCheck:  time.Duration(c.OffsetsRetentionCheckMs) * time.Millisecond,
		OffsetsCommitTimeout:   millis(c.OffsetsCommitTimeoutMs),
		Appender:               offsetsLog{e}, TopicID: e.topicID, UUID: e.random.UUID, Wake: wakeAt, Logger: o.Logger,
	})
	e.producers.engine, e.recovering.engine = e, e
	e.api = api.New(api.Options{
		Self: e.self, ClusterID: e.clusterID, Config: e.settings.Load, Image: e.image.Load,
		Replicas: e.replicas, Sessions: replica.NewFetchSessionCache(c.FetchSessionCacheSlots, e.random.Uint32),
		Groups: e.groups, Controller: e, ProducerIDs: &e.producers,
	})
	directories := e.directories()
	e.member.init(e, metadata.RegisterBroker{
		BrokerID: e.self, ClusterID: e.clusterID, ClusterIncarnation: e.clusterIncarnation, Incarnation: o.Incarnation, BootID: o.BootID,
		Directories: directories, CleanStopEpoch: e.logs.CleanEpoch(), Listeners: o.Advertised, Rack: c.Rack,
		Features: metadata.SupportedFeatures(),
	})
	e.upkeep = newUpkeep(e, now)
	return e.role.init(e, o, by, link)
}

// directories are the ids of the log directories that are online.
func (e *Engine) directories() []string {
	var ids []string
	for _, d := range e.logs.Dirs() {
		if d.Err == nil {
			ids = append(ids, d.ID.String())
		}
	}
	return ids
}

// offlineDirectories are the ids of the log directories that have failed.
func (e *Engine) offlineDirectories() []string {
	if len(e.logs.Offline()) == 0 {
		return nil
	}
	var ids []string
	for _, d := range e.logs.Dirs() {
		if d.Err != nil {
			ids = append(ids, d.ID.String())
		}
	}
	return ids
}

// sinceStart is the delta with which a broker takes up its partitions: everything that there is, and the removal of the topics
// that were there when it stopped, so that their logs go. Whatever else lies on its disks nobody can explain (safety.md 9).
func sinceStart(image, kept *metadata.Image) metadata.Delta {
	delta := image.Since(metadata.Empty())
	var removed []metadata.TopicDelta
	for _, t := range image.Since(kept).Topics {
		if t.After == nil {
			removed = append(removed, t)
		}
	}
	delta.Topics = append(removed, delta.Topics...)
	return delta
}

func millis(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }
