package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-io/tidemark/tier/plan"
	"github.com/tidemark-io/tidemark/tier/reasons"
)

const defaultAdmin = "127.0.0.1:9644"

var errTwoSources = mistake("ask either a broker (--admin) or the bucket (--store)")

func tierExplainCommand(a *app, store *string) *cobra.Command {
	var admin string
	c := &cobra.Command{
		Use:   "explain TOPIC[/PARTITION]",
		Short: "Say why each segment of a topic is kept, here and in the bucket, and until when",
		Long: "Say why each segment of a topic is kept, here and in the bucket, and until when; what is not in the bucket yet and why; and " +
			"what the leader does next.\n\nA broker's admin listener is asked (--admin), or with --store the bucket alone, which knows the " +
			"topic's settings and not those of the broker.",
		Example: "  tidemark tier explain orders\n  tidemark tier explain orders/3 --store file:///var/lib/tidemark/store",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := parsePartitionRef(args[0])
			if err != nil {
				return err
			}
			if *store != "" && cmd.Flags().Changed("admin") {
				return errTwoSources
			}
			if *store != "" {
				return a.explainBucket(cmd, *store, ref)
			}
			list, err := a.explainBroker(cmd.Context(), admin, ref)
			if err != nil {
				return err
			}
			return a.print(cmd, explained(list))
		},
	}
	c.Flags().StringVar(&admin, "admin", defaultAdmin, "admin listener of a broker, host:port")
	return c
}

// explainedMax bounds what is read of a broker's answer.
const explainedMax = 256 << 20

func (a *app) explainBroker(ctx context.Context, admin string, ref partitionRef) ([]reasons.Partition, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	at := "http://" + admin + reasons.Path + "?topic=" + url.QueryEscape(ref.topic)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, unusable{err}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, unusable{fmt.Errorf("ask the broker: %w\nName its admin listener with --admin, or ask the bucket with --store", err)}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, explainedMax))
	if err != nil {
		return nil, unusable{err}
	}
	if response.StatusCode != http.StatusOK {
		return nil, unusable{fmt.Errorf("the broker at %s answers %s: %s", admin, response.Status, strings.TrimSpace(string(body)))}
	}
	var all []reasons.Partition
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, unusable{fmt.Errorf("the broker at %s answers no JSON that is understood: %w", admin, err)}
	}
	list := []reasons.Partition{}
	for _, p := range all {
		if ref.partition < 0 || ref.partition == p.Partition {
			list = append(list, p)
		}
	}
	if len(list) == 0 && ref.partition >= 0 {
		return nil, unusable{fmt.Errorf("the broker at %s leads no partition %s", admin, ref)}
	}
	return list, nil
}

// explainBucket works the reasons out of the bucket, as a leader would that had nothing else.
func (a *app) explainBucket(cmd *cobra.Command, store string, ref partitionRef) error {
	b, partitions, ctx, err := a.openPartitions(cmd, store, ref)
	if err != nil {
		return err
	}
	list := explained{}
	err = each(ctx, partitions, func(p partitionOf) error {
		v, lost, err := b.view(ctx, p)
		if err != nil {
			return err
		}
		e := reasons.Of(a.now(), v)
		e.Topic, e.TopicID, e.Partition, e.Lost, e.Next = p.topic.Name, p.topic.ID, p.index, lost, nil
		list = append(list, e)
		return nil
	})
	return a.printRead(cmd, list, err)
}

// view is what the bucket says of a partition. Settings of the broker have their defaults.
func (b *bucket) view(ctx context.Context, p partitionOf) (plan.View, []reasons.Range, error) {
	settings, err := defaultSettings()
	if err != nil {
		return plan.View{}, nil, err
	}
	t := topicSettings(settings, b.image, p.topic.Name)
	m, err := b.open(ctx, p)
	if err != nil {
		return plan.View{}, nil, err
	}
	s := m.State()
	v := plan.View{
		LeaderEpoch: s.LeaderEpoch(), Confirmed: true, ClockKnown: true,
		Config: plan.Config{
			Tiered: t.RemoteStorageEnable, CopyDisabled: t.RemoteLogCopyDisable, DeleteOnDisable: t.RemoteLogDeleteOnDisable,
			CleanupDelete: t.CleanupDelete, CleanupCompact: t.CleanupCompact, RetentionMs: t.RetentionMs, RetentionBytes: t.RetentionBytes,
			LocalRetentionMs: t.LocalRetentionMs, LocalRetentionBytes: t.LocalRetentionBytes,
			CopyLagMs: t.RemoteCopyLagMs, CopyLagBytes: t.RemoteCopyLagBytes,
			MaxUnsealed: time.Duration(settings.TierMaxUnsealedMs) * time.Millisecond,
			DeleteGrace: time.Duration(settings.TierDeleteGraceMs) * time.Millisecond,
		},
		Local: plan.Local{LogStart: s.ReadStart(), Start: s.End, HighWatermark: s.End, LastStableOffset: s.End, End: s.End},
		Bucket: plan.Bucket{
			Read: true, LogStart: s.ReadStart(), End: s.End, Segments: s.Segments, Bytes: s.Bytes, Tail: len(s.Tail), Closed: s.Closed,
		},
	}
	for _, d := range s.Dropped {
		v.Bucket.Dropped = append(v.Bucket.Dropped, plan.Dropped{TimeMs: d.TimeMs})
	}
	for segment, err := range m.All(ctx) {
		if err != nil {
			return plan.View{}, nil, err
		}
		v.Bucket.Oldest = append(v.Bucket.Oldest, plan.RemoteSegment{
			Start: segment.Start, End: segment.End, Size: segment.Size, MaxTimestamp: segment.MaxTimestamp, UploadedMs: segment.UploadedMs,
		})
	}
	var lost []reasons.Range
	for _, l := range s.Lost {
		lost = append(lost, reasons.Range{Start: l.Start, End: l.End})
	}
	return v, lost, nil
}

// explained is the view of explain.
type explained []reasons.Partition

func (e explained) write(p *page) {
	for _, x := range e {
		p.heading()
		fmt.Fprintf(p.out, "%s/%d, leader epoch %d", x.Topic, x.Partition, x.LeaderEpoch)
		if !x.Tiered {
			fmt.Fprint(p.out, ", not tiered")
		}
		fmt.Fprintf(p.out, ": offsets %d to %d are in the bucket", x.LogStart, x.TieredEnd)
		if x.Live {
			fmt.Fprintf(p.out, ", %d to %d are here, %d to %d are here alone", x.LocalStart, x.End, x.TieredEnd, x.End)
			if x.OldestMs > 0 {
				fmt.Fprintf(p.out, ", the oldest of them of %s", moment(x.OldestMs))
			}
		}
		fmt.Fprintln(p.out)
		for _, l := range x.Lost {
			fmt.Fprintf(p.out, "  lost: offsets %d to %d\n", l.Start, l.End-1)
		}
		for _, d := range x.Damaged {
			fmt.Fprintf(p.out, "  damaged: the segment of offsets %d to %d; nothing behind it is uploaded before retention has passed it\n", d.Start, d.End-1)
		}
		if x.Error != "" {
			fmt.Fprintf(p.out, "  in the way since %s: %s\n", moment(x.SinceMs), x.Error)
		}
		for _, next := range x.Next {
			fmt.Fprintf(p.out, "  next: %s\n", next)
		}
		p.heading("WHERE", "FROM", "UP TO", "SIZE", "UNTIL", "WHY")
		for _, s := range x.Segments {
			p.row(string(s.Where), int64(s.Start), int64(s.End), bytesText(s.Bytes), moment(s.UntilMs), s.Why)
		}
	}
}
