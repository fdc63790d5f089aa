package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func groupCommand(a *app) *cobra.Command {
	return parent("group", "List, describe, reset and delete consumer groups",
		groupListCommand(a), groupDescribeCommand(a), groupMembersCommand(a), groupResetCommand(a), groupDeleteCommand(a), groupDeleteOffsetsCommand(a))
}

// groupRow is a line of group list.
type groupRow struct {
	Name        string `json:"name"`
	State       string `json:"state"`
	Type        string `json:"type"`
	Protocol    string `json:"protocol_type"`
	Coordinator int32  `json:"coordinator"`
}

type groupList []groupRow

func (l groupList) write(p *page) {
	p.heading("GROUP", "STATE", "TYPE", "PROTOCOL", "COORDINATOR")
	for _, g := range l {
		p.row(g.Name, g.State, g.Type, g.Protocol, g.Coordinator)
	}
}

func groupListCommand(a *app) *cobra.Command {
	var states []string
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the groups",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd.Context(), func(ctx context.Context, admin *kadm.Client) error {
				groups, err := admin.ListGroups(ctx, states...)
				if err != nil {
					return err
				}
				list := groupList{}
				for _, g := range groups.Sorted() {
					list = append(list, groupRow{g.Group, g.State, g.GroupType, g.ProtocolType, g.Coordinator})
				}
				return a.print(cmd, list)
			})
		},
	}
	c.Flags().StringSliceVar(&states, "state", nil, "only groups in these states (Stable, Empty, PreparingRebalance, ...)")
	return c
}

// groupDetail is one group of group describe.
type groupDetail struct {
	Name        string     `json:"name"`
	State       string     `json:"state"`
	Assignor    string     `json:"assignor"`
	Coordinator int32      `json:"coordinator"`
	Members     int        `json:"members"`
	Lag         int64      `json:"lag"`
	Partitions  []groupLag `json:"partitions"`
}

type groupLag struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed *int64 `json:"committed"` // nil: nothing yet
	End       *int64 `json:"end"`
	Lag       *int64 `json:"lag"`
	Metadata  string `json:"metadata,omitempty"`
	Member    string `json:"member,omitempty"`
	Host      string `json:"host,omitempty"`
	Error     string `json:"error,omitempty"`
}

type groupDetails []groupDetail

func (l groupDetails) write(p *page) {
	for _, g := range l {
		p.heading()
		p.row("group", g.Name)
		p.row("state", g.State)
		p.row("assignor", g.Assignor)
		p.row("coordinator", g.Coordinator)
		p.row("members", g.Members)
		p.row("lag", g.Lag)
		if len(g.Partitions) == 0 {
			continue
		}
		p.heading("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "HOST", "ERROR")
		for _, r := range g.Partitions {
			p.row(r.Topic, r.Partition, r.Committed, r.End, r.Lag, r.Member, r.Host, r.Error)
		}
	}
}

// groups runs fn with an admin client once the groups have coordinators: the first request for any group has the cluster make the topic
// of their offsets.
func (a *app) groups(ctx context.Context, names []string, fn func(context.Context, *kadm.Client) error) error {
	return a.admin(ctx, func(ctx context.Context, admin *kadm.Client) error {
		for {
			err := admin.FindGroupCoordinators(ctx, names...).Error()
			if !errors.Is(err, kerr.CoordinatorNotAvailable) {
				return fn(ctx, admin)
			}
			if wait(ctx, coordinatorPause); ctx.Err() != nil {
				return err
			}
		}
	})
}

// coordinatorPause is between two questions for coordinators.
const coordinatorPause = 50 * time.Millisecond

func groupDescribeCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "describe NAME...",
		Short:             "Show how far groups have read",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.groups(cmd.Context(), names, func(ctx context.Context, admin *kadm.Client) error {
				details := groupDetails{}
				for _, name := range names {
					g, err := loadGroup(ctx, admin, name)
					if err != nil {
						return fmt.Errorf("group %s: %w", name, err)
					}
					committed, err := admin.FetchOffsets(ctx, name)
					if err != nil {
						return fmt.Errorf("group %s: %w", name, err)
					}
					partitions := committed.Partitions()
					partitions.Merge(g.assigned())
					var ends kadm.ListedOffsets
					if len(partitions) > 0 {
						if ends, err = listing(admin.ListEndOffsets(ctx, partitions.Topics()...)); err != nil {
							return err
						}
					}
					details = append(details, g.describe(committed, ends, partitions))
				}
				return a.print(cmd, details)
			})
		},
	}
}

// memberRow is a line of group members.
type memberRow struct {
	Member   string               `json:"member"`
	Instance *string              `json:"instance"` // group.instance.id of a static member
	Client   string               `json:"client"`
	Host     string               `json:"host"`
	Assigned []assignedPartitions `json:"assigned"`
}

type assignedPartitions struct {
	Topic      string  `json:"topic"`
	Partitions []int32 `json:"partitions"`
}

type memberList []memberRow

func (l memberList) write(p *page) {
	p.heading("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS")
	for _, m := range l {
		var assigned []string
		for _, t := range m.Assigned {
			assigned = append(assigned, t.Topic+":"+cellText(t.Partitions))
		}
		p.row(m.Member, m.Instance, m.Client, m.Host, strings.Join(assigned, " "))
	}
}

func groupMembersCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "members NAME",
		Short:             "Show a group's members and what they read",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.groups(cmd.Context(), names, func(ctx context.Context, admin *kadm.Client) error {
				g, err := loadGroup(ctx, admin, names[0])
				if err != nil {
					return fmt.Errorf("group %s: %w", names[0], err)
				}
				return a.print(cmd, g.members)
			})
		},
	}
}

func groupDeleteCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "delete NAME...",
		Aliases:           []string{"rm"},
		Short:             "Delete groups that have no members",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.groups(cmd.Context(), names, func(ctx context.Context, admin *kadm.Client) error {
				deleted, err := admin.DeleteGroups(ctx, names...)
				if err != nil {
					return err
				}
				var list outcomes
				for _, r := range deleted {
					list = append(list, became(r.Group, "deleted", r.Err, ""))
				}
				return a.report(cmd, list.byName())
			})
		},
	}
}

func groupDeleteOffsetsCommand(a *app) *cobra.Command {
	var topics []string
	c := &cobra.Command{
		Use:               "delete-offsets NAME --topic TOPIC[:PARTITION]",
		Short:             "Forget how far a group has read topics",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			scope, err := scopeOf(cmd, topics)
			if err != nil {
				return err
			}
			return a.groups(cmd.Context(), args, func(ctx context.Context, admin *kadm.Client) error {
				committed, err := admin.FetchOffsets(ctx, args[0])
				if err != nil {
					return err
				}
				remove := make(kadm.TopicsSet)
				committed.Each(func(o kadm.OffsetResponse) {
					if scope.holds(o.Topic, o.Partition) {
						remove.Add(o.Topic, o.Partition)
					}
				})
				if name := scope.unmatched(remove); name != "" {
					return fmt.Errorf("group %s has no offset of %s; `tidemark group describe %s` shows them", args[0], name, args[0])
				}
				deleted, err := admin.DeleteOffsets(ctx, args[0], remove)
				if err != nil {
					return err
				}
				var list outcomes
				for _, t := range remove.Sorted() {
					for _, partition := range t.Partitions {
						err, _ := deleted.Lookup(t.Topic, partition)
						list = append(list, became(partitionName(t.Topic, partition), "offset deleted", err, ""))
					}
				}
				return a.report(cmd, list)
			})
		},
	}
	c.Flags().StringSliceVarP(&topics, "topic", "t", nil, "a topic, or one partition of it as topic:0; may be repeated")
	c.MarkFlagRequired("topic") //nolint:errcheck // the flag exists: it is defined above
	return c
}

// scope is some topics, or some of their partitions. Empty it is everything.
type scope map[string][]int32

// scopeOf is what --topic names: given and empty it is no wish for everything.
func scopeOf(cmd *cobra.Command, topics []string) (scope, error) {
	if cmd.Flags().Changed("topic") && len(topics) == 0 {
		return nil, mistake("--topic names no topic")
	}
	return parseScope(topics)
}

// parseScope reads topic, topic:partition, and topic/partition as the tier commands have it.
func parseScope(texts []string) (scope, error) {
	s := make(scope)
	for _, text := range texts {
		topic, digits, some := strings.Cut(strings.Replace(text, "/", ":", 1), ":")
		if topic == "" {
			return nil, mistake("%q is not topic or topic:partition", text)
		}
		if _, known := s[topic]; !known {
			s[topic] = nil
		}
		if !some {
			continue
		}
		partition, err := strconv.ParseInt(digits, 10, 32)
		if err != nil || partition < 0 {
			return nil, mistake("%q is not topic or topic:partition", text)
		}
		s[topic] = append(s[topic], int32(partition))
	}
	return s, nil
}

func (s scope) holds(topic string, partition int32) bool {
	partitions, named := s[topic]
	return len(s) == 0 || named && (len(partitions) == 0 || slices.Contains(partitions, partition))
}

// topics are those that the scope names.
func (s scope) topics() []string { return slices.Sorted(maps.Keys(s)) }

// unmatched is the first topic or partition that the scope names and that is none of the found ones; nothing where all are.
func (s scope) unmatched(found kadm.TopicsSet) string {
	for _, topic := range s.topics() {
		if len(s[topic]) == 0 && len(found[topic]) == 0 {
			return topic
		}
		for _, partition := range s[topic] {
			if !found.Lookup(topic, partition) {
				return partitionName(topic, partition)
			}
		}
	}
	return ""
}
