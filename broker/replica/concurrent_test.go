package replica_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Producers with acks=-1, a follower, consumers that wait, upkeep and changes of the topic, all at once: each request ends
// once, every acknowledged record is read, in order, by every consumer, and none is read above the high watermark.
func TestProduceAndFetchFromManyGoroutines(t *testing.T) {
	const producers, each, consumers = 4, 150, 3
	r := newRig(t)
	id := r.create("t", topic{replicas: []wire.BrokerID{1, 2}})
	total := wire.Offset(producers * each)
	var clock atomic.Int64 // moved by the upkeep
	now := func() time.Time { return start.Add(time.Duration(clock.Load())) }
	stop := make(chan struct{})
	var work, follower sync.WaitGroup
	for p := range producers {
		work.Go(func() {
			for i := range each {
				var b record.Builder
				b.Producer = &record.Producer{ID: wire.ProducerID(p), Sequence: int32(i)}
				b.Append(start.UnixMilli(), []byte("k"), fmt.Appendf(nil, "%d-%d", p, i))
				batch, err := b.Build()
				if err != nil {
					t.Error(err)
					return
				}
				answered := make(chan replica.ProduceResult, 2)
				r.m.Produce(now(), &replica.ProduceRequest{
					Acks: -1, Timeout: 1 << 62, Partitions: []replica.ProducePartition{{Topic: "t", Records: batch}},
				}, func(results []replica.ProduceResult) { answered <- results[0] })
				if got := <-answered; got.Code != wire.None {
					t.Errorf("produce: %v", got.Code)
					return
				}
			}
		})
	}
	follower.Go(func() { // a follower that has whatever it was told of
		end := wire.Offset(0)
		for {
			answered := make(chan replica.FetchResult, 2)
			asked := asks("t", end)
			asked.LogStartOffset = 0
			r.m.Fetch(now(), &replica.FetchRequest{
				ReplicaID: 2, ReplicaEpoch: 1, MaxWait: 1 << 62, MinBytes: 1, MaxBytes: 1 << 20,
				Partitions: []replica.FetchPartition{asked},
			}, func(results []replica.FetchResult) { answered <- results[0] })
			select {
			case got := <-answered:
				if got.Code != wire.None {
					t.Errorf("follower: %v", got.Code)
					return
				}
				end = r.endOf(got, end)
			case <-stop:
				return
			}
		}
	})
	for c := range consumers {
		work.Go(func() {
			next := wire.Offset(0)
			sequences := map[wire.ProducerID]int32{}
			for next < total {
				answered := make(chan replica.FetchResult, 2)
				r.m.Fetch(now(), &replica.FetchRequest{
					ReplicaID: replica.ConsumerID, MaxWait: 500 * time.Millisecond, MinBytes: int32(1 + 100*c), MaxBytes: 1 << 20,
					Partitions: []replica.FetchPartition{asks("t", next)},
				}, func(results []replica.FetchResult) { answered <- results[0] })
				got := <-answered
				if got.Code != wire.None {
					t.Errorf("consumer: %v", got.Code)
					return
				}
				for _, b := range r.batches(got) {
					if b.BaseOffset() != next || b.NextOffset() > got.HighWatermark {
						t.Errorf("consumer %d reads %d at %d, high watermark %d", c, b.BaseOffset(), next, got.HighWatermark)
						return
					}
					if want := sequences[b.ProducerID()]; b.BaseSequence() != want {
						t.Errorf("producer %d: sequence %d, want %d", b.ProducerID(), b.BaseSequence(), want)
						return
					}
					sequences[b.ProducerID()]++
					next = b.NextOffset()
				}
			}
		})
	}
	follower.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			clock.Add(int64(10 * time.Millisecond))
			r.m.Advance(now())
			if i%100 != 0 {
				runtime.Gosched()
				continue
			}
			r.configure("t", "retention.ms", fmt.Sprint(1_000_000_000+i)) // a new role each time
			r.m.Checkpoint(context.Background())
			r.m.Retain(context.Background(), now())
			r.m.Flush(context.Background(), now())
			for range r.m.Partitions() {
			}
			r.list("t", replica.LatestTimestamp)
		}
	})
	work.Wait()
	close(stop)
	follower.Wait()
	if at := r.info("t"); at.HighWatermark != total || at.TopicID != id {
		t.Fatalf("%+v", at)
	}
}

// endOf is the offset behind the batches of a result.
func (r *rig) endOf(result replica.FetchResult, from wire.Offset) wire.Offset {
	for _, b := range r.batches(result) {
		from = b.NextOffset()
	}
	return from
}

// Topics come and go while clients use them: each call ends, with an answer that a client can make something of.
func TestTopicsComeAndGoUnderLoad(t *testing.T) {
	r := newRig(t)
	now := r.now
	stop := make(chan struct{})
	var clients sync.WaitGroup
	allowed := map[wire.Code]bool{
		wire.None: true, wire.UnknownTopicOrPartition: true, wire.NotLeaderOrFollower: true, wire.KafkaStorageError: true,
		wire.OffsetOutOfRange: true,
	}
	for range 3 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					runtime.Gosched() // who makes the topics has one processor, too
				}
				var b record.Builder
				b.Append(now.UnixMilli(), []byte("k"), []byte("v"))
				batch, _ := b.Build()
				ended := make(chan wire.Code, 2)
				r.m.Produce(now, &replica.ProduceRequest{
					Acks: -1, Timeout: time.Hour, Partitions: []replica.ProducePartition{{Topic: "t", Records: batch}},
				}, func(results []replica.ProduceResult) { ended <- results[0].Code })
				if code := <-ended; !allowed[code] {
					t.Errorf("produce: %v", code)
				}
				r.m.Fetch(now, &replica.FetchRequest{ReplicaID: replica.ConsumerID, MaxBytes: 1000, Partitions: []replica.FetchPartition{asks("t", 0)}},
					func(results []replica.FetchResult) {
						if results[0].Records.Release != nil {
							results[0].Records.Release()
						}
						ended <- results[0].Code
					})
				if code := <-ended; !allowed[code] {
					t.Errorf("fetch: %v", code)
				}
			}
		})
	}
	for range 50 {
		id := r.create("t", topic{})
		for range 100 {
			runtime.Gosched()
		}
		r.remove(id)
		r.m.DeleteDue(context.Background(), now.Add(time.Hour))
	}
	close(stop)
	clients.Wait()
}
