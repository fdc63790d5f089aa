package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
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
			scope, err := scopeOf(cmd, f.topics)
			if err != nil {
				return err
			}
			return a.groups(cmd.Context(), args, func(ctx context.Context, admin *kadm.Client) error {
				plan, err := f.plan(ctx, admin, args[0], scope, at)
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
func (f *resetFlags) plan(ctx context.Context, admin *kadm.Client, group string, scope scope, at position) (resetPlan, error) {
	committed, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return nil, err
	}
	topics := scope.topics()
	if len(scope) == 0 {
		topics = committed.Partitions().Topics()
	}
	if len(topics) == 0 {
		return nil, fmt.Errorf("group %s has committed nothing; name what to set with --topic", group)
	}
	targets, err := at.resolve(ctx, admin, topics...)
	if err == nil {
		err = missingTopic(targets)
	}
	if err != nil {
		return nil, err
	}
	if name := scope.unmatched(targets.Offsets().TopicsSet()); name != "" {
		return nil, fmt.Errorf("%s: %w", name, kerr.UnknownTopicOrPartition)
	}
	starts, err := listing(admin.ListStartOffsets(ctx, topics...))
	if err != nil {
		return nil, err
	}
	ends, err := listing(admin.ListEndOffsets(ctx, topics...))
	if err != nil {
		return nil, err
	}
	plan, planned := resetPlan{}, make(kadm.TopicsSet)
	for _, o := range targets.Offsets().Sorted() {
		before, has := committed.Lookup(o.Topic, o.Partition)
		if !scope.holds(o.Topic, o.Partition) || len(scope) == 0 && !has {
			continue
		}
		row := resetRow{Topic: o.Topic, Partition: o.Partition}
		if has && before.At >= 0 {
			row.Committed = &before.At
		}
		switch {
		case f.to != "":
			if row.Target, err = listedOffset(targets, o.Topic, o.Partition); err != nil {
				return nil, fmt.Errorf("offset in %s: %w", partitionName(o.Topic, o.Partition), err)
			}
		case row.Committed == nil:
			continue // there is nothing to shift
		default:
			row.Target = *row.Committed + f.shift
		}
		if row.Target, err = within(starts, ends, o.Topic, o.Partition, row.Target); err != nil {
			return nil, err
		}
		plan = append(plan, row)
		planned.Add(row.Topic, row.Partition)
	}
	if name := scope.unmatched(planned); name != "" {
		return nil, fmt.Errorf("group %s has committed nothing of %s that could be shifted; --to sets its position", group, name)
	}
	return plan, nil
}

// within is the offset held between the start and the end of the partition. To take what stands in the answer of a leader that does not
// know its end yet would rewind the group.
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

func (r resetPlan) commit(ctx context.Context, admin *kadm.Client, group string) error {
	offsets := make(kadm.Offsets)
	for _, row := range r {
		offsets.AddOffset(row.Topic, row.Partition, row.Target, -1)
	}
	committed, err := admin.CommitOffsets(ctx, group, offsets)
	if err == nil {
		err = committed.Error()
	}
	if ofMembers(err) {
		return errors.Join(err, fmt.Errorf("a group with members cannot be moved; `tidemark group members %s` shows them", group))
	}
	return err
}

// ofMembers tells whether a commit from outside was refused because the group has members.
func ofMembers(err error) bool {
	for _, refused := range []error{
		kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.RebalanceInProgress, kerr.StaleMemberEpoch, kerr.NonEmptyGroup,
	} {
		if errors.Is(err, refused) {
			return true
		}
	}
	return false
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
