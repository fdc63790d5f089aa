package tierbench

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

const (
	one, many, hot, warm = "one", "many", "hot", "warm"
	manyPartitions       = 50
)

// cacheBytes is tier.cache.bytes.
const cacheBytes = 256 << 20

// warmUp fills the cache with what nobody asks for again: the first write to memory costs more than all others.
func (r *broker) warmUp() { r.read(r.cold(warm, 1)...) }

// remote starts a broker with a topic of one partition and one of fifty that are but for their ends in the bucket alone, and one that
// is not tiered.
func remote(b *testing.B) *broker {
	r := start(b, store(b))
	bytes := *mib << 20
	each := max(bytes/manyPartitions, 1<<20) // in a segment each
	r.create(one, 1, "local.retention.bytes=1", "segment.bytes=67108864")
	r.create(many, manyPartitions, "local.retention.bytes=1", fmt.Sprint("segment.bytes=", each))
	r.create(hot, 1, "remote.storage.enable=false", "segment.bytes=67108864")
	r.create(warm, 1, "local.retention.bytes=1", "segment.bytes=67108864")
	r.fill(warm, 1, cacheBytes+64<<20)
	r.fill(one, 1, bytes+1<<20)
	r.fill(hot, 1, bytes)
	r.fill(many, manyPartitions, each+256<<10)
	begun := time.Now()
	eventually(b, "all but the ends is in the bucket", func() bool { return r.metric("tidemark_tier_lag_segments") == 0 })
	gone := func(topic string, partitions int32) {
		for p := range partitions {
			eventually(b, "it is gone from the disk", func() bool {
				at := r.offset(topic, p, earliestLocal)
				return at > 0 && at >= r.offset(topic, p, latestTiered)
			})
		}
	}
	gone(warm, 1)
	gone(one, 1)
	gone(many, manyPartitions)
	b.Logf("filled; uploaded and deleted %v later", time.Since(begun))
	return r
}

// cold are cursors over what is in the bucket alone.
func (r *broker) cold(topic string, partitions int32) (list []cursor) {
	for p := range partitions {
		list = append(list, cursor{topic: topic, partition: p, end: r.offset(topic, p, earliestLocal)})
	}
	return list
}

// run is what one side of a round has cost.
type run struct {
	bytes int64
	took  time.Duration
	cpu   time.Duration
}

func measure(cpu func() time.Duration, do func() int64) run {
	before, begun := cpu(), time.Now()
	n := do()
	return run{n, time.Since(begun), cpu() - before}
}

// BenchmarkColdRead is T1, T2, T4 with one reader, and T5: sequential reads of what is in the bucket alone, one partition and fifty in
// one fetch, beside plain ranged gets and a read of what is on disk.
func BenchmarkColdRead(b *testing.B) {
	r := remote(b)
	objects, manyObjects := r.objects(one), r.objects(many)
	var rates, raws, manys, manyRaws, coldCPU, rawCPU, hotCPU, readerCPU, gets, manyGets []float64
	for i := range *rounds {
		r.restart()
		r.warmUp()
		cursors, all := r.cold(one, 1), r.cold(many, manyPartitions)
		stop := r.profiled("cold", 2*time.Second)
		reader := own()
		cold := measure(r.cpu, func() int64 { return r.read(cursors...) })
		reader = own() - reader
		stop()
		fetched := r.metric("tidemark_store_requests_total", `cause="fetch"`, `topic="one"`)
		raw := measure(own, func() int64 { return r.rawGet(objects) })
		stop = r.profiled("fifty", 3*time.Second)
		wide := measure(r.cpu, func() int64 { return r.read(all...) })
		stop()
		amplified := r.metric("tidemark_store_bytes_total", `cause="fetch"`, `topic="many"`) / float64(wide.bytes)
		wideFetched := r.metric("tidemark_store_requests_total", `cause="fetch"`, `topic="many"`)
		wideRaw := measure(own, func() int64 { return r.rawGet(manyObjects) })
		local := measure(r.cpu, func() int64 { return r.read(cursor{topic: hot, end: r.offset(hot, 0, latest)}) })

		rates = append(rates, -perSecond(cold.bytes, cold.took))
		raws = append(raws, -perSecond(raw.bytes, raw.took))
		manys = append(manys, -perSecond(wide.bytes, wide.took))
		manyRaws = append(manyRaws, -perSecond(wideRaw.bytes, wideRaw.took))
		coldCPU = append(coldCPU, perGB(cold.cpu, cold.bytes))
		rawCPU = append(rawCPU, perGB(raw.cpu, raw.bytes))
		hotCPU = append(hotCPU, perGB(local.cpu, local.bytes))
		readerCPU = append(readerCPU, perGB(reader, cold.bytes))
		gets = append(gets, fetched/float64(cold.bytes)*1e9)
		manyGets = append(manyGets, wideFetched/float64(wide.bytes)*1e9)
		b.Logf("round %d: cold %.0f MB/s, raw %.0f, fifty %.0f, raw %.0f; CPU-s/GB cold %.2f and its reader %.2f, raw %.2f, local %.2f, fifty %.2f; %d MB, %.0f gets; fifty got %.2f times what they read",
			i, -rates[i], -raws[i], -manys[i], -manyRaws[i], coldCPU[i], readerCPU[i], rawCPU[i], hotCPU[i], perGB(wide.cpu, wide.bytes), cold.bytes/1e6, fetched, amplified)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(-best(rates), "MB/s")
	b.ReportMetric(best(rates)/best(raws), "T1-x-raw")
	b.ReportMetric(best(manys)/best(rates), "T2-x-one")
	b.ReportMetric(best(manys)/best(manyRaws), "T2-x-raw")
	b.ReportMetric(best(gets), "T4-gets/GB")
	b.ReportMetric(best(manyGets), "T4-fifty-gets/GB")
	b.ReportMetric(best(coldCPU), "CPU-s/GB")
	b.ReportMetric(best(readerCPU), "reader-CPU-s/GB")
	b.ReportMetric(best(coldCPU)/(best(rawCPU)+best(hotCPU)), "T5-x-floor")
}

// BenchmarkSharedRead is T4 with twenty readers of the same range, and what fifty readers of fifty partitions do to the memory.
func BenchmarkSharedRead(b *testing.B) {
	r := remote(b)
	r.restart()
	idle, _ := r.resident()
	at := r.cold(one, 1)[0]
	var readers sync.WaitGroup
	for range 20 {
		readers.Go(func() { r.read(at) })
	}
	readers.Wait()
	unique := float64(0)
	for _, o := range r.objects(one) {
		unique += float64(o.Size)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(r.metric("tidemark_store_requests_total", `cause="fetch"`, `topic="one"`)/unique*1e9, "T4-gets/GB")
	b.ReportMetric(r.metric("tidemark_store_bytes_total", `cause="fetch"`, `topic="one"`)/unique, "T4-x-bytes")

	for _, c := range r.cold(many, manyPartitions) {
		readers.Go(func() { r.read(c) })
	}
	readers.Wait()
	now, most := r.resident()
	b.ReportMetric(float64(idle)/1e6, "idle-MB")
	b.ReportMetric(float64(now)/1e6, "now-MB")
	b.ReportMetric(float64(most)/1e6, "most-MB")
	b.ReportMetric(float64(cacheBytes)/1e6, "cache-MB")
}

// BenchmarkFirstByte is T3: how long a reader waits who begins somewhere, beside one get of as much as it asked for.
func BenchmarkFirstByte(b *testing.B) {
	r := remote(b)
	rng := rand.New(rand.NewPCG(1, 1))
	objects := r.objects(many)
	var without, with, raw latencies
	buf := make([]byte, partitionBytes)
	for range *rounds {
		r.restart()
		for p, at := range r.cold(many, manyPartitions) {
			o := objects[p]
			c := r.dial()
			first := func(l *latencies, offset int64) {
				cursors := []cursor{{topic: many, partition: at.partition, offset: offset, end: at.end}}
				begun := time.Now()
				n, err := c.fetch(cursors)
				if err != nil || n == 0 {
					b.Fatal(n, err)
				}
				l.add(time.Since(begun))
			}
			get1 := func() {
				begun := time.Now()
				if err := r.plain.get(b, o.Key, rng.Int64N(o.Size-partitionBytes), buf); err != nil {
					b.Fatal(err)
				}
				raw.add(time.Since(begun))
			}
			first(&without, at.end/8+rng.Int64N(at.end/8))
			get1()
			first(&with, at.end*5/8+rng.Int64N(at.end/8))
			get1()
			c.close()
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms(raw.quantile(0.5)), "raw-p50-ms")
	b.ReportMetric(ms(without.quantile(0.5)), "p50-ms-without-index")
	b.ReportMetric(ms(with.quantile(0.5)), "p50-ms")
	b.ReportMetric(ms(with.quantile(0.5))/ms(raw.quantile(0.5)), "T3-x-raw")
	b.ReportMetric(ms(without.quantile(0.5))/ms(raw.quantile(0.5)), "T3-x-raw-without-index")
	b.ReportMetric(ms(with.quantile(0.99))/ms(raw.quantile(0.99)), "T3-p99-x-raw")
}
