package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func clusterCommand(a *app) *cobra.Command {
	return parent("cluster", "Show the cluster and its brokers", clusterDescribeCommand(a), clusterLogDirsCommand(a),
		clusterQuorumCommand(a), clusterFeaturesCommand(a))
}

// clusterDetail is the view of cluster describe.
type clusterDetail struct {
	ID         string         `json:"id"`
	Controller int32          `json:"controller"`
	Topics     int            `json:"topics"`
	Partitions int            `json:"partitions"`
	Brokers    []brokerDetail `json:"brokers"`
}

type brokerDetail struct {
	ID      int32   `json:"id"`
	Host    string  `json:"host"`
	Port    int32   `json:"port"`
	Rack    *string `json:"rack"`
	Leads   int     `json:"leads"`    // partitions that it leads
	Replica int     `json:"replicas"` // partitions that it holds
}

func (c clusterDetail) write(p *page) {
	p.heading()
	p.row("cluster", c.ID)
	p.row("controller", c.Controller)
	p.row("topics", c.Topics)
	p.row("partitions", c.Partitions)
	p.heading("BROKER", "HOST", "PORT", "RACK", "LEADS", "REPLICAS")
	for _, b := range c.Brokers {
		p.row(b.ID, b.Host, b.Port, b.Rack, b.Leads, b.Replica)
	}
}

func clusterDescribeCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "describe",
		Short: "Show the cluster's id, controller and brokers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd.Context(), func(ctx context.Context, admin *kadm.Client) error {
				metadata, err := admin.Metadata(ctx)
				if err != nil {
					return err
				}
				return a.print(cmd, describeCluster(metadata))
			})
		},
	}
}

func describeCluster(metadata kadm.Metadata) clusterDetail {
	detail := clusterDetail{ID: metadata.Cluster, Controller: metadata.Controller, Topics: len(metadata.Topics), Brokers: []brokerDetail{}}
	leads, replicas := make(map[int32]int), make(map[int32]int)
	metadata.Topics.EachPartition(func(p kadm.PartitionDetail) {
		detail.Partitions++
		leads[p.Leader]++
		for _, id := range p.Replicas {
			replicas[id]++
		}
	})
	for _, b := range metadata.Brokers {
		detail.Brokers = append(detail.Brokers, brokerDetail{b.NodeID, b.Host, b.Port, b.Rack, leads[b.NodeID], replicas[b.NodeID]})
	}
	return detail
}

// logDir is a line of cluster log-dirs.
type logDir struct {
	Broker     int32  `json:"broker"`
	Dir        string `json:"dir"`
	Partitions int    `json:"partitions"`
	Bytes      int64  `json:"bytes"`
	Usable     int64  `json:"usable_bytes"` // of the volume; -1 where the broker does not say
	Total      int64  `json:"total_bytes"`
	Error      string `json:"error,omitempty"`
}

type logDirs []logDir

func (l logDirs) write(p *page) {
	p.heading("BROKER", "DIRECTORY", "PARTITIONS", "SIZE", "FREE", "ERROR")
	for _, d := range l {
		p.row(d.Broker, d.Dir, d.Partitions, bytesText(d.Bytes), freeText(d.Usable), d.Error)
	}
}

func freeText(n int64) string {
	if n < 0 {
		return ""
	}
	return bytesText(n)
}

func clusterLogDirsCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "log-dirs",
		Short: "Show the brokers' log directories and what they hold",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd.Context(), func(ctx context.Context, admin *kadm.Client) error {
				all, err := admin.DescribeAllLogDirs(ctx, nil)
				if err != nil {
					return err
				}
				list := logDirs{}
				for _, d := range all.Sorted() {
					row := logDir{Broker: d.Broker, Dir: d.Dir, Bytes: d.Size(), Usable: d.UsableBytes, Total: d.TotalBytes}
					for _, partitions := range d.Topics {
						row.Partitions += len(partitions)
					}
					if d.Err != nil {
						row.Error = describe(d.Err, "")
					}
					list = append(list, row)
				}
				return a.print(cmd, list)
			})
		},
	}
}

// apiRange is a request that a broker answers.
type apiRange struct {
	Key  int16  `json:"key"`
	Name string `json:"name"`
	Min  int16  `json:"min"`
	Max  int16  `json:"max"`
}

type brokerAPIs struct {
	Broker int32      `json:"broker"`
	Like   string     `json:"like"` // the version of Kafka with the same requests
	APIs   []apiRange `json:"apis"`
	Error  string     `json:"error,omitempty"`
}

type apiVersions []brokerAPIs

func (l apiVersions) write(p *page) {
	for _, b := range l {
		p.heading()
		p.row("broker", b.Broker)
		p.row("like Kafka", b.Like)
		if b.Error != "" {
			p.row("error", b.Error)
			continue
		}
		p.heading("KEY", "REQUEST", "MIN", "MAX")
		for _, r := range b.APIs {
			p.row(r.Key, r.Name, r.Min, r.Max)
		}
	}
}

func apiVersionsCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "api-versions",
		Short: "Show the requests that the brokers answer, with their versions",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd.Context(), func(ctx context.Context, admin *kadm.Client) error {
				brokers, err := admin.ApiVersions(ctx)
				if err != nil {
					return err
				}
				list := apiVersions{}
				for _, b := range brokers.Sorted() {
					row := brokerAPIs{Broker: b.NodeID, APIs: []apiRange{}}
					if b.Err != nil {
						row.Error = describe(b.Err, "")
					} else {
						row.Like = b.VersionGuess()
						b.EachKeySorted(func(key, low, high int16) {
							row.APIs = append(row.APIs, apiRange{key, kmsg.NameForKey(key), low, high})
						})
					}
					list = append(list, row)
				}
				return a.print(cmd, list)
			})
		},
	}
}
