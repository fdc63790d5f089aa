package replica_test

import (
	"sync"
	"testing"

	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// A broker that stops says what the bucket lacks of its logs: once EndAppends has returned nothing comes to them, neither from a producer
// that was on its way, nor from a coordinator, nor into a partition that appears meanwhile. They can still be read.
func TestNothingIsAppendedAfterTheEndOfAppends(t *testing.T) {
	r := newRig(t)
	r.create("t", topic{})
	r.create(wire.ConsumerOffsetsTopic, topic{})
	r.put("t", 3)
	batches := make([][]byte, 2000)
	for i := range batches {
		batches[i] = r.batchOf(1, 10)
	}
	begun := make(chan struct{})
	var producing sync.WaitGroup
	acknowledged := wire.Offset(3)
	producing.Go(func() {
		for i, batch := range batches {
			r.m.Produce(r.now, &replica.ProduceRequest{
				Acks: 1, Partitions: []replica.ProducePartition{{Topic: "t", Records: batch}},
			}, func(results []replica.ProduceResult) {
				switch results[0].Code {
				case wire.None:
					acknowledged++
				case wire.NotLeaderOrFollower:
				default:
					t.Errorf("produce: %v", results[0].Code)
				}
			})
			if i == 0 {
				close(begun)
			}
		}
	})
	<-begun
	r.m.EndAppends()
	end := r.info("t").LogEndOffset
	producing.Wait()
	if now := r.info("t").LogEndOffset; now != end || now != acknowledged {
		t.Errorf("the log ended at %d, and ends at %d; %d records were acknowledged", end, now, acknowledged)
	}
	if got := r.fetch(asks("t", 0)).now(); got.Code != wire.None || got.HighWatermark != end {
		t.Errorf("fetch: %+v", got)
	}
	offsets := wire.TopicPartition{Topic: wire.ConsumerOffsetsTopic}
	if _, err := r.m.AppendAsCoordinator(r.now, offsets, r.info(offsets.Topic).LeaderEpoch, r.batchOf(1, 10)); wire.CodeOf(err) != wire.NotLeaderOrFollower {
		t.Errorf("a coordinator's append: %v", err)
	}
	r.create("late", topic{})
	if got := r.produce("late", 1, r.batchOf(1, 10)).now(); got.Code != wire.NotLeaderOrFollower {
		t.Errorf("a new topic: %v", got.Code)
	}
}
