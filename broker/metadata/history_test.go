package metadata

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// writer draws records that fit an image, as a controller would write them.
type writer struct {
	image *Image
	ids   byte // topic ids are never used again
}

func (w *writer) next(t *rapid.T) Record {
	topics := slices.Collect(w.image.Topics(""))
	brokers := slices.Collect(w.image.Brokers())
	topic := func() *Topic { return rapid.SampledFrom(topics).Draw(t, "topic") }
	kinds := []string{"topic", "config", "register", "elect", "producer ids", "feature", "recover", "nothing"}
	if w.ids < 255 {
		kinds = append(kinds, "removal")
	}
	if w.image.RemovalCount() > 0 {
		kinds = append(kinds, "removal done")
	}
	if len(topics) > 0 {
		kinds = append(kinds, "partition", "partition", "change", "change", "topic config", "remove topic")
	}
	if len(brokers) > 0 {
		kinds = append(kinds, "broker", "unregister")
	}
	switch kind := rapid.SampledFrom(kinds).Draw(t, "kind"); kind {
	case "topic":
		name := rapid.StringMatching(`[a-f]{1,2}`).Draw(t, "name")
		if w.image.Topic(name) != nil || w.ids == 255 {
			return &NoOpRecord{}
		}
		w.ids++
		return &TopicRecord{Name: name, ID: wire.TopicID{0: w.ids * 37, 1: w.ids}}
	case "partition":
		x := topic()
		p := newPartition(rapid.SampledFrom([][]wire.BrokerID{{1}, {1, 2}, {3, 2, 1}}).Draw(t, "replicas")...)
		return &PartitionRecord{TopicID: x.ID, Index: int32(len(x.Partitions)), Partition: p}
	case "change":
		x := topic()
		if len(x.Partitions) == 0 {
			return &NoOpRecord{}
		}
		index := rapid.IntRange(0, len(x.Partitions)-1).Draw(t, "index")
		p := x.Partitions[index]
		r := &PartitionChangeRecord{TopicID: x.ID, Index: int32(index), PartitionEpoch: p.PartitionEpoch + 1}
		if rapid.Bool().Draw(t, "elect") {
			r.Leader = ptr(rapid.SampledFrom(append([]wire.BrokerID{wire.NoBroker}, p.Replicas...)).Draw(t, "leader"))
			r.LeaderEpoch = ptr(p.LeaderEpoch + 1)
		}
		if rapid.Bool().Draw(t, "shrink") {
			r.ISR = p.Replicas[:1]
			r.ELR = slices.Clone(p.Replicas[1:])
		}
		return r
	case "topic config":
		return w.config(t, TopicResource, topic().Name)
	case "config":
		return w.config(t, rapid.SampledFrom([]ResourceType{BrokerResource, GroupResource, ClientMetricsResource}).Draw(t, "type"), "1")
	case "removal":
		w.ids++
		return &RemovalRecord{Topic: "gone", TopicID: wire.TopicID{0: w.ids * 37, 1: w.ids}, RemovedMs: int64(w.ids)}
	case "removal done":
		return &RemovalDoneRecord{TopicID: rapid.SampledFrom(slices.Collect(w.image.Removals())).Draw(t, "removal").TopicID}
	case "recover":
		return &ClusterRecoveredRecord{Incarnation: w.image.ClusterIncarnation() + 1}
	case "remove topic":
		return &RemoveTopicRecord{ID: topic().ID}
	case "register":
		return &BrokerRegistrationRecord{Broker{
			ID: wire.BrokerID(rapid.IntRange(1, 4).Draw(t, "id")), Epoch: wire.BrokerEpoch(w.image.Offset() + 1), Fenced: true,
			Listeners: []Listener{{Name: "L", Port: 1}},
		}}
	case "broker":
		b := rapid.SampledFrom(brokers).Draw(t, "broker")
		return &BrokerChangeRecord{BrokerID: b.ID, Epoch: b.Epoch, Fenced: ptr(rapid.Bool().Draw(t, "fenced"))}
	case "unregister":
		b := rapid.SampledFrom(brokers).Draw(t, "broker")
		return &UnregisterBrokerRecord{BrokerID: b.ID, Epoch: b.Epoch}
	case "elect":
		return &ControllerElectedRecord{BrokerID: 1, Epoch: w.image.Controller().Epoch + 1}
	case "producer ids":
		return &ProducerIDBlockRecord{BrokerID: 1, NextProducerID: w.image.NextProducerID() + 1000}
	case "feature":
		return &FeatureLevelRecord{Name: rapid.SampledFrom([]string{"x", "a", "m"}).Draw(t, "name"), Level: int16(rapid.IntRange(0, 2).Draw(t, "level"))}
	default:
		return &NoOpRecord{}
	}
}

func (w *writer) config(t *rapid.T, kind ResourceType, name string) Record {
	r := &ConfigRecord{ResourceType: kind, ResourceName: name, Name: rapid.SampledFrom([]string{"p", "q"}).Draw(t, "config")}
	if rapid.Bool().Draw(t, "set") {
		r.Value = ptr(rapid.StringOfN(rapid.RuneFrom([]rune("<1é\"")), 0, 2, -1).Draw(t, "value"))
	}
	return r
}

// However a log is cut into commits, and wherever a reader starts from a snapshot, all come to the same image, byte for byte; and
// the records are the same after they were written and read.
func TestImageFromASnapshotEqualsImageFromTheLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			image    *Image
			snapshot []byte
		}
		w := &writer{image: Empty()}
		one, batched := Empty(), Empty()
		versions := []version{{one, one.Snapshot()}}
		var late *Image
		for range rapid.IntRange(1, 8).Draw(t, "commits") {
			var records []Record
			for range rapid.IntRange(0, 8).Draw(t, "records") {
				r := w.next(t)
				data, err := MarshalRecord(r)
				if err != nil {
					t.Fatal(err)
				}
				if r, err = UnmarshalRecord(data); err != nil {
					t.Fatal(err)
				}
				records = append(records, r)
				if w.image, _, err = w.image.Apply(w.image.Offset()+1, []Record{r}); err != nil {
					t.Fatalf("%s: %v", data, err)
				}
			}
			before := batched
			var delta Delta
			var err error
			if batched, delta, err = before.Apply(before.Offset()+1, records); err != nil {
				t.Fatal(err)
			}
			checkDelta(t, before, batched, delta)
			if late == nil {
				if rapid.Bool().Draw(t, "start here") {
					if late, err = DecodeSnapshot(batched.Snapshot()); err != nil {
						t.Fatal(err)
					}
				}
			} else if late, _, err = late.Apply(late.Offset()+1, records); err != nil {
				t.Fatal(err)
			}
			versions = append(versions, version{batched, batched.Snapshot()})
		}
		if got, want := batched.Snapshot(), w.image.Snapshot(); !bytes.Equal(got, want) {
			t.Fatalf("in commits %s\none by one %s", got, want)
		}
		if late != nil {
			if got, want := late.Snapshot(), w.image.Snapshot(); !bytes.Equal(got, want) {
				t.Fatalf("from a snapshot %s\nfrom the log %s", got, want)
			}
		}
		for i, v := range versions {
			if !bytes.Equal(v.image.Snapshot(), v.snapshot) {
				t.Fatalf("image %d changed after it was made", i)
			}
		}
		count := 0
		for topic := range w.image.Topics("") {
			count += len(topic.Partitions)
		}
		if count != batched.PartitionCount() {
			t.Fatalf("%d partitions, counted as %d", count, batched.PartitionCount())
		}
	})
}

// checkDelta compares a delta with what a comparison of the whole images finds.
func checkDelta(t *rapid.T, before, after *Image, d Delta) {
	if got, want := describe(d), describe(after.Since(before)); got != want {
		t.Fatalf("delta\n%s\nsince\n%s", got, want)
	}
	got, want := map[wire.TopicID]string{}, map[wire.TopicID]string{}
	for _, topic := range d.Topics {
		x := topic.Before
		if x == nil {
			x = topic.After
		}
		got[x.ID] = fmt.Sprint(topic.Before == nil, topic.After == nil, len(topic.Partitions))
	}
	for x := range before.Topics("") {
		y := after.TopicByID(x.ID)
		changed := 0
		for i := range x.Partitions {
			if y == nil || x.Partitions[i] != y.Partitions[i] {
				changed++
			}
		}
		if y != nil {
			changed += len(y.Partitions) - len(x.Partitions)
		}
		if y == nil || changed > 0 {
			want[x.ID] = fmt.Sprint(false, y == nil, changed)
		}
	}
	for y := range after.Topics("") {
		if before.TopicByID(y.ID) == nil {
			want[y.ID] = fmt.Sprint(true, false, len(y.Partitions))
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("delta of topics %v, want %v", got, want)
	}
	for _, b := range d.Brokers {
		if b.Before != before.Broker(b.ID) || b.After != after.Broker(b.ID) {
			t.Fatalf("delta of broker %d", b.ID)
		}
	}
	brokers := 0
	for id := range wire.BrokerID(5) {
		if before.Broker(id) != after.Broker(id) {
			brokers++
		}
	}
	if brokers != len(d.Brokers) {
		t.Fatalf("%d brokers in the delta, %d changed", len(d.Brokers), brokers)
	}
}
