package crash

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// history is what a producer wrote to a topic: what a reader of everything has to find, and what look-ups by time answer.
type history struct {
	topic string
	log   []partitionHistory
}

type partitionHistory struct {
	times    []int64 // of the records, by offset
	checksum uint32
}

const recordSize = 1000

// text is what values are cut from: a line without blanks that hardly repeats.
var text = sync.OnceValue(func() []byte {
	random := rand.New(rand.NewPCG(7, 7))
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = 'A' + byte(random.IntN(26))
	}
	return b
})

// value of a record, for which it is enough to know where it is.
func value1000(partition int32, offset int64) []byte {
	b := fmt.Appendf(make([]byte, 0, recordSize), "%d/%d/", partition, offset)
	from := (offset*7919 + int64(partition)) % int64(len(text())-recordSize)
	return append(b, text()[from:from+int64(recordSize-len(b))]...)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum of the records up to one, from that of those before it.
func checksum(sum uint32, offset, timestamp int64, value []byte) uint32 {
	sum = crc32.Update(sum, castagnoli, fmt.Appendf(nil, "%d %d ", offset, timestamp))
	return crc32.Update(sum, castagnoli, value)
}

// write has one producer write so many bytes to a topic. Timestamps go up, but not from each record to the next.
func (b *broker) write(topic string, partitions int32, size int64) *history {
	b.t.Helper()
	h := &history{topic: topic, log: make([]partitionHistory, partitions)}
	random := rand.New(rand.NewPCG(1, uint64(size)))
	start := time.Now().Add(-24 * time.Hour).UnixMilli()
	c := b.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(20_000))
	defer c.Close()
	for offset := range size / int64(partitions) / recordSize {
		for p := range partitions {
			timestamp := start + offset*3 + random.Int64N(200)
			if random.IntN(1000) == 0 {
				timestamp -= 10_000
			}
			l, v := &h.log[p], value1000(p, offset)
			l.times, l.checksum = append(l.times, timestamp), checksum(l.checksum, offset, timestamp, v)
			r := &kgo.Record{Topic: topic, Partition: p, Value: v, Timestamp: time.UnixMilli(timestamp)}
			c.Produce(context.Background(), r, func(r *kgo.Record, err error) {
				if err != nil || r.Offset != offset {
					b.t.Errorf("partition %d: record %d got offset %d: %v", p, offset, r.Offset, err)
				}
			})
		}
		if b.t.Failed() {
			b.t.FailNow()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.Flush(ctx); err != nil {
		b.t.Fatal(err)
	}
	return h
}

func (h *history) records() (n int) {
	for _, l := range h.log {
		n += len(l.times)
	}
	return n
}

// reading is what came of reading it all.
type reading struct {
	t    testing.TB
	who  string
	next []int64
	sums []uint32
}

func (h *history) reading(t testing.TB, who string) *reading {
	return &reading{t: t, who: who, next: make([]int64, len(h.log)), sums: make([]uint32, len(h.log))}
}

func (r *reading) add(partition int32, offset, timestamp int64, value []byte) {
	if offset != r.next[partition] {
		r.t.Fatalf("%s, partition %d: offset %d comes where %d should", r.who, partition, offset, r.next[partition])
	}
	r.next[partition]++
	r.sums[partition] = checksum(r.sums[partition], offset, timestamp, value)
}

// compare fails the test unless all was read as it was written.
func (h *history) compare(r *reading) {
	r.t.Helper()
	for p, l := range h.log {
		if r.next[p] != int64(len(l.times)) || r.sums[p] != l.checksum {
			r.t.Errorf("%s, partition %d: %d records of checksum %08x, want %d of %08x", r.who, p, r.next[p], r.sums[p], len(l.times), l.checksum)
		}
	}
}

// consume reads everything by a consumer with its defaults.
func (h *history) consume(b *broker, options ...kgo.Opt) *reading {
	b.t.Helper()
	r := h.reading(b.t, "franz-go")
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.Address), kgo.ConsumeTopics(h.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}, options...)...)
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close()
	for left := h.records(); left > 0; {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		fetches := c.PollFetches(ctx)
		cancel()
		if err := fetches.Err(); err != nil {
			b.t.Fatalf("franz-go at %v: %v", r.next, err)
		}
		fetches.EachRecord(func(got *kgo.Record) {
			r.add(got.Partition, got.Offset, got.Timestamp.UnixMilli(), got.Value)
			left--
		})
	}
	return r
}

// parse reads what a program prints, a line a record: CreateTime:1, Partition:2, Offset:3, and the value, between tabs.
func (h *history) parse(t testing.TB, who string, program ...string) *reading {
	t.Helper()
	r := h.reading(t, who)
	cmd := exec.CommandContext(t.Context(), program[0], program[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	number := func(field []byte) int64 {
		_, digits, _ := bytes.Cut(field, []byte{':'})
		n, err := strconv.ParseInt(string(digits), 10, 64)
		if err != nil {
			t.Fatalf("%s: %q", who, field)
		}
		return n
	}
	for lines := bufio.NewReaderSize(out, 1<<20); ; {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF {
			break
		}
		fields := bytes.SplitN(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\t'}, 4)
		if err != nil || len(fields) != 4 {
			t.Fatalf("%s prints %.100q: %v", who, line, err)
		}
		r.add(int32(number(fields[1])), number(fields[2]), number(fields[0]), fields[3])
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v\n%s", who, err, stderr.String())
	}
	return r
}

// since is the first offset of a partition with a timestamp of at least ms, by looking at each; -1 if there is none.
func (l partitionHistory) since(ms int64) int64 {
	return int64(slices.IndexFunc(l.times, func(t int64) bool { return t >= ms }))
}

// newest is the first offset with the largest timestamp.
func (l partitionHistory) newest() int64 { return l.since(slices.Max(l.times)) }

// moments are times to look for: of some records, a little before and behind, and before and behind all.
func (l partitionHistory) moments(random *rand.Rand, n int) []int64 {
	list := []int64{0, slices.Min(l.times), slices.Max(l.times), slices.Max(l.times) + 1}
	for len(list) < n {
		list = append(list, l.times[random.IntN(len(l.times))]+int64(random.IntN(3)-1))
	}
	slices.Sort(list)
	return list
}
