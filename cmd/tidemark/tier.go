package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/engine"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/fsck"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/cluster"
	"github.com/tidemark-io/tidemark/tier/object/guard"
	"github.com/tidemark-io/tidemark/tier/object/storeurl"
)

// tierCommand holds what works on a bucket without a broker.
func tierCommand(a *app) *cobra.Command {
	var url string
	c := parent("tier", "Look at, check and repair what lies in the object store",
		tierListCommand(a, &url), tierStatusCommand(a, &url), tierExplainCommand(a, &url), tierCatCommand(a, &url),
		tierFsckCommand(a, &url), tierVerifyCommand(a, &url), tierRebuildCommand(a, &url))
	c.PersistentFlags().StringVar(&url, "store", "", "URL of the object store (store.url)")
	return c
}

// unusable is an error that says nothing of what was to be looked at: a wrong command line, or a store that does not answer.
type unusable struct{ error }

// Unwrap is the error inside.
func (u unusable) Unwrap() error { return u.error }

// mistake is the error of a command line that says what can't be meant.
func mistake(format string, args ...any) error { return unusable{fmt.Errorf(format, args...)} }

// bucket is a store with a cluster in it.
type bucket struct {
	store object.Store
	image *metadata.Image
}

// openStore opens a store for a command: a call has a deadline, and what fails is tried again.
func openStore(ctx context.Context, url string, deadline time.Duration) (object.Store, error) {
	if url == "" {
		return nil, mistake("which store? --store URL: %s", storeurl.Forms)
	}
	store, err := storeurl.Open(ctx, url)
	if err != nil {
		return nil, unusable{err}
	}
	return guard.New(store, guard.Options{Deadline: deadline}), nil
}

// openCluster opens a store that has a cluster in it.
func (a *app) openCluster(cmd *cobra.Command, url string) (object.Store, context.Context, error) {
	ctx := object.WithCause(cmd.Context(), object.Cause{Kind: object.CauseTool})
	store, err := openStore(ctx, url, a.timeout)
	if err != nil {
		return nil, ctx, err
	}
	if _, err := cluster.Load(ctx, store); err != nil {
		return nil, ctx, unusable{fmt.Errorf("%s: %w", url, err)}
	}
	return store, ctx, nil
}

// openBucket opens a store and reads its cluster's metadata.
func (a *app) openBucket(cmd *cobra.Command, url string) (*bucket, context.Context, error) {
	store, ctx, err := a.openCluster(cmd, url)
	if err != nil {
		return nil, ctx, err
	}
	image, err := engine.ReadImage(ctx, store)
	if err != nil {
		return nil, ctx, unusable{fmt.Errorf("%s: %w", url, err)}
	}
	return &bucket{store, image}, ctx, nil
}

// openPartitions opens a bucket and finds what a reference holds for.
func (a *app) openPartitions(cmd *cobra.Command, url string, ref partitionRef) (*bucket, []partitionOf, context.Context, error) {
	b, ctx, err := a.openBucket(cmd, url)
	if err != nil {
		return nil, nil, ctx, err
	}
	list, err := b.partitions(ref)
	return b, list, ctx, err
}

// partitionRef is a topic, or one of its partitions, as people write it: TOPIC or TOPIC/PARTITION.
type partitionRef struct {
	topic     string
	partition int32 // -1 for all
}

func parsePartitionRef(text string) (partitionRef, error) {
	topic, number, one := strings.Cut(text, "/")
	ref := partitionRef{topic: topic, partition: -1}
	if one {
		n, err := strconv.ParseInt(number, 10, 32)
		if err != nil || n < 0 {
			return ref, mistake("%q is not TOPIC or TOPIC/PARTITION", text)
		}
		ref.partition = int32(n)
	}
	return ref, nil
}

// partitionRefOf is the reference that a command may be given; without one it is everything.
func partitionRefOf(args []string) (partitionRef, error) {
	if len(args) == 0 {
		return partitionRef{partition: -1}, nil
	}
	return parsePartitionRef(args[0])
}

func (r partitionRef) String() string {
	if r.partition < 0 {
		return r.topic
	}
	return fmt.Sprintf("%s/%d", r.topic, r.partition)
}

func (r partitionRef) holds(tp wire.TopicPartition) bool {
	return (r.topic == "" || r.topic == tp.Topic) && (r.partition < 0 || r.partition == tp.Partition)
}

// partitionOf is a partition of the metadata.
type partitionOf struct {
	topic *metadata.Topic
	index int32
}

func (p partitionOf) prefix() string { return manifest.Prefix(p.topic.Name, p.topic.ID, p.index) }

func (p partitionOf) String() string { return fmt.Sprintf("%s/%d", p.topic.Name, p.index) }

// partitions are those of the metadata that the reference holds for.
func (b *bucket) partitions(ref partitionRef) ([]partitionOf, error) {
	var list []partitionOf
	for t := range b.image.Topics("") {
		for i := range t.Partitions {
			if ref.holds(wire.TopicPartition{Topic: t.Name, Partition: int32(i)}) {
				list = append(list, partitionOf{t, int32(i)})
			}
		}
	}
	if len(list) == 0 && ref.topic != "" {
		return nil, unusable{fmt.Errorf("the bucket's metadata has no topic or partition %s; `tidemark tier ls` shows the topics", ref)}
	}
	return list, nil
}

func (b *bucket) open(ctx context.Context, p partitionOf) (*manifest.Manifest, error) {
	return manifest.Open(ctx, b.store, p.prefix(), manifest.Options{})
}

// each calls look for partitions. One that can't be read does not hide the others: what look says of it is in the error at the end.
func each(ctx context.Context, list []partitionOf, look func(p partitionOf) error) error {
	var failed []error
	for _, p := range list {
		if err := look(p); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", p, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failed...)
}

// printRead prints what could be read of a bucket, and ends with what could not.
func (a *app) printRead(cmd *cobra.Command, v view, failed error) error {
	return errors.Join(a.print(cmd, v), failed)
}

// fsckTopics are the topics of the metadata for a check, with the broker's settings as far as they are known.
func fsckTopics(settings *config.Broker, image *metadata.Image) []fsck.Topic {
	var list []fsck.Topic
	for t := range image.Topics("") {
		topic := fsck.Topic{Name: t.Name, ID: t.ID, Partitions: int32(len(t.Partitions))}
		tiered := topicSettings(settings, image, t.Name).RemoteStorageEnable
		for i, p := range t.Partitions {
			switch {
			case p.Empty || !tiered:
			case image.StoppedWhole(p) && p.LeaderEpoch > 0: // an epoch of 0 and no leader: nobody has led it yet
				topic.Stored = append(topic.Stored, int32(i))
			default:
				topic.Unsure = append(topic.Unsure, int32(i))
			}
		}
		list = append(list, topic)
	}
	for r := range image.Removals() {
		list = append(list, fsck.Topic{Name: r.Topic, ID: r.TopicID, Removing: true})
	}
	return list
}

// moment is a time for people; nothing where there is none.
func moment(milli int64) string {
	if milli <= 0 {
		return ""
	}
	return time.UnixMilli(milli).UTC().Format(time.RFC3339)
}
