package metadata

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// snapshotHead is what a snapshot says besides its records.
type snapshotHead struct {
	Version       int         `json:"version"`
	Offset        wire.Offset `json:"offset"`        // of the last record that is in it
	FeaturesEpoch wire.Offset `json:"featuresEpoch"` // Features.Epoch
}

const snapshotVersion = 0

// Snapshot is the image as one line of canonical JSON: the offset, and the records that rebuild it. Images with equal content
// have equal snapshots.
func (i *Image) Snapshot() []byte {
	out := fmt.Appendf(nil, `{"version":%d,"offset":%d,"featuresEpoch":%d,"records":[`, snapshotVersion, i.offset, i.features.Epoch)
	for n, r := range i.records() {
		if n > 0 {
			out = append(out, ',')
		}
		record, err := MarshalRecord(r)
		if err != nil {
			panic(fmt.Sprintf("a record of an image has no JSON: %v", err)) // Apply lets only such records in that have
		}
		out = append(out, record...)
	}
	return append(out, "]}"...)
}

// Hash is the SHA-256 of the snapshot.
func (i *Image) Hash() [sha256.Size]byte { return sha256.Sum256(i.Snapshot()) }

// records that build the image from the empty one, in an order that depends on its content alone.
func (i *Image) records() []Record {
	var records []Record
	if i.controller.Epoch > 0 {
		records = append(records, &ControllerElectedRecord{BrokerID: i.controller.BrokerID, Epoch: i.controller.Epoch})
	}
	if i.incarnation > 0 {
		records = append(records, &ClusterRecoveredRecord{Incarnation: i.incarnation})
	}
	for _, l := range i.features.Levels {
		records = append(records, &FeatureLevelRecord{Name: l.Name, Level: l.Level})
	}
	if i.nextProducerID > 0 {
		records = append(records, &ProducerIDBlockRecord{BrokerID: wire.NoBroker, BrokerEpoch: -1, NextProducerID: i.nextProducerID})
	}
	for b := range i.Brokers() {
		records = append(records, &BrokerRegistrationRecord{*b})
	}
	for t := range i.Topics("") {
		records = append(records, &TopicRecord{Name: t.Name, ID: t.ID})
		for index, p := range t.Partitions {
			records = append(records, &PartitionRecord{TopicID: t.ID, Index: int32(index), Partition: *p})
		}
	}
	for r := range i.Removals() {
		records = append(records, &RemovalRecord{Topic: r.Topic, TopicID: r.TopicID, RemovedMs: r.RemovedMs})
	}
	for r, configs := range i.configs.all(ConfigResource{}) {
		for _, name := range slices.Sorted(maps.Keys(configs)) {
			value := configs[name]
			records = append(records, &ConfigRecord{ResourceType: r.Type, ResourceName: r.Name, Name: name, Value: &value})
		}
	}
	return records
}

// DecodeSnapshot rebuilds the image that Snapshot was called on.
func DecodeSnapshot(data []byte) (*Image, error) {
	var s struct {
		snapshotHead
		Records []json.RawMessage `json:"records"`
	}
	if err := decodeStrictly(data, &s); err != nil {
		return nil, fmt.Errorf("decode metadata snapshot: %w", err)
	}
	if s.Version != snapshotVersion || s.FeaturesEpoch < wire.NoOffset || s.FeaturesEpoch > s.Offset {
		return nil, fmt.Errorf("metadata snapshot of version %d, offset %d, features epoch %d", s.Version, s.Offset, s.FeaturesEpoch)
	}
	b := newBuilder(Empty())
	b.snapshot = true
	for n, raw := range s.Records {
		r, err := UnmarshalRecord(raw)
		if err != nil {
			return nil, fmt.Errorf("metadata snapshot, record %d: %w", n, err)
		}
		if err := b.apply(r); err != nil {
			return nil, fmt.Errorf("metadata snapshot, record %d, %s: %w", n, r.recordType().name, err)
		}
	}
	b.next.offset = s.Offset
	b.next.features.Epoch = s.FeaturesEpoch
	return b.next, nil
}
