package metadata

import "github.com/tidemark-io/tidemark/broker/wire"

// RegisterBroker announces a started broker (BrokerRegistration). It is answered by RegisterBrokerAnswer.
type RegisterBroker struct {
	BrokerID  wire.BrokerID `json:"brokerId"`
	ClusterID string        `json:"clusterId"`
	// ClusterIncarnation is that of the log directories: a broker that was not there when the cluster was recovered is refused.
	ClusterIncarnation int64              `json:"clusterIncarnation,omitempty"`
	Incarnation        string             `json:"incarnation"`
	BootID             string             `json:"bootId"`
	Directories        []string           `json:"directories"` // ids of the log directories that are online
	CleanStopEpoch     wire.BrokerEpoch   `json:"cleanStopEpoch"`
	Listeners          []Listener         `json:"listeners"`
	Rack               string             `json:"rack,omitempty"`
	Features           []SupportedFeature `json:"features"`
}

// RegisterBrokerAnswer gives the broker its epoch. It starts fenced.
type RegisterBrokerAnswer struct {
	Result Result           `json:"result"`
	Epoch  wire.BrokerEpoch `json:"epoch"`
}

// BrokerHeartbeat keeps a broker's session alive and asks for the next state (BrokerHeartbeat). It is answered by
// BrokerHeartbeatAnswer.
type BrokerHeartbeat struct {
	BrokerID       wire.BrokerID    `json:"brokerId"`
	BrokerEpoch    wire.BrokerEpoch `json:"brokerEpoch"`
	MetadataOffset wire.Offset      `json:"metadataOffset"` // the highest that the broker has applied
	WantFence      bool             `json:"wantFence,omitempty"`
	WantShutdown   bool             `json:"wantShutdown,omitempty"`
	Whole          bool             `json:"whole,omitempty"` // with WantShutdown: the bucket has all that this broker led, and every manifest is closed of what ever had a record
	// Empty, with WantShutdown: what this broker leads and never had a record. Nothing may be appended to it any more.
	Empty              []TopicPartitions `json:"empty,omitempty"`
	OfflineDirectories []string          `json:"offlineDirectories,omitempty"`
}

// TopicPartitions are partitions of a topic.
type TopicPartitions struct {
	TopicID    wire.TopicID `json:"topicId"`
	Partitions []int32      `json:"partitions"`
}

// BrokerHeartbeatAnswer tells the broker its state.
type BrokerHeartbeatAnswer struct {
	Result         Result `json:"result"`
	CaughtUp       bool   `json:"caughtUp"` // has applied its own registration
	Fenced         bool   `json:"fenced"`
	ShouldShutdown bool   `json:"shouldShutdown"`
}

// UnregisterBroker removes a registration. It is answered by UnregisterBrokerAnswer.
type UnregisterBroker struct {
	BrokerID wire.BrokerID `json:"brokerId"`
}

// UnregisterBrokerAnswer is the outcome.
type UnregisterBrokerAnswer struct {
	Result Result `json:"result"`
}

// AssignReplicasToDirs reports in which of its log directories a broker keeps replicas (KIP-858). It is answered by
// AssignReplicasToDirsAnswer.
type AssignReplicasToDirs struct {
	BrokerID    wire.BrokerID         `json:"brokerId"`
	BrokerEpoch wire.BrokerEpoch      `json:"brokerEpoch"`
	Replicas    []DirectoryAssignment `json:"replicas"`
}

// DirectoryAssignment is a replica and the directory that holds it.
type DirectoryAssignment struct {
	TopicID   wire.TopicID `json:"topicId"`
	Partition int32        `json:"partition"`
	Directory string       `json:"directory"`
}

// AssignReplicasToDirsAnswer has a result for the whole and one for each replica of the request.
type AssignReplicasToDirsAnswer struct {
	Result   Result   `json:"result"`
	Replicas []Result `json:"replicas"`
}

// AlterPartition proposes new ISRs of partitions that the broker leads. It is answered by AlterPartitionAnswer.
type AlterPartition struct {
	BrokerID    wire.BrokerID    `json:"brokerId"`
	BrokerEpoch wire.BrokerEpoch `json:"brokerEpoch"`
	Partitions  []ISRProposal    `json:"partitions"`
}

// ISRProposal is a new ISR, valid for the state of the partition with these epochs alone.
type ISRProposal struct {
	TopicID        wire.TopicID     `json:"topicId"`
	Partition      int32            `json:"partition"`
	LeaderEpoch    wire.LeaderEpoch `json:"leaderEpoch"`
	PartitionEpoch int32            `json:"partitionEpoch"`
	Recovery       RecoveryState    `json:"recovery,omitempty"`
	ISR            []ISRMember      `json:"isr"`
}

// ISRMember is a replica with the broker epoch under which the leader saw it; -1 if unknown.
type ISRMember struct {
	BrokerID wire.BrokerID    `json:"brokerId"`
	Epoch    wire.BrokerEpoch `json:"epoch"`
}

// AlterPartitionAnswer has a result for the whole and a row for each proposal.
type AlterPartitionAnswer struct {
	Result     Result       `json:"result"`
	Partitions []DecidedISR `json:"partitions"`
}

// DecidedISR is the state of the partition after the proposal; meaningful where Result is success.
type DecidedISR struct {
	TopicID        wire.TopicID     `json:"topicId"`
	Partition      int32            `json:"partition"`
	Result         Result           `json:"result"`
	Leader         wire.BrokerID    `json:"leader"`
	LeaderEpoch    wire.LeaderEpoch `json:"leaderEpoch"`
	PartitionEpoch int32            `json:"partitionEpoch"`
	Recovery       RecoveryState    `json:"recovery,omitempty"`
	ISR            []wire.BrokerID  `json:"isr"`
}

// RecoverCluster begins a new incarnation of a cluster whose brokers are lost, with all that it had in the hands of one new broker
// (safety.md 30). It is answered by RecoverClusterAnswer.
type RecoverCluster struct {
	BrokerID    wire.BrokerID `json:"brokerId"`
	Incarnation int64         `json:"incarnation"` // the one that begins
	Directory   string        `json:"directory"`   // id of the directory that gets the partitions; "" where the broker chooses
	// Partitions are all that there are. What is refused otherwise has changed since they were looked at.
	Partitions     []RecoveredPartition `json:"partitions"`
	NextProducerID wire.ProducerID      `json:"nextProducerId"` // above all ids that were seen
}

// RecoveredPartition is a partition and the highest leader epoch that was seen of it.
type RecoveredPartition struct {
	TopicID     wire.TopicID     `json:"topicId"`
	Partition   int32            `json:"partition"`
	LeaderEpoch wire.LeaderEpoch `json:"leaderEpoch"`
	Whole       bool             `json:"whole,omitempty"` // nothing of it is missing: it need not recover before it serves
}

// RecoverClusterAnswer is the outcome.
type RecoverClusterAnswer struct {
	Result Result `json:"result"`
}

func (*RegisterBroker) change()       {}
func (*BrokerHeartbeat) change()      {}
func (*UnregisterBroker) change()     {}
func (*AssignReplicasToDirs) change() {}
func (*AlterPartition) change()       {}
func (*RecoverCluster) change()       {}

func (*RegisterBrokerAnswer) answer()       {}
func (*BrokerHeartbeatAnswer) answer()      {}
func (*UnregisterBrokerAnswer) answer()     {}
func (*AssignReplicasToDirsAnswer) answer() {}
func (*AlterPartitionAnswer) answer()       {}
func (*RecoverClusterAnswer) answer()       {}
