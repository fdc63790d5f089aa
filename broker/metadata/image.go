package metadata

import (
	"bytes"
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// Image is the cluster's metadata as of one offset of the metadata log. It never changes; what its methods return is shared and
// must not be changed either.
type Image struct {
	offset         wire.Offset
	controller     Controller
	incarnation    int64
	topics         sortedMap[string, *Topic]
	topicIDs       sortedMap[wire.TopicID, *Topic]
	partitionCount int
	brokers        sortedMap[wire.BrokerID, *Broker]
	configs        sortedMap[ConfigResource, map[string]string]
	removals       sortedMap[wire.TopicID, Removal]
	features       Features
	nextProducerID wire.ProducerID
}

// Empty is the image of a cluster before its first record.
func Empty() *Image {
	return &Image{
		offset:     wire.NoOffset,
		controller: Controller{BrokerID: wire.NoBroker},
		topics:     sortedMap[string, *Topic]{compare: strings.Compare},
		topicIDs:   sortedMap[wire.TopicID, *Topic]{compare: compareIDs},
		removals:   sortedMap[wire.TopicID, Removal]{compare: compareIDs},
		brokers:    sortedMap[wire.BrokerID, *Broker]{compare: cmp.Compare[wire.BrokerID]},
		configs:    sortedMap[ConfigResource, map[string]string]{compare: ConfigResource.compare},
		features:   Features{Epoch: wire.NoOffset},
	}
}

func compareIDs(a, b wire.TopicID) int { return bytes.Compare(a[:], b[:]) }

// Controller is who wrote the last records.
type Controller struct {
	BrokerID wire.BrokerID    // wire.NoBroker before the first controller
	Epoch    wire.LeaderEpoch // the lease epoch
}

// Topic is a topic with its partitions, 0 first, without gaps.
type Topic struct {
	Name       string
	ID         wire.TopicID
	Partitions []*Partition
}

// Partition of that index, nil if there is none.
func (t *Topic) Partition(index int32) *Partition {
	if index < 0 || int(index) >= len(t.Partitions) {
		return nil
	}
	return t.Partitions[index]
}

// Partition is the state of a partition.
type Partition struct {
	Replicas       []wire.BrokerID  `json:"replicas"`    // in order of preference
	Directories    []string         `json:"directories"` // the directory id of each replica; "" where the broker has not chosen yet
	ISR            []wire.BrokerID  `json:"isr"`
	ELR            []wire.BrokerID  `json:"elr,omitempty"`          // eligible leader replicas (KIP-966); reserved
	LastKnownELR   []wire.BrokerID  `json:"lastKnownElr,omitempty"` // reserved
	Leader         wire.BrokerID    `json:"leader"`                 // or wire.NoBroker
	LeaderEpoch    wire.LeaderEpoch `json:"leaderEpoch"`
	PartitionEpoch int32            `json:"partitionEpoch"` // +1 with each change
	Recovery       RecoveryState    `json:"recovery,omitempty"`
	RecoverySince  wire.LeaderEpoch `json:"recoverySince,omitempty"` // while it is Recovering: the epoch with which that began, above all before
	Empty          bool             `json:"empty,omitempty"`         // its last leader stopped with a log that never had a record; nobody leads it since
}

// DirectoryOf is the directory id of the broker's replica: "" if it has none, or has not chosen yet.
func (p *Partition) DirectoryOf(broker wire.BrokerID) string {
	if i := slices.Index(p.Replicas, broker); i >= 0 {
		return p.Directories[i]
	}
	return ""
}

// RecoveryState says whether the partition's leader was elected from outside the ISR and still has to recover: with the cluster's
// recovery from its bucket, to find out which offsets may have been lost and begin above them (safety.md 19).
type RecoveryState int8

// The values of RecoveryState, as in Kafka's LeaderRecoveryState.
const (
	Recovered  RecoveryState = 0
	Recovering RecoveryState = 1
)

// Broker is the registration of a broker.
type Broker struct {
	ID                   wire.BrokerID      `json:"brokerId"`
	Epoch                wire.BrokerEpoch   `json:"epoch"`          // offset of the registration record (KIP-903)
	Incarnation          string             `json:"incarnation"`    // new with every start of the process
	BootID               string             `json:"bootId"`         // of the kernel; "" if unknown
	Directories          []string           `json:"directories"`    // ids of the log directories that are online, sorted
	CleanStopEpoch       wire.BrokerEpoch   `json:"cleanStopEpoch"` // broker epoch of the last clean stop, -1 if it was not clean
	Listeners            []Listener         `json:"listeners"`
	Rack                 string             `json:"rack,omitempty"` // "" if none
	Features             []SupportedFeature `json:"features"`       // sorted by name
	Fenced               bool               `json:"fenced"`
	InControlledShutdown bool               `json:"inControlledShutdown,omitempty"`
	Whole                bool               `json:"whole,omitempty"` // it has stopped since, and the bucket has all that it led
}

// Active tells whether the broker may lead partitions and sit in ISRs.
func (b *Broker) Active() bool { return !b.Fenced && !b.InControlledShutdown }

// Listener is an address that a broker advertises.
type Listener struct {
	Name     string `json:"name"`
	Host     string `json:"host"`
	Port     uint16 `json:"port"`
	Protocol string `json:"protocol"` // PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
}

// SupportedFeature is the range of levels of a feature that a broker can work with.
type SupportedFeature struct {
	Name string `json:"name"`
	Min  int16  `json:"min"`
	Max  int16  `json:"max"`
}

// Removal is a topic that was removed, and of which the object store may still hold something (safety.md 28).
type Removal struct {
	Topic     string
	TopicID   wire.TopicID
	RemovedMs int64 // by the controller's clock
}

// Features are the finalised features of the cluster.
type Features struct {
	Epoch  wire.Offset    // offset of the last change; -1 before the first
	Levels []FeatureLevel // sorted by name
}

// FeatureLevel is a finalised level.
type FeatureLevel struct {
	Name  string
	Level int16
}

// Level of a feature; 0 if it is not finalised.
func (f Features) Level(name string) int16 {
	for _, l := range f.Levels {
		if l.Name == name {
			return l.Level
		}
	}
	return 0
}

// Offset of the last applied record; -1 for the empty cluster.
func (i *Image) Offset() wire.Offset { return i.offset }

// Controller that wrote the last records. Its epoch is the epoch of Offset.
func (i *Image) Controller() Controller { return i.controller }

// ClusterIncarnation counts how often the cluster was recovered from its bucket.
func (i *Image) ClusterIncarnation() int64 { return i.incarnation }

// Topic by name, nil if there is none.
func (i *Image) Topic(name string) *Topic { t, _ := i.topics.get(name); return t }

// TopicByID is nil if there is none.
func (i *Image) TopicByID(id wire.TopicID) *Topic { t, _ := i.topicIDs.get(id); return t }

// Topics in order of their names (bytes), from the first that is not below from.
func (i *Image) Topics(from string) iter.Seq[*Topic] { return i.topics.values(from) }

// TopicCount is the number of topics.
func (i *Image) TopicCount() int { return i.topics.len() }

// PartitionCount is the number of partitions of all topics.
func (i *Image) PartitionCount() int { return i.partitionCount }

// Partition is nil if there is none.
func (i *Image) Partition(topic string, partition int32) *Partition {
	t := i.Topic(topic)
	if t == nil {
		return nil
	}
	return t.Partition(partition)
}

// Broker is nil if it is not registered.
func (i *Image) Broker(id wire.BrokerID) *Broker { b, _ := i.brokers.get(id); return b }

// StoppedWhole tells whether a partition's broker has stopped after it led it, and said that the bucket has all of it.
func (i *Image) StoppedWhole(p *Partition) bool {
	if len(p.Replicas) != 1 {
		return false
	}
	b := i.Broker(p.Replicas[0])
	return b != nil && b.Whole
}

// ClosedLast tells whether nobody has led a partition since its manifest was closed: its broker has stopped after that and said so, or
// the epoch that closed it is the last one that had a leader. A later leader may have taken records that it never uploaded.
func (i *Image) ClosedLast(p *Partition, closed wire.LeaderEpoch) bool {
	switch {
	case i.StoppedWhole(p):
		return true
	case p.Leader == wire.NoBroker:
		return p.LeaderEpoch == closed+1
	}
	return p.LeaderEpoch == closed
}

// Brokers in order of their ids, fenced ones too.
func (i *Image) Brokers() iter.Seq[*Broker] { return i.brokers.values(wire.NoBroker) }

// BrokerCount is the number of registered brokers.
func (i *Image) BrokerCount() int { return i.brokers.len() }

// Configs are the dynamic configs of a resource; nil if it has none.
func (i *Image) Configs(r ConfigResource) map[string]string { c, _ := i.configs.get(r); return c }

// ConfigResources of a type that have dynamic configs, in order of their names.
func (i *Image) ConfigResources(t ResourceType) iter.Seq[string] {
	return func(yield func(string) bool) {
		for r := range i.configs.all(ConfigResource{Type: t}) {
			if r.Type != t || !yield(r.Name) {
				return
			}
		}
	}
}

// Removals that are under way, in order of the topics' ids.
func (i *Image) Removals() iter.Seq[Removal] { return i.removals.values(wire.TopicID{}) }

// Removal of the topic with that id.
func (i *Image) Removal(id wire.TopicID) (Removal, bool) { return i.removals.get(id) }

// RemovalCount is how many removals are under way.
func (i *Image) RemovalCount() int { return i.removals.len() }

// Features that are finalised.
func (i *Image) Features() Features { return i.features }

// NextProducerID is the first id of the next block.
func (i *Image) NextProducerID() wire.ProducerID { return i.nextProducerID }
