package main

import (
	"cmp"
	"context"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// quorumView is the view of cluster quorum: who keeps the metadata. In Tidemark that is the holder of the controller's lease alone.
type quorumView struct {
	Leader        int32         `json:"leader"`
	Epoch         int32         `json:"epoch"`
	HighWatermark int64         `json:"high_watermark"`
	Replicas      []quorumVoter `json:"replicas"`
}

type quorumVoter struct {
	Broker int32 `json:"broker"`
	Voter  bool  `json:"voter"`
	End    int64 `json:"log_end_offset"`
	Lag    int64 `json:"lag"`
}

func (q quorumView) write(p *page) {
	p.heading()
	p.row("controller", q.Leader)
	p.row("epoch", q.Epoch)
	p.row("high watermark", q.HighWatermark)
	p.heading("BROKER", "ROLE", "LOG END", "LAG")
	for _, v := range q.Replicas {
		role := "observer"
		if v.Voter {
			role = "voter"
		}
		p.row(v.Broker, role, v.End, v.Lag)
	}
}

func clusterQuorumCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "quorum",
		Short: "Show the controller and how far the metadata log has come",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.client(cmd.Context(), func(ctx context.Context, client *kgo.Client) error {
				request := kmsg.NewPtrDescribeQuorumRequest()
				request.Topics = []kmsg.DescribeQuorumRequestTopic{{
					Topic: "__cluster_metadata", Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{}},
				}}
				answer, err := request.RequestWith(ctx, client)
				if err == nil {
					err = kerr.ErrorForCode(answer.ErrorCode)
				}
				if err == nil && len(answer.Topics) == 1 && len(answer.Topics[0].Partitions) == 1 {
					err = kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode)
				} else if err == nil {
					err = kerr.UnknownTopicOrPartition
				}
				if err != nil {
					return err
				}
				return a.print(cmd, describeQuorum(answer.Topics[0].Partitions[0]))
			})
		},
	}
}

func describeQuorum(p kmsg.DescribeQuorumResponseTopicPartition) quorumView {
	view := quorumView{Leader: p.LeaderID, Epoch: p.LeaderEpoch, HighWatermark: p.HighWatermark, Replicas: []quorumVoter{}}
	end := p.HighWatermark
	for _, r := range p.CurrentVoters {
		if r.ReplicaID == p.LeaderID {
			end = r.LogEndOffset
		}
	}
	for i, r := range append(slices.Clone(p.CurrentVoters), p.Observers...) {
		view.Replicas = append(view.Replicas, quorumVoter{
			Broker: r.ReplicaID, Voter: i < len(p.CurrentVoters), End: r.LogEndOffset, Lag: max(end-r.LogEndOffset, 0),
		})
	}
	return view
}

// featureRow is a line of cluster features. Levels are 0 where a feature is not finalised, or not supported.
type featureRow struct {
	Name      string `json:"name"`
	Finalized int16  `json:"finalized"`
	Min       int16  `json:"min"` // that brokers support
	Max       int16  `json:"max"`
}

type featuresView struct {
	Epoch    int64        `json:"epoch"`
	Features []featureRow `json:"features"`
}

func (f featuresView) write(p *page) {
	p.heading("FEATURE", "FINALIZED", "SUPPORTED FROM", "TO")
	for _, row := range f.Features {
		p.row(row.Name, row.Finalized, row.Min, row.Max)
	}
}

func clusterFeaturesCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "features",
		Short: "Show the features of the cluster and their levels",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.client(cmd.Context(), func(ctx context.Context, client *kgo.Client) error {
				request := kmsg.NewPtrApiVersionsRequest()
				request.ClientSoftwareName, request.ClientSoftwareVersion = "tidemark", "1"
				answer, err := request.RequestWith(ctx, client)
				if err == nil {
					err = kerr.ErrorForCode(answer.ErrorCode)
				}
				if err != nil {
					return err
				}
				return a.print(cmd, describeFeatures(answer))
			})
		},
	}
}

func describeFeatures(answer *kmsg.ApiVersionsResponse) featuresView {
	rows := make(map[string]featureRow)
	for _, f := range answer.SupportedFeatures {
		rows[f.Name] = featureRow{Name: f.Name, Min: f.MinVersion, Max: f.MaxVersion}
	}
	for _, f := range answer.FinalizedFeatures {
		row := rows[f.Name]
		row.Name, row.Finalized = f.Name, f.MaxVersionLevel
		rows[f.Name] = row
	}
	view := featuresView{Epoch: answer.FinalizedFeaturesEpoch, Features: []featureRow{}}
	for _, row := range rows {
		view.Features = append(view.Features, row)
	}
	slices.SortFunc(view.Features, func(a, b featureRow) int { return cmp.Compare(a.Name, b.Name) })
	return view
}
