package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

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
		Example: "  tidemark consume orders --until-end\n  tidemark consume orders --from @-1h --format '%p %o %k: %v\\n'",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: a.completeTopics,
		RunE: func(cmd *cobra.Command, topics []string) error {
			out := bufio.NewWriter(cmd.OutOrStdout())
			write, err := f.printer(out, a.json)
			if err != nil {
				return err
			}
			quiet := newSilence(a.now, f.group != "")
			options, err := f.options(topics, a.now(), quiet)
			if err != nil {
				return err
			}
			running, stop := context.WithCancel(context.WithoutCancel(cmd.Context()))
			defer stop()
			client, err := kgo.NewClient(a.clientOptions(append(options, kgo.WithContext(running))...)...)
			if err != nil {
				return err
			}
			defer a.leave(client, stop)
			return a.consume(cmd.Context(), client, f, topics, quiet, write, out.Flush)
		},
	}
	c.Flags().StringVar(&f.from, "from", "", "where to begin: "+positionHelp+" (default start with --until-end or --count, else end)")
	c.Flags().StringVarP(&f.group, "group", "g", "", "consumer group to join; it remembers how far it came")
	c.Flags().Int32SliceVarP(&f.partitions, "partition", "p", nil, "only these partitions")
	c.Flags().IntVarP(&f.count, "count", "n", 0, "stop after this many records")
	c.Flags().BoolVarP(&f.untilEnd, "until-end", "e", false, "stop at what is now the end")
	c.Flags().BoolVar(&f.committed, "read-committed", false, "leave out records of transactions that are open or were aborted")
	c.Flags().StringVarP(&f.format, "format", "f", `%v\n`, "how to print a record")
	c.MarkFlagsMutuallyExclusive("group", "partition")
	return c
}

// leave closes a consumer, and stops it where that takes too long: a JoinGroup may be answered as late as the group's slowest member comes.
func (a *app) leave(client *kgo.Client, stop func()) {
	leaving, cancel := context.WithTimeout(context.Background(), a.timeout)
	defer cancel()
	client.LeaveGroupContext(leaving) //nolint:errcheck // the group finds out by itself
	stop()
	client.Close()
}

// position is where to begin: who asks for some records and no more means those that are there.
func (f *consumeFlags) position(now time.Time) (position, error) {
	switch {
	case f.from != "":
		return parsePosition(f.from, now)
	case f.untilEnd || f.count > 0:
		return position{kind: atStart}, nil
	default:
		return position{kind: atEnd}, nil
	}
}

func (f *consumeFlags) options(topics []string, now time.Time, quiet *silence) ([]kgo.Opt, error) {
	at, err := f.position(now)
	if err != nil {
		return nil, err
	}
	// Control records are kept so that the end of a topic of transactions is seen; they are not printed.
	options := []kgo.Opt{kgo.KeepControlRecords(), kgo.FetchMaxWait(fetchWait), kgo.WithHooks(quiet)}
	if f.committed {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	switch {
	case f.group != "":
		options = append(options, kgo.ConsumeTopics(topics...), kgo.ConsumerGroup(f.group), kgo.ConsumeStartOffset(at.consumeOffset()), kgo.AutoCommitMarks(),
			kgo.OnPartitionsAssigned(quiet.onAssigned))
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
		return nil, mistake("format %q: %w", f.format, err)
	}
	var buffer []byte
	return func(r *kgo.Record) error {
		buffer = formatter.AppendRecord(buffer[:0], r)
		_, err := out.Write(buffer)
		return err
	}, nil
}

// consume polls until the flags or ctx end it. Ending by ctx is no failure: it is how people stop.
func (a *app) consume(ctx context.Context, client *kgo.Client, f consumeFlags, topics []string, quiet *silence,
	write func(*kgo.Record) error, flush func() error,
) error {
	ends, err := a.findEnds(ctx, client, f, topics)
	if ctx.Err() != nil {
		return nil
	} else if err != nil {
		return err
	}
	if f.group != "" {
		defer func() {
			leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timeout)
			defer cancel()
			client.CommitMarkedOffsets(leaving) //nolint:errcheck // leaving: the group reads the rest again
		}()
	}
	patience := max(a.timeout, 2*endIdle) // for the ends: an end without a record takes endIdle to tell
	heard := a.now()
	for printed := 0; f.count == 0 || printed < f.count; {
		if f.untilEnd && ends.reached() {
			return nil
		}
		fetches, stopped := f.poll(ctx, client, printed)
		if stopped {
			return nil
		}
		for _, failed := range fetches.Errors() {
			return fmt.Errorf("read %s-%d: %w", failed.Topic, failed.Partition, failed.Err)
		}
		done, err := ends.write(fetches, write)
		if err == nil {
			err = flush()
		}
		if err != nil {
			return err
		}
		client.MarkCommitRecords(done...) // not before: what the group has committed it never reads again
		for _, r := range done {
			if !r.Attrs.IsControl() {
				printed++
			}
		}
		if len(done) > 0 {
			heard = a.now()
			quiet.broken()
		} else if f.untilEnd && !ends.reached() {
			short := quiet.short(ends, client.PartitionLeader)
			if len(short) == 0 {
				return nil
			}
			if waited := a.now().Sub(heard); waited > patience {
				return shortError(short, patience)
			}
		}
	}
	return nil
}

// findEnds finds out whether all is there that is to be read, and where it ends: the client would wait for ever for a topic that is not
// there, and for a cluster.
func (a *app) findEnds(ctx context.Context, client *kgo.Client, f consumeFlags, topics []string) (endOffsets, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	admin := kadm.NewClient(client)
	if err := checkTopics(ctx, admin, topics, f.partitions); err != nil {
		return nil, err
	}
	return f.ends(ctx, admin, topics)
}

// checkTopics fails where a topic is missing, or a partition of it. What has no leader for the moment is there.
func checkTopics(ctx context.Context, admin *kadm.Client, topics []string, partitions []int32) error {
	found, err := admin.ListTopicsWithInternal(ctx, topics...)
	if err != nil {
		return err
	}
	for _, t := range found.Sorted() {
		if errors.Is(t.Err, kerr.LeaderNotAvailable) {
			continue
		} else if t.Err != nil {
			return fmt.Errorf("topic %s: %w", t.Topic, t.Err)
		}
		for _, p := range partitions {
			if _, ok := t.Partitions[p]; !ok {
				return fmt.Errorf("%s: %w", partitionName(t.Topic, p), kerr.UnknownTopicOrPartition)
			}
		}
	}
	return nil
}

// write writes the records that came before the ends, and returns them. Control records among them are only passed over.
func (e endOffsets) write(fetches kgo.Fetches, write func(*kgo.Record) error) (done []*kgo.Record, err error) {
	fetches.EachRecord(func(r *kgo.Record) {
		if err == nil && !e.past(r) {
			if !r.Attrs.IsControl() {
				err = write(r)
			}
			done = append(done, r)
		}
		e.saw(r)
	})
	return done, err
}

// poll waits for records; with --until-end only for a moment. It tells whether ctx has ended.
func (f *consumeFlags) poll(ctx context.Context, client *kgo.Client, printed int) (fetches kgo.Fetches, stopped bool) {
	limit := -1
	if f.count > 0 {
		limit = f.count - printed
	}
	waiting := ctx
	if f.untilEnd {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, fetchWait)
		defer cancel()
	}
	fetches = client.PollRecords(waiting, limit)
	if ctx.Err() != nil || fetches.IsClientClosed() {
		return nil, true
	}
	if err := fetches.Err0(); errors.Is(err, context.DeadlineExceeded) && waiting.Err() != nil {
		return nil, false
	}
	return fetches, false
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
