package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files")

func pointer[T any](v T) *T { return &v }

// views are results with everything that can stand in them.
func views() map[string]view {
	classic := &group{name: "billing", state: "Stable", assignor: "range", coordinator: 1, members: memberList{
		{Member: "m-1", Instance: pointer("i1"), Client: "app", Host: "/10.0.0.1", Assigned: []assignedPartitions{{"orders", []int32{0, 1}}}},
		{Member: "m-2", Client: "app", Host: "/10.0.0.2", Assigned: []assignedPartitions{}},
	}}
	committed := kadm.OffsetResponses{}
	committed.Add(kadm.OffsetResponse{Offset: kadm.Offset{Topic: "orders", Partition: 0, At: 5, Metadata: "note"}})
	committed.Add(kadm.OffsetResponse{Offset: kadm.Offset{Topic: "orders", Partition: 2, At: 9}})
	ends := kadm.ListedOffsets{"orders": {0: {Offset: 12}, 1: {Offset: 3}, 2: {Offset: 4}}}
	partitions := committed.Partitions()
	partitions.Merge(classic.assigned())

	var latency histogram
	for i := range 1000 {
		latency.add(time.Duration(i) * time.Microsecond)
	}
	return map[string]view{
		"topic-list":       topicList{{"orders", "AAAAAAAAAAAAAAAAAAAAAQ", 3, 2, false}, {"__consumer_offsets", "AAAAAAAAAAAAAAAAAAAAAg", 50, 1, true}},
		"topic-list-empty": topicList{},
		"topic-describe": topicDetails{{
			Name: "orders", ID: "AAAAAAAAAAAAAAAAAAAAAQ", Configs: []configRow{{Name: "retention.ms", Value: pointer("5"), Source: "DYNAMIC_TOPIC_CONFIG"}},
			Partitions: []partitionDetail{
				{Partition: 0, Leader: 1, LeaderEpoch: 3, Replicas: []int32{1, 2}, ISR: []int32{1}, Offline: []int32{2}, Start: pointer[int64](0), End: pointer[int64](7)},
				{Partition: 1, Leader: -1, LeaderEpoch: 2, Replicas: []int32{2}, ISR: []int32{2}, Error: describe(kerr.LeaderNotAvailable, "")},
			},
		}},
		"outcomes": outcomes{
			became("a", "deleted", nil, ""),
			became("b", "", kerr.UnknownTopicOrPartition, ""),
			became("c", "", kerr.UnknownTopicOrPartition, ""),
			became("d", "", kerr.InvalidConfig, "retention.ms is no number"),
		},
		"config-describe": configRows{wide: true, rows: []configRow{
			{Name: "cleanup.policy", Value: pointer(""), Source: "DYNAMIC_TOPIC_CONFIG", Type: "LIST", Synonyms: []configSynonym{
				{"cleanup.policy", pointer(""), "DYNAMIC_TOPIC_CONFIG"}, {"log.cleanup.policy", pointer("delete"), "STATIC_BROKER_CONFIG"}, {"log.cleanup.policy", pointer("delete"), "DEFAULT_CONFIG"},
			}},
			{Name: "metadata.key", Source: "STATIC_BROKER_CONFIG", Sensitive: true, ReadOnly: true},
			{Name: "broker.rack", Source: "DEFAULT_CONFIG", ReadOnly: true},
			{Name: "match", Value: pointer("client_id=<a>"), Source: "CLIENT_METRICS_CONFIG"},
		}},
		"config-list":    configuredList{{"broker", "1"}, {"topic", "orders"}},
		"group-list":     groupList{{"billing", "Stable", "classic", "consumer", 1}, {"", "Empty", "", "", 2}},
		"group-describe": groupDetails{classic.describe(committed, ends, partitions), {Name: "idle", State: "Empty", Partitions: []groupLag{}}},
		"group-members":  classic.members,
		"group-reset":    resetResult{Partitions: resetPlan{{"orders", 0, pointer[int64](5), 0}, {"orders", 1, nil, 3}}},
		"offset-list":    offsetList{at: true, rows: []offsetRow{{"orders", 0, pointer[int64](2), pointer[int64](9), pointer[int64](7), pointer[int64](4)}, {Topic: "orders", Partition: 1}}},
		"cluster-describe": clusterDetail{ID: "abc", Controller: 1, Topics: 1, Partitions: 2, Brokers: []brokerDetail{
			{1, "host", 9092, pointer("a"), 2, 2}, {2, "other", 9092, nil, 0, 0},
		}},
		"cluster-log-dirs": logDirs{{1, "/data", 3, 1 << 30, 1 << 40, 1 << 41, ""}, {1, "/bad", 0, 0, -1, -1, describe(kerr.KafkaStorageError, "")}},
		"api-versions":     apiVersions{{Broker: 1, Like: "v4.4", APIs: []apiRange{{0, "Produce", 3, 13}, {18, "ApiVersions", 0, 4}}}, {Broker: 2, Error: "gone", APIs: []apiRange{}}},
		"produce":          &produced{Topic: "orders", Records: 1, Partitions: map[int32]int64{0: 7}},
		"bench":            newBenchResult(1000, 100_000, 2*time.Second, &latency),
		"bench-consume":    newBenchResult(0, 0, 0, nil),
		"store-check":      storeCheckResult{URL: "s3://b", Checks: []checkRow{{Name: "create-twice"}, {Name: "swap-race", Error: "two won"}}},
	}
}

// The tables and the JSON of every view are those of testdata (go test -rewrite writes them).
func TestViewsReadAsBefore(t *testing.T) {
	for name, v := range views() {
		for _, asJSON := range []bool{false, true} {
			file := filepath.Join("testdata", name+".txt")
			if asJSON {
				file = filepath.Join("testdata", name+".json")
			}
			t.Run(filepath.Base(file), func(t *testing.T) {
				var out bytes.Buffer
				cmd := &cobra.Command{}
				cmd.SetOut(&out)
				if err := (&app{json: asJSON}).print(cmd, v); err != nil {
					t.Fatal(err)
				}
				if *rewrite {
					if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(out.Bytes(), want) {
					t.Errorf("got\n%s\nwant\n%s", out.Bytes(), want)
				}
			})
		}
	}
}

func TestAFullDiskIsNoticed(t *testing.T) {
	for name, v := range views() {
		for _, asJSON := range []bool{false, true} {
			cmd := &cobra.Command{}
			cmd.SetOut(noSpace{})
			if err := (&app{json: asJSON}).print(cmd, v); err == nil {
				t.Errorf("%s, JSON %v: no error", name, asJSON)
			}
		}
	}
}

// What came in no time has no rate.
func TestARateNeedsTime(t *testing.T) {
	if r := newBenchResult(1000, 1000, 0, nil); r.RecordsPerSec != 0 || r.BytesPerSec != 0 {
		t.Errorf("%+v", r)
	}
}
