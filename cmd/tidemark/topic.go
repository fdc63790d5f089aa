package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func topicCommand(a *app) *cobra.Command {
	return parent("topic", "Create, list, describe, change and delete topics",
		topicCreateCommand(a), topicListCommand(a), topicDescribeCommand(a), topicAlterCommand(a), topicDeleteCommand(a), topicTruncateCommand(a))
}

func topicCreateCommand(a *app) *cobra.Command {
	var partitions int32
	var replicas int16
	var configs []string
	var ifNotExists, validate bool
	c := &cobra.Command{
		Use:     "create NAME...",
		Short:   "Create topics",
		Example: "  tidemark topic create orders --partitions 6 --config retention.ms=86400000",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			set, err := keyValues(configs)
			if err != nil {
				return err
			}
			return a.admin(cmd.Context(), func(ctx context.Context, admin *kadm.Client) error {
				create, done := admin.CreateTopics, "created"
				if validate {
					create, done = admin.ValidateCreateTopics, "would be created"
				}
				created, err := create(ctx, partitions, replicas, set, names...)
				if err != nil {
					return err
				}
				var list outcomes
				for _, r := range created {
					if ifNotExists && codeOf(r.Err) == kerr.TopicAlreadyExists.Code {
						list = append(list, outcome{Name: r.Topic, Done: "exists"})
						continue
					}
					with := fmt.Sprintf(" with %s, %s", count(int(r.NumPartitions), "partition"), count(int(r.ReplicationFactor), "replica"))
					list = append(list, became(r.Topic, done+with, r.Err, r.ErrMessage))
				}
				return a.report(cmd, list.byName())
			})
		},
	}
	c.Flags().Int32VarP(&partitions, "partitions", "p", -1, "number of partitions; -1 leaves it to the broker")
	c.Flags().Int16VarP(&replicas, "replicas", "r", -1, "replication factor; -1 leaves it to the broker")
	c.Flags().StringArrayVarP(&configs, "config", "c", nil, "a setting, key=value; may be repeated")
	c.Flags().BoolVar(&ifNotExists, "if-not-exists", false, "an existing topic is no failure")
	c.Flags().BoolVar(&validate, "validate-only", false, "only say whether it would work")
	return c
}

// topicRow is a line of topic list.
type topicRow struct {
	Name       string `json:"name"`
	ID         string `json:"id"`
	Partitions int    `json:"partitions"`
	Replicas   int    `json:"replicas"`
	Internal   bool   `json:"internal"`
}

type topicList []topicRow

func (l topicList) write(p *page) {
	p.heading("TOPIC", "PARTITIONS", "REPLICAS", "ID")
	for _, t := range l {
		p.row(t.Name, t.Partitions, t.Replicas, t.ID)
	}
}

func topicListCommand(a *app) *cobra.Command {
	var internal bool
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the topics",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd.Context(), func(ctx context.Context, admin *kadm.Client) error {
				list := admin.ListTopics
				if internal {
					list = admin.ListTopicsWithInternal
				}
				topics, err := list(ctx)
				if err != nil {
					return err
				}
				rows := topicList{}
				for _, t := range topics.Sorted() {
					rows = append(rows, topicRow{t.Topic, idText(t.ID), len(t.Partitions), t.Partitions.NumReplicas(), t.IsInternal})
				}
				return a.print(cmd, rows)
			})
		},
	}
	c.Flags().BoolVar(&internal, "internal", false, "internal topics too")
	return c
}

// topicDetail is one topic of topic describe.
type topicDetail struct {
	Name       string            `json:"name"`
	ID         string            `json:"id"`
	Internal   bool              `json:"internal"`
	Partitions []partitionDetail `json:"partitions"`
	Configs    []configRow       `json:"configs"` // those that the topic sets
}

type partitionDetail struct {
	Partition   int32   `json:"partition"`
	Leader      int32   `json:"leader"`
	LeaderEpoch int32   `json:"leader_epoch"`
	Replicas    []int32 `json:"replicas"`
	ISR         []int32 `json:"isr"`
	Offline     []int32 `json:"offline"`
	Start       *int64  `json:"start"` // first offset; nil where no leader said it
	End         *int64  `json:"end"`   // offset after the last record
	Error       string  `json:"error,omitempty"`
}

type topicDetails []topicDetail

func (l topicDetails) write(p *page) {
	for _, t := range l {
		p.heading()
		p.row("topic", t.Name)
		p.row("id", t.ID)
		for _, c := range t.Configs {
			p.row(c.Name, c.Value)
		}
		p.heading("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "OFFLINE", "START", "END", "ERROR")
		for _, d := range t.Partitions {
			p.row(d.Partition, d.Leader, d.LeaderEpoch, d.Replicas, d.ISR, d.Offline, d.Start, d.End, d.Error)
		}
	}
}

func topicDescribeCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "describe NAME...",
		Short:             "Show a topic's partitions, replicas, offsets and settings",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeTopics,
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.admin(cmd.Context(), func(ctx context.Context, admin *kadm.Client) error {
				details, err := describeTopics(ctx, admin, names)
				if err != nil {
					return err
				}
				return a.print(cmd, details)
			})
		},
	}
}

func describeTopics(ctx context.Context, admin *kadm.Client, names []string) (topicDetails, error) {
	topics, err := admin.ListTopicsWithInternal(ctx, names...)
	if err != nil {
		return nil, err
	}
	for _, t := range topics.Sorted() {
		if t.Err != nil {
			return nil, fmt.Errorf("topic %s: %w", t.Topic, t.Err)
		}
	}
	starts, err := listing(admin.ListStartOffsets(ctx, names...))
	if err != nil {
		return nil, err
	}
	ends, err := listing(admin.ListEndOffsets(ctx, names...))
	if err != nil {
		return nil, err
	}
	configs, err := admin.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return nil, err
	}
	details := topicDetails{}
	for _, t := range topics.Sorted() {
		d := topicDetail{Name: t.Topic, ID: idText(t.ID), Internal: t.IsInternal, Configs: []configRow{}}
		for _, part := range t.Partitions.Sorted() {
			row := partitionDetail{
				Partition: part.Partition, Leader: part.Leader, LeaderEpoch: part.LeaderEpoch,
				Replicas: part.Replicas, ISR: part.ISR, Offline: part.OfflineReplicas,
				Start: knownOffset(starts, t.Topic, part.Partition), End: knownOffset(ends, t.Topic, part.Partition),
			}
			if part.Err != nil {
				row.Error = describe(part.Err, "")
			}
			d.Partitions = append(d.Partitions, row)
		}
		if own, err := configs.On(t.Topic, nil); err == nil {
			for _, c := range own.Configs {
				if c.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
					d.Configs = append(d.Configs, configRow{Name: c.Key, Value: c.Value, Source: c.Source.String()})
				}
			}
		}
		details = append(details, d)
	}
	return details, nil
}

func topicAlterCommand(a *app) *cobra.Command {
	var partitions int
	var set, remove []string
	c := &cobra.Command{
		Use:               "alter NAME...",
		Short:             "Add partitions, change settings",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeTopics,
		RunE: func(cmd *cobra.Command, names []string) error {
			changes, err := configChanges(set, remove, nil, nil)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("partitions") && partitions < 1 {
				return mistake("--partitions must be at least 1, not %d", partitions)
			}
			if partitions == 0 && len(changes) == 0 {
				return mistake("nothing to change: give --partitions, --config or --delete-config")
			}
			return a.admin(cmd.Context(), func(ctx context.Context, admin *kadm.Client) error {
				var list outcomes
				if partitions > 0 {
					grown, err := admin.UpdatePartitions(ctx, partitions, names...)
					if err != nil {
						return err
					}
					for _, r := range grown {
						list = append(list, became(r.Topic, "has "+count(partitions, "partition"), r.Err, r.ErrMessage))
					}
				}
				if len(changes) > 0 {
					altered, err := admin.AlterTopicConfigs(ctx, changes, names...)
					if err != nil {
						return err
					}
					for _, r := range altered {
						list = append(list, became(r.Name, "settings changed", r.Err, r.ErrMessage))
					}
				}
				return a.report(cmd, list.byName())
			})
		},
	}
	c.Flags().IntVarP(&partitions, "partitions", "p", 0, "number of partitions that the topic shall have")
	c.Flags().StringArrayVarP(&set, "config", "c", nil, "a setting, key=value; may be repeated")
	c.Flags().StringArrayVar(&remove, "delete-config", nil, "a setting that goes back to the broker's; may be repeated")
	return c
}

func topicDeleteCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "delete NAME...",
		Aliases:           []string{"rm"},
		Short:             "Delete topics with their records",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeTopics,
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.admin(cmd.Context(), func(ctx context.Context, admin *kadm.Client) error {
				deleted, err := admin.DeleteTopics(ctx, names...)
				if err != nil {
					return err
				}
				var list outcomes
				for _, r := range deleted {
					list = append(list, became(r.Topic, "deleted", r.Err, r.ErrMessage))
				}
				return a.report(cmd, list.byName())
			})
		},
	}
}

func topicTruncateCommand(a *app) *cobra.Command {
	var before string
	var partitions []int32
	c := &cobra.Command{
		Use:               "truncate NAME --before POSITION",
		Short:             "Delete the records before a position",
		Long:              "Delete the records before a position: " + positionHelp + ".",
		Example:           "  tidemark topic truncate orders --before @-24h",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeTopics,
		RunE: func(cmd *cobra.Command, names []string) error {
			at, err := parsePosition(before, a.now())
			if err != nil {
				return err
			}
			return a.admin(cmd.Context(), func(ctx context.Context, admin *kadm.Client) error {
				offsets, err := truncation(ctx, admin, at, scope{names[0]: partitions})
				if err != nil {
					return err
				}
				removed, err := admin.DeleteRecords(ctx, offsets)
				if err != nil && len(removed) == 0 {
					return err
				}
				var list outcomes
				for _, o := range offsets.Sorted() {
					r, answered := removed.Lookup(o.Topic, o.Partition)
					if !answered {
						r.Err = cmp.Or(err, errors.New("the cluster did not tell it"))
					}
					list = append(list, became(partitionName(o.Topic, o.Partition), fmt.Sprintf("begins at %d", r.LowWatermark), r.Err, ""))
				}
				return a.report(cmd, list)
			})
		},
	}
	c.Flags().StringVar(&before, "before", "", "the first position that stays")
	c.Flags().Int32SliceVarP(&partitions, "partition", "p", nil, "only these partitions")
	c.MarkFlagRequired("before") //nolint:errcheck // the flag exists: it is defined above
	return c
}

// truncation is the new start of each partition in the scope.
func truncation(ctx context.Context, admin *kadm.Client, at position, s scope) (kadm.Offsets, error) {
	targets, err := at.resolve(ctx, admin, s.topics()...)
	if err == nil {
		err = missingTopic(targets)
	}
	if err != nil {
		return nil, err
	}
	if name := s.unmatched(targets.Offsets().TopicsSet()); name != "" {
		return nil, fmt.Errorf("%s: %w", name, kerr.UnknownTopicOrPartition)
	}
	offsets := make(kadm.Offsets)
	for _, o := range targets.Offsets().Sorted() {
		if !s.holds(o.Topic, o.Partition) {
			continue
		}
		start, err := listedOffset(targets, o.Topic, o.Partition)
		if err != nil {
			return nil, fmt.Errorf("offset in %s: %w", partitionName(o.Topic, o.Partition), err)
		}
		offsets.AddOffset(o.Topic, o.Partition, start, -1)
	}
	return offsets, nil
}

// keyValues reads key=value pairs for kadm.
func keyValues(pairs []string) (map[string]*string, error) {
	set := make(map[string]*string, len(pairs))
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, mistake("%q is not key=value", pair)
		}
		set[key] = &value
	}
	return set, nil
}

// idText is a topic id as Kafka's tools print it.
func idText(id kadm.TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// partitionName is the name of a partition, as that of its folder.
func partitionName(topic string, partition int32) string {
	return fmt.Sprintf("%s-%d", topic, partition)
}
