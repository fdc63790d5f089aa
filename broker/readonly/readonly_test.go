package readonly_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/readonly"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
	"github.com/tidemark-io/tidemark/tier/tiertest"
)

var topicID = wire.TopicID{7}

// rig is a bucket with a topic of two partitions, one of which has data, and a server over it.
type rig struct {
	t     *testing.T
	store object.Store
	*tiertest.Partition
	now    time.Time
	image  *metadata.Image
	today  *metadata.Image // where it is another one
	halted bool            // it can't be read
	server *readonly.Server
	uuids  byte
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, store: memstore.New(nil)}
	r.Partition = tiertest.New(t, r.store, "orders", topicID, 0)
	records := []metadata.Record{
		&metadata.BrokerRegistrationRecord{Broker: metadata.Broker{ID: 5, Incarnation: "gone", CleanStopEpoch: -1}},
		&metadata.TopicRecord{Name: "orders", ID: topicID},
	}
	for i := range int32(2) {
		records = append(records, &metadata.PartitionRecord{TopicID: topicID, Index: i, Partition: metadata.Partition{
			Replicas: []wire.BrokerID{5}, ISR: []wire.BrokerID{5}, Directories: []string{""}, Leader: 5,
		}})
	}
	off := "false" // it is off now, and was on
	records = append(records, &metadata.ConfigRecord{ResourceType: metadata.TopicResource, ResourceName: "orders", Name: "remote.storage.enable", Value: &off})
	var err error
	if r.image, _, err = metadata.Empty().Apply(0, records); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) tryOpen(at time.Time) error {
	r.now = r.Partition.Now.Add(time.Minute)
	settings, err := readonly.Settings("127.0.0.1:9092")
	if err != nil {
		r.t.Fatal(err)
	}
	watched := faultstore.New(r.store, func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.Put || c.Op == faultstore.Delete {
			r.t.Errorf("%s of %s", c.Op, c.Key)
		}
		return faultstore.None
	})
	r.server, err = readonly.Open(r.t.Context(), r.now, readonly.Options{
		Store: watched, ClusterID: "cluster", Image: r.image, At: at, Grace: 24 * time.Hour, Config: settings,
		Today: func(context.Context) (*metadata.Image, error) {
			if r.halted {
				return nil, chain.ErrHalt
			}
			return cmp.Or(r.today, r.image), nil
		},
		Listeners: []metadata.Listener{{Name: "PLAINTEXT", Host: "localhost", Port: 9092, Protocol: "PLAINTEXT"}},
		Random:    func() uint32 { return 4 },
		NewUUID:   func() [16]byte { r.uuids++; return [16]byte{r.uuids} },
		Go:        func(f func()) { f() },
		Run: func(n int, work func(int)) {
			for i := range n {
				work(i)
			}
		},
		Now: func() time.Time { return r.now }, Wake: func() {}, Logger: slog.New(slog.NewTextHandler(r.t.Output(), nil)),
	})
	return err
}

func (r *rig) open(at time.Time) {
	r.t.Helper()
	if err := r.tryOpen(at); err != nil {
		r.t.Fatal(err)
	}
	server := r.server
	r.t.Cleanup(func() {
		if err := server.Close(); err != nil {
			r.t.Error(err)
		}
	})
}

// ask sends a request and waits until the clock is past its time.
func ask[T kmsg.Response](r *rig, request kmsg.Request, response T) T {
	r.t.Helper()
	var reply api.Reply
	q := &api.Request{
		RequestHeader: wire.RequestHeader{Key: wire.APIKey(request.Key()), Version: request.GetVersion()},
		Session:       &api.Session{Listener: "PLAINTEXT"}, Body: request.AppendTo(nil), Complete: func(got api.Reply) { reply = got },
	}
	if got := r.server.Handle(r.now, q); got.Outcome != api.Parked {
		reply = got
	}
	for range 100 {
		if reply.Parts != nil || reply.Outcome != api.Respond {
			break
		}
		r.now = r.now.Add(100 * time.Millisecond)
		r.server.Advance(r.now)
	}
	if reply.Outcome != api.Respond {
		r.t.Fatalf("%T: outcome %d, %v", request, reply.Outcome, reply.Reason)
	}
	var frame bytes.Buffer
	for _, part := range reply.Parts {
		frame.Write(part.Bytes)
		if part.Range.File != nil {
			if _, err := io.Copy(&frame, io.NewSectionReader(part.Range.File, part.Range.Offset, part.Range.Length)); err != nil {
				r.t.Fatal(err)
			}
			part.Range.Release()
		}
	}
	response.SetVersion(request.GetVersion())
	header := 8
	if response.IsFlexible() && request.Key() != 18 {
		header++
	}
	if err := response.ReadFrom(frame.Bytes()[header:]); err != nil {
		r.t.Fatal(err)
	}
	return response
}

func (r *rig) fetch(partition int32, offset wire.Offset) kmsg.FetchResponseTopicPartition {
	r.t.Helper()
	request := kmsg.NewPtrFetchRequest()
	request.SetVersion(12)
	request.MaxWaitMillis, request.MinBytes, request.MaxBytes, request.ReplicaID, request.SessionEpoch = 500, 1, 1<<20, -1, -1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = "orders"
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, int64(offset), 4000
	topic.Partitions = append(topic.Partitions, p)
	request.Topics = append(request.Topics, topic)
	return ask(r, request, kmsg.NewPtrFetchResponse()).Topics[0].Partitions[0]
}

// consume reads the partition from its beginning to its end.
func (r *rig) consume() (from, to wire.Offset) {
	r.t.Helper()
	at := r.edge(replica.EarliestTimestamp)
	from = at
	for end := r.edge(replica.LatestTimestamp); at < end; {
		got := r.fetch(0, at)
		if got.ErrorCode != 0 || len(got.RecordBatches) == 0 {
			r.t.Fatalf("at offset %d: code %d, %d bytes", at, got.ErrorCode, len(got.RecordBatches))
		}
		for rest := got.RecordBatches; len(rest) > 0; {
			b, next, err := record.Next(rest)
			if err != nil {
				break
			}
			for rec, err := range record.Records(b, 1<<20) {
				if err != nil || rec.Offset >= at && (rec.Offset != at || string(rec.Value) != fmt.Sprint("value-", at)) {
					r.t.Fatalf("offset %d is %d with %s, %v", at, rec.Offset, rec.Value, err)
				}
				at = max(at, rec.Offset+1)
			}
			rest = next
		}
	}
	return from, at
}

func (r *rig) edge(timestamp int64) wire.Offset {
	r.t.Helper()
	row := r.offset(0, timestamp)
	if row.ErrorCode != 0 {
		r.t.Fatalf("timestamp %d: code %d", timestamp, row.ErrorCode)
	}
	return wire.Offset(row.Offset)
}

func (r *rig) offset(partition int32, timestamp int64) kmsg.ListOffsetsResponseTopicPartition {
	r.t.Helper()
	request := kmsg.NewPtrListOffsetsRequest()
	request.SetVersion(11)
	request.ReplicaID = -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = "orders"
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, timestamp
	topic.Partitions = append(topic.Partitions, p)
	request.Topics = append(request.Topics, topic)
	return ask(r, request, kmsg.NewPtrListOffsetsResponse()).Topics[0].Partitions[0]
}

func TestAConsumerReadsAllThatIsInTheBucket(t *testing.T) {
	r := newRig(t)
	r.Upload(6, 40)
	r.Page()
	r.Lead()
	r.Upload(2, 40)
	r.Append(5) // never uploaded
	r.Drop(130)
	r.open(time.Time{})
	if from, to := r.consume(); from != 130 || to != 8*120 {
		t.Errorf("read %d to %d", from, to)
	}
	if n, offsets := r.server.Partitions(); n != 2 || offsets != 8*120-130 {
		t.Errorf("%d partitions with %d offsets", n, offsets)
	}
	for _, offset := range []wire.Offset{131, 500, 959} {
		at := tiertest.Start.Add(time.Duration(offset+1) * time.Second).UnixMilli()
		if got := r.edge(at); got != offset {
			t.Errorf("at %d is offset %d, not %d", at, got, offset)
		}
	}
	if got := r.edge(replica.LatestTieredTimestamp); got != 959 {
		t.Errorf("the last offset in the bucket is %d", got)
	}
	if got := r.fetch(0, 960); got.ErrorCode != 0 || len(got.RecordBatches) != 0 || got.HighWatermark != 960 {
		t.Errorf("at the end: %+v", got)
	}
	if got := r.fetch(0, 129); wire.Code(got.ErrorCode) != wire.OffsetOutOfRange {
		t.Errorf("below the log start: %+v", got)
	}
	if got := r.fetch(1, 0); got.ErrorCode != 0 || got.HighWatermark != 0 {
		t.Errorf("a partition without data: %+v", got)
	}
}

func TestOnlyReadingIsServed(t *testing.T) {
	r := newRig(t)
	r.Upload(1, 3)
	r.open(time.Time{})
	versions := ask(r, kmsg.NewPtrApiVersionsRequest(), kmsg.NewPtrApiVersionsResponse())
	var keys []int16
	for _, k := range versions.ApiKeys {
		keys = append(keys, k.ApiKey)
	}
	if fmt.Sprint(keys) != "[0 1 2 3 18 23 32 60 75]" {
		t.Errorf("announced are %v", keys)
	}
	produce := kmsg.NewPtrProduceRequest()
	produce.SetVersion(9)
	produce.Acks = -1
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "orders"
	topic.Partitions = append(topic.Partitions, kmsg.NewProduceRequestTopicPartition())
	produce.Topics = append(produce.Topics, topic)
	if got := ask(r, produce, kmsg.NewPtrProduceResponse()).Topics[0].Partitions[0]; wire.Code(got.ErrorCode) != wire.TopicAuthorizationFailed {
		t.Errorf("a produce answers %+v", got)
	}
	for _, key := range []wire.APIKey{8, 10, 19, 20, 21, 22, 33, 44} {
		q := &api.Request{RequestHeader: wire.RequestHeader{Key: key}, Session: &api.Session{}}
		if got := r.server.Handle(r.now, q); got.Outcome != api.Close {
			t.Errorf("key %d is answered", key)
		}
	}

	request := kmsg.NewPtrMetadataRequest()
	request.SetVersion(12)
	got := ask(r, request, kmsg.NewPtrMetadataResponse())
	if len(got.Brokers) != 1 || got.Brokers[0].Host != "localhost" || len(got.Topics) != 1 || got.Topics[0].TopicID != topicID {
		t.Fatalf("%+v", got)
	}
	for _, p := range got.Topics[0].Partitions {
		if p.Leader != int32(readonly.Self) || p.ErrorCode != 0 || len(p.OfflineReplicas) != 0 {
			t.Errorf("%+v", p)
		}
	}
	auto := "unheard"
	request.Topics = []kmsg.MetadataRequestTopic{{Topic: &auto}}
	request.AllowAutoTopicCreation = true
	if got := ask(r, request, kmsg.NewPtrMetadataResponse()); wire.Code(got.Topics[0].ErrorCode) != wire.UnknownTopicOrPartition {
		t.Errorf("%+v", got.Topics)
	}
}

func TestThePastIsServedAsItWas(t *testing.T) {
	r := newRig(t)
	r.Upload(4, 10)
	then := r.Partition.Now
	r.Upload(2, 10)
	r.Page()
	r.Drop(70)
	r.open(then)
	if from, to := r.consume(); from != 0 || to != 120 {
		t.Errorf("read %d to %d", from, to)
	}

	r.open(time.Time{})
	if from, to := r.consume(); from != 70 || to != 180 {
		t.Errorf("now it reads %d to %d", from, to)
	}
	if err := r.tryOpen(then.Add(-48 * time.Hour)); !errors.Is(err, readonly.ErrTooOld) {
		t.Errorf("before the grace: %v", err)
	}
	for _, d := range r.Manifest.State().Dropped {
		if err := r.store.Delete(t.Context(), r.Manifest.Key(d.Name, manifest.LogObject)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.tryOpen(then); !errors.Is(err, readonly.ErrTooOld) {
		t.Errorf("what was served then is deleted: %v", err)
	}
}

func TestThePastIsServedThoughTheMetadataOfTodayIsDamaged(t *testing.T) {
	r := newRig(t)
	r.Upload(4, 10)
	r.halted = true
	r.open(r.Partition.Now)
	if got := ask(r, kmsg.NewPtrMetadataRequest(), kmsg.NewPtrMetadataResponse()); len(got.Topics) != 1 {
		t.Errorf("it shows %+v", got.Topics)
	}
}

// Of a topic that was deleted since, the bucket has a part, or nothing: it is not shown with less than it had.
func TestATopicThatWasDeletedSinceIsLeftOut(t *testing.T) {
	r := newRig(t)
	r.Upload(4, 10)
	then := r.Partition.Now
	var err error
	if r.today, _, err = r.image.Apply(r.image.Offset()+1, []metadata.Record{&metadata.RemoveTopicRecord{ID: topicID}}); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{".log", ""} {
		for info, err := range r.store.List(t.Context(), r.Prefix()+"/", "") {
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(info.Key, part) {
				continue
			}
			if err := r.store.Delete(t.Context(), info.Key); err != nil {
				t.Fatal(err)
			}
		}
		r.open(then)
		if got := ask(r, kmsg.NewPtrMetadataRequest(), kmsg.NewPtrMetadataResponse()); len(got.Topics) != 0 {
			t.Errorf("without %q it shows %+v", part, got.Topics)
		}
		if n, offsets := r.server.Partitions(); n != 0 || offsets != 0 {
			t.Errorf("without %q there are %d partitions with %d offsets", part, n, offsets)
		}
	}
}

func TestNobodyWritesThroughIt(t *testing.T) {
	s := readonly.Reading(memstore.New(nil))
	if _, err := s.Put(t.Context(), "a", bytes.NewReader(nil), object.Condition{}); !errors.Is(err, object.ErrDenied) {
		t.Error(err)
	}
	if err := s.Delete(t.Context(), "a"); !errors.Is(err, object.ErrDenied) {
		t.Error(err)
	}
	if n, err := object.SweepUploads(context.Background(), s, "", time.Now()); n != 0 || err != nil {
		t.Error(n, err)
	}
}

// What retention deletes while the cluster goes on is out of range, and the log starts behind it: whoever begins anew gets on.
func TestTheLogStartFollowsWhatIsDeleted(t *testing.T) {
	r := newRig(t)
	r.Upload(6, 40)
	r.open(time.Time{})
	for _, next := range []wire.Offset{400, 720} {
		r.Drop(next)
		for _, d := range r.Manifest.State().Dropped {
			for _, kind := range []manifest.Kind{manifest.LogObject, manifest.AuxObject} {
				if err := r.store.Delete(t.Context(), r.Manifest.Key(d.Name, kind)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := r.fetch(0, r.edge(replica.EarliestTimestamp)); wire.Code(got.ErrorCode) != wire.OffsetOutOfRange {
			t.Errorf("what is deleted: %+v", got)
		}
		if got := r.edge(replica.EarliestTimestamp); got != next {
			t.Errorf("the log starts at %d, not %d", got, next)
		}
	}
}

// A damaged manifest is no reason to hold back what the others name: that partition alone is an offline one.
func TestADamagedManifestLeavesOnePartitionOut(t *testing.T) {
	for name, of := range map[string]func(*rig) (entry int, at time.Time){
		"an entry in the middle": func(*rig) (int, time.Time) { return 2, time.Time{} },
		"the last entry":         func(*rig) (int, time.Time) { return 3, time.Time{} },
		"of the past":            func(r *rig) (int, time.Time) { return 2, r.Partition.Now },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			damaged := tiertest.New(t, r.store, "orders", topicID, 1)
			damaged.Upload(3, 5)
			r.Upload(3, 5)
			entry, at := of(r)
			key := fmt.Sprintf("%s/manifest/%020d.json", damaged.Prefix(), entry)
			body, _, err := object.Read(t.Context(), r.store, key, 1<<20)
			if err == nil {
				body[len(body)/2] ^= 1
				_, err = r.store.Put(t.Context(), key, bytes.NewReader(body), object.Condition{})
			}
			if err != nil {
				t.Fatal(err)
			}

			r.open(at)
			if from, to := r.consume(); from != 0 || to != 45 {
				t.Errorf("of the other partition it reads %d to %d", from, to)
			}
			if got := r.fetch(1, 0); wire.Code(got.ErrorCode) != wire.KafkaStorageError {
				t.Errorf("a fetch answers %+v", got)
			}
			for _, timestamp := range []int64{replica.EarliestTimestamp, replica.LatestTimestamp, tiertest.Start.UnixMilli()} {
				if got := r.offset(1, timestamp); wire.Code(got.ErrorCode) != wire.KafkaStorageError {
					t.Errorf("timestamp %d answers %+v", timestamp, got)
				}
			}
			if n, offsets := r.server.Partitions(); n != 1 || offsets != 45 {
				t.Errorf("%d partitions with %d offsets", n, offsets)
			}
			if got := r.server.Damaged(); len(got) != 1 || got[0] != damaged.TP {
				t.Errorf("damaged are %v", got)
			}
		})
	}
}

// A store that does not answer says nothing of what is damaged.
func TestAManifestThatCannotBeReadIsNoDamage(t *testing.T) {
	r := newRig(t)
	r.Upload(1, 5)
	r.store = faultstore.New(r.store, func(c faultstore.Call) faultstore.Fault {
		if strings.Contains(c.Key, "/manifest/") {
			return faultstore.Throttle
		}
		return faultstore.None
	})
	if err := r.tryOpen(time.Time{}); !errors.Is(err, object.ErrUnavailable) {
		t.Errorf("it opens: %v", err)
	}
}
