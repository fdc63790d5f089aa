package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func benchCommand(a *app) *cobra.Command {
	return parent("bench", "Measure how fast the cluster takes and gives records", benchProduceCommand(a), benchConsumeCommand(a))
}

// benchResult is the view of the bench commands. Latency is that of a record from hand-over to acknowledgement; reading has none.
type benchResult struct {
	Records        int64          `json:"records"`
	Bytes          int64          `json:"bytes"`
	Seconds        float64        `json:"seconds"`
	RecordsPerSec  float64        `json:"records_per_second"`
	BytesPerSec    float64        `json:"bytes_per_second"`
	LatencySeconds *latencyResult `json:"latency_seconds,omitempty"`
}

type latencyResult struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

func newBenchResult(records, bytes int64, took time.Duration, latency *histogram) benchResult {
	r := benchResult{Records: records, Bytes: bytes, Seconds: took.Seconds()}
	if took > 0 {
		r.RecordsPerSec, r.BytesPerSec = float64(records)/r.Seconds, float64(bytes)/r.Seconds
	}
	if latency != nil {
		r.LatencySeconds = &latencyResult{
			latency.mean().Seconds(), latency.quantile(0.5).Seconds(), latency.quantile(0.99).Seconds(),
			latency.quantile(0.999).Seconds(), latency.most.Seconds(),
		}
	}
	return r
}

func (r benchResult) write(p *page) {
	p.heading()
	p.row("records", r.Records)
	p.row("size", bytesText(r.Bytes))
	p.row("time", fmt.Sprintf("%.2f s", r.Seconds))
	p.row("rate", fmt.Sprintf("%.0f records/s, %s/s", r.RecordsPerSec, bytesText(int64(r.BytesPerSec))))
	if l := r.LatencySeconds; l != nil {
		p.row("latency", fmt.Sprintf("mean %s, p50 %s, p99 %s, p99.9 %s, max %s", millisText(l.Mean), millisText(l.P50), millisText(l.P99), millisText(l.P999), millisText(l.Max)))
	}
}

func millisText(seconds float64) string { return fmt.Sprintf("%.2f ms", seconds*1000) }

// benchFlags are the flags of bench produce.
type benchFlags struct {
	records           int64
	size, rate        int
	clients           int
	keys              int
	linger            time.Duration
	acks, compression string
}

func benchProduceCommand(a *app) *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use:     "produce TOPIC",
		Short:   "Write random records and print rate and latency",
		Example: "  tidemark bench produce load --records 1000000 --size 1000\n  tidemark bench produce load --records 20000 --rate 2000 --linger 0s",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeTopics,
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := producerOptions(f.acks, f.compression, a.timeout+f.linger)
			if err != nil {
				return err
			}
			if f.records < 1 || f.size < 0 || f.clients < 1 {
				return mistake("--records and --clients must be at least 1, --size at least 0")
			}
			options = append(options, kgo.DefaultProduceTopic(args[0]), kgo.ProducerLinger(f.linger), kgo.MaxBufferedRecords(100_000))
			result, err := a.benchProduce(cmd.Context(), f, options)
			if err != nil {
				return err
			}
			return a.print(cmd, result)
		},
	}
	c.Flags().Int64VarP(&f.records, "records", "n", 100_000, "how many records to write")
	c.Flags().IntVarP(&f.size, "size", "s", 1000, "bytes of each value")
	c.Flags().IntVarP(&f.rate, "rate", "r", 0, "records a second; as fast as it goes when 0")
	c.Flags().IntVar(&f.clients, "clients", 1, "connections that write side by side")
	c.Flags().IntVar(&f.keys, "keys", 0, "write with this many different keys; without a key when 0")
	c.Flags().DurationVar(&f.linger, "linger", 5*time.Millisecond, "how long a batch waits for more records")
	c.Flags().StringVar(&f.acks, "acks", "all", "who must have a record before it counts: all, leader or none")
	c.Flags().StringVarP(&f.compression, "compression", "z", "none", "none, gzip, snappy, lz4 or zstd")
	return c
}

func (a *app) benchProduce(ctx context.Context, f benchFlags, options []kgo.Opt) (benchResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var latency histogram
	var mu sync.Mutex // guards latency
	start := a.now()
	var group sync.WaitGroup
	for id := range f.clients {
		client, err := kgo.NewClient(a.clientOptions(options...)...)
		if err != nil {
			return benchResult{}, err
		}
		defer client.Close()
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(id), 0))
			for n := int64(id); n < f.records && ctx.Err() == nil; n += int64(f.clients) {
				if f.rate > 0 {
					wait(ctx, start.Add(time.Duration(float64(n)/float64(f.rate)*float64(time.Second))).Sub(a.now()))
				}
				sent := a.now()
				client.Produce(ctx, f.record(random), func(_ *kgo.Record, err error) {
					if err != nil {
						cancel(err)
						return
					}
					took := a.now().Sub(sent)
					mu.Lock()
					defer mu.Unlock()
					latency.add(took)
				})
			}
			if err := client.Flush(ctx); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		return benchResult{}, err
	}
	return newBenchResult(int64(latency.total), int64(latency.total)*int64(f.size), a.now().Sub(start), &latency), nil
}

// record is random text, so that compression has about as much to do as with JSON.
func (f *benchFlags) record(random *rand.Rand) *kgo.Record {
	const alphabet = "abcdefghijklmnopqrstuvwxyz012345"
	r := &kgo.Record{Value: make([]byte, f.size)}
	for i := range r.Value {
		if i%12 == 0 {
			for b, bits := i, random.Uint64(); b < min(i+12, len(r.Value)); b++ {
				r.Value[b] = alphabet[bits&31]
				bits >>= 5
			}
		}
	}
	if f.keys > 0 {
		r.Key = fmt.Appendf(nil, "key-%d", random.IntN(f.keys))
	}
	return r
}

// wait sleeps until d has passed or ctx ends.
func wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func benchConsumeCommand(a *app) *cobra.Command {
	var records int64
	var from string
	c := &cobra.Command{
		Use:   "consume TOPIC",
		Short: "Read records and print the rate",
		Args:  cobra.ExactArgs(1), ValidArgsFunction: a.completeTopics,
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := parsePosition(from, a.now())
			if err == nil && records < 1 {
				err = mistake("--records must be at least 1")
			}
			if err != nil {
				return err
			}
			err = a.admin(cmd.Context(), func(ctx context.Context, admin *kadm.Client) error { return checkTopics(ctx, admin, args, nil) })
			if err != nil {
				return err
			}
			result, err := a.benchConsume(cmd.Context(), args[0], at, records)
			if err != nil {
				return err
			}
			return a.print(cmd, result)
		},
	}
	c.Flags().Int64VarP(&records, "records", "n", 100_000, "how many records to read")
	c.Flags().StringVar(&from, "from", "start", "where to begin: "+positionHelp)
	return c
}

// benchConsume reads until it has that many records, or none came for a time-out. The clock runs from before the client connects, since
// it fetches from then on, to the last record that came.
func (a *app) benchConsume(ctx context.Context, topic string, at position, records int64) (benchResult, error) {
	start := a.now()
	last := start
	client, err := kgo.NewClient(a.clientOptions(kgo.ConsumeTopics(topic), kgo.ConsumeStartOffset(at.consumeOffset()))...)
	if err != nil {
		return benchResult{}, err
	}
	defer client.Close()
	var got, bytes int64
	for got < records {
		waiting, cancel := context.WithTimeout(ctx, a.timeout)
		fetches := client.PollFetches(waiting)
		late := waiting.Err() != nil
		cancel()
		if late {
			break
		}
		for _, failed := range fetches.Errors() {
			return benchResult{}, fmt.Errorf("read %s-%d: %w", failed.Topic, failed.Partition, failed.Err)
		}
		last = a.now()
		fetches.EachRecord(func(r *kgo.Record) {
			got++
			bytes += int64(len(r.Key) + len(r.Value))
		})
	}
	switch {
	case got == 0 && ctx.Err() != nil:
		return benchResult{}, context.Cause(ctx)
	case got == 0:
		return benchResult{}, fmt.Errorf("no record of %s came for %v: there is nothing to measure", topic, a.timeout)
	}
	return newBenchResult(got, bytes, last.Sub(start), nil), nil
}
