package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func offsetCommand(a *app) *cobra.Command {
	return parent("offset", "Show the offsets of topics", offsetListCommand(a))
}

// offsetRow is one partition of offset list.
type offsetRow struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Start     *int64 `json:"start"` // nil where no leader said it
	End       *int64 `json:"end"`
	Records   *int64 `json:"offsets"`      // End - Start: the records, but for what compaction took
	At        *int64 `json:"at,omitempty"` // of --at
}

type offsetList struct {
	rows []offsetRow
	at   bool
}

func (l offsetList) MarshalJSON() ([]byte, error) { return marshalRows(l.rows) }

func (l offsetList) write(p *page) {
	columns := []string{"TOPIC", "PARTITION", "START", "END", "OFFSETS"}
	if l.at {
		columns = append(columns, "AT")
	}
	p.heading(columns...)
	for _, r := range l.rows {
		cells := []any{r.Topic, r.Partition, r.Start, r.End, r.Records}
		if l.at {
			cells = append(cells, r.At)
		}
		p.row(cells...)
	}
}

func offsetListCommand(a *app) *cobra.Command {
	var at string
	c := &cobra.Command{
		Use:               "list [TOPIC...]",
		Aliases:           []string{"ls"},
		Short:             "Show the first and the last offset of partitions, and that of a time",
		Example:           "  tidemark offset list orders --at @2026-01-31T08:00:00Z",
		ValidArgsFunction: a.completeTopics,
		RunE: func(cmd *cobra.Command, topics []string) error {
			var when *position
			if at != "" {
				p, err := parsePosition(at, a.now())
				if err != nil {
					return err
				}
				when = &p
			}
			return a.admin(cmd.Context(), func(ctx context.Context, admin *kadm.Client) error {
				rows, err := listOffsets(ctx, admin, topics, when)
				if err != nil {
					return err
				}
				return a.print(cmd, offsetList{rows, when != nil})
			})
		},
	}
	c.Flags().StringVar(&at, "at", "", "the offset of a position too: "+positionHelp)
	return c
}

func listOffsets(ctx context.Context, admin *kadm.Client, topics []string, at *position) ([]offsetRow, error) {
	starts, err := listing(admin.ListStartOffsets(ctx, topics...))
	if err == nil {
		err = missingTopic(starts)
	}
	if err != nil {
		return nil, err
	}
	ends, err := listing(admin.ListEndOffsets(ctx, topics...))
	if err != nil {
		return nil, err
	}
	var moments kadm.ListedOffsets
	if at != nil {
		if moments, err = at.resolve(ctx, admin, topics...); err != nil {
			return nil, err
		}
	}
	rows := []offsetRow{}
	starts.Each(func(o kadm.ListedOffset) {
		row := offsetRow{
			Topic: o.Topic, Partition: o.Partition,
			Start: knownOffset(starts, o.Topic, o.Partition), End: knownOffset(ends, o.Topic, o.Partition), At: knownOffset(moments, o.Topic, o.Partition),
		}
		if row.Start != nil && row.End != nil {
			records := *row.End - *row.Start
			row.Records = &records
		}
		rows = append(rows, row)
	})
	slices.SortFunc(rows, func(x, y offsetRow) int {
		if c := strings.Compare(x.Topic, y.Topic); c != 0 {
			return c
		}
		return int(x.Partition - y.Partition)
	})
	return rows, nil
}

// listing takes the answer to a request for offsets as far as it goes: a partition without a leader, or whose broker does not answer,
// has that error as its own. It fails where no broker has answered.
func listing(listed kadm.ListedOffsets, err error) (kadm.ListedOffsets, error) {
	parts, ok := errors.AsType[*kadm.ShardErrors](err)
	if !ok || parts.AllFailed && !errors.Is(err, kerr.LeaderNotAvailable) {
		return listed, err
	}
	for _, part := range parts.Errs {
		request, ok := part.Req.(*kmsg.ListOffsetsRequest)
		if !ok {
			return listed, err
		}
		for _, t := range request.Topics {
			if listed[t.Topic] == nil {
				listed[t.Topic] = make(map[int32]kadm.ListedOffset)
			}
			for _, p := range t.Partitions {
				listed[t.Topic][p.Partition] = kadm.ListedOffset{Topic: t.Topic, Partition: p.Partition, Offset: -1, Err: part.Err}
			}
		}
	}
	return listed, nil
}

// missingTopic is the error of a topic that does not exist: kadm lists it as partition -1.
func missingTopic(listed kadm.ListedOffsets) error {
	for topic, partitions := range listed {
		if missing, ok := partitions[-1]; ok {
			return fmt.Errorf("topic %s: %w", topic, missing.Err)
		}
	}
	return nil
}

// knownOffset is the offset of a partition, nil where nobody told it.
func knownOffset(listed kadm.ListedOffsets, topic string, partition int32) *int64 {
	o, ok := listed.Lookup(topic, partition)
	if !ok || o.Err != nil {
		return nil
	}
	return &o.Offset
}

// listedOffset is the offset of a partition for those who can't do without. A leader that was just elected may not know it yet.
func listedOffset(listed kadm.ListedOffsets, topic string, partition int32) (int64, error) {
	o, ok := listed.Lookup(topic, partition)
	switch {
	case ok && o.Err != nil:
		return 0, o.Err
	case !ok || o.Offset < 0:
		return 0, errors.New("the cluster did not tell it")
	default:
		return o.Offset, nil
	}
}
