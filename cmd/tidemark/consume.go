package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// endIdle is how long consume --until-end waits for a record that does not come: the last offsets of a compacted topic may
// have none.
const endIdle = 3 * time.Second

// consumeFlags are the flags of consume.
type consumeFlags struct {
	from, group, format string
	partitions          []int32
	count               int
	untilEnd, committed bool
}

func consumeCommand(a *app) *cobra.Command {
	var f consumeFlags
	c := &cobra.Command{
		Use:   "consume TOPIC...",
		Short: "Print records",
		Long: "Print the records of topics as they come, until interrupted.\n\nPositions are " + positionHelp +
			".\n\nIn a format, %t is the topic, %p the partition, %o the offset, %k the key, %v the value, %h{%k=%v } the headers, " +
			"%d the time in milliseconds, \\n a new line.",
		Example: "  tidemark consume orders --from start --until-end\n  tidemark consume orders --from @-1h --format '%p %o %k: %v\\n'",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: a.completeTopics,
		RunE: func(cmd *cobra.Command, topics []string) error {
			out := bufio.NewWriter(cmd.OutOrStdout())
			defer out.Flush()
			write, err := f.printer(out, a.json)
			if err != nil {
				return err
			}
			options, err := f.options(topics, a.now())
			if err != nil {
				return err
			}
			client, err := kgo.NewClient(a.clientOptions(options...)...)
			if err != nil {
				return err
			}
			defer client.Close()
			return a.consume(cmd.Context(), client, f, topics, func(r *kgo.Record) error { return write(r) }, out.Flush)
		},
	}
	c.Flags().StringVar(&f.from, "from", "end", "where to begin: "+positionHelp)
	c.Flags().StringVarP(&f.group, "group", "g", "", "consumer group to join; it remembers how far it came")
	c.Flags().Int32SliceVarP(&f.partitions, "partition", "p", nil, "only these partitions")
	c.Flags().IntVarP(&f.count, "count", "n", 0, "stop after this many records")
	c.Flags().BoolVarP(&f.untilEnd, "until-end", "e", false, "stop at what is now the end")
	c.Flags().BoolVar(&f.committed, "read-committed", false, "leave out records of transactions that are open or were aborted")
	c.Flags().StringVarP(&f.format, "format", "f", `%v\n`, "how to print a record")
	c.MarkFlagsMutuallyExclusive("group", "partition")
	return c
}

func (f *consumeFlags) options(topics []string, now time.Time) ([]kgo.Opt, error) {
	at, err := parsePosition(f.from, now)
	if err != nil {
		return nil, err
	}
	// Control records are kept so that the end of a topic of transactions is seen; they are not printed.
	options := []kgo.Opt{kgo.KeepControlRecords(), kgo.FetchMaxWait(500 * time.Millisecond)}
	if f.committed {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	switch {
	case f.group != "":
		options = append(options, kgo.ConsumeTopics(topics...), kgo.ConsumerGroup(f.group), kgo.ConsumeStartOffset(at.consumeOffset()), kgo.AutoCommitMarks())
	case len(f.partitions) > 0:
		some := make(map[string]map[int32]kgo.Offset)
		for _, topic := range topics {
			some[topic] = make(map[int32]kgo.Offset)
			for _, p := range f.partitions {
				some[topic][p] = at.consumeOffset()
			}
		}
		options = append(options, kgo.ConsumePartitions(some))
	default:
		options = append(options, kgo.ConsumeTopics(topics...), kgo.ConsumeStartOffset(at.consumeOffset()))
	}
	return options, nil
}

// printer writes one record, as JSON or in the format.
func (f *consumeFlags) printer(out *bufio.Writer, asJSON bool) (func(*kgo.Record) error, error) {
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		return func(r *kgo.Record) error { return encoder.Encode(newRecordView(r)) }, nil
	}
	formatter, err := kgo.NewRecordFormatter(f.format)
	if err != nil {
		return nil, fmt.Errorf("format %q: %w", f.format, err)
	}
	var buffer []byte
	return func(r *kgo.Record) error {
		buffer = formatter.AppendRecord(buffer[:0], r)
		_, err := out.Write(buffer)
		return err
	}, nil
}

// consume polls until the flags or ctx end it. Ending by ctx is no failure: it is how people stop.
func (a *app) consume(ctx context.Context, client *kgo.Client, f consumeFlags, topics []string, write func(*kgo.Record) error, flush func() error) error {
	ends, err := f.ends(ctx, kadm.NewClient(client), topics)
	if err != nil {
		return err
	}
	if f.group != "" {
		defer func() {
			leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timeout)
			defer cancel()
			client.CommitMarkedOffsets(leaving) //nolint:errcheck // leaving: the group reads the rest again
		}()
	}
	for printed := 0; f.count == 0 || printed < f.count; {
		if f.untilEnd && ends.reached() {
			return nil
		}
		fetches, idle, err := f.poll(ctx, client, printed)
		if err != nil || idle {
			return err
		}
		for _, failed := range fetches.Errors() {
			return fmt.Errorf("read %s-%d: %w", failed.Topic, failed.Partition, failed.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if err == nil && !r.Attrs.IsControl() && !ends.past(r) {
				err = write(r)
				printed++
			}
			ends.saw(r)
			client.MarkCommitRecords(r)
		})
		if err == nil {
			err = flush()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// poll waits for records; idle says that there is nothing more to wait for.
func (f *consumeFlags) poll(ctx context.Context, client *kgo.Client, printed int) (fetches kgo.Fetches, idle bool, err error) {
	limit := -1
	if f.count > 0 {
		limit = f.count - printed
	}
	waiting := ctx
	if f.untilEnd {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, endIdle)
		defer cancel()
	}
	fetches = client.PollRecords(waiting, limit)
	if ctx.Err() != nil || fetches.IsClientClosed() {
		return nil, true, nil
	}
	if err := fetches.Err0(); errors.Is(err, context.DeadlineExceeded) && waiting.Err() != nil {
		return nil, true, nil
	}
	return fetches, false, nil
}

// endOffsets is how far consume --until-end reads: by partition, what is left to reach. Without the flag it is nil.
type endOffsets map[kadm.Partition]int64

func (f *consumeFlags) ends(ctx context.Context, admin *kadm.Client, topics []string) (endOffsets, error) {
	if !f.untilEnd {
		return nil, nil
	}
	starts, err := admin.ListStartOffsets(ctx, topics...)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, err
	}
	listed, err := admin.ListEndOffsets(ctx, topics...)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, err
	}
	ends := make(endOffsets)
	listed.Each(func(o kadm.ListedOffset) {
		start, _ := starts.Lookup(o.Topic, o.Partition)
		if o.Offset > start.Offset && f.wants(o.Partition) {
			ends[kadm.Partition{Topic: o.Topic, Partition: o.Partition}] = o.Offset
		}
	})
	return ends, nil
}

func (f *consumeFlags) wants(partition int32) bool {
	return len(f.partitions) == 0 || slices.Contains(f.partitions, partition)
}

func (e endOffsets) reached() bool { return len(e) == 0 }

// past tells whether the record came after the end.
func (e endOffsets) past(r *kgo.Record) bool {
	end, known := e[kadm.Partition{Topic: r.Topic, Partition: r.Partition}]
	return e != nil && (!known || r.Offset >= end)
}

func (e endOffsets) saw(r *kgo.Record) {
	p := kadm.Partition{Topic: r.Topic, Partition: r.Partition}
	if end, known := e[p]; known && r.Offset >= end-1 {
		delete(e, p)
	}
}

// recordView is a record in JSON. Text stays text; other bytes are in base64, and the encoding says so.
type recordView struct {
	Topic     string       `json:"topic"`
	Partition int32        `json:"partition"`
	Offset    int64        `json:"offset"`
	Timestamp int64        `json:"timestamp"`
	Key       *string      `json:"key"`
	Value     *string      `json:"value"`
	Headers   []headerView `json:"headers,omitempty"`
	Encoding  string       `json:"encoding,omitempty"` // base64: of key, value and header values alike
}

type headerView struct {
	Key   string  `json:"key"`
	Value *string `json:"value"`
}

func newRecordView(r *kgo.Record) recordView {
	text := utf8.Valid(r.Key) && utf8.Valid(r.Value)
	for _, h := range r.Headers {
		text = text && utf8.Valid(h.Value)
	}
	encode := func(b []byte) *string {
		if b == nil {
			return nil
		}
		s := string(b)
		if !text {
			s = base64.StdEncoding.EncodeToString(b)
		}
		return &s
	}
	v := recordView{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(),
		Key: encode(r.Key), Value: encode(r.Value),
	}
	if !text {
		v.Encoding = "base64"
	}
	for _, h := range r.Headers {
		v.Headers = append(v.Headers, headerView{h.Key, encode(h.Value)})
	}
	return v
}
