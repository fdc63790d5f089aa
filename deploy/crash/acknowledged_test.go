package crash

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// What was answered to an admin is so after a kill: BO-052, BO-084, FM-32, FM-65.
func TestAnswersSurviveAKill(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.start()
	c := b.client()
	admin := kadm.NewClient(c)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	for _, topic := range []string{"trimmed", "partly", "deleted", "altered"} {
		b.create(topic, 1)
		for range 10 {
			if err := produceTo(c, topic, 0, 100); err != nil {
				t.Fatal(err)
			}
		}
	}
	for round := range 3 {
		// DeleteRecords.
		trim := kadm.Offsets{}
		trim.AddOffset("trimmed", 0, -1, -1)
		trim.AddOffset("partly", 0, int64(4+round), -1)
		if answers, err := admin.DeleteRecords(ctx, trim); err != nil || answers.Error() != nil {
			t.Fatal(err, answers.Error())
		}
		// Groups and offsets.
		offsets := kadm.Offsets{}
		offsets.AddOffset("partly", 0, int64(round), 3)
		eventually(t, "the coordinator takes offsets", func() bool {
			return admin.CommitAllOffsets(ctx, "kept", offsets) == nil && admin.CommitAllOffsets(ctx, "gone", offsets) == nil
		})
		if _, err := admin.DeleteGroup(ctx, "gone"); err != nil {
			t.Fatal(err)
		}
		// Topics and settings.
		if _, err := admin.DeleteTopic(ctx, "deleted"); err != nil {
			t.Fatal(err)
		}
		value := []string{"5000", "6000", "7000"}[round]
		answers, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &value}}, "altered")
		if err != nil || answers[0].Err != nil {
			t.Fatal(err, answers)
		}

		b.Kill()
		b.start()
		end := int64(10 + round)
		if first, next := offsetAt(t, c, "trimmed", 0, -2), offsetAt(t, c, "trimmed", 0, -1); first != end || next != end {
			t.Errorf("round %d: the trimmed log has [%d, %d)", round, first, next)
		}
		if err := produceTo(c, "trimmed", 0, 100); err != nil || offsetAt(t, c, "trimmed", 0, -1) != end+1 {
			t.Errorf("round %d: the trimmed log ends at %d, %v", round, offsetAt(t, c, "trimmed", 0, -1), err)
		}
		if first := offsetAt(t, c, "partly", 0, -2); first != int64(4+round) {
			t.Errorf("round %d: deleted records are back: the log begins at %d", round, first)
		}
		eventually(t, "the coordinator has loaded", func() bool {
			kept, err := admin.FetchOffsets(ctx, "kept")
			if err != nil || kept.Error() != nil {
				return false
			}
			if got, ok := kept.Lookup("partly", 0); !ok || got.At != int64(round) || got.LeaderEpoch != 3 {
				t.Fatalf("round %d: offset %d of epoch %d", round, got.At, got.LeaderEpoch)
			}
			return true
		})
		groups, err := admin.DescribeGroups(ctx, "gone")
		if err != nil || groups["gone"].State != "Dead" && !errors.Is(groups["gone"].Err, kerr.GroupIDNotFound) {
			t.Errorf("round %d: the deleted group is %s, %v", round, groups["gone"].State, err)
		}
		topics, err := admin.ListTopics(ctx)
		if err != nil || topics.Has("deleted") {
			t.Errorf("round %d: the deleted topic is there, %v", round, err)
		}
		configs, err := admin.DescribeTopicConfigs(ctx, "altered")
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range configs[0].Configs {
			if got.Key == "retention.ms" && *got.Value != value {
				t.Errorf("round %d: retention.ms is %s", round, *got.Value)
			}
		}
		b.create("deleted", 1)
	}
}
