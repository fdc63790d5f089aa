package metadata

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// The transcripts: "apply" takes records as JSON lines, "snapshot" prints the image record by record.
func TestTranscripts(t *testing.T) {
	image := Empty()
	datadriven.RunTest(t, "testdata/apply.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "apply":
			base := int64(image.Offset() + 1)
			d.MaybeScanArgs(t, "base", &base)
			var records []Record
			for line := range strings.Lines(d.Input) {
				r, err := UnmarshalRecord([]byte(line))
				if err != nil {
					return err.Error()
				}
				records = append(records, r)
			}
			next, delta, err := image.Apply(wire.Offset(base), records)
			if err != nil {
				return "error: " + err.Error()
			}
			image = next
			return describe(delta)
		case "snapshot":
			data := image.Snapshot()
			if again, err := DecodeSnapshot(data); err != nil || !bytes.Equal(again.Snapshot(), data) {
				t.Fatalf("the snapshot doesn't rebuild the image: %v", err)
			}
			if !json.Valid(data) {
				t.Fatal("the snapshot is not JSON")
			}
			return strings.ReplaceAll(string(data), `{"type"`, "\n{\"type\"")
		case "counts":
			return fmt.Sprintf("offset %d, %d topics, %d partitions, %d brokers, controller %+v, features %+v, next producer id %d",
				image.Offset(), image.TopicCount(), image.PartitionCount(), image.BrokerCount(), image.Controller(), image.Features(), image.NextProducerID())
		case "topics":
			var from string
			d.MaybeScanArgs(t, "from", &from)
			var names []string
			for topic := range image.Topics(from) {
				names = append(names, topic.Name)
			}
			return strings.Join(names, " ")
		}
		return "unknown command " + d.Cmd
	})
}

func describe(d Delta) string {
	var out strings.Builder
	verb := func(before, after bool) string {
		return map[[2]bool]string{{false, true}: "created", {true, false}: "removed", {true, true}: "changed"}[[2]bool{before, after}]
	}
	for _, topic := range d.Topics {
		name := topic.After
		if name == nil {
			name = topic.Before
		}
		fmt.Fprintf(&out, "topic %s %s\n", name.Name, verb(topic.Before != nil, topic.After != nil))
		for _, p := range topic.Partitions {
			fmt.Fprintf(&out, "  partition %d %s", p.Index, verb(p.Before != nil, p.After != nil))
			if p.After != nil {
				fmt.Fprintf(&out, ": leader %d epoch %d isr %v partition epoch %d", p.After.Leader, p.After.LeaderEpoch, p.After.ISR, p.After.PartitionEpoch)
			}
			out.WriteByte('\n')
		}
	}
	for _, c := range d.Configs {
		kind, _ := c.Type.MarshalText()
		fmt.Fprintf(&out, "configs of %s %q\n", kind, c.Name)
	}
	for _, b := range d.Brokers {
		fmt.Fprintf(&out, "broker %d %s\n", b.ID, verb(b.Before != nil, b.After != nil))
	}
	if d.Features {
		out.WriteString("features\n")
	}
	if d.Controller {
		out.WriteString("controller\n")
	}
	return out.String()
}

func newPartition(replicas ...wire.BrokerID) Partition {
	return Partition{
		Replicas: replicas, Directories: make([]string, len(replicas)), ISR: replicas, Leader: replicas[0], LeaderEpoch: 3, PartitionEpoch: 5,
	}
}

// populated is an image with a bit of everything; its next record has the offset 8.
func populated(t *testing.T) *Image {
	t.Helper()
	image, _, err := Empty().Apply(0, []Record{
		&ControllerElectedRecord{BrokerID: 1, Epoch: 4},
		&FeatureLevelRecord{Name: MetadataVersion, Level: 33},
		&BrokerRegistrationRecord{Broker{ID: 1, Epoch: 2, Incarnation: "i", Directories: []string{"d"}}},
		&ProducerIDBlockRecord{BrokerID: 1, BrokerEpoch: 2, NextProducerID: 1000},
		&TopicRecord{Name: "a", ID: topicA},
		&PartitionRecord{TopicID: topicA, Index: 0, Partition: newPartition(1, 2)},
		&PartitionRecord{TopicID: topicA, Index: 1, Partition: newPartition(2)},
		&ConfigRecord{ResourceType: TopicResource, ResourceName: "a", Name: "retention.ms", Value: ptr("1")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func TestRecordsThatDoNotFitTheImageAreRefused(t *testing.T) {
	change := func(edit func(*PartitionChangeRecord)) *PartitionChangeRecord {
		r := &PartitionChangeRecord{TopicID: topicA, PartitionEpoch: 6}
		edit(r)
		return r
	}
	partition := func(edit func(*PartitionRecord)) *PartitionRecord {
		p := newPartition(1, 2)
		p.PartitionEpoch = 6
		r := &PartitionRecord{TopicID: topicA, Partition: p}
		edit(r)
		return r
	}
	for name, r := range map[string]Record{
		"the controller's epoch stays":     &ControllerElectedRecord{BrokerID: 2, Epoch: 4},
		"the controller's epoch goes down": &ControllerElectedRecord{BrokerID: 2, Epoch: 3},
		"topic without id":                 &TopicRecord{Name: "b"},
		"topic with a bad name":            &TopicRecord{Name: "b b", ID: topicB},
		"topic with a name that exists":    &TopicRecord{Name: "a", ID: topicB},
		"topic with an id that exists":     &TopicRecord{Name: "b", ID: topicA},
		"unknown topic removed":            &RemoveTopicRecord{ID: topicB},
		"removal of a topic that is there": &RemovalRecord{Topic: "a", TopicID: topicA},
		"removal without a topic id":       &RemovalRecord{Topic: "b"},
		"removal without a topic's name":   &RemovalRecord{Topic: "../b", TopicID: topicB},
		"removal that is not under way":    &RemovalDoneRecord{TopicID: topicB},
		"the cluster's incarnation stays":  &ClusterRecoveredRecord{},
		"partition of an unknown topic":    &PartitionRecord{TopicID: topicB, Partition: newPartition(1)},
		"a gap in the partitions":          &PartitionRecord{TopicID: topicA, Index: 3, Partition: newPartition(1)},
		"a negative partition":             &PartitionRecord{TopicID: topicA, Index: -1, Partition: newPartition(1)},
		"no replicas":                      partition(func(r *PartitionRecord) { r.Replicas, r.Directories = nil, nil }),
		"too few directories":              partition(func(r *PartitionRecord) { r.Directories = []string{""} }),
		"a leader that is no replica":      partition(func(r *PartitionRecord) { r.Leader, r.LeaderEpoch = 3, 4 }),
		"an ISR beyond the replicas":       partition(func(r *PartitionRecord) { r.ISR = []wire.BrokerID{1, 3} }),
		"the leader epoch goes down":       partition(func(r *PartitionRecord) { r.LeaderEpoch = 2 }),
		"the partition epoch stays":        partition(func(r *PartitionRecord) { r.PartitionEpoch = 5 }),
		"a negative leader epoch":          &PartitionRecord{TopicID: topicA, Index: 2, Partition: Partition{Replicas: []wire.BrokerID{1}, Directories: []string{""}, LeaderEpoch: -1}},
		"change of an unknown topic":       change(func(r *PartitionChangeRecord) { r.TopicID = topicB }),
		"change of an unknown partition":   change(func(r *PartitionChangeRecord) { r.Index = 2 }),
		"change with the partition epoch of before": change(func(r *PartitionChangeRecord) {
			r.PartitionEpoch = 5
		}),
		"another leader in the same epoch": change(func(r *PartitionChangeRecord) { r.Leader = ptr(wire.BrokerID(2)) }),
		"a lower leader epoch":             change(func(r *PartitionChangeRecord) { r.LeaderEpoch = ptr(wire.LeaderEpoch(2)) }),
		"config of an unknown topic":       &ConfigRecord{ResourceType: TopicResource, ResourceName: "b", Name: "x", Value: ptr("1")},
		"config of an unknown resource":    &ConfigRecord{ResourceType: 3, ResourceName: "b", Name: "x", Value: ptr("1")},
		"config that JSON can't hold":      &ConfigRecord{ResourceType: GroupResource, ResourceName: "g", Name: "x", Value: ptr("\xff")},
		"registration with a wrong epoch":  &BrokerRegistrationRecord{Broker{ID: 2, Epoch: 7}},
		"change of an unknown broker":      &BrokerChangeRecord{BrokerID: 2, Epoch: 2},
		"change of a former registration":  &BrokerChangeRecord{BrokerID: 1, Epoch: 1},
		"unknown broker unregistered":      &UnregisterBrokerRecord{BrokerID: 2, Epoch: 2},
		"former registration unregistered": &UnregisterBrokerRecord{BrokerID: 1, Epoch: 1},
		"producer ids given again":         &ProducerIDBlockRecord{BrokerID: 1, BrokerEpoch: 2, NextProducerID: 1000},
		"negative feature level":           &FeatureLevelRecord{Name: "x", Level: -1},
	} {
		image := populated(t)
		before := image.Hash()
		if _, _, err := image.Apply(image.Offset()+1, []Record{&NoOpRecord{}, r}); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if image.Hash() != before {
			t.Errorf("%s: the image changed", name)
		}
	}
}

// Safety rule 28: what is to be deleted of a topic is in the image, and in its snapshots, until it is gone.
func TestSafety28ARemovalIsRememberedUntilItIsDone(t *testing.T) {
	image := populated(t)
	removed, _, err := image.Apply(8, []Record{&RemoveTopicRecord{ID: topicA}, &RemovalRecord{Topic: "a", TopicID: topicA, RemovedMs: 5}})
	if err != nil {
		t.Fatal(err)
	}
	want := Removal{Topic: "a", TopicID: topicA, RemovedMs: 5}
	again, err := DecodeSnapshot(removed.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	for name, image := range map[string]*Image{"log": removed, "snapshot": again} {
		if r, ok := image.Removal(topicA); !ok || r != want || image.RemovalCount() != 1 || image.Topic("a") != nil {
			t.Errorf("%s: removal %+v, %t", name, r, ok)
		}
	}
	if _, _, err := again.Apply(10, []Record{&TopicRecord{Name: "b", ID: topicA}}); err == nil {
		t.Error("the id of a topic that is being removed was given to another")
	}
	done, _, err := again.Apply(10, []Record{&RemovalDoneRecord{TopicID: topicA}})
	if err != nil || done.RemovalCount() != 0 || again.RemovalCount() != 1 {
		t.Errorf("done: %v, %d left", err, done.RemovalCount())
	}
}

// Safety rule 30: the cluster's incarnation goes up alone, and is part of the image.
func TestSafety30TheIncarnationIsPartOfTheImage(t *testing.T) {
	image := populated(t)
	for want := int64(1); want < 3; want++ {
		next, _, err := image.Apply(image.Offset()+1, []Record{&ClusterRecoveredRecord{Incarnation: want}})
		if err != nil {
			t.Fatal(err)
		}
		if image, err = DecodeSnapshot(next.Snapshot()); err != nil || image.ClusterIncarnation() != want {
			t.Fatalf("incarnation %d, %v", image.ClusterIncarnation(), err)
		}
		if _, _, err := image.Apply(image.Offset()+1, []Record{&ClusterRecoveredRecord{Incarnation: want}}); err == nil {
			t.Errorf("incarnation %d began twice", want)
		}
	}
}

func TestAGapInTheLogIsRefused(t *testing.T) {
	image := populated(t)
	for _, base := range []wire.Offset{-1, 0, image.Offset(), image.Offset() + 2} {
		if _, _, err := image.Apply(base, []Record{&NoOpRecord{}}); err == nil {
			t.Errorf("records from %d were accepted after %d", base, image.Offset())
		}
	}
}

func TestApplySharesWhatItDoesNotTouch(t *testing.T) {
	image := populated(t)
	next, _, err := image.Apply(8, []Record{&PartitionChangeRecord{TopicID: topicA, Index: 1, PartitionEpoch: 6, ISR: []wire.BrokerID{2}}})
	if err != nil {
		t.Fatal(err)
	}
	if next.Partition("a", 0) != image.Partition("a", 0) || next.Broker(1) != image.Broker(1) {
		t.Error("what the record doesn't name was copied")
	}
	if next.Partition("a", 1) == image.Partition("a", 1) {
		t.Error("the partition was changed in place")
	}
	if next.Topic("a") != next.TopicByID(topicA) {
		t.Error("name and id lead to different topics")
	}
}

func TestSnapshotsThatAreDamagedAreRefused(t *testing.T) {
	good := string(populated(t).Snapshot())
	for name, text := range map[string]string{
		"empty":               "",
		"cut":                 good[:len(good)-1],
		"followed by more":    good + "{}",
		"a newer version":     strings.Replace(good, `"version":0`, `"version":1`, 1),
		"another field":       strings.Replace(good, `"version":0`, `"version":0,"mac":"x"`, 1),
		"an offset before -1": strings.Replace(good, `"offset":7`, `"offset":-2`, 1),
		"features of later":   strings.Replace(good, `"featuresEpoch":1`, `"featuresEpoch":8`, 1),
		"a record too many":   strings.Replace(good, `"records":[`, `"records":[{"type":"Topic","version":0,"name":"a","id":"CgAAAAAAAAAAAAAAAAAAAQ"},`, 1),
		"an unknown record":   strings.Replace(good, `"records":[`, `"records":[{"type":"Acl","version":0},`, 1),
	} {
		if text == good {
			t.Fatalf("%s: the test changes nothing", name)
		}
		if _, err := DecodeSnapshot([]byte(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := DecodeSnapshot([]byte(good)); err != nil {
		t.Error(err)
	}
}

func FuzzDecodeSnapshot(f *testing.F) {
	f.Add(Empty().Snapshot())
	image, _, err := Empty().Apply(0, []Record{
		&ControllerElectedRecord{BrokerID: 1, Epoch: 1},
		&TopicRecord{Name: "a", ID: topicA},
		&PartitionRecord{TopicID: topicA, Partition: newPartition(1)},
		&ConfigRecord{ResourceType: GroupResource, ResourceName: "g", Name: "x", Value: ptr("<é>")},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(image.Snapshot())
	f.Fuzz(func(t *testing.T, data []byte) {
		image, err := DecodeSnapshot(data)
		if err != nil {
			return
		}
		once := image.Snapshot()
		again, err := DecodeSnapshot(once)
		if err != nil {
			t.Fatalf("%s was written, but can't be read: %v", once, err)
		}
		if twice := again.Snapshot(); !bytes.Equal(once, twice) {
			t.Fatalf("%s became %s", once, twice)
		}
	})
}

func TestListsOfAnImageAreInOrder(t *testing.T) {
	image := Empty()
	var records []Record
	for i, name := range []string{"zz", "m", "a-1", "Z", "a"} {
		id := wire.TopicID{0: byte(i + 1)}
		records = append(records, &TopicRecord{Name: name, ID: id},
			&ConfigRecord{ResourceType: TopicResource, ResourceName: name, Name: "x", Value: ptr("1")})
	}
	records = append(records, &ConfigRecord{ResourceType: GroupResource, ResourceName: "a", Name: "x", Value: ptr("1")})
	for _, id := range []wire.BrokerID{3, 1, 2} {
		records = append(records, &BrokerRegistrationRecord{Broker{ID: id, Epoch: wire.BrokerEpoch(len(records))}})
	}
	image, _, err := image.Apply(0, records)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"Z", "a", "a-1", "m", "zz"}
	var names []string
	for topic := range image.Topics("") {
		names = append(names, topic.Name)
	}
	if !slices.Equal(names, want) {
		t.Errorf("topics %v", names)
	}
	if got := slices.Collect(image.ConfigResources(TopicResource)); !slices.Equal(got, want) {
		t.Errorf("config resources %v", got)
	}
	if got := slices.Collect(image.ConfigResources(BrokerResource)); got != nil {
		t.Errorf("brokers with configs: %v", got)
	}
	var ids []wire.BrokerID
	for b := range image.Brokers() {
		ids = append(ids, b.ID)
	}
	if !slices.Equal(ids, []wire.BrokerID{1, 2, 3}) {
		t.Errorf("brokers %v", ids)
	}
}
