package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

// lineBytesMax is the longest line that produce reads.
const lineBytesMax = 64 << 20

// produceFlags are the flags of produce.
type produceFlags struct {
	key, keySeparator, null string
	headers                 []string
	partition               int32
	acks, compression       string
}

func produceCommand(a *app) *cobra.Command {
	var f produceFlags
	c := &cobra.Command{
		Use:     "produce TOPIC",
		Short:   "Write the lines of the standard input as records",
		Example: "  echo hello | tidemark produce greetings\n  tidemark produce orders --key-separator : < orders.txt",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeTopics,
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := f.options(a.timeout)
			if err != nil {
				return err
			}
			headers, err := f.recordHeaders()
			if err != nil {
				return err
			}
			client, err := kgo.NewClient(a.clientOptions(append(options, kgo.DefaultProduceTopic(args[0]))...)...)
			if err != nil {
				return err
			}
			defer client.Close()
			result, err := f.produce(cmd.Context(), client, headers, cmd.InOrStdin())
			if err != nil {
				return err
			}
			result.Topic = args[0]
			return a.print(cmd, result)
		},
	}
	c.Flags().StringVarP(&f.key, "key", "k", "", "key of every record")
	c.Flags().StringVarP(&f.keySeparator, "key-separator", "K", "", "what stands between key and value in a line")
	c.Flags().StringVar(&f.null, "null", "", "a value that stands for null (a tombstone)")
	c.Flags().StringArrayVarP(&f.headers, "header", "H", nil, "a header of every record, key=value; may be repeated")
	c.Flags().Int32VarP(&f.partition, "partition", "p", -1, "partition to write to; by key, else spread, when -1")
	c.Flags().StringVar(&f.acks, "acks", "all", "who must have a record before it counts: all, leader or none")
	c.Flags().StringVarP(&f.compression, "compression", "z", "none", "none, gzip, snappy, lz4 or zstd")
	return c
}

// options are those of the producer.
func (f *produceFlags) options(timeout time.Duration) ([]kgo.Opt, error) {
	options, err := producerOptions(f.acks, f.compression, timeout)
	if err != nil {
		return nil, err
	}
	if f.partition >= 0 {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	return options, nil
}

// producerOptions are those of all that write. The timeout is that of a record, one on its way too: nothing is written after it that
// could come twice. The client takes none shorter than a second. A missing topic is created where the cluster does that for producers.
func producerOptions(acks, compression string, timeout time.Duration) ([]kgo.Opt, error) {
	options := []kgo.Opt{
		kgo.RecordDeliveryTimeout(max(timeout, time.Second)), kgo.AllowIdempotentProduceCancellation(), kgo.AllowAutoTopicCreation(),
	}
	switch acks {
	case "all":
	case "leader":
		options = append(options, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "none":
		options = append(options, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, mistake("--acks is all, leader or none, not %q", acks)
	}
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	codec, ok := codecs[compression]
	if !ok {
		return nil, mistake("--compression is none, gzip, snappy, lz4 or zstd, not %q", compression)
	}
	return append(options, kgo.ProducerBatchCompression(codec)), nil
}

// produced is the view of produce.
type produced struct {
	Topic      string          `json:"topic"`
	Records    int             `json:"records"`
	Partitions map[int32]int64 `json:"last_offsets"` // the last offset in each partition written to
}

func (r *produced) write(p *page) {
	p.heading()
	p.row(fmt.Sprintf("%s to %s", count(r.Records, "record"), r.Topic))
}

// produce writes each line; the first record that fails ends it, and so does ctx.
func (f *produceFlags) produce(ctx context.Context, client *kgo.Client, headers []kgo.RecordHeader, in io.Reader) (*produced, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	result := &produced{Partitions: make(map[int32]int64)}
	var mu sync.Mutex // guards result
	var failed error
	for line, err := range linesOf(ctx, in) {
		if err != nil {
			failed = fmt.Errorf("read standard input: %w", err)
			break
		}
		record := f.record(line)
		record.Headers = headers
		client.Produce(ctx, record, func(r *kgo.Record, err error) {
			if err != nil {
				cancel(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			result.Records++
			result.Partitions[r.Partition] = max(result.Partitions[r.Partition], r.Offset)
		})
	}
	if err := client.Flush(ctx); err != nil || ctx.Err() != nil {
		failed = context.Cause(ctx)
	}
	mu.Lock()
	defer mu.Unlock()
	if failed != nil {
		return nil, fmt.Errorf("after %s: %w", count(result.Records, "acknowledged record"), failed)
	}
	return result, nil
}

// linesOf yields the lines of in until ctx ends. They are read on the side: nothing interrupts the read of a terminal, and where ctx ends
// first that read is left behind.
func linesOf(ctx context.Context, in io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		lines := make(chan []byte)
		var failed error // to be read after lines is closed
		go func() {
			defer close(lines)
			scanner := bufio.NewScanner(in)
			scanner.Buffer(nil, lineBytesMax)
			for scanner.Scan() {
				select {
				case lines <- bytes.Clone(scanner.Bytes()):
				case <-ctx.Done():
					return
				}
			}
			failed = scanner.Err()
		}()
		for {
			select {
			case line, more := <-lines:
				if !more {
					if failed != nil {
						yield(nil, failed)
					}
					return
				}
				if !yield(line, nil) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// record makes a record of a line, which it keeps.
func (f *produceFlags) record(line []byte) *kgo.Record {
	r := &kgo.Record{Partition: f.partition, Value: line}
	if f.key != "" {
		r.Key = []byte(f.key)
	}
	if f.keySeparator != "" {
		if key, value, ok := bytes.Cut(r.Value, []byte(f.keySeparator)); ok {
			r.Key, r.Value = key, value
		}
	}
	if f.null != "" && string(r.Value) == f.null {
		r.Value = nil
	} else if r.Value == nil {
		r.Value = []byte{}
	}
	return r
}

func (f *produceFlags) recordHeaders() ([]kgo.RecordHeader, error) {
	var headers []kgo.RecordHeader
	for _, pair := range f.headers {
		key, value, ok := bytes.Cut([]byte(pair), []byte("="))
		if !ok {
			return nil, mistake("header %q is not key=value", pair)
		}
		headers = append(headers, kgo.RecordHeader{Key: string(key), Value: value})
	}
	return headers, nil
}
