package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object/storeurl"
	"github.com/tidemark-io/tidemark/tier/reasons"
)

func tierListCommand(a *app, url *string) *cobra.Command {
	return &cobra.Command{
		Use:   "ls [TOPIC[/PARTITION]]",
		Short: "List the topics in the bucket, a topic's partitions, or a partition's segments",
		Example: "  tidemark tier ls --store file:///var/lib/tidemark/store\n" +
			"  tidemark tier ls orders/3 --store 's3://bucket/prefix?region=eu-central-1'",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := partitionRefOf(args)
			if err != nil {
				return err
			}
			b, list, ctx, err := a.openPartitions(cmd, *url, ref)
			if err != nil {
				return err
			}
			var result view
			switch {
			case ref.topic == "":
				result, err = b.topicRows(ctx, list)
			case ref.partition < 0:
				result, err = b.coverage(ctx, list)
			default:
				result, err = b.segmentRows(ctx, list[0])
			}
			return a.printRead(cmd, result, err)
		},
	}
}

// tierTopics is the view of ls.
type tierTopics []tierTopic

type tierTopic struct {
	Topic      string       `json:"topic"`
	TopicID    wire.TopicID `json:"topicId"`
	Partitions int          `json:"partitions"`
	InBucket   int          `json:"inBucket"` // partitions that have a manifest
	Segments   int          `json:"segments"`
	Bytes      int64        `json:"bytes"`
	Offsets    int64        `json:"offsets"` // between log start and tiered end, without those that are lost
	Lost       int64        `json:"lost"`
}

func (b *bucket) topicRows(ctx context.Context, list []partitionOf) (tierTopics, error) {
	rows := tierTopics{}
	err := each(ctx, list, func(p partitionOf) error {
		if n := len(rows); n == 0 || rows[n-1].TopicID != p.topic.ID {
			rows = append(rows, tierTopic{Topic: p.topic.Name, TopicID: p.topic.ID})
		}
		row := &rows[len(rows)-1]
		row.Partitions++
		m, err := b.open(ctx, p)
		if err != nil {
			return err
		}
		s := m.State()
		if s.Position.Number > 0 {
			row.InBucket++
		}
		lost := lostOffsets(s)
		row.Segments, row.Bytes, row.Lost = row.Segments+s.Segments, row.Bytes+s.Bytes, row.Lost+lost
		row.Offsets += int64(s.End-s.LogStart) - lost
		return nil
	})
	return rows, err
}

// lostOffsets are those that are lost of the log as it is now.
func lostOffsets(s *manifest.State) (n int64) {
	for _, l := range s.Lost {
		n += int64(l.End - max(l.Start, s.LogStart))
	}
	return n
}

func (t tierTopics) write(p *page) {
	p.heading("TOPIC", "ID", "PARTITIONS", "IN THE BUCKET", "SEGMENTS", "SIZE", "OFFSETS", "LOST")
	for _, r := range t {
		p.row(r.Topic, r.TopicID, r.Partitions, r.InBucket, r.Segments, bytesText(r.Bytes), r.Offsets, r.Lost)
	}
}

// tierSegments is the view of ls of a partition.
type tierSegments []manifest.Segment

func (b *bucket) segmentRows(ctx context.Context, p partitionOf) (tierSegments, error) {
	rows := tierSegments{}
	err := each(ctx, []partitionOf{p}, func(p partitionOf) error {
		m, err := b.open(ctx, p)
		if err != nil {
			return err
		}
		for s, err := range m.All(ctx) {
			if err != nil {
				return err
			}
			rows = append(rows, s)
		}
		return nil
	})
	return rows, err
}

func (t tierSegments) write(p *page) {
	p.heading("START", "END", "SIZE", "EPOCH", "UPLOADED", "FIRST", "LAST", "OBJECT")
	for _, s := range t {
		p.row(int64(s.Start), int64(s.End), bytesText(s.Size), s.Epoch, moment(s.UploadedMs), moment(s.MinTimestamp), moment(s.MaxTimestamp),
			s.Key(manifest.LogObject))
	}
}

func tierStatusCommand(a *app, url *string) *cobra.Command {
	var admin string
	c := &cobra.Command{
		Use:   "status [TOPIC[/PARTITION]]",
		Short: "Show what of each partition is in the bucket, what is not, and what is lost",
		Long: "Show what of each partition is in the bucket: the offsets that were uploaded, those that are lost, and what waits for its " +
			"deletion.\n\nA bucket does not say what brokers have beyond it. With --admin a broker is asked, for the partitions that it " +
			"leads: what is not in the bucket yet, and what stands in the way.",
		Example: "  tidemark tier status --store file:///var/lib/tidemark/store\n  tidemark tier status orders --admin " + defaultAdmin,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := partitionRefOf(args)
			if err != nil {
				return err
			}
			switch {
			case admin != "" && *url != "":
				return errTwoSources
			case admin == "" && *url == "":
				return mistake("ask whom? the bucket, --store URL: %s; or a broker, --admin %s", storeurl.Forms, defaultAdmin)
			case admin != "":
				list, err := a.explainBroker(cmd.Context(), admin, ref)
				if err != nil {
					return err
				}
				return a.print(cmd, coverageOf(list))
			}
			b, list, ctx, err := a.openPartitions(cmd, *url, ref)
			if err != nil {
				return err
			}
			rows, err := b.coverage(ctx, list)
			return a.printRead(cmd, rows, err)
		},
	}
	c.Flags().StringVar(&admin, "admin", "", "ask the broker with this admin listener, host:port, in place of a bucket")
	return c
}

// tierCoverage is the view of status.
type tierCoverage []tierPartition

type tierPartition struct {
	Topic       string           `json:"topic"`
	Partition   int32            `json:"partition"`
	LogStart    wire.Offset      `json:"logStart"`
	End         wire.Offset      `json:"end"`              // of what is in the bucket, exclusive
	LogEnd      *wire.Offset     `json:"logEnd,omitempty"` // of the log, where a broker was asked
	LeaderEpoch wire.LeaderEpoch `json:"leaderEpoch"`
	Segments    int              `json:"segments"`
	Bytes       int64            `json:"bytes"`
	Lost        []manifest.Range `json:"lost,omitempty"`
	Dropped     int              `json:"dropped,omitempty"`
	UploadedMs  int64            `json:"uploadedMs,omitempty"` // of the newest segment
	NewestMs    int64            `json:"newestMs,omitempty"`   // its largest timestamp
	State       string           `json:"state"`
}

// coverageOf is what a broker says.
func coverageOf(list []reasons.Partition) tierCoverage {
	rows := tierCoverage{}
	for _, x := range list {
		row := tierPartition{
			Topic: x.Topic, Partition: x.Partition, LogStart: x.LogStart, End: x.TieredEnd, LogEnd: &x.End, LeaderEpoch: x.LeaderEpoch,
			State: brokerState(x),
		}
		for _, s := range x.Segments {
			if s.Where == reasons.Bucket {
				row.Segments++
				row.Bytes += s.Bytes
			}
		}
		for _, l := range x.Lost {
			row.Lost = append(row.Lost, manifest.Range(l))
		}
		rows = append(rows, row)
	}
	return rows
}

// brokerState says in a word how a partition is doing.
func brokerState(x reasons.Partition) string {
	switch {
	case !x.Tiered:
		return "not tiered"
	case x.Error != "":
		return "stands since " + moment(x.SinceMs) + ": " + x.Error
	case len(x.Damaged) > 0:
		return fmt.Sprintf("a damaged segment holds back all from offset %d on", x.TieredEnd)
	case x.End <= x.TieredEnd:
		return "all is in the bucket"
	case x.OldestMs > 0:
		return "the oldest record that is not in the bucket is of " + moment(x.OldestMs)
	}
	return fmt.Sprintf("%d offsets are not in the bucket", x.End-x.TieredEnd)
}

// coverage describes partitions. One whose manifest can't be read has a row, too.
func (b *bucket) coverage(ctx context.Context, list []partitionOf) (tierCoverage, error) {
	rows := tierCoverage{}
	err := each(ctx, list, func(p partitionOf) error {
		row := tierPartition{Topic: p.topic.Name, Partition: p.index, LeaderEpoch: wire.NoLeaderEpoch}
		m, err := b.open(ctx, p)
		if err != nil {
			row.State = "unreadable: " + err.Error()
			rows = append(rows, row)
			return errReported
		}
		s := m.State()
		row.LogStart, row.End, row.LeaderEpoch = s.LogStart, s.End, s.LeaderEpoch()
		row.Segments, row.Bytes, row.Lost, row.Dropped = s.Segments, s.Bytes, s.Lost, len(s.Dropped)
		row.State = stateText(s, b.image.ClosedLast(p.topic.Partition(p.index), s.LeaderEpoch()))
		if last, ok := lastSegment(ctx, m); ok {
			row.UploadedMs, row.NewestMs = last.UploadedMs, last.MaxTimestamp
		}
		rows = append(rows, row)
		return nil
	})
	return rows, err
}

// stateText says in a word how a partition's manifest stands. closedLast: nobody has led the partition since it was closed.
func stateText(s *manifest.State, closedLast bool) string {
	switch {
	case s.Position.Number == 0:
		return "nothing was ever uploaded"
	case s.Closed && closedLast:
		return "closed whole: the log ends here"
	case s.Closed:
		return "closed whole, and led again since: a broker may have more"
	case len(s.Lost) > 0:
		return "offsets are lost"
	}
	return "open"
}

// lastSegment is the newest live segment.
func lastSegment(ctx context.Context, m *manifest.Manifest) (last manifest.Segment, ok bool) {
	s := m.State()
	if n := len(s.Tail); n > 0 {
		return s.Tail[n-1], true
	}
	if n := len(s.Pages); n > 0 {
		if page, err := m.Load(ctx, s.Pages[n-1]); err == nil && len(page) > 0 {
			return page[len(page)-1], true
		}
	}
	return last, false
}

func (t tierCoverage) write(p *page) {
	p.heading("PARTITION", "FROM", "UP TO", "LOG END", "SEGMENTS", "SIZE", "LOST", "DROPPED", "LAST UPLOAD", "STATE")
	for _, r := range t {
		var lost []string
		for _, l := range r.Lost {
			lost = append(lost, fmt.Sprintf("%d..%d", l.Start, l.End-1))
		}
		logEnd := ""
		if r.LogEnd != nil {
			logEnd = fmt.Sprint(*r.LogEnd)
		}
		p.row(fmt.Sprintf("%s/%d", r.Topic, r.Partition), int64(r.LogStart), int64(r.End), logEnd, r.Segments, bytesText(r.Bytes), lost,
			r.Dropped, moment(r.UploadedMs), r.State)
	}
}
