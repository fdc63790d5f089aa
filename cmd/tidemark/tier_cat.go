package main

import (
	"bufio"
	"context"
	"fmt"
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
			if err != nil {
				return err
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
				left := f.count
				for _, p := range list {
					n, err := b.cat(ctx, p, wire.Offset(f.offset), ts, left, write)
					if err != nil {
						return fmt.Errorf("%s: %w", p, err)
					}
					if left -= n; f.count > 0 && left <= 0 {
						break
					}
				}
				return nil
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

// cat writes at most count records of a partition, all where that is 0, and returns how many.
func (b *bucket) cat(ctx context.Context, p partitionOf, from wire.Offset, ts int64, count int, write func(*kgo.Record) error) (n int, err error) {
	m, err := b.open(ctx, p)
	if err != nil {
		return 0, err
	}
	if ts >= 0 {
		var ok bool
		if from, ok, err = fsck.OffsetForTime(ctx, b.store, m, ts); err != nil || !ok {
			return 0, err
		}
	}
	for r, err := range fsck.Records(ctx, b.store, m, from) {
		if err == nil {
			err = write(clientRecord(p, &r))
		}
		if err != nil {
			return n, err
		}
		if n++; n == count {
			break
		}
	}
	return n, nil
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
