package broker_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker"
	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/api/apitest"
	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// patience is how long anything may take that is expected.
const patience = 20 * time.Second

// rig is a running broker in a temporary directory.
type rig struct {
	t        testing.TB
	dir      string
	settings []string
	broker   *broker.Broker
	addr     string
	warnings output // of all its brokers
}

// output is what a log got.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// startBroker starts a broker with Kafka's defaults, but for what makes a test wait. settings are key=value.
func startBroker(t testing.TB, settings ...string) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), settings: settings}
	r.start()
	t.Cleanup(r.stop)
	return r
}

func (r *rig) start() {
	r.t.Helper()
	defaults := []string{
		"node.id=1", "listeners=PLAINTEXT://127.0.0.1:0", "admin.listener=127.0.0.1:0", "cluster.listener=127.0.0.1:0",
		"log.dirs=" + filepath.Join(r.dir, "logs"), "store.url=file://" + filepath.Join(r.dir, "store"),
		"offsets.topic.replication.factor=1", "offsets.topic.num.partitions=1", "group.initial.rebalance.delay.ms=0",
	}
	settings, _, err := config.Parse([]config.Source{
		{Format: config.Properties, Name: "test", Text: strings.Join(defaults, "\n")},
		{Format: config.Flags, Name: "test", Pairs: r.settings},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r.broker, err = broker.Start(ctx, settings, slog.New(slog.NewTextHandler(&r.warnings, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		r.t.Fatal(err)
	}
	r.addr = r.broker.Addresses()[0]
}

func (r *rig) stop() {
	r.t.Helper()
	if r.broker == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.broker.Close(ctx); err != nil {
		r.t.Error(err)
	}
	r.broker = nil
}

// restart stops the broker cleanly and starts it again, at another address.
func (r *rig) restart(settings ...string) {
	r.t.Helper()
	r.stop()
	r.settings = append(r.settings, settings...)
	r.start()
}

// wipe stops the broker cleanly, takes its log directories away, and starts it again.
func (r *rig) wipe() {
	r.t.Helper()
	r.stop()
	if err := os.RemoveAll(filepath.Join(r.dir, "logs")); err != nil {
		r.t.Fatal(err)
	}
	r.start()
}

// client is a client of franz-go, closed with the test.
func (r *rig) client(options ...kgo.Opt) *kgo.Client {
	r.t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(r.addr)}, options...)...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	return c
}

// create makes a topic, with settings as key=value.
func (r *rig) create(topic string, partitions int32, settings ...string) {
	r.t.Helper()
	configs := map[string]*string{}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		configs[key] = &value
	}
	admin := kadm.NewClient(r.client())
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := admin.CreateTopic(ctx, partitions, 1, configs, topic); err != nil {
		r.t.Fatalf("create %s: %v", topic, err)
	}
}

// conn is one connection of which a test decides every byte.
type conn struct {
	t testing.TB
	net.Conn
	correlation int32
}

// dial connects, for as long as the test runs.
func (r *rig) dial() *conn {
	r.t.Helper()
	nc, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	c := &conn{t: r.t, Conn: nc}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// send sends a request, in the version that is set in it.
func (c *conn) send(request kmsg.Request) {
	c.t.Helper()
	c.correlation++
	frame := apitest.Frame(wire.APIKey(request.Key()), request.GetVersion(), c.correlation, request.AppendTo(nil))
	if _, err := c.Write(frame); err != nil {
		c.t.Fatal(err)
	}
}

// receive reads the next answer's correlation id and body. ok is false when the broker has closed the connection.
func (c *conn) receive() (correlation int32, body []byte, ok bool) {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		c.t.Fatal(err)
	}
	var head [8]byte
	_, err := io.ReadFull(c, head[:])
	if err == nil {
		body = make([]byte, binary.BigEndian.Uint32(head[:])-4)
		_, err = io.ReadFull(c, body)
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		c.t.Fatal("the broker does not answer")
	}
	return int32(binary.BigEndian.Uint32(head[4:])), body, err == nil
}

// ask sends a request and reads its answer.
func ask[R kmsg.Response](c *conn, request kmsg.Request) R {
	c.t.Helper()
	c.send(request)
	return answer[R](c, request)
}

// answer reads the answer to a request, which must be the next on the connection.
func answer[R kmsg.Response](c *conn, request kmsg.Request) R {
	c.t.Helper()
	_, body, ok := c.receive()
	if !ok {
		c.t.Fatalf("the broker closed the connection upon %T version %d", request, request.GetVersion())
	}
	response := request.ResponseKind()
	response.SetVersion(request.GetVersion())
	if api.FlexibleHeader(wire.APIKey(request.Key()), request.GetVersion()) && request.Key() != 18 {
		body = body[1:]
	}
	if err := response.ReadFrom(body); err != nil {
		c.t.Fatalf("decode %T version %d: %v", response, request.GetVersion(), err)
	}
	return response.(R)
}

// closed tells that the broker answers with nothing but the end of the connection.
func (c *conn) closed() bool {
	c.t.Helper()
	_, _, ok := c.receive()
	return !ok
}

// version sets a request's version.
func version[R kmsg.Request](v int16, request R) R {
	request.SetVersion(v)
	return request
}

// wantServing fails the test unless the broker serves a plain round of produce, fetch and commit on a connection.
func (r *rig) wantServing() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	const topic, group = "still-serving", "still-serving"
	c := r.client(kgo.DefaultProduceTopic(topic), kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics(topic),
		kgo.ConsumerGroup(group), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	defer c.Close() // leaves the group
	want := time.Now().String()
	if err := c.ProduceSync(ctx, kgo.StringRecord(want)).FirstErr(); err != nil {
		r.t.Fatalf("the broker does not take records any more: %v", err)
	}
	for found := false; !found; {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			r.t.Fatalf("the broker does not give records any more: %v", err)
		}
		fetches.EachRecord(func(record *kgo.Record) { found = found || string(record.Value) == want })
	}
	if err := c.CommitUncommittedOffsets(ctx); err != nil {
		r.t.Fatalf("the broker does not take offsets any more: %v", err)
	}
}

// topicID is a topic's id.
func (r *rig) topicID(topic string) [16]byte {
	r.t.Helper()
	request := kmsg.NewPtrMetadataRequest()
	row := kmsg.NewMetadataRequestTopic()
	row.Topic = &topic
	request.Topics = append(request.Topics, row)
	return ask[*kmsg.MetadataResponse](r.dial(), version(12, request)).Topics[0].TopicID
}

// batchOf is a batch of a record for each timestamp, whose keys are k and values their numbers.
func batchOf(t testing.TB, w record.Builder, timestamps ...int64) record.Batch {
	t.Helper()
	for i, ts := range timestamps {
		w.Append(ts, []byte("k"), []byte{byte(i)})
	}
	b, err := w.Build()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// produce asks for one batch to be appended to partition 0, with acks=all.
func (c *conn) produce(v int16, topic string, records []byte) kmsg.ProduceResponseTopicPartition {
	c.t.Helper()
	return ask[*kmsg.ProduceResponse](c, version(v, produceOf(topic, 0, records))).Topics[0].Partitions[0]
}

// produceOf is a request with acks=all for one partition.
func produceOf(topic string, partition int32, records []byte) *kmsg.ProduceRequest {
	request := kmsg.NewPtrProduceRequest()
	request.Acks, request.TimeoutMillis = -1, 10_000
	request.Topics = []kmsg.ProduceRequestTopic{{
		Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: partition, Records: records}},
	}}
	return request
}

// fetchOf is a request that does not wait, for partition 0 of topics, from an offset on.
func fetchOf(offset int64, topics ...string) *kmsg.FetchRequest {
	request := kmsg.NewPtrFetchRequest()
	request.MaxWaitMillis, request.MinBytes, request.MaxBytes, request.SessionEpoch = 0, 0, 50<<20, -1
	for _, topic := range topics {
		row := kmsg.NewFetchRequestTopicPartition()
		row.FetchOffset, row.PartitionMaxBytes = offset, 1<<20
		request.Topics = append(request.Topics, kmsg.FetchRequestTopic{Topic: topic, Partitions: []kmsg.FetchRequestTopicPartition{row}})
	}
	return request
}

// nextOffset is the end of partition 0.
func (c *conn) nextOffset(topic string) int64 {
	c.t.Helper()
	return c.listOffsets(11, topic, 0, -1)[0].Offset
}

// listOffsets asks for the offset of a timestamp in some partitions.
func (c *conn) listOffsets(v int16, topic string, partition int32, timestamp int64) []kmsg.ListOffsetsResponseTopicPartition {
	c.t.Helper()
	return ask[*kmsg.ListOffsetsResponse](c, version(v, listOffsetsOf(topic, partition, timestamp))).Topics[0].Partitions
}

func listOffsetsOf(topic string, partition int32, timestamps ...int64) *kmsg.ListOffsetsRequest {
	request := kmsg.NewPtrListOffsetsRequest()
	row := kmsg.NewListOffsetsRequestTopic()
	row.Topic = topic
	for _, ts := range timestamps {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = partition, ts
		row.Partitions = append(row.Partitions, p)
	}
	request.Topics = append(request.Topics, row)
	return request
}
