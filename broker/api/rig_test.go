package api_test

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/engine"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
)

// rig is a broker in memory that is driven by hand, and one connection to it.
type rig struct {
	t       *testing.T
	now     time.Time
	e       *engine.Engine
	woken   bool
	session *api.Session
}

// The brokers that a rig's cluster can have: itself, and one that leads partitions elsewhere.
const (
	self  = wire.BrokerID(1)
	other = wire.BrokerID(2)
)

// settings are a rig's.
func settings(t *testing.T, set ...string) *config.Broker {
	t.Helper()
	pairs := append([]string{
		"node.id=1", "listeners=PLAINTEXT://127.0.0.1:9092,SECOND://127.0.0.1:9093",
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT", "log.dirs=/d1", "store.url=mem://",
		"offsets.topic.replication.factor=1", "offsets.topic.num.partitions=2", "group.initial.rebalance.delay.ms=0",
	}, set...)
	parsed, _, err := config.Parse([]config.Source{{Format: config.Flags, Name: "test", Pairs: pairs}})
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func newRig(t *testing.T, set ...string) *rig {
	t.Helper()
	r := &rig{
		t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		session: &api.Session{ID: "c1", Listener: "PLAINTEXT", Client: netip.MustParseAddr("10.0.0.7"), Principal: "User:ANONYMOUS"},
	}
	var err error
	r.e, err = engine.Open(t.Context(), r.now, engine.Options{
		Config: settings(t, set...), FS: vfs.NewMem(), Store: memstore.New(func() time.Time { return r.now }),
		Advertised: listenersOf("one", 9092), Incarnation: "run1", BootID: "boot", Rand: rand.New(rand.NewPCG(1, 2)),
		Logger: slog.New(slog.DiscardHandler), Wake: func() { r.woken = true },
	})
	if err != nil {
		t.Fatal(err)
	}
	r.until("it serves", r.e.Serving)
	return r
}

func listenersOf(host string, port uint16) []metadata.Listener {
	return []metadata.Listener{
		{Name: "PLAINTEXT", Host: host, Port: port, Protocol: "PLAINTEXT"},
		{Name: "SECOND", Host: "second." + host, Port: port + 1, Protocol: "PLAINTEXT"},
	}
}

// turn does all that is due at this moment.
func (r *rig) turn() {
	for first := true; first || r.woken; first = false {
		r.woken = false
		r.e.Step(r.now)
		for tasks := r.e.Ready(); len(tasks) > 0; tasks = r.e.Ready() {
			for _, task := range tasks {
				r.e.Complete(r.now, task.Lane, task.Run(r.t.Context()))
			}
			r.e.Step(r.now)
		}
	}
}

// until lets the virtual time pass.
func (r *rig) until(what string, done func() bool) {
	r.t.Helper()
	deadline := r.now.Add(5 * time.Minute)
	for r.turn(); !done(); r.turn() {
		next := r.e.NextWake()
		if next.IsZero() || next.After(deadline) {
			r.t.Fatalf("nothing more happens before %s", what)
		}
		if next.Before(r.now.Add(time.Millisecond)) {
			next = r.now.Add(time.Millisecond)
		}
		r.now = next
	}
}

// send handles a request and waits for its reply.
func (r *rig) send(key wire.APIKey, version int16, body []byte) api.Reply {
	r.t.Helper()
	var replies []api.Reply
	id := "client"
	request := &api.Request{
		RequestHeader: wire.RequestHeader{Key: key, Version: version, CorrelationID: 77, ClientID: &id},
		Session:       r.session, Body: body, Arrived: r.now,
		Complete: func(reply api.Reply) { replies = append(replies, reply) },
	}
	if reply := r.e.Handle(r.now, request); reply.Outcome != api.Parked {
		replies = append(replies, reply)
	}
	r.until("the request is answered", func() bool { return len(replies) > 0 })
	if len(replies) != 1 {
		r.t.Fatalf("%d replies", len(replies))
	}
	return replies[0]
}

// frame is what goes over the wire, without the size.
func (r *rig) frame(reply api.Reply) []byte {
	r.t.Helper()
	var b []byte
	for _, part := range reply.Parts {
		b = append(b, part.Bytes...)
		if n := part.Range.Length; n > 0 {
			data := make([]byte, n)
			if _, err := part.Range.File.ReadAt(data, part.Range.Offset); err != nil {
				r.t.Fatal(err)
			}
			b = append(b, data...)
			part.Range.Release()
		}
	}
	return b
}

// body is the body of the answer to a request. It must be one that kmsg reads and writes again byte for byte: nothing is left
// over, and no field is there that the version does not have.
func (r *rig) body(request kmsg.Request, reply api.Reply) kmsg.Response {
	r.t.Helper()
	if reply.Outcome != api.Respond {
		r.t.Fatalf("outcome is %v", reply.Outcome)
	}
	b := r.frame(reply)
	response := request.ResponseKind()
	response.SetVersion(request.GetVersion())
	tags := response.IsFlexible() && request.Key() != 18
	if size := int(b[0])<<24 | int(b[1])<<16 | int(b[2])<<8 | int(b[3]); size != len(b)-4 {
		r.t.Fatalf("a frame of %d bytes says %d", len(b)-4, size)
	}
	correlation, body, err := wire.ParseResponseHeader(b[4:], tags)
	if err != nil || correlation != 77 {
		r.t.Fatalf("correlation id %d, %v", correlation, err)
	}
	if err := response.ReadFrom(body); err != nil {
		r.t.Fatalf("%d bytes are no answer: %v", len(body), err)
	}
	if again := response.AppendTo(nil); !bytes.Equal(again, body) {
		r.t.Fatalf("the answer is not as kmsg writes it:\n%x\n%x", body, again)
	}
	return response
}

// ask sends a request and reads the answer.
func ask[R kmsg.Response](r *rig, request kmsg.Request) R {
	r.t.Helper()
	return r.body(request, r.send(wire.APIKey(request.Key()), request.GetVersion(), request.AppendTo(nil))).(R)
}

// codes are all error codes in an answer, those of its rows too.
func codes(response kmsg.Response) []wire.Code {
	var found []wire.Code
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem())
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).Name == "ErrorCode" {
					found = append(found, wire.Code(v.Field(i).Int()))
				} else if v.Type().Field(i).IsExported() {
					walk(v.Field(i))
				}
			}
		}
	}
	walk(reflect.ValueOf(response))
	return found
}

// create makes a topic with one partition on each of the given brokers.
func (r *rig) create(topic string, brokers ...wire.BrokerID) {
	r.t.Helper()
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Version, request.TimeoutMillis = 5, 10_000
	row := kmsg.NewCreateTopicsRequestTopic()
	row.Topic, row.NumPartitions, row.ReplicationFactor = topic, -1, -1
	for i, b := range brokers {
		assigned := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		assigned.Partition, assigned.Replicas = int32(i), []int32{int32(b)}
		row.ReplicaAssignment = append(row.ReplicaAssignment, assigned)
	}
	if len(brokers) == 0 {
		row.NumPartitions, row.ReplicationFactor = 1, 1
	}
	request.Topics = append(request.Topics, row)
	if r := ask[*kmsg.CreateTopicsResponse](r, request).Topics[0]; r.ErrorCode != 0 {
		panic(wire.Code(r.ErrorCode))
	}
}

// join makes the other broker a member of the cluster.
func (r *rig) join() {
	r.t.Helper()
	var epoch wire.BrokerEpoch
	submit := func(change metadata.Change) (answer metadata.Answer) {
		done := false
		r.e.Submit(r.now, change, r.now.Add(time.Minute), func(a metadata.Answer, err error) {
			if err != nil {
				r.t.Fatal(err)
			}
			answer, done = a, true
		})
		r.until("the other broker is answered", func() bool { return done })
		return answer
	}
	epoch = submit(&metadata.RegisterBroker{
		BrokerID: other, ClusterID: r.e.ClusterID(), Incarnation: "other1", Directories: []string{"AAAAAAAAAAAAAAAAAAAABA"},
		Listeners: listenersOf("two", 9092), Rack: "far", CleanStopEpoch: -1, Features: metadata.SupportedFeatures(),
	}).(*metadata.RegisterBrokerAnswer).Epoch
	beat := &metadata.BrokerHeartbeat{BrokerID: other, BrokerEpoch: epoch, MetadataOffset: r.e.Image().Offset()}
	if submit(beat).(*metadata.BrokerHeartbeatAnswer).Fenced {
		r.t.Fatal("the other broker is fenced")
	}
}

// batch is a batch of n records.
func batch(t *testing.T, n int) []byte {
	t.Helper()
	var b record.Builder
	for i := range n {
		b.Append(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMilli(), []byte{byte(i)}, []byte("value"))
	}
	built, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// topicID of a topic that exists.
func (r *rig) topicID(name string) wire.TopicID {
	r.t.Helper()
	topic := r.e.Image().Topic(name)
	if topic == nil {
		r.t.Fatalf("no topic %s", name)
	}
	return topic.ID
}
