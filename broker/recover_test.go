package broker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A clean stop leaves everything in the store: with new log directories the broker has its topics, configs, group offsets and records.
func TestSafety30ABrokerComesBackFromItsStoreAlone(t *testing.T) {
	r := startBroker(t, "tier.enable=true")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	const records = 500
	client := func(options ...kgo.Opt) *kgo.Client {
		c, err := kgo.NewClient(append(options, kgo.SeedBrokers(r.addr))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}

	c := client(kgo.DefaultProduceTopic("t"))
	admin := kadm.NewClient(c)
	limit := "123456"
	if _, err := admin.CreateTopic(ctx, 2, 1, map[string]*string{"max.message.bytes": &limit}, "t"); err != nil {
		t.Fatal(err)
	}
	for i := range records {
		if err := c.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: "t", Partition: 0, At: 7, LeaderEpoch: -1})
	if err := admin.CommitAllOffsets(ctx, "g", offsets); err != nil {
		t.Fatal(err)
	}
	c.Close()
	r.wipe()

	if report, ok := r.broker.Recovery(); !ok || !report.Complete {
		t.Errorf("report %+v, %t", report, ok)
	}
	c = client(kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	got := map[string]int{}
	for n := 0; n < records; {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d records: %v", n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { got[string(r.Value)]++; n++ })
	}
	for i := range records {
		if got[fmt.Sprint(i)] != 1 {
			t.Errorf("record %d came %d times", i, got[fmt.Sprint(i)])
		}
	}
	admin = kadm.NewClient(c)
	committed, err := admin.FetchOffsets(ctx, "g")
	if at, _ := committed.Lookup("t", 0); err != nil || at.At != 7 {
		t.Errorf("the group is at %+v, %v", at, err)
	}
	configs, err := admin.DescribeTopicConfigs(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range configs[0].Configs {
		if entry.Key == "max.message.bytes" && entry.MaybeValue() != limit {
			t.Errorf("max.message.bytes is %s", entry.MaybeValue())
		}
	}
	if _, metrics := get(t, r.broker.AdminAddress(), "/metrics"); !strings.Contains(metrics, "tidemark_cluster_incarnation 1") ||
		strings.Contains(metrics, "tidemark_recovery_lost_first_offset{") {
		t.Error("the metrics say something else")
	}
}
