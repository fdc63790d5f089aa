package crash

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/record"
)

// ledger is what producers were told, and so what the broker owes.
type ledger struct {
	t     testing.TB
	topic string

	mu    sync.Mutex
	sent  map[place]int            // records handed to a client, by producer and partition
	acked map[int32]map[int64]owed // by partition and offset
	seen  map[place]int64          // highest offset that was acknowledged
}

// place is a partition of a producer.
type place struct {
	producer  int
	partition int32
}

// owed is an acknowledged record.
type owed struct {
	value     string
	timestamp int64
}

func newLedger(t testing.TB, topic string) *ledger {
	return &ledger{t: t, topic: topic, sent: map[place]int{}, acked: map[int32]map[int64]owed{}, seen: map[place]int64{}}
}

// produce sends numbered records to all partitions until ctx ends, then waits until all are acknowledged.
func (l *ledger) produce(ctx context.Context, c *kgo.Client, producer int, partitions int32) {
	random := rand.New(rand.NewPCG(uint64(producer), 0))
	for ctx.Err() == nil {
		for p := range partitions {
			at := place{producer, p}
			l.mu.Lock()
			n := l.sent[at]
			l.sent[at]++
			l.mu.Unlock()
			value := fmt.Sprintf("%d/%d/%d/", producer, p, n)
			r := &kgo.Record{Topic: l.topic, Partition: p, Value: append([]byte(value), make([]byte, random.IntN(1000))...)}
			c.Produce(context.Background(), r, l.answered(at, value))
		}
		time.Sleep(time.Millisecond) // a rate, not a wait: it keeps the run small
	}
	flushing, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.Flush(flushing); err != nil {
		l.t.Errorf("producer %d: %v", producer, err)
	}
}

func (l *ledger) answered(at place, value string) func(*kgo.Record, error) {
	return func(r *kgo.Record, err error) {
		if errors.Is(err, kgo.ErrClientClosed) {
			return // the test has failed
		}
		if err != nil {
			l.t.Errorf("record %s is refused: %v", value, err)
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.acked[at.partition] == nil {
			l.acked[at.partition] = map[int64]owed{}
		}
		if former, ok := l.acked[at.partition][r.Offset]; ok {
			l.t.Errorf("offset %d of partition %d was given to %s and to %s", r.Offset, at.partition, former.value, value)
		}
		l.acked[at.partition][r.Offset] = owed{value, r.Timestamp.UnixMilli()}
		l.seen[at] = max(l.seen[at], r.Offset)
	}
}

// settled is the offset of a partition below which every record was acknowledged.
func (l *ledger) settled(partition int32) int64 {
	lowest := int64(1) << 62
	for at, offset := range l.seen {
		if at.partition == partition {
			lowest = min(lowest, offset)
		}
	}
	return lowest
}

// sample compares some records, and look-ups by their times, with what is owed.
func (l *ledger) sample(c *kgo.Client, random *rand.Rand, partitions int32) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range partitions {
		limit := l.settled(p)
		offsets := make([]int64, 0, len(l.acked[p]))
		for offset := range l.acked[p] {
			if offset <= limit {
				offsets = append(offsets, offset)
			}
		}
		slices.Sort(offsets)
		for range min(20, len(offsets)) {
			offset := offsets[random.IntN(len(offsets))]
			want := l.acked[p][offset]
			if got := valueAt(l.t, c, l.topic, p, offset); got != want.value {
				l.t.Errorf("partition %d, offset %d: %q, want %q", p, offset, got, want.value)
			}
			first := offsets[slices.IndexFunc(offsets, func(o int64) bool { return l.acked[p][o].timestamp >= want.timestamp })]
			if got := offsetAt(l.t, c, l.topic, p, want.timestamp); got != first {
				l.t.Errorf("partition %d, time %d: offset %d, want %d", p, want.timestamp, got, first)
			}
		}
	}
}

// verify reads everything: each producer's records are there once, in order, at the offsets that were acknowledged.
func (l *ledger) verify(c *kgo.Client, admin *kadm.Client, partitions int32) (records int64) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	ends, err := admin.ListEndOffsets(ctx, l.topic)
	if err != nil {
		l.t.Fatal(err)
	}
	left := map[int32]int64{}
	from := map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) {
		left[o.Partition], from[o.Partition] = o.Offset, kgo.NewOffset().AtStart()
	})
	if len(left) != int(partitions) {
		l.t.Fatalf("%d partitions have an end", len(left))
	}
	c.AddConsumePartitions(map[string]map[int32]kgo.Offset{l.topic: from})
	next := map[place]int{}
	position := map[int32]int64{}
	for slices.ContainsFunc(keys(left), func(p int32) bool { return position[p] < left[p] }) {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			l.t.Fatalf("at %v of %v: %v", position, left, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset != position[r.Partition] {
				l.t.Errorf("partition %d: offset %d comes after %d", r.Partition, r.Offset, position[r.Partition]-1)
			}
			position[r.Partition] = r.Offset + 1
			var at place
			var n int
			if _, err := fmt.Sscanf(string(r.Value), "%d/%d/%d/", &at.producer, &at.partition, &n); err != nil || at.partition != r.Partition {
				l.t.Fatalf("partition %d, offset %d: %.20q", r.Partition, r.Offset, r.Value)
			}
			if n != next[at] {
				l.t.Errorf("producer %d, partition %d: record %d comes where %d should, at offset %d", at.producer, at.partition, n, next[at], r.Offset)
			}
			next[at] = n + 1
			if owed, ok := l.acked[r.Partition][r.Offset]; !ok || owed.value != fmt.Sprintf("%d/%d/%d/", at.producer, at.partition, n) {
				l.t.Errorf("partition %d, offset %d: %d/%d/%d is there, acknowledged was %q", r.Partition, r.Offset, at.producer, at.partition, n, owed.value)
			}
			records++
		})
	}
	for at, n := range l.sent {
		if next[at] != n {
			l.t.Errorf("producer %d, partition %d: %d of %d records", at.producer, at.partition, next[at], n)
		}
	}
	return records
}

// lookUp asks for the offset of every time that an index on disk speaks of. The broker believes no entry that it uses unless a batch bears
// it out, and makes the index of a sealed segment anew that has another one. Entries are read as they lie, in damaged files, too.
func (l *ledger) lookUp(c *kgo.Client, timeIndexes []string) (times int) {
	l.t.Helper()
	const width = 12 // timestamp 8, relative offset 4
	asked := map[string]map[int64]bool{}
	for _, file := range timeIndexes {
		data, err := os.ReadFile(file)
		if err != nil {
			l.t.Fatal(err)
		}
		dir := filepath.Base(filepath.Dir(file))
		if asked[dir] == nil {
			asked[dir] = map[int64]bool{}
		}
		for ; len(data) >= width; data = data[width:] {
			asked[dir][int64(binary.BigEndian.Uint64(data))] = true
		}
	}
	for dir, moments := range asked {
		at := strings.LastIndexByte(dir, '-')
		topic, number := dir[:at], dir[at+1:]
		partition, err := strconv.ParseInt(number, 10, 32)
		if err != nil {
			l.t.Fatal(err)
		}
		history := l.history(int32(partition))
		for ms := range moments {
			got := offsetAt(l.t, c, topic, int32(partition), ms)
			if want := history.since(ms); topic == l.topic && got != want {
				l.t.Errorf("%s, time %d: offset %d, want %d", dir, ms, got, want)
			}
		}
		times += len(moments)
	}
	return times
}

// history is what was acknowledged of a partition, all of whose records were.
func (l *ledger) history(partition int32) partitionHistory {
	times := make([]int64, len(l.acked[partition]))
	for offset := range times {
		times[offset] = l.acked[partition][int64(offset)].timestamp
	}
	return partitionHistory{times: times}
}

func keys[K comparable, V any](m map[K]V) (list []K) {
	for k := range m {
		list = append(list, k)
	}
	return list
}

// valueAt reads the record at an offset, up to the last slash of its value.
func valueAt(t testing.TB, c *kgo.Client, topic string, partition int32, offset int64) string {
	t.Helper()
	batches, err := fetchAt(c, topic, partition, offset)
	if err != nil {
		t.Errorf("fetch %s-%d at %d: %v", topic, partition, offset, err)
		return ""
	}
	for len(batches) > 0 {
		b, rest, err := record.Next(batches)
		if err != nil {
			break
		}
		if err := b.Check(); err != nil {
			t.Errorf("%s-%d at %d: %v", topic, partition, offset, err)
			return ""
		}
		for r, err := range record.Records(b, 1<<26) {
			if err != nil {
				t.Error(err)
				return ""
			}
			if int64(r.Offset) == offset {
				return string(r.Value[:bytes.LastIndexByte(r.Value, '/')+1])
			}
		}
		batches = rest
	}
	return ""
}

// fetchAt is what a fetch from an offset brings.
func fetchAt(c *kgo.Client, topic string, partition int32, offset int64) ([]byte, error) {
	request := kmsg.NewPtrFetchRequest()
	request.MaxWaitMillis, request.MaxBytes, request.SessionEpoch = 0, 1<<20, -1
	row := kmsg.NewFetchRequestTopicPartition()
	row.Partition, row.FetchOffset, row.PartitionMaxBytes = partition, offset, 64<<10
	request.Topics = []kmsg.FetchRequestTopic{{Topic: topic, Partitions: []kmsg.FetchRequestTopicPartition{row}}}
	response, err := c.Broker(1).RetriableRequest(context.Background(), atVersion(12, request))
	if err != nil {
		return nil, err
	}
	got := response.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	return got.RecordBatches, kerr.ErrorForCode(got.ErrorCode)
}

// offsetAt is the first offset with a timestamp of at least ms, or what a negative one stands for.
func offsetAt(t testing.TB, c *kgo.Client, topic string, partition int32, ms int64) int64 {
	t.Helper()
	request := kmsg.NewPtrListOffsetsRequest()
	topicRow := kmsg.NewListOffsetsRequestTopic()
	row := kmsg.NewListOffsetsRequestTopicPartition()
	row.Partition, row.Timestamp = partition, ms
	topicRow.Topic, topicRow.Partitions = topic, append(topicRow.Partitions, row)
	request.Topics = append(request.Topics, topicRow)
	response, err := c.Broker(1).RetriableRequest(context.Background(), atVersion(9, request))
	if err != nil {
		t.Error(err)
		return -1
	}
	got := response.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		t.Errorf("look-up of %d in %s-%d: %v", ms, topic, partition, err)
	}
	return got.Offset
}

// pinned is a request that a client sends in the version that it has.
type pinned struct{ kmsg.Request }

func (p pinned) MaxVersion() int16 { return p.GetVersion() }

func atVersion(v int16, request kmsg.Request) kmsg.Request {
	request.SetVersion(v)
	return pinned{request}
}

// reader is a consumer of a group; what it was told to have committed must not go back.
type reader struct {
	t      testing.TB
	client *kgo.Client
	group  string

	mu        sync.Mutex
	committed map[int32]int64
	commits   int
}

// read consumes and commits until ctx ends.
func (r *reader) read(ctx context.Context) {
	next := map[int32]int64{}
	for ctx.Err() == nil {
		fetches := r.client.PollFetches(ctx)
		fetches.EachError(func(_ string, p int32, err error) {
			var refused *kerr.Error
			if errors.As(err, &refused) && !refused.Retriable {
				r.t.Errorf("consumer, partition %d: %v", p, err)
			}
		})
		fetches.EachRecord(func(record *kgo.Record) { next[record.Partition] = record.Offset + 1 })
		if fetches.NumRecords() == 0 || r.client.CommitRecords(ctx, fetches.Records()...) != nil {
			continue // it goes on from where it is; what was not committed comes with the next
		}
		r.mu.Lock()
		for p, offset := range next {
			r.committed[p] = max(r.committed[p], offset)
		}
		r.commits++
		r.mu.Unlock()
	}
}

// check compares what the coordinator has with what it acknowledged.
func (r *reader) check(admin *kadm.Client, topic string) {
	r.t.Helper()
	r.mu.Lock()
	owed := maps.Clone(r.committed)
	r.mu.Unlock()
	var offsets kadm.OffsetResponses
	eventually(r.t, "the coordinator tells the group's offsets", func() (ok bool) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		var err error
		offsets, err = admin.FetchOffsets(ctx, r.group)
		return err == nil && offsets.Error() == nil // connections of before the kill end first
	})
	for p, offset := range owed {
		if got, ok := offsets.Lookup(topic, p); !ok || got.At < offset {
			r.t.Errorf("group offset of partition %d went back to %d from %d", p, got.At, offset)
		}
	}
}
