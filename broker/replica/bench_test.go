package replica_test

import (
	"fmt"
	"testing"

	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// BenchmarkProduce appends batches of 1 KiB records to files of the operating system, as P1 and P2 of the performance goals do.
func BenchmarkProduce(b *testing.B) {
	for _, records := range []int{16, 128} {
		b.Run(fmt.Sprintf("%dKiB", records), func(b *testing.B) {
			r := newRigOn(b, vfs.OS{}, b.TempDir())
			r.create("t", topic{configs: map[string]string{"retention.bytes": "1"}})
			batch := r.batchOf(records, 1000)
			request := &replica.ProduceRequest{Acks: 1, Partitions: []replica.ProducePartition{{Topic: "t", Records: batch}}}
			done := func(results []replica.ProduceResult) {
				if results[0].Code != wire.None {
					b.Fatal(results[0].Code)
				}
			}
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				batch.SetBaseOffset(0)
				r.m.Produce(r.now, request, done)
				if i%4096 == 4095 {
					b.StopTimer()
					r.m.Retain(b.Context(), r.now)
					r.now = r.now.Add(2 * 60e9)
					r.m.DeleteDue(b.Context(), r.now)
					b.StartTimer()
				}
			}
		})
	}
}

// BenchmarkFetch finds ranges of 1 MiB in files of the operating system and lets them go again: all that is done for a fetch but
// for the bytes themselves.
func BenchmarkFetch(b *testing.B) {
	for _, partitions := range []int{1, 50} {
		b.Run(fmt.Sprintf("%dpartitions", partitions), func(b *testing.B) {
			r := newRigOn(b, vfs.OS{}, b.TempDir())
			r.create("t", topic{partitions: partitions})
			var asked []replica.FetchPartition
			for p := range partitions {
				for range 32 {
					r.produceAll(&replica.ProduceRequest{Acks: 1, Partitions: []replica.ProducePartition{
						{Topic: "t", Partition: int32(p), Records: r.batchOf(64, 1000)},
					}}).now()
				}
				a := asks("t", 640)
				a.Partition = int32(p)
				asked = append(asked, a)
			}
			request := &replica.FetchRequest{ReplicaID: replica.ConsumerID, MinBytes: 1, MaxBytes: 50 << 20, Partitions: asked}
			done := func(results []replica.FetchResult) {
				for i := range results {
					if results[i].Records.Length == 0 {
						b.Fatal("nothing read")
					}
					results[i].Records.Release()
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				r.m.Fetch(r.now, request, done)
			}
		})
	}
}

// BenchmarkIdleFetch parks a fetch of 50 partitions and ends it: an idle consumer's round.
func BenchmarkIdleFetch(b *testing.B) {
	r := newRig(b)
	r.create("t", topic{partitions: 50})
	var asked []replica.FetchPartition
	for p := range int32(50) {
		a := asks("t", 0)
		a.Partition = p
		asked = append(asked, a)
	}
	request := &replica.FetchRequest{ReplicaID: replica.ConsumerID, MaxWait: 500e6, MinBytes: 1, MaxBytes: 50 << 20, Partitions: asked}
	b.ReportAllocs()
	for b.Loop() {
		r.m.Fetch(r.now, request, func([]replica.FetchResult) {})
		r.now = r.now.Add(500e6)
		r.m.Advance(r.now)
	}
}

// BenchmarkSession is an incremental fetch of 50 partitions without news, but for its reads.
func BenchmarkSession(b *testing.B) {
	cache := replica.NewFetchSessionCache(1000, counter())
	partitions := make([]int32, 50)
	for i := range partitions {
		partitions[i] = int32(i)
	}
	f, _ := cache.Begin(start, replica.SessionRequest{Partitions: ask(partitions...)})
	results := answers(f, 5, nil)
	id, _, _ := f.Answer(start, results)
	epoch := int32(1)
	b.ReportAllocs()
	for b.Loop() {
		f, code := cache.Begin(start, replica.SessionRequest{ID: id, Epoch: epoch})
		if code != wire.None {
			b.Fatal(code)
		}
		f.Answer(start, results)
		epoch++
	}
}

// BenchmarkApply creates a topic of one partition beside 5,000 others.
func BenchmarkApply(b *testing.B) {
	r := newRig(b)
	r.create("others", topic{partitions: 5000})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.create(fmt.Sprint("t", i), topic{})
	}
}
