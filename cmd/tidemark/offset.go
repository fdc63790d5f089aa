package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func offsetCommand(a *app) *cobra.Command {
	return parent("offset", "Show the offsets of topics", offsetListCommand(a))
}

// offsetRow is one partition of offset list.
type offsetRow struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Start     *int64 `json:"start"`
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
	starts, err := admin.ListStartOffsets(ctx, topics...)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, err
	}
	ends, err := admin.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	var moments kadm.Offsets
	if at != nil {
		if moments, err = at.resolve(ctx, admin, topics...); err != nil {
			return nil, err
		}
	}
	rows := []offsetRow{}
	starts.Each(func(o kadm.ListedOffset) {
		row := offsetRow{Topic: o.Topic, Partition: o.Partition, Start: &o.Offset, End: knownOffset(ends, o.Topic, o.Partition)}
		if row.End != nil {
			records := *row.End - *row.Start
			row.Records = &records
		}
		if moment, ok := moments.Lookup(o.Topic, o.Partition); ok {
			row.At = &moment.At
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
