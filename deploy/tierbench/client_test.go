package tierbench

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/record"
)

// conn is a connection to the broker that costs little: what it reads goes into one buffer, and is not looked at but for offsets.
type conn struct {
	c         net.Conn
	formatter *kmsg.RequestFormatter
	out, in   []byte
}

func (r *broker) dial() *conn {
	r.b.Helper()
	c, err := connect(r.Address)
	if err != nil {
		r.b.Fatal(err)
	}
	return c
}

func connect(address string) (*conn, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &conn{c: c, formatter: kmsg.NewRequestFormatter(kmsg.FormatterClientID("tierbench"))}, nil
}

func (c *conn) close() { _ = c.c.Close() }

func (c *conn) send(q kmsg.Request) error {
	c.out = c.formatter.AppendRequest(c.out[:0], q, 1)
	_, err := c.c.Write(c.out)
	return err
}

// receive reads an answer, which lies in the connection's buffer until the next one.
func (c *conn) receive(a kmsg.Response) error {
	var size [4]byte
	if _, err := io.ReadFull(c.c, size[:]); err != nil {
		return err
	}
	n := int(binary.BigEndian.Uint32(size[:]))
	if cap(c.in) < n {
		c.in = make([]byte, n+n/4)
	}
	body := c.in[:n]
	if _, err := io.ReadFull(c.c, body); err != nil {
		return err
	}
	body = body[4:]
	if a.IsFlexible() {
		body = body[1:] // no tags
	}
	return a.ReadFrom(body)
}

// cursor is a reader's place in a partition.
type cursor struct {
	topic     string
	partition int32
	offset    int64
	end       int64
}

// Sizes of a consumer with its defaults.
const (
	partitionBytes = 1 << 20
	fetchBytes     = 50 << 20
)

// fetch asks once for the cursors that are not at their ends, moves them, and returns how many bytes of records came.
func (c *conn) fetch(cursors []cursor) (n int64, err error) {
	q := kmsg.NewPtrFetchRequest()
	q.Version, q.MaxWaitMillis, q.MinBytes, q.MaxBytes, q.SessionEpoch = 12, 500, 1, fetchBytes, -1
	for _, at := range cursors {
		if at.offset < at.end {
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition, p.FetchOffset, p.PartitionMaxBytes = at.partition, at.offset, partitionBytes
			if last := len(q.Topics) - 1; last >= 0 && q.Topics[last].Topic == at.topic {
				q.Topics[last].Partitions = append(q.Topics[last].Partitions, p)
			} else {
				q.Topics = append(q.Topics, kmsg.FetchRequestTopic{Topic: at.topic, Partitions: []kmsg.FetchRequestTopicPartition{p}})
			}
		}
	}
	if err := c.send(q); err != nil {
		return 0, err
	}
	a := kmsg.NewPtrFetchResponse()
	a.Version = q.Version
	if err := c.receive(a); err != nil {
		return 0, err
	}
	for _, t := range a.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return n, fmt.Errorf("%s-%d: error code %d", t.Topic, p.Partition, p.ErrorCode)
			}
			n += int64(len(p.RecordBatches))
			if next, ok := nextOffset(p.RecordBatches); ok {
				for i := range cursors {
					if cursors[i].topic == t.Topic && cursors[i].partition == p.Partition {
						cursors[i].offset = next
					}
				}
			}
		}
	}
	return n, nil
}

// nextOffset is that behind the last whole batch.
func nextOffset(b []byte) (next int64, ok bool) {
	for len(b) >= record.HeaderSize {
		size, err := record.SizeOf(b)
		if err != nil || size > len(b) {
			break
		}
		next, ok = int64(record.Batch(b[:record.HeaderSize]).NextOffset()), true
		b = b[size:]
	}
	return next, ok
}

// read fetches until all cursors are at their ends.
func (r *broker) read(cursors ...cursor) (n int64) {
	r.b.Helper()
	c := r.dial()
	defer c.close()
	for {
		left := false
		for _, at := range cursors {
			left = left || at.offset < at.end
		}
		if !left {
			return n
		}
		got, err := c.fetch(cursors)
		if err != nil {
			r.b.Error(err)
			return n
		}
		n += got
	}
}

// The special timestamps of ListOffsets.
const (
	latest        = -1
	earliest      = -2
	earliestLocal = -4
	latestTiered  = -5
)

// offset is what ListOffsets says to a time.
func (r *broker) offset(topic string, partition int32, timestamp int64) int64 {
	r.b.Helper()
	offset, code := r.tryOffset(topic, partition, timestamp)
	if code != 0 {
		r.b.Fatalf("list offsets of %s-%d: error code %d", topic, partition, code)
	}
	return offset
}

func (r *broker) tryOffset(topic string, partition int32, timestamp int64) (offset int64, code int16) {
	r.b.Helper()
	c := r.dial()
	defer c.close()
	q := kmsg.NewPtrListOffsetsRequest()
	q.Version, q.ReplicaID = 9, -1
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, timestamp
	q.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	if err := c.send(q); err != nil {
		r.b.Fatal(err)
	}
	a := kmsg.NewPtrListOffsetsResponse()
	a.Version = q.Version
	if err := c.receive(a); err != nil {
		r.b.Fatal(err)
	}
	return a.Topics[0].Partitions[0].Offset, a.Topics[0].Partitions[0].ErrorCode
}

// batch is one of so many bytes, in records of 1 KiB.
func batch(b testing.TB, bytes int) record.Batch {
	b.Helper()
	var w record.Builder
	value := make([]byte, 1000)
	for i := range value {
		value[i] = byte(i * 7)
	}
	for range max(bytes/1024, 1) {
		w.Append(time.Now().UnixMilli(), nil, value)
	}
	built, err := w.Build()
	if err != nil {
		b.Fatal(err)
	}
	return built
}

// producer writes to one partition over one connection, several requests at a time.
type producer struct {
	*conn
	b     testing.TB
	q     *kmsg.ProduceRequest
	sent  chan time.Time // when each request that is out was due
	done  chan struct{}
	after func(due time.Time, offset int64) // called by its goroutine for each answer
}

// producerDepth is how many requests may be out.
const producerDepth = 256

func (r *broker) producer(topic string, partition int32, batch record.Batch, after func(due time.Time, offset int64)) *producer {
	r.b.Helper()
	q := kmsg.NewPtrProduceRequest()
	q.Version, q.Acks, q.TimeoutMillis = 9, 1, 30_000
	q.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: partition, Records: batch}}}}
	p := &producer{conn: r.dial(), b: r.b, q: q, sent: make(chan time.Time, producerDepth), done: make(chan struct{}), after: after}
	go p.answers()
	return p
}

func (p *producer) answers() {
	defer close(p.done)
	a := kmsg.NewPtrProduceResponse()
	for due := range p.sent {
		*a = kmsg.NewProduceResponse()
		a.Version = p.q.Version
		if err := p.receive(a); err != nil {
			p.b.Error(err)
			for range p.sent { // the sender must not hang
			}
			return
		}
		answer := a.Topics[0].Partitions[0]
		if answer.ErrorCode != 0 {
			p.b.Errorf("produce: error code %d", answer.ErrorCode)
		}
		if p.after != nil {
			p.after(due, answer.BaseOffset)
		}
	}
}

// put sends the batch.
func (p *producer) put(due time.Time) {
	p.sent <- due
	if err := p.send(p.q); err != nil {
		p.b.Error(err)
	}
}

// finish waits for the last answers.
func (p *producer) finish() {
	close(p.sent)
	<-p.done
	p.close()
}

// fill writes so many bytes to each partition.
func (r *broker) fill(topic string, partitions int32, bytes int64) {
	r.b.Helper()
	b := batch(r.b, 128<<10)
	for p := range partitions {
		w := r.producer(topic, p, b, nil)
		for n := int64(0); n < bytes; n += int64(len(b)) {
			w.put(time.Time{})
		}
		w.finish()
	}
}

// paced calls do so often a second, on a fixed schedule from now on.
func paced(perSecond float64, d time.Duration, do func(due time.Time)) {
	begun := time.Now()
	for n := 0; ; n++ {
		due := begun.Add(time.Duration(float64(n) / perSecond * float64(time.Second)))
		if due.Sub(begun) >= d {
			return
		}
		time.Sleep(time.Until(due))
		do(due)
	}
}

// latencies are how long things took.
type latencies struct {
	mu  sync.Mutex
	all []time.Duration
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	l.all = append(l.all, d)
	l.mu.Unlock()
}

// quantile of what was added; NaN-free: 0 of nothing.
func (l *latencies) quantile(q float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return quantile(l.all, q)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func perGB(d time.Duration, bytes int64) float64 { return d.Seconds() / float64(bytes) * 1e9 }

func perSecond(bytes int64, d time.Duration) float64 { return float64(bytes) / 1e6 / d.Seconds() }

// best is the smallest of what alternating rounds gave.
func best(figures []float64) float64 {
	least := math.Inf(1)
	for _, f := range figures {
		least = min(least, f)
	}
	return least
}
