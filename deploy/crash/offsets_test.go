package crash

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var commits = flag.Int("commits", 500_000, "how many offsets are committed before the restart")

// restartMax is how long a start may take until groups are served, whatever was committed before.
const restartMax = 5 * time.Second

// Without a cleaner the offsets topic keeps every commit. A start after two million of them, all in one partition, serves groups in
// less than five seconds, after a kill and after a stop.
func TestRestartAfterManyCommits(t *testing.T) {
	const partitions, groups = 50, 8
	b := newBroker(t)
	b.Settings = append(b.Settings, "offsets.topic.num.partitions=1")
	b.start()
	b.create("many", partitions)
	c := b.client()
	admin := kadm.NewClient(c)
	topics, err := admin.ListTopics(context.Background(), "many")
	if err != nil {
		t.Fatal(err)
	}
	topic := kmsg.OffsetCommitRequestTopic{Topic: "many", TopicID: topics["many"].ID}
	for p := range int32(partitions) {
		row := kmsg.NewOffsetCommitRequestTopicPartition()
		row.Partition = p
		topic.Partitions = append(topic.Partitions, row)
	}
	rounds := *commits / partitions / groups
	began := time.Now()
	var workers sync.WaitGroup
	for g := range groups {
		workers.Go(func() { commitOften(t, b.client(), fmt.Sprintf("group-%d", g), topic, rounds) })
	}
	workers.Wait()
	t.Logf("%d offsets were committed in %v", rounds*partitions*groups, time.Since(began))
	if t.Failed() {
		return
	}
	for _, end := range []func(){b.Kill, b.stop} {
		end()
		began := time.Now()
		b.start()
		for g := range groups {
			name := fmt.Sprintf("group-%d", g)
			eventually(t, name+" is served", func() bool {
				offsets, err := admin.FetchOffsets(context.Background(), name)
				if err != nil || offsets.Error() != nil {
					return false
				}
				for p := range int32(partitions) {
					if got, ok := offsets.Lookup("many", p); !ok || got.At != int64(rounds) {
						t.Fatalf("%s, partition %d: offset %d, want %d", name, p, got.At, rounds)
					}
				}
				return true
			})
		}
		if took := time.Since(began); took > restartMax {
			t.Errorf("groups are served after %v", took)
		} else {
			t.Logf("groups are served after %v", took)
		}
	}
}

// commitOften commits the offsets 1 to rounds of all partitions.
func commitOften(t *testing.T, c *kgo.Client, group string, topic kmsg.OffsetCommitRequestTopic, rounds int) {
	topic.Partitions = slices.Clone(topic.Partitions)
	request := kmsg.NewPtrOffsetCommitRequest()
	request.Group, request.Generation, request.Topics = group, -1, []kmsg.OffsetCommitRequestTopic{topic}
	for n := 1; n <= rounds; n++ {
		for i := range topic.Partitions {
			topic.Partitions[i].Offset = int64(n)
		}
		response, err := request.RequestWith(context.Background(), c)
		if err != nil {
			t.Errorf("%s: %v", group, err)
			return
		}
		for _, row := range response.Topics[0].Partitions {
			if err := kerr.ErrorForCode(row.ErrorCode); err != nil {
				t.Errorf("%s, partition %d: %v", group, row.Partition, err)
				return
			}
		}
	}
}
