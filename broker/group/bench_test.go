package group

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// commits are batches of n commits, spread over groups of a few partitions.
func commits(b *testing.B, n, perBatch int) []record.Batch {
	var batches []record.Batch
	for at := 0; at < n; at += perBatch {
		builder := record.Builder{BaseOffset: wire.Offset(at)}
		for i := at; i < at+perBatch; i++ {
			c := committed{partition: int32(i % 12), offset: int64(i), leaderEpoch: 4, committed: start.UnixMilli(), expires: noTime, topicID: wire.TopicID{1}}
			r := offsetRecord(fmt.Sprintf("payments-service-%d", i/perBatch%1000), "orders.created", c)
			builder.Append(start.UnixMilli(), r.Key, r.Value)
		}
		batch, err := builder.Build()
		if err != nil {
			b.Fatal(err)
		}
		batches = append(batches, batch)
	}
	return batches
}

// A restart reads all commits since the last cleaning: the goal is 1 million a second (performance.md).
func BenchmarkLoad(b *testing.B) {
	const n = 100_000
	for _, perBatch := range []int{1, 10} {
		b.Run(fmt.Sprintf("%dperBatch", perBatch), func(b *testing.B) {
			batches := commits(b, n, perBatch)
			read := iter.Seq2[record.Batch, error](func(yield func(record.Batch, error) bool) {
				for _, batch := range batches {
					if !yield(batch, nil) {
						return
					}
				}
			})
			w := newWorld(nil)
			b.ReportAllocs()
			for b.Loop() {
				w.Unload(0, w.epoch+1)
				load := w.StartLoad(0, 1)
				if err := load.Replay(context.Background(), read); err != nil {
					b.Fatal(err)
				}
				w.FinishLoad(w.now, load, n, nil)
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "offsets/s")
		})
	}
}

func BenchmarkHeartbeat(b *testing.B) {
	w := newWorld(nil)
	id := w.settle(b, "g")
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = "g", id, 1
	b.ReportAllocs()
	for b.Loop() {
		if r := w.Heartbeat(w.now, req); r.ErrorCode != 0 {
			b.Fatal(r.ErrorCode)
		}
	}
}

func BenchmarkOffsetCommit(b *testing.B) {
	w := newWorld(nil)
	id := w.settle(b, "g")
	req := commitRequest("g", "orders.created", 3, 7)
	req.MemberID, req.Generation = id, 1
	b.ReportAllocs()
	for b.Loop() {
		w.log.batches = w.log.batches[:0]
		w.OffsetCommit(w.now, req, func(r *kmsg.OffsetCommitResponse) {
			if r.Topics[0].Partitions[0].ErrorCode != 0 {
				b.Fatal(r)
			}
		})
	}
}

// settle makes a stable group of one member, and returns its id.
func (w *world) settle(tb testing.TB, name string) (id string) {
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.ProtocolType = 3, name, "consumer"
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 45000, 300000
	p := kmsg.NewJoinGroupRequestProtocol()
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics = []string{"orders.created"}
	p.Name, p.Metadata = "range", meta.AppendTo(nil)
	join.Protocols = append(join.Protocols, p)
	w.JoinGroup(w.now, join, Client{ID: "consumer-payments-service-1", Host: "/192.0.2.17"}, func(r *kmsg.JoinGroupResponse) { id = r.MemberID })
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version, sync.Group, sync.MemberID, sync.Generation = 3, name, id, 1
	a := kmsg.NewSyncGroupRequestGroupAssignment()
	a.MemberID, a.MemberAssignment = id, make([]byte, 60)
	sync.GroupAssignment = append(sync.GroupAssignment, a)
	code := int16(-1)
	w.SyncGroup(w.now, sync, func(r *kmsg.SyncGroupResponse) { code = r.ErrorCode })
	if code != 0 {
		tb.Fatalf("sync: %d", code)
	}
	return id
}

// A group of one member with three offsets costs less than 2 KB (performance.md), and no timer of its own.
func TestGroupsAreSmall(t *testing.T) {
	const groups = 2000
	w := newWorld(nil)
	measure := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := measure()
	for i := range groups {
		name := fmt.Sprintf("payments-service-%d", i)
		w.settle(t, name)
		for partition := range int32(3) {
			w.OffsetCommit(w.now, commitRequest(name, "orders.created", partition, 1), func(*kmsg.OffsetCommitResponse) {})
		}
		w.log.batches = nil
	}
	size := (measure() - before) / groups
	t.Logf("%d bytes a group", size)
	if size > 2048 {
		t.Errorf("%d bytes a group", size)
	}
	if next := w.NextWake(); next.Before(w.now.Add(45 * time.Second)) {
		t.Errorf("next wake in %s", next.Sub(w.now))
	}
}
