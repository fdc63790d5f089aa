package metadata

import "github.com/tidemark-io/tidemark/broker/wire"

// Record is one change of the cluster's metadata: one of the pointer types below. Records state results, not intentions: all
// epochs in them are absolute, so that applying one needs no rule of the controller that wrote it. A record does not change
// after it was made; an image that it was applied to shares its slices.
//
// The field names "mac" and "sealed" are reserved in all records: for the HMAC of signed records and for secrets sealed
// under metadata.key. A reader of this version refuses records that carry them.
type Record interface {
	recordType() recordType
}

type recordType struct {
	name    string
	version int // the highest that is understood, and the one that is written
}

// ControllerElectedRecord is the first record that a controller commits. Its epoch is the lease epoch, and the epoch of all
// records up to the next one of its kind.
type ControllerElectedRecord struct {
	BrokerID wire.BrokerID    `json:"brokerId"`
	Epoch    wire.LeaderEpoch `json:"epoch"`
}

// NoOpRecord changes nothing but the offset.
type NoOpRecord struct{}

// TopicRecord creates a topic without partitions; its partitions follow in the same commit.
type TopicRecord struct {
	Name string       `json:"name"`
	ID   wire.TopicID `json:"id"`
}

// RemoveTopicRecord removes a topic, its partitions and its configs.
type RemoveTopicRecord struct {
	ID wire.TopicID `json:"id"`
}

// RemovalRecord says that what the object store holds of a topic that was removed is to be deleted. It is committed with the topic's
// RemoveTopicRecord and holds until a RemovalDoneRecord.
type RemovalRecord struct {
	Topic     string       `json:"topic"`
	TopicID   wire.TopicID `json:"topicId"`
	RemovedMs int64        `json:"removedMs"` // by the controller's clock
}

// RemovalDoneRecord says that nothing of a removed topic is left.
type RemovalDoneRecord struct {
	TopicID wire.TopicID `json:"topicId"`
}

// PartitionRecord creates a partition (the next index of its topic) or replaces one as a whole.
type PartitionRecord struct {
	TopicID wire.TopicID `json:"topicId"`
	Index   int32        `json:"partition"`
	Partition
}

// PartitionChangeRecord changes the named fields of a partition; nil ones stay. An empty list is a value.
type PartitionChangeRecord struct {
	TopicID        wire.TopicID      `json:"topicId"`
	Index          int32             `json:"partition"`
	PartitionEpoch int32             `json:"partitionEpoch"`
	Leader         *wire.BrokerID    `json:"leader,omitzero"`
	LeaderEpoch    *wire.LeaderEpoch `json:"leaderEpoch,omitzero"`
	ISR            []wire.BrokerID   `json:"isr,omitzero"`
	Directories    []string          `json:"directories,omitzero"`
	ELR            []wire.BrokerID   `json:"elr,omitzero"`
	LastKnownELR   []wire.BrokerID   `json:"lastKnownElr,omitzero"`
	Recovery       *RecoveryState    `json:"recovery,omitzero"`
	Empty          *bool             `json:"empty,omitzero"`
}

// ConfigRecord sets one dynamic config of a resource, or removes it when Value is nil.
type ConfigRecord struct {
	ResourceType ResourceType `json:"resourceType"`
	ResourceName string       `json:"resourceName"`
	Name         string       `json:"name"`
	Value        *string      `json:"value"`
}

// BrokerRegistrationRecord registers a broker, in place of its former registration. Its Epoch is the record's own offset.
type BrokerRegistrationRecord struct {
	Broker
}

// BrokerChangeRecord changes a registration; nil fields stay.
type BrokerChangeRecord struct {
	BrokerID             wire.BrokerID    `json:"brokerId"`
	Epoch                wire.BrokerEpoch `json:"epoch"`
	Fenced               *bool            `json:"fenced,omitzero"`
	InControlledShutdown *bool            `json:"inControlledShutdown,omitzero"`
	Whole                *bool            `json:"whole,omitzero"`
	Directories          []string         `json:"directories,omitzero"`
}

// UnregisterBrokerRecord removes a registration.
type UnregisterBrokerRecord struct {
	BrokerID wire.BrokerID    `json:"brokerId"`
	Epoch    wire.BrokerEpoch `json:"epoch"`
}

// ProducerIDBlockRecord gives a broker the producer ids from the former NextProducerID up to, not including, its own.
type ProducerIDBlockRecord struct {
	BrokerID       wire.BrokerID    `json:"brokerId"`
	BrokerEpoch    wire.BrokerEpoch `json:"brokerEpoch"`
	NextProducerID wire.ProducerID  `json:"nextProducerId"`
}

// FeatureLevelRecord finalises a feature at a level; level 0 removes it. Its offset becomes the epoch of the features.
type FeatureLevelRecord struct {
	Name  string `json:"name"`
	Level int16  `json:"level"`
}

// ClusterRecoveredRecord begins a new incarnation of the cluster, after one whose brokers and disks are lost: what follows in the
// same commit unregisters all brokers and assigns all partitions anew (safety.md 30).
type ClusterRecoveredRecord struct {
	Incarnation int64 `json:"incarnation"`
}

func (*ControllerElectedRecord) recordType() recordType  { return recordType{"ControllerElected", 0} }
func (*NoOpRecord) recordType() recordType               { return recordType{"NoOp", 0} }
func (*TopicRecord) recordType() recordType              { return recordType{"Topic", 0} }
func (*RemoveTopicRecord) recordType() recordType        { return recordType{"RemoveTopic", 0} }
func (*RemovalRecord) recordType() recordType            { return recordType{"Removal", 0} }
func (*RemovalDoneRecord) recordType() recordType        { return recordType{"RemovalDone", 0} }
func (*ClusterRecoveredRecord) recordType() recordType   { return recordType{"ClusterRecovered", 0} }
func (*PartitionRecord) recordType() recordType          { return recordType{"Partition", 0} }
func (*PartitionChangeRecord) recordType() recordType    { return recordType{"PartitionChange", 0} }
func (*ConfigRecord) recordType() recordType             { return recordType{"Config", 0} }
func (*BrokerRegistrationRecord) recordType() recordType { return recordType{"BrokerRegistration", 0} }
func (*BrokerChangeRecord) recordType() recordType       { return recordType{"BrokerChange", 0} }
func (*UnregisterBrokerRecord) recordType() recordType   { return recordType{"UnregisterBroker", 0} }
func (*ProducerIDBlockRecord) recordType() recordType    { return recordType{"ProducerIdBlock", 0} }
func (*FeatureLevelRecord) recordType() recordType       { return recordType{"FeatureLevel", 0} }
