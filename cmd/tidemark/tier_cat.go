package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/fsck"
)

// catFlags are the flags of tier cat.
type catFlags struct {
	consumeFlags
	offset int64
	at     string
}

func tierCatCommand(a *app, url *string) *cobra.Command {
	var f catFlags
	c := &cobra.Command{
		Use:   "cat TOPIC[/PARTITION]",
		Short: "Print records straight from the bucket",
		Long: "Print the records of a topic straight from the bucket, partition by partition. Each batch is verified. Records of aborted " +
			"transactions are printed, too.\n\nThe format is that of `tidemark consume`.",
		Example: "  tidemark tier cat orders/3 --offset 1000 --max 10 --store file:///var/lib/tidemark/store\n" +
			"  tidemark tier cat orders --time -2h --json --store file:///var/lib/tidemark/store",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := parsePartitionRef(args[0])
			switch {
			case err != nil:
				return err
			case f.offset < 0:
				return mistake("--offset %d: offsets begin at 0", f.offset)
			case f.count < 0:
				return mistake("--max %d: how many records? 0 is all", f.count)
			}
			return buffered(cmd, func(out *bufio.Writer) error {
				write, err := f.printer(out, a.json)
				if err != nil {
					return err
				}
				ts := int64(-1)
				if f.at != "" {
					if ts, err = parseMoment(f.at, a.now()); err != nil {
						return err
					}
				}
				b, list, ctx, err := a.openPartitions(cmd, *url, ref)
				if err != nil {
					return err
				}
				return b.cat(ctx, list, wire.Offset(f.offset), ts, f.count, write)
			})
		},
	}
	c.Flags().Int64Var(&f.offset, "offset", 0, "begin at this offset")
	c.Flags().StringVar(&f.at, "time", "", "begin at the first record of this time or later: "+momentHelp)
	c.Flags().IntVarP(&f.count, "max", "n", 0, "stop after this many records")
	c.Flags().StringVarP(&f.format, "format", "f", `%v\n`, "how to print a record")
	c.MarkFlagsMutuallyExclusive("offset", "time")
	return c
}

// cat writes at most count records, all where that is 0. What can't be read ends its partition, and not the others.
func (b *bucket) cat(
	ctx context.Context, list []partitionOf, from wire.Offset, ts int64, count int, write func(*kgo.Record) error,
) error {
	var failed []error
	for _, p := range list {
		for r, err := range b.records(ctx, p, from, ts) {
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", p, err))
				break
			}
			if err := write(clientRecord(p, &r)); err != nil {
				return err
			}
			if count--; count == 0 {
				return errors.Join(failed...)
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failed...)
}

// records are those of a partition, from an offset on, or where ts is not negative from the first record of that time or later.
func (b *bucket) records(ctx context.Context, p partitionOf, from wire.Offset, ts int64) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		m, err := b.open(ctx, p)
		found := true
		if err == nil && ts >= 0 {
			from, found, err = fsck.OffsetForTime(ctx, b.store, m, ts)
		}
		switch {
		case err != nil:
			yield(record.Record{}, err)
		case found:
			fsck.Records(ctx, b.store, m, from)(yield)
		}
	}
}

// clientRecord is a record as a client gets it.
func clientRecord(p partitionOf, r *record.Record) *kgo.Record {
	out := &kgo.Record{
		Topic: p.topic.Name, Partition: p.index, Offset: int64(r.Offset), Timestamp: time.UnixMilli(r.Timestamp), Key: r.Key, Value: r.Value,
	}
	for key, value := range r.Headers() {
		out.Headers = append(out.Headers, kgo.RecordHeader{Key: key, Value: value})
	}
	return out
}
