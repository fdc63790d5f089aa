package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// group is a classic or a consumer group (KIP-848) in one shape.
type group struct {
	name, state, assignor string
	coordinator           int32
	members               memberList
}

// loadGroup asks for the group as a classic one, then as a consumer group: the protocol has a request for each.
func loadGroup(ctx context.Context, admin *kadm.Client, name string) (*group, error) {
	described, err := admin.DescribeGroups(ctx, name)
	if err != nil {
		return nil, err
	}
	classic := described[name]
	missing := codeOf(classic.Err) == kerr.GroupIDNotFound.Code || classic.State == "Dead"
	if missing {
		if modern, err := admin.DescribeConsumerGroups(ctx, name); err == nil && modern[name].Err == nil {
			return newConsumerGroup(modern[name]), nil
		}
		listed, _ := admin.ListGroups(ctx) // where it fails, the group is as good as missing
		return nil, missingGroup(listed[name])
	}
	if classic.Err != nil {
		return nil, classic.Err
	}
	return newClassicGroup(classic), nil
}

// missingGroup is the error of a group that neither request knows; listed is the group in the list, if it is there.
func missingGroup(listed kadm.ListedGroup) error {
	switch kind := strings.ToLower(listed.GroupType); kind {
	case "", "classic", "consumer":
		return kerr.GroupIDNotFound
	default:
		return fmt.Errorf("it is a %s group, and those are not shown here", kind)
	}
}

func newClassicGroup(d kadm.DescribedGroup) *group {
	g := &group{name: d.Group, state: d.State, assignor: d.Protocol, coordinator: d.Coordinator.NodeID, members: memberList{}}
	for _, m := range d.Members {
		row := memberRow{Member: m.MemberID, Instance: m.InstanceID, Client: m.ClientID, Host: m.ClientHost, Assigned: []assignedPartitions{}}
		if assigned, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range assigned.Topics {
				row.Assigned = append(row.Assigned, assignedPartitions{t.Topic, t.Partitions})
			}
		}
		g.members = append(g.members, row.sorted())
	}
	return g
}

func newConsumerGroup(d kadm.DescribedConsumerGroup) *group {
	g := &group{name: d.Group, state: d.State, assignor: d.AssignorName, coordinator: d.Coordinator.NodeID, members: memberList{}}
	for _, m := range d.Members {
		row := memberRow{Member: m.MemberID, Instance: m.InstanceID, Client: m.ClientID, Host: m.ClientHost, Assigned: []assignedPartitions{}}
		for _, t := range m.Assignment.IntoList() {
			row.Assigned = append(row.Assigned, assignedPartitions{t.Topic, t.Partitions})
		}
		g.members = append(g.members, row.sorted())
	}
	return g
}

func (m memberRow) sorted() memberRow {
	for _, t := range m.Assigned {
		slices.Sort(t.Partitions)
	}
	slices.SortFunc(m.Assigned, func(x, y assignedPartitions) int { return strings.Compare(x.Topic, y.Topic) })
	return m
}

// assigned is all that the members read.
func (g *group) assigned() kadm.TopicsSet {
	set := make(kadm.TopicsSet)
	for _, m := range g.members {
		for _, t := range m.Assigned {
			set.Add(t.Topic, t.Partitions...)
		}
	}
	return set
}

// reader is the member that reads a partition, the zero row when there is none.
func (g *group) reader(topic string, partition int32) memberRow {
	for _, m := range g.members {
		for _, t := range m.Assigned {
			if t.Topic == topic && slices.Contains(t.Partitions, partition) {
				return m
			}
		}
	}
	return memberRow{}
}

// describe is the group with its lag on the partitions.
func (g *group) describe(committed kadm.OffsetResponses, ends kadm.ListedOffsets, partitions kadm.TopicsSet) groupDetail {
	d := groupDetail{Name: g.name, State: g.state, Assignor: g.assignor, Coordinator: g.coordinator, Members: len(g.members), Partitions: []groupLag{}}
	for _, t := range partitions.Sorted() {
		for _, partition := range t.Partitions {
			reader := g.reader(t.Topic, partition)
			row := groupLag{Topic: t.Topic, Partition: partition, End: knownOffset(ends, t.Topic, partition), Member: reader.Member, Host: reader.Host}
			if commit, ok := committed.Lookup(t.Topic, partition); ok && commit.Err != nil {
				row.Error = describe(commit.Err, "")
			} else if ok && commit.At >= 0 {
				row.Committed, row.Metadata = &commit.At, commit.Metadata
			}
			if row.Committed != nil && row.End != nil {
				lag := max(*row.End-*row.Committed, 0)
				row.Lag = &lag
				d.Lag += lag
			}
			d.Partitions = append(d.Partitions, row)
		}
	}
	return d
}
