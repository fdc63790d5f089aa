package replica_test

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

const self wire.BrokerID = 1

// rig is a Manager over files in memory, at a time that only the test moves.
type rig struct {
	t      testing.TB
	fs     vfs.FS
	dir    string
	now    time.Time
	config *config.Broker
	logs   *log.Manager
	m      *replica.Manager
	image  *metadata.Image
	tier   replica.Tier // nil: none

	uuids uint64     // log directories and topics so far
	mu    sync.Mutex // guards wakes and marks
	wakes []time.Time
	marks map[wire.TopicPartition]wire.Offset // as Options.HighWatermark told
}

func newRig(t testing.TB, settings ...string) *rig {
	return newRigOn(t, vfs.NewMem(), "/data", settings...)
}

func newRigOn(t testing.TB, fs vfs.FS, dir string, settings ...string) *rig {
	t.Helper()
	c, _, err := config.Parse([]config.Source{{Format: config.Flags, Pairs: append([]string{"node.id=1", "log.dirs=" + dir, "tier.enable=false"}, settings...)}})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, fs: fs, dir: dir, now: start, config: c}
	r.open()
	var brokers []metadata.Record
	for id := self; id <= 3; id++ {
		brokers = append(brokers, &metadata.BrokerRegistrationRecord{Broker: metadata.Broker{
			ID: id, Epoch: wire.BrokerEpoch(id - 1), Incarnation: fmt.Sprint("incarnation-", id), CleanStopEpoch: -1,
			Listeners: []metadata.Listener{{Name: "PLAINTEXT", Host: "localhost", Port: 9092, Protocol: "PLAINTEXT"}},
		}})
	}
	r.commit(brokers...)
	return r
}

// forget stops, and begins with the files as they are and an image of nothing.
func (r *rig) forget() {
	r.t.Helper()
	if err := r.logs.Close(r.now, 1); err != nil {
		r.t.Fatal(err)
	}
	r.image = nil
	r.open()
}

// open begins with the files as they are, and the image as it was.
func (r *rig) open() {
	r.t.Helper()
	logs, err := log.OpenManager(r.now, log.ManagerOptions{
		FS: r.fs, Dirs: []string{r.dir}, ClusterID: "cluster", BrokerID: self, BootID: "boot",
		DefaultConfig: func(string) config.Topic { c, _ := config.ResolveTopic(r.config, nil); return c },
		NewUUID:       r.uuid,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.logs, r.marks = logs, map[wire.TopicPartition]wire.Offset{}
	r.m = replica.New(replica.Options{
		Self: self, Logs: logs, Config: r.config, Tier: r.tier,
		Wake: func(at time.Time) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.wakes = append(r.wakes, at)
		},
		HighWatermark: func(_ time.Time, tp wire.TopicPartition, offset wire.Offset) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.marks[tp] = max(offset, r.marks[tp])
		},
	})
	if r.image == nil {
		r.image = metadata.Empty()
	}
	r.m.Apply(r.now, r.image, r.image.Since(metadata.Empty()))
}

func (r *rig) uuid() (id [16]byte) {
	r.uuids++
	binary.BigEndian.PutUint64(id[8:], r.uuids)
	return id
}

// restart stops the broker cleanly and starts it again.
func (r *rig) restart() {
	r.t.Helper()
	if err := r.logs.Close(r.now, 1); err != nil {
		r.t.Fatal(err)
	}
	r.open()
}

func (r *rig) commit(records ...metadata.Record) {
	r.t.Helper()
	image, delta, err := r.image.Apply(r.image.Offset()+1, records)
	if err != nil {
		r.t.Fatal(err)
	}
	r.image = image
	r.m.Apply(r.now, image, delta)
}

// topic is a topic to be created.
type topic struct {
	partitions int             // 1 if 0
	replicas   []wire.BrokerID // of each; this broker alone if nil
	isr        []wire.BrokerID // all replicas if nil
	leader     wire.BrokerID   // this broker if 0
	configs    map[string]string
}

func (r *rig) create(name string, o topic) wire.TopicID {
	r.t.Helper()
	id := wire.TopicID(r.uuid())
	records := []metadata.Record{&metadata.TopicRecord{Name: name, ID: id}}
	if o.replicas == nil {
		o.replicas = []wire.BrokerID{self}
	}
	if o.isr == nil {
		o.isr = o.replicas
	}
	if o.leader == 0 {
		o.leader = self
	}
	for i := range max(o.partitions, 1) {
		records = append(records, &metadata.PartitionRecord{TopicID: id, Index: int32(i), Partition: metadata.Partition{
			Replicas: o.replicas, Directories: make([]string, len(o.replicas)), ISR: o.isr, Leader: o.leader,
		}})
	}
	for key, value := range o.configs {
		records = append(records, &metadata.ConfigRecord{
			ResourceType: metadata.TopicResource, ResourceName: name, Name: key, Value: &value,
		})
	}
	r.commit(records...)
	return id
}

// lead gives partition 0 of a topic a leader under a new epoch.
func (r *rig) lead(id wire.TopicID, leader wire.BrokerID) {
	r.t.Helper()
	p := r.image.TopicByID(id).Partitions[0]
	epoch := p.LeaderEpoch + 1
	r.commit(&metadata.PartitionChangeRecord{
		TopicID: id, PartitionEpoch: p.PartitionEpoch + 1, Leader: &leader, LeaderEpoch: &epoch,
	})
}

func (r *rig) configure(name, key, value string) {
	r.t.Helper()
	r.commit(&metadata.ConfigRecord{ResourceType: metadata.TopicResource, ResourceName: name, Name: key, Value: &value})
}

// batchOf makes a batch of n records of about size bytes each, at the rig's time.
func (r *rig) batchOf(n, size int, change ...func(*record.Builder)) record.Batch {
	r.t.Helper()
	var b record.Builder
	for _, f := range change {
		f(&b)
	}
	for i := range n {
		b.Append(r.now.UnixMilli()+int64(i), fmt.Appendf(nil, "key-%d", i), make([]byte, size))
	}
	batch, err := b.Build()
	if err != nil {
		r.t.Fatal(err)
	}
	return batch
}

func producer(id wire.ProducerID, epoch wire.ProducerEpoch, sequence int32) func(*record.Builder) {
	return func(b *record.Builder) {
		b.Producer = &record.Producer{ID: id, Epoch: epoch, Sequence: sequence}
	}
}

func codec(c record.Codec) func(*record.Builder) {
	return func(b *record.Builder) { b.Compression = record.Compression{Codec: c} }
}

// pending is the outcome of a call with a done function.
type pending[R any] struct {
	t       testing.TB
	results []R
	calls   int
}

func (p *pending[R]) done(results []R) { p.results, p.calls = results, p.calls+1 }

// now is the one result of a call that must have ended.
func (p *pending[R]) now() R {
	p.t.Helper()
	if p.calls != 1 || len(p.results) != 1 {
		p.t.Fatalf("ended %d times with %d results", p.calls, len(p.results))
	}
	return p.results[0]
}

func (p *pending[R]) waits() {
	p.t.Helper()
	if p.calls != 0 {
		p.t.Fatalf("ended with %+v", p.results)
	}
}

func (r *rig) produceAll(request *replica.ProduceRequest) *pending[replica.ProduceResult] {
	r.t.Helper()
	p := &pending[replica.ProduceResult]{t: r.t}
	r.m.Produce(r.now, request, p.done)
	return p
}

func (r *rig) produce(topic string, acks int16, batch record.Batch) *pending[replica.ProduceResult] {
	r.t.Helper()
	return r.produceAll(&replica.ProduceRequest{
		Acks: acks, Timeout: 10 * time.Second, ZstdAllowed: true,
		Partitions: []replica.ProducePartition{{Topic: topic, Records: batch}},
	})
}

// put appends n small batches of one record.
func (r *rig) put(topic string, n int) {
	r.t.Helper()
	for range n {
		if got := r.produce(topic, 1, r.batchOf(1, 10)).now(); got.Code != wire.None {
			r.t.Fatal(got.Code, got.Message)
		}
	}
}

func asks(topic string, from wire.Offset) replica.FetchPartition {
	return replica.FetchPartition{
		Topic: topic, FetchOffset: from, MaxBytes: 1 << 20,
		CurrentLeaderEpoch: wire.NoLeaderEpoch, LastFetchedEpoch: wire.NoLeaderEpoch, LogStartOffset: wire.NoOffset,
	}
}

func (r *rig) fetchAll(request *replica.FetchRequest) *pending[replica.FetchResult] {
	r.t.Helper()
	p := &pending[replica.FetchResult]{t: r.t}
	r.m.Fetch(r.now, request, p.done)
	return p
}

// fetch is a consumer's, that waits for half a second.
func (r *rig) fetch(partitions ...replica.FetchPartition) *pending[replica.FetchResult] {
	r.t.Helper()
	return r.fetchAll(&replica.FetchRequest{
		ReplicaID: replica.ConsumerID, MaxWait: 500 * time.Millisecond, MinBytes: 1, MaxBytes: 50 << 20,
		Partitions: partitions,
	})
}

// follow is the fetch of a follower that has all below end.
func (r *rig) follow(broker wire.BrokerID, topic string, end wire.Offset) *pending[replica.FetchResult] {
	r.t.Helper()
	asked := asks(topic, end)
	asked.LogStartOffset = 0
	return r.fetchAll(&replica.FetchRequest{
		ReplicaID: broker, ReplicaEpoch: wire.BrokerEpoch(broker - 1), MinBytes: 1, MaxBytes: 10 << 20,
		Partitions: []replica.FetchPartition{asked},
	})
}

// offsets lists the base offsets of the whole batches in a result and releases it.
func (r *rig) offsets(result replica.FetchResult) []wire.Offset {
	r.t.Helper()
	var bases []wire.Offset
	for _, b := range r.batches(result) {
		bases = append(bases, b.BaseOffset())
	}
	return bases
}

func (r *rig) batches(result replica.FetchResult) []record.Batch {
	r.t.Helper()
	if result.Records.Length == 0 {
		return nil
	}
	defer result.Records.Release()
	data := make([]byte, result.Records.Length)
	if _, err := result.Records.File.ReadAt(data, result.Records.Offset); err != nil {
		r.t.Fatal(err)
	}
	var batches []record.Batch
	for {
		b, rest, err := record.Next(data)
		if err != nil {
			return batches
		}
		if err := b.Check(); err != nil {
			r.t.Fatal(err)
		}
		batches, data = append(batches, b), rest
	}
}

func (r *rig) sleep(d time.Duration) *metadata.AlterPartition {
	r.now = r.now.Add(d)
	return r.m.Advance(r.now)
}

func (r *rig) info(topic string) replica.PartitionInfo {
	r.t.Helper()
	info, ok := r.m.Partition(wire.TopicPartition{Topic: topic})
	if !ok {
		r.t.Fatalf("%s-0 is not here", topic)
	}
	return info
}

func (r *rig) remove(id wire.TopicID) {
	r.t.Helper()
	r.commit(&metadata.RemoveTopicRecord{ID: id})
}

// decide lets the controller accept proposals: the leader hears it as an answer.
func (r *rig) decide(asked *metadata.AlterPartition) {
	r.t.Helper()
	answer := &metadata.AlterPartitionAnswer{}
	for _, p := range asked.Partitions {
		d := metadata.DecidedISR{
			TopicID: p.TopicID, Partition: p.Partition, Leader: self,
			LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch + 1,
		}
		for _, m := range p.ISR {
			d.ISR = append(d.ISR, m.BrokerID)
		}
		answer.Partitions = append(answer.Partitions, d)
	}
	r.m.ISRDecided(r.now, asked, answer)
}
