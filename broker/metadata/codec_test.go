package metadata

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-io/tidemark/broker/wire"
)

var (
	topicA = wire.TopicID{0: 0xa, 15: 1}
	topicB = wire.TopicID{0: 0xb, 15: 2}
)

func ptr[T any](v T) *T { return &v }

// formats are the records as they lie in the bucket: a change here is a change of format.
var formats = []struct {
	record Record
	json   string
}{
	{&ControllerElectedRecord{BrokerID: 1, Epoch: 7}, `{"type":"ControllerElected","version":0,"brokerId":1,"epoch":7}`},
	{&NoOpRecord{}, `{"type":"NoOp","version":0}`},
	{&TopicRecord{Name: "orders", ID: topicA}, `{"type":"Topic","version":0,"name":"orders","id":"CgAAAAAAAAAAAAAAAAAAAQ"}`},
	{&RemoveTopicRecord{ID: topicA}, `{"type":"RemoveTopic","version":0,"id":"CgAAAAAAAAAAAAAAAAAAAQ"}`},
	{
		&RemovalRecord{Topic: "orders", TopicID: topicA, RemovedMs: 1700},
		`{"type":"Removal","version":0,"topic":"orders","topicId":"CgAAAAAAAAAAAAAAAAAAAQ","removedMs":1700}`,
	},
	{&RemovalDoneRecord{TopicID: topicA}, `{"type":"RemovalDone","version":0,"topicId":"CgAAAAAAAAAAAAAAAAAAAQ"}`},
	{&ClusterRecoveredRecord{Incarnation: 2}, `{"type":"ClusterRecovered","version":0,"incarnation":2}`},
	{
		&PartitionRecord{TopicID: topicA, Index: 2, Partition: Partition{
			Replicas: []wire.BrokerID{1, 2}, Directories: []string{"d1", ""}, ISR: []wire.BrokerID{1}, Leader: 1, LeaderEpoch: 3, PartitionEpoch: 4,
		}},
		`{"type":"Partition","version":0,"topicId":"CgAAAAAAAAAAAAAAAAAAAQ","partition":2,"replicas":[1,2],"directories":["d1",""],` +
			`"isr":[1],"leader":1,"leaderEpoch":3,"partitionEpoch":4}`,
	},
	{
		&PartitionRecord{TopicID: topicA, Partition: Partition{
			Replicas: []wire.BrokerID{1}, Directories: []string{"d1"}, ISR: []wire.BrokerID{1}, Leader: wire.NoBroker, LeaderEpoch: 3, PartitionEpoch: 4,
			Recovery: Recovering, RecoverySince: 3,
		}},
		`{"type":"Partition","version":0,"topicId":"CgAAAAAAAAAAAAAAAAAAAQ","partition":0,"replicas":[1],"directories":["d1"],` +
			`"isr":[1],"leader":-1,"leaderEpoch":3,"partitionEpoch":4,"recovery":1,"recoverySince":3}`,
	},
	{
		&PartitionChangeRecord{TopicID: topicA, Index: 2, PartitionEpoch: 5, Leader: ptr(wire.NoBroker), LeaderEpoch: ptr(wire.LeaderEpoch(4))},
		`{"type":"PartitionChange","version":0,"topicId":"CgAAAAAAAAAAAAAAAAAAAQ","partition":2,"partitionEpoch":5,"leader":-1,"leaderEpoch":4}`,
	},
	{
		&PartitionChangeRecord{
			TopicID: topicA, PartitionEpoch: 6, ISR: []wire.BrokerID{2, 1}, Directories: []string{"d1", "d2"}, ELR: []wire.BrokerID{},
			LastKnownELR: []wire.BrokerID{1}, Recovery: ptr(Recovered),
		},
		`{"type":"PartitionChange","version":0,"topicId":"CgAAAAAAAAAAAAAAAAAAAQ","partition":0,"partitionEpoch":6,"isr":[2,1],` +
			`"directories":["d1","d2"],"elr":[],"lastKnownElr":[1],"recovery":0}`,
	},
	{
		&ConfigRecord{ResourceType: TopicResource, ResourceName: "orders", Name: "retention.ms", Value: ptr("1000")},
		`{"type":"Config","version":0,"resourceType":"topic","resourceName":"orders","name":"retention.ms","value":"1000"}`,
	},
	{
		&ConfigRecord{ResourceType: BrokerResource, Name: "log.retention.ms"},
		`{"type":"Config","version":0,"resourceType":"broker","resourceName":"","name":"log.retention.ms","value":null}`,
	},
	{
		&BrokerRegistrationRecord{Broker{
			ID: 1, Epoch: 9, Incarnation: "i1", BootID: "b1", Directories: []string{"d1"}, CleanStopEpoch: -1,
			Listeners: []Listener{{Name: "PLAINTEXT", Host: "h", Port: 9092, Protocol: "PLAINTEXT"}}, Rack: "r1",
			Features: []SupportedFeature{{Name: MetadataVersion, Min: 7, Max: 33}}, Fenced: true,
		}},
		`{"type":"BrokerRegistration","version":0,"brokerId":1,"epoch":9,"incarnation":"i1","bootId":"b1","directories":["d1"],` +
			`"cleanStopEpoch":-1,"listeners":[{"name":"PLAINTEXT","host":"h","port":9092,"protocol":"PLAINTEXT"}],"rack":"r1",` +
			`"features":[{"name":"metadata.version","min":7,"max":33}],"fenced":true}`,
	},
	{
		&BrokerChangeRecord{BrokerID: 1, Epoch: 9, Fenced: ptr(false), InControlledShutdown: ptr(true), Directories: []string{}},
		`{"type":"BrokerChange","version":0,"brokerId":1,"epoch":9,"fenced":false,"inControlledShutdown":true,"directories":[]}`,
	},
	{&UnregisterBrokerRecord{BrokerID: 1, Epoch: 9}, `{"type":"UnregisterBroker","version":0,"brokerId":1,"epoch":9}`},
	{
		&ProducerIDBlockRecord{BrokerID: 1, BrokerEpoch: 9, NextProducerID: 1000},
		`{"type":"ProducerIdBlock","version":0,"brokerId":1,"brokerEpoch":9,"nextProducerId":1000}`,
	},
	{&FeatureLevelRecord{Name: MetadataVersion, Level: 33}, `{"type":"FeatureLevel","version":0,"name":"metadata.version","level":33}`},
}

func TestRecordsAreFlatJSON(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range formats {
		seen[f.record.recordType().name] = true
		got, err := MarshalRecord(f.record)
		if err != nil || string(got) != f.json {
			t.Errorf("encoded %s (%v)\n    want %s", got, err, f.json)
		}
		back, err := UnmarshalRecord([]byte(f.json))
		if err != nil {
			t.Errorf("decode %s: %v", f.json, err)
		} else if diff := cmp.Diff(f.record, back); diff != "" {
			t.Errorf("decode %s: %s", f.json, diff)
		}
	}
	for name := range emptyRecords {
		if !seen[name] {
			t.Errorf("the format of %s is not in the table", name)
		}
	}
}

func TestRecordsThatAReaderDoesNotKnowAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"another type":         `{"type":"Acl","version":0}`,
		"no type":              `{"version":0}`,
		"a newer version":      `{"type":"NoOp","version":1}`,
		"a negative version":   `{"type":"NoOp","version":-1}`,
		"no version":           `{"type":"NoOp"}`,
		"another field":        `{"type":"NoOp","version":0,"x":1}`,
		"a sealed secret":      `{"type":"Config","version":0,"resourceType":"topic","resourceName":"a","name":"b","sealed":"AAAA"}`,
		"a signature":          `{"type":"NoOp","version":0,"mac":"AAAA"}`,
		"another resource":     `{"type":"Config","version":0,"resourceType":"user","resourceName":"a","name":"b","value":"c"}`,
		"a short topic id":     `{"type":"RemoveTopic","version":0,"id":"AAAA"}`,
		"a broker id too wide": `{"type":"ControllerElected","version":0,"brokerId":4294967296,"epoch":1}`,
		"type not first":       `{"brokerId":1,"type":"ControllerElected","version":0,"epoch":1}`,
		"two types":            `{"type":"NoOp","version":0,"type":"NoOp"}`,
		"a null record":        `{"type":"NoOp","version":null}`,
		"a comma too many":     `{"type":"NoOp","version":0,}`,
		"no comma":             `{"type":"ControllerElected","version":0 "brokerId":1,"epoch":1}`,
		"two records":          `{"type":"NoOp","version":0}{"type":"NoOp","version":0}`,
		"half a record":        `{"type":"NoOp","version":0`,
		"no object":            `null`,
	} {
		if r, err := UnmarshalRecord([]byte(text)); err == nil {
			t.Errorf("%s: accepted as %#v", name, r)
		}
	}
}

func FuzzUnmarshalRecord(f *testing.F) {
	for _, row := range formats {
		f.Add([]byte(row.json))
	}
	f.Add([]byte(`{"type":"Config","version":0}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := UnmarshalRecord(data)
		if err != nil {
			return
		}
		if kind, fields, ok := splitCompact(data); ok {
			if long, rest, err := splitAny(data); err != nil || long != kind || !bytes.Equal(rest, fields) {
				t.Fatalf("%s is %v with %s by the short way, %v with %s (%v) by the long one", data, kind, fields, long, rest, err)
			}
		}
		once, err := MarshalRecord(r)
		if err != nil {
			t.Fatalf("%s was read, but can't be written: %v", data, err)
		}
		again, err := UnmarshalRecord(once)
		if err != nil {
			t.Fatalf("%s was written, but can't be read: %v", once, err)
		}
		if twice, err := MarshalRecord(again); err != nil || string(twice) != string(once) {
			t.Fatalf("%s became %s (%v)", once, twice, err)
		}
	})
}
