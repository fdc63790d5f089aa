package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

// resetFlags are the flags of group reset.
type resetFlags struct {
	topics  []string
	to      string
	shift   int64
	execute bool
}

func groupResetCommand(a *app) *cobra.Command {
	var f resetFlags
	c := &cobra.Command{
		Use:   "reset NAME",
		Short: "Move a group to another position",
		Long: "Move a group to another position: " + positionHelp + ". The group must have no members.\n\n" +
			"Without --execute it only shows what would change. Without --topic it moves all that the group has committed.",
		Example:           "  tidemark group reset billing --topic orders --to start --execute\n  tidemark group reset billing --shift -100",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			var at position
			if f.to != "" {
				var err error
				if at, err = parsePosition(f.to, a.now()); err != nil {
					return err
				}
			}
			return a.admin(cmd.Context(), func(ctx context.Context, admin *kadm.Client) error {
				plan, err := f.plan(ctx, admin, args[0], at)
				if err != nil {
					return err
				}
				if f.execute {
					if err := plan.commit(ctx, admin, args[0]); err != nil {
						return err
					}
				}
				return a.print(cmd, resetResult{plan, f.execute})
			})
		},
	}
	c.Flags().StringSliceVarP(&f.topics, "topic", "t", nil, "a topic, or one partition of it as topic:0; may be repeated")
	c.Flags().StringVar(&f.to, "to", "", "where to: "+positionHelp)
	c.Flags().Int64Var(&f.shift, "shift", 0, "move by this many records, back when negative")
	c.Flags().BoolVar(&f.execute, "execute", false, "do it")
	c.MarkFlagsOneRequired("to", "shift")
	c.MarkFlagsMutuallyExclusive("to", "shift")
	return c
}

// resetRow is one partition of a reset.
type resetRow struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed *int64 `json:"committed"` // before; nil: nothing yet
	Target    int64  `json:"target"`
}

type resetPlan []resetRow

// plan works out the new offsets, held between the start and the end of each partition.
func (f *resetFlags) plan(ctx context.Context, admin *kadm.Client, group string, at position) (resetPlan, error) {
	scope, err := parseScope(f.topics)
	if err != nil {
		return nil, err
	}
	committed, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return nil, err
	}
	topics := scopeTopics(scope, committed)
	if len(topics) == 0 {
		return nil, fmt.Errorf("group %s has committed nothing; name what to set with --topic", group)
	}
	targets, err := at.resolve(ctx, admin, topics...)
	if err != nil {
		return nil, err
	}
	starts, err := admin.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	ends, err := admin.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	plan := resetPlan{}
	for _, o := range targets.Sorted() {
		before, has := committed.Lookup(o.Topic, o.Partition)
		if !scope.holds(o.Topic, o.Partition) || len(scope) == 0 && !has {
			continue
		}
		row := resetRow{Topic: o.Topic, Partition: o.Partition, Target: o.At}
		if has && before.At >= 0 {
			row.Committed = &before.At
		}
		if f.to == "" {
			if row.Committed == nil {
				continue // there is nothing to shift
			}
			row.Target = *row.Committed + f.shift
		}
		if row.Target, err = within(starts, ends, o.Topic, o.Partition, row.Target); err != nil {
			return nil, err
		}
		plan = append(plan, row)
	}
	return plan, nil
}

// within is the offset held between the start and the end of the partition. A leader that was just elected may not know its end yet: to
// take the offset in the answer for it would rewind the group.
func within(starts, ends kadm.ListedOffsets, topic string, partition int32, offset int64) (int64, error) {
	start, err := listedOffset(starts, topic, partition)
	if err != nil {
		return 0, fmt.Errorf("start of %s-%d: %w", topic, partition, err)
	}
	end, err := listedOffset(ends, topic, partition)
	if err != nil {
		return 0, fmt.Errorf("end of %s-%d: %w", topic, partition, err)
	}
	return max(start, min(end, offset)), nil
}

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

// scopeTopics is the topics of the scope, or those that the group has committed.
func scopeTopics(s scope, committed kadm.OffsetResponses) []string {
	var topics []string
	for topic := range s {
		topics = append(topics, topic)
	}
	if len(s) == 0 {
		for topic := range committed {
			topics = append(topics, topic)
		}
	}
	slices.Sort(topics)
	return topics
}

func (r resetPlan) commit(ctx context.Context, admin *kadm.Client, group string) error {
	offsets := make(kadm.Offsets)
	for _, row := range r {
		offsets.AddOffset(row.Topic, row.Partition, row.Target, -1)
	}
	committed, err := admin.CommitOffsets(ctx, group, offsets)
	if err == nil {
		err = committed.Error()
	}
	if err != nil {
		return errors.Join(err, fmt.Errorf("a group with members cannot be moved; `tidemark group members %s` shows them", group))
	}
	return nil
}

// resetResult is the view of group reset.
type resetResult struct {
	Partitions resetPlan `json:"partitions"`
	Executed   bool      `json:"executed"`
}

func (r resetResult) write(p *page) {
	p.heading("TOPIC", "PARTITION", "COMMITTED", "NEW")
	for _, row := range r.Partitions {
		p.row(row.Topic, row.Partition, row.Committed, row.Target)
	}
	if !r.Executed {
		p.heading()
		p.row("Nothing was changed. Add --execute to do it.")
	}
}
