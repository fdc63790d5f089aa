package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/membership/lease"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/fsck"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
)

// rebuildFlags are the flags of rebuild-manifest.
type rebuildFlags struct {
	write, force bool
	logStart     int64
	topicID      string
}

func tierRebuildCommand(a *app, url *string) *cobra.Command {
	var f rebuildFlags
	c := &cobra.Command{
		Use:   "rebuild-manifest TOPIC/PARTITION",
		Short: "Make a partition's manifest anew from its objects, when it is lost or damaged",
		Long: "Make a partition's manifest anew from the names of its objects, their sidecars, and their batches, when the manifest's chain " +
			"is lost or damaged. Without --write it only says what it would do.\n\n" +
			"Nothing is overwritten or deleted. A segment whose sidecar is missing or damaged is copied under a new name, with a sidecar " +
			"made from it. Where there is a chain already, --force is needed: the new manifest takes its place, at the highest leader epoch " +
			"that was seen, and whoever led at that epoch can't commit any more. So the cluster has to be stopped; its next leader goes on.\n\n" +
			"What was dropped before its deletion may come back where nothing tells the log start any more: --log-start does. What lies " +
			"between the objects is recorded as lost.",
		Example: "  tidemark tier rebuild-manifest orders/3 --store file:///var/lib/tidemark/store\n" +
			"  tidemark tier rebuild-manifest orders/3 --store file:///var/lib/tidemark/store --write --force",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := parsePartitionRef(args[0])
			if err == nil && ref.partition < 0 {
				err = unusable{errors.New("which partition? TOPIC/PARTITION")}
			}
			if err != nil {
				return err
			}
			return a.rebuild(cmd, *url, ref, f)
		},
	}
	c.Flags().BoolVar(&f.write, "write", false, "write the manifest")
	c.Flags().BoolVar(&f.force, "force", false, "also where there is one already")
	c.Flags().Int64Var(&f.logStart, "log-start", int64(wire.NoOffset), "where the log begins, if you know")
	c.Flags().StringVar(&f.topicID, "topic-id", "", "id of the topic, where the metadata does not know it any more")
	return c
}

func (a *app) rebuild(cmd *cobra.Command, url string, ref partitionRef, f rebuildFlags) error {
	var image *metadata.Image
	remake, remove, err := scratch(func() *metadata.Image { return image })
	if err != nil {
		return err
	}
	defer remove()
	o := fsck.RebuildOptions{
		Topic: ref.topic, Index: ref.partition, Epoch: wire.NoLeaderEpoch, Scratch: remake, LogStart: wire.Offset(f.logStart),
	}
	ctx := cmd.Context()
	if f.topicID != "" {
		if o.ID, err = wire.ParseTopicID(f.topicID); err != nil {
			return unusable{err}
		}
		if o.Store, err = openStore(ctx, url, a.timeout); err != nil {
			return err
		}
	} else {
		b, _, err := a.openBucket(cmd, url)
		if err != nil {
			return err
		}
		list, err := b.partitions(ref)
		if err != nil {
			return err
		}
		image = b.image
		o.Store, o.ID, o.Epoch = b.store, list[0].topic.ID, list[0].topic.Partitions[ref.partition].LeaderEpoch
	}
	plan, err := fsck.PlanRebuild(ctx, o)
	if err != nil {
		return unusable{err}
	}
	result := rebuilt{Rebuilding: plan, Partition: fmt.Sprintf("%s/%d", ref.topic, ref.partition)}
	if f.write {
		switch {
		case plan.Found && !f.force:
			return unusable{errors.New("there is a manifest already: --force puts another one in its place")}
		case plan.LogStart < 0:
			return unusable{errors.New("there are no segments to make a manifest of, and nothing tells where the log began: --log-start does")}
		}
		if err := nobodyAtWork(ctx, o.Store); err != nil {
			return unusable{err}
		}
		writer := chain.Writer{Broker: int32(wire.NoBroker), Incarnation: "rebuild-" + rand.Text()}
		if _, err := plan.Commit(ctx, a.now(), writer, rand.Text); err != nil {
			return err
		}
		result.Written = true
	}
	return a.print(cmd, result)
}

// nobodyAtWork refuses a bucket whose controller renews its lease. Nobody's clock says when that was: the lease is looked at twice.
func nobodyAtWork(ctx context.Context, s object.Store) error {
	first, err := leaseOf(ctx, s)
	if err != nil || first.State != lease.Held {
		return err
	}
	select {
	case <-time.After(min(3*time.Duration(first.RenewMs)*time.Millisecond, leaseWaitMax)):
	case <-ctx.Done():
		return ctx.Err()
	}
	second, err := leaseOf(ctx, s)
	if err == nil && second.Seq != first.Seq {
		err = fmt.Errorf("a cluster is at work on this bucket: broker %d has just renewed the controller's lease; stop it first", second.Holder)
	}
	return err
}

// leaseWaitMax bounds how long a lease is watched.
const leaseWaitMax = 30 * time.Second

// leaseOf reads the controller's lease; the zero Record where there is none.
func leaseOf(ctx context.Context, s object.Store) (r lease.Record, err error) {
	body, _, err := object.Read(ctx, s, lease.Key, 64<<10)
	if errors.Is(err, object.ErrNotExist) {
		return r, nil
	} else if err != nil {
		return r, err
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return r, fmt.Errorf("%s: %w", lease.Key, err)
	}
	return r, nil
}

// rebuilt is the view of rebuild-manifest.
type rebuilt struct {
	*fsck.Rebuilding
	Partition string `json:"partition"`
	Written   bool   `json:"written"`
}

func (r rebuilt) write(p *page) {
	p.heading("START", "END", "SIZE", "EPOCH", "SIDECAR", "OBJECT")
	remade := map[manifest.Name]bool{}
	for _, n := range r.Remade {
		remade[n] = true
	}
	for _, s := range r.Segments {
		sidecar := "there"
		if remade[s.Name] {
			sidecar = "is made anew"
		}
		p.row(int64(s.Start), int64(s.End), bytesText(s.Size), s.Epoch, sidecar, s.Key(manifest.LogObject))
	}
	p.flush()
	for _, l := range r.Lost {
		fmt.Fprintf(p.out, "lost: offsets %d to %d, which no object has\n", l.Start, l.End-1)
	}
	for _, key := range r.Unused {
		fmt.Fprintf(p.out, "not used: %s\n", key)
	}
	switch {
	case r.Written:
		fmt.Fprintf(p.out, "%s has a new manifest of %d segments, from offset %d on, at leader epoch %d.\n", r.Partition, len(r.Segments), r.LogStart, r.Epoch)
	case r.LogStart < 0:
		fmt.Fprintf(p.out, "%s has no segments in the bucket, and nothing tells where the log began. --log-start says where it begins.\n", r.Partition)
	case r.Sound:
		fmt.Fprintf(p.out, "%s has a manifest that can be read. Nothing was written; --write --force puts this one in its place.\n", r.Partition)
	case r.Found:
		fmt.Fprintf(p.out, "%s has a manifest that can't be read. Nothing was written; --write --force puts this one in its place.\n", r.Partition)
	default:
		fmt.Fprintf(p.out, "Nothing was written; --write does it.\n")
	}
}
