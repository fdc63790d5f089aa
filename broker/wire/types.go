package wire

import (
	"encoding/base64"
	"fmt"
	"strconv"
)

// Offset is the position of a record in a partition.
type Offset int64

// NoOffset stands for "none" wherever the protocol writes -1 for an offset.
const NoOffset Offset = -1

// LeaderEpoch counts the leaders of a partition; it never goes down.
type LeaderEpoch int32

// NoLeaderEpoch stands for "not known".
const NoLeaderEpoch LeaderEpoch = -1

// BrokerID is node.id.
type BrokerID int32

// NoBroker stands for "no leader" and "no such broker".
const NoBroker BrokerID = -1

// String is the id in decimal, as config resources and files name brokers.
func (id BrokerID) String() string { return strconv.Itoa(int(id)) }

// BrokerEpoch is the metadata offset of a broker's registration (KIP-903).
type BrokerEpoch int64

// ProducerID is handed out by the controller in blocks.
type ProducerID int64

// NoProducerID marks batches without idempotence.
const NoProducerID ProducerID = -1

// ProducerEpoch fences former producers with the same id.
type ProducerEpoch int16

// TopicID identifies a topic for its whole life; the zero value is no topic.
type TopicID [16]byte

// String is the URL-safe base64 form without padding that Kafka's tools print.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// IsZero tells whether the id is absent.
func (id TopicID) IsZero() bool { return id == TopicID{} }

// MarshalText writes the form of String.
func (id TopicID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads the form of String.
func (id *TopicID) UnmarshalText(text []byte) error {
	parsed, err := ParseTopicID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// ParseTopicID reads the form of String.
func ParseTopicID(s string) (TopicID, error) {
	var id TopicID
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(raw) != len(id) {
		return id, fmt.Errorf("topic id %q is not 22 characters of base64url", s)
	}
	copy(id[:], raw)
	return id, nil
}

// TopicPartition names a partition of a topic; it is comparable and serves as a map key.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String is the directory name of the partition: topic-partition.
func (tp TopicPartition) String() string { return tp.Topic + "-" + strconv.Itoa(int(tp.Partition)) }

// The internal topics (Metadata flags them so).
const (
	ConsumerOffsetsTopic  = "__consumer_offsets"
	TransactionStateTopic = "__transaction_state"
	ShareGroupStateTopic  = "__share_group_state"
	ClusterMetadataTopic  = "__cluster_metadata"
	maxTopicNameLength    = 249
)

// IsInternalTopic tells whether clients may neither produce to it nor delete it.
func IsInternalTopic(name string) bool {
	return name == ConsumerOffsetsTopic || name == TransactionStateTopic || name == ShareGroupStateTopic
}

// ValidTopicName tells whether Kafka accepts the name.
func ValidTopicName(name string) bool { return TopicNameFault(name) == "" }

// TopicNameFault says in Kafka's words why a name is not accepted, or nothing: names are 1 to 249 of [a-zA-Z0-9._-], neither
// "." nor "..".
func TopicNameFault(name string) string {
	switch {
	case name == "":
		return "the empty string is not allowed"
	case name == "." || name == "..":
		return "'" + name + "' is not allowed"
	case len(name) > maxTopicNameLength:
		return "the length of '" + name + "' is longer than the max allowed length " + strconv.Itoa(maxTopicNameLength)
	}
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '.' && c != '_' && c != '-' {
			return "'" + name + "' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
		}
	}
	return ""
}
