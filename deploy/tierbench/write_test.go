package tierbench

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tidemark-io/tidemark/tier/object"
)

// backlog fills a topic that is not tiered yet.
func (r *broker) backlog(topic string, bytes int64) {
	r.b.Helper()
	r.create(topic, 1, "remote.storage.enable=false", "segment.bytes=67108864")
	r.fill(topic, 1, bytes+1<<20)
}

// upload has a backlog uploaded and returns how much that was.
func (r *broker) upload(topic string) (n int64) {
	r.b.Helper()
	r.alter(topic, "remote.storage.enable", "true")
	sealed := r.segments(topic, 0)
	var last int64
	for _, name := range sealed {
		base, _ := strconv.ParseInt(strings.TrimSuffix(filepath.Base(name), ".log"), 10, 64)
		last = max(last, base)
	}
	eventually(r.b, "the backlog is in the bucket", func() bool {
		time.Sleep(80 * time.Millisecond) // asking costs CPU, too
		return r.offset(topic, 0, latestTiered) > last
	})
	for _, o := range r.objects(topic) {
		n += o.Size
	}
	return n
}

// BenchmarkUpload is T7: the CPU of uploading sealed segments, beside plain puts of the same files.
func BenchmarkUpload(b *testing.B) {
	r := start(b, store(b))
	var cpu, rawCPU, rates, rawRates []float64
	for i := range *rounds {
		topic := fmt.Sprint("backlog-", i)
		r.backlog(topic, *mib<<20)
		files := r.segments(topic, 0)
		raw := measure(own, func() (n int64) {
			for k, name := range files {
				size, _ := r.rawPut(name, fmt.Sprintf("raw/%d/%d", i, k))
				n += size
			}
			return n
		})
		stop := r.profiled("upload", 2*time.Second)
		up := measure(r.cpu, func() int64 { return r.upload(topic) })
		stop()
		cpu, rawCPU = append(cpu, perGB(up.cpu, up.bytes)), append(rawCPU, perGB(raw.cpu, raw.bytes))
		rates, rawRates = append(rates, -perSecond(up.bytes, up.took)), append(rawRates, -perSecond(raw.bytes, raw.took))
		b.Logf("round %d: CPU-s/GB %.2f, raw %.2f; MB/s %.0f, raw %.0f, one at a time", i, cpu[i], rawCPU[i], -rates[i], -rawRates[i])
		r.remove(topic)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(best(cpu), "CPU-s/GB")
	b.ReportMetric(best(cpu)/best(rawCPU), "T7-x-raw")
	b.ReportMetric(best(rates)/best(rawRates), "rate-x-raw")
}

// lagPartitions are as many as are uploaded at a time.
const lagPartitions = putsAtOnce

// BenchmarkUploadLag is T6: from the moment in which a segment is sealed to that in which the entry is there that names it, at
// half of the rate at which the store takes plain puts.
func BenchmarkUploadLag(b *testing.B) {
	r := start(b, store(b))
	const topic, segment, lasts = "lag", 16 << 20, 15 * time.Second
	r.create("plain", 1, "remote.storage.enable=false", fmt.Sprint("segment.bytes=", segment))
	r.fill("plain", 1, 9*segment)
	files := r.segments("plain", 0)

	var keys sync.WaitGroup
	begun := time.Now()
	for worker := range putsAtOnce {
		keys.Go(func() {
			for k := worker; k < 4*len(files); k += putsAtOnce {
				r.rawPut(files[k%len(files)], fmt.Sprint("raw/", k))
			}
		})
	}
	keys.Wait()
	rate := float64(4*len(files)*segment) / time.Since(begun).Seconds() / 2

	var plain latencies
	turns := make(chan struct{}, putsAtOnce)
	paced(rate/segment, lasts, func(due time.Time) {
		keys.Go(func() {
			turns <- struct{}{}
			_, took := r.rawPut(files[0], fmt.Sprint("raw/", due.UnixNano()))
			<-turns
			plain.add(took)
		})
	})
	keys.Wait()

	r.create(topic, lagPartitions, fmt.Sprint("segment.bytes=", segment))
	records := batch(b, 128<<10)
	var writers []*producer
	for p := range int32(lagPartitions) {
		writers = append(writers, r.producer(topic, p, records, nil))
	}
	// Segments end one at a time, as plain puts begin: the partitions are not equally far.
	for p, w := range writers {
		for range p * segment / lagPartitions / len(records) {
			w.put(time.Now())
		}
	}
	n := 0
	paced(rate/float64(len(records)), lasts, func(due time.Time) {
		writers[n%lagPartitions].put(due)
		n++
	})
	for _, w := range writers {
		w.finish()
	}
	eventually(b, "all is in the bucket", func() bool { return r.metric("tidemark_tier_lag_segments") == 0 })
	lags := r.lags(topic)
	for _, op := range []string{"put", "head", "get", "list"} {
		for _, cause := range []string{"upload", "manifest"} {
			labels := []string{`cause="` + cause + `"`, `op="` + op + `"`}
			if n := r.metric("tidemark_store_request_duration_seconds_count", labels...); n > 0 {
				b.Logf("%.0f times %s for %s: %.1f ms", n, op, cause, 1000*r.metric("tidemark_store_request_duration_seconds_sum", labels...)/n)
			}
		}
	}

	b.ReportMetric(0, "ns/op")
	b.ReportMetric(rate/1e6, "MB/s")
	b.ReportMetric(float64(len(lags)), "segments")
	b.ReportMetric(ms(plain.quantile(0.5)), "raw-p50-ms")
	b.ReportMetric(ms(plain.quantile(0.99)), "raw-p99-ms")
	b.ReportMetric(ms(quantile(lags, 0.5)), "lag-p50-ms")
	b.ReportMetric(ms(quantile(lags, 0.99)), "T6-lag-p99-ms")
	b.ReportMetric(1.2*ms(plain.quantile(0.99))+1000, "T6-goal-ms")
}

// lags are how long each segment of a topic has taken from its seal, when its follower's file was made, to its entry.
func (r *broker) lags(topic string) (list []time.Duration) {
	r.b.Helper()
	for info, err := range r.store.List(r.b.Context(), "topics/"+topic+".", "") {
		if err != nil {
			r.b.Fatal(err)
		}
		folder, name := filepath.Split(info.Key)
		if !strings.HasSuffix(folder, "/manifest/") || filepath.Ext(name) != ".json" {
			continue
		}
		body, _, err := object.Read(r.b.Context(), r.store, info.Key, 8<<20)
		if err != nil {
			r.b.Fatal(err)
		}
		var entry struct {
			Records []struct {
				Type string `json:"type"`
				End  int64  `json:"end"`
			} `json:"records"`
		}
		if err := json.Unmarshal(body, &entry); err != nil {
			r.b.Fatal(err)
		}
		partition := filepath.Base(filepath.Dir(filepath.Dir(folder)))
		for _, record := range entry.Records {
			if record.Type == "add" {
				sealed := r.born(filepath.Join(r.Data, "logs", topic+"-"+partition, fmt.Sprintf("%020d.log", record.End)))
				list = append(list, info.ModTime.Sub(sealed))
			}
		}
	}
	return list
}

// born is when a file was made.
func (r *broker) born(name string) time.Time {
	r.b.Helper()
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, name, 0, unix.STATX_BTIME, &s); err != nil {
		r.b.Fatal(name, err)
	}
	return time.Unix(s.Btime.Sec, int64(s.Btime.Nsec))
}

// neighbour is work that goes on beside what is measured, until ctx ends. It calls begun when it is at it, or never will be.
type neighbour struct {
	name string
	work func(ctx context.Context, begun func())
}

// BenchmarkProduceBesideUploads is L3: produce on a fixed schedule alone, and beside the broker's own uploads at full rate.
func BenchmarkProduceBesideUploads(b *testing.B) {
	r := start(b, store(b))
	rounded := 0
	r.produceBeside(b, neighbour{"uploads", func(ctx context.Context, begun func()) {
		rounded++
		topic := fmt.Sprint("behind-", rounded)
		r.backlog(topic, *mib<<20)
		begun()
		n := r.upload(topic)
		b.Logf("uploaded %d MB", n/1e6)
		<-ctx.Done()
		r.remove(topic)
	}})
}

// BenchmarkProduceBesidePuts is what plain puts of another process at full rate do to produce on a fixed schedule. What MinIO has to clean up
// after them would be in the way of the broker's uploads.
func BenchmarkProduceBesidePuts(b *testing.B) {
	r := start(b, store(b))
	r.backlog("plain", 256<<20)
	files := r.segments("plain", 0)
	r.produceBeside(b, neighbour{"puts", func(ctx context.Context, begun func()) {
		begun()
		for k := 0; ctx.Err() == nil; k++ {
			r.rawPut(files[k%len(files)], fmt.Sprint("raw/", k%16))
		}
	}})
}

// produceBeside measures produce alone and beside n.
func (r *broker) produceBeside(b *testing.B, n neighbour) {
	r.create("load", 1, "remote.storage.enable=false")
	beside(b, "L3", []neighbour{n}, func(d time.Duration) *latencies { return r.produceAt("load", 20e6, d) })
}

// produceAt writes batches of 16 KiB on a fixed schedule.
func (r *broker) produceAt(topic string, bytesPerSecond float64, d time.Duration) *latencies {
	var l latencies
	records := batch(r.b, 16<<10)
	w := r.producer(topic, 0, records, func(due time.Time, _ int64) { l.add(time.Since(due)) })
	paced(bytesPerSecond/float64(len(records)), d, w.put)
	w.finish()
	return &l
}

// beside measures by turns, alone and beside each neighbour, and reports the medians of their rounds.
func beside(b *testing.B, goal string, neighbours []neighbour, measured func(d time.Duration) *latencies) {
	const lasts = 5 * time.Second
	alone := neighbour{"alone", func(ctx context.Context, begun func()) { begun(); <-ctx.Done() }}
	neighbours = slices.Insert(neighbours, 0, alone)
	p50, p99 := map[string][]float64{}, map[string][]float64{}
	for i := range *rounds {
		for _, n := range neighbours {
			ctx, cancel := context.WithCancel(b.Context())
			var work sync.WaitGroup
			begun := make(chan struct{})
			work.Go(func() { n.work(ctx, sync.OnceFunc(func() { close(begun) })) })
			<-begun
			l := measured(lasts)
			cancel()
			work.Wait()
			p50[n.name], p99[n.name] = append(p50[n.name], ms(l.quantile(0.5))), append(p99[n.name], ms(l.quantile(0.99)))
			b.Logf("round %d, %s: p50 %.2f ms, p99 %.2f ms, p99.9 %.2f ms", i, n.name, p50[n.name][i], p99[n.name][i], ms(l.quantile(0.999)))
		}
	}
	median := func(f []float64) float64 { return slices.Sorted(slices.Values(f))[len(f)/2] }
	b.ReportMetric(0, "ns/op")
	for _, n := range neighbours {
		b.ReportMetric(median(p99[n.name]), n.name+"-p99-ms")
		if n.name != alone.name {
			b.ReportMetric(median(p99[n.name])/median(p99[alone.name]), goal+"-"+n.name+"-x-alone")
		}
	}
}

// Fifty readers of 2 MB/s each leave the machine time for others.
const (
	readersAtOnce = 50
	slowly        = 500 * time.Millisecond
)

// BenchmarkEndBesideColdReaders is L4: from when a record is due to when a reader of the end has it, alone, beside fifty connections
// that read 2 MB/s each from the disk, fifty that read as much of what is in the bucket alone, and fifty that read that as fast as they can.
func BenchmarkEndBesideColdReaders(b *testing.B) {
	r := remote(b)
	r.create("end", 1, "remote.storage.enable=false")
	beside(b, "L4", []neighbour{
		{"local", r.readers([]cursor{{topic: hot, end: r.offset(hot, 0, latest)}}, slowly)},
		{"cold", r.readers(r.cold(many, manyPartitions), slowly)},
		{"flat-out", r.readers(r.cold(many, manyPartitions), 0)},
	}, func(d time.Duration) *latencies { return r.followEnd("end", d) })
}

// followEnd writes small batches on a fixed schedule and reads them at the end of the log.
func (r *broker) followEnd(topic string, d time.Duration) *latencies {
	var l latencies
	due := map[int64]time.Time{} // when the batch at an offset was; the producer's until it has finished
	records := batch(r.b, 4<<10)
	first := r.offset(topic, 0, latest)
	end := first
	for range int(200 * d.Seconds()) {
		end += int64(records.NextOffset())
	}
	read := make(chan struct{})
	seen := map[int64]time.Time{} // when a batch was read
	go func() {
		defer close(read)
		c := r.dial()
		defer c.close()
		at := []cursor{{topic: topic, offset: first, end: end}}
		for at[0].offset < end {
			from := at[0].offset
			if _, err := c.fetch(at); err != nil {
				r.b.Error(err)
				return
			}
			now := time.Now()
			for ; from < at[0].offset; from += int64(records.NextOffset()) {
				seen[from] = now
			}
		}
	}()
	w := r.producer(topic, 0, records, func(t time.Time, offset int64) { due[offset] = t })
	paced(200, d, w.put)
	w.finish()
	<-read
	for offset, t := range due {
		if at, ok := seen[offset]; ok {
			l.add(at.Sub(t))
		}
	}
	return &l
}
