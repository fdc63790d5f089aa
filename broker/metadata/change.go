package metadata

import "github.com/tidemark-io/tidemark/broker/wire"

// Change is a request to the controller: one of the pointer types below. Each says which Answer belongs to it. Changes and answers
// are plain data, so that a broker can forward them to the controller; lists in an answer follow the order of the request.
//
// Who may ask is decided before (package api): a controller trusts its caller.
type Change interface{ change() }

// Answer is what became of a Change.
type Answer interface{ answer() }

// Result is the outcome of one item of a change.
type Result struct {
	Code    wire.Code `json:"code"`
	Message string    `json:"message,omitempty"` // "" where Kafka sends null
}

// ResultOf turns an error into a Result: nil into success.
func ResultOf(err error) Result {
	r := Result{Code: wire.CodeOf(err)}
	if m := wire.MessageOf(err); m != nil {
		r.Message = *m
	}
	return r
}

// CreateTopics is answered by CreateTopicsAnswer.
type CreateTopics struct {
	Topics       []NewTopic `json:"topics"`
	ValidateOnly bool       `json:"validateOnly,omitempty"`
}

// NewTopic is a topic to create: counts, of which -1 stands for the broker's default, or assignments.
type NewTopic struct {
	Name              string        `json:"name"`
	Partitions        int32         `json:"partitions"`
	ReplicationFactor int16         `json:"replicationFactor"`
	Assignments       []Assignment  `json:"assignments,omitempty"`
	Configs           []ConfigEntry `json:"configs,omitempty"`
}

// Assignment names the replicas of a partition, the preferred leader first.
type Assignment struct {
	Partition int32           `json:"partition"`
	Replicas  []wire.BrokerID `json:"replicas"`
}

// ConfigEntry is a config's name and value; a nil value is the protocol's null.
type ConfigEntry struct {
	Name  string  `json:"name"`
	Value *string `json:"value"`
}

// CreateTopicsAnswer has a row for each topic of the request.
type CreateTopicsAnswer struct {
	Topics []CreatedTopic `json:"topics"`
}

// CreatedTopic is a row of CreateTopicsAnswer. Counts are -1, id and configs absent where the result is an error. Configs are the
// dynamic ones that the topic has (or would have): from them and the broker's own the answer's list is made.
type CreatedTopic struct {
	Name              string            `json:"name"`
	Result            Result            `json:"result"`
	ID                wire.TopicID      `json:"id,omitzero"`
	Partitions        int32             `json:"partitions"`
	ReplicationFactor int16             `json:"replicationFactor"`
	Configs           map[string]string `json:"configs,omitempty"`
}

// DeleteTopics is answered by DeleteTopicsAnswer.
type DeleteTopics struct {
	Topics []TopicRef `json:"topics"`
}

// TopicRef names a topic by its name (not nil) or by its id.
type TopicRef struct {
	Name *string      `json:"name"`
	ID   wire.TopicID `json:"id,omitzero"`
}

// DeleteTopicsAnswer has a row for each distinct topic of the request.
type DeleteTopicsAnswer struct {
	Topics []DeletedTopic `json:"topics"`
}

// DeletedTopic is a row of DeleteTopicsAnswer.
type DeletedTopic struct {
	Name   *string      `json:"name"`
	ID     wire.TopicID `json:"id,omitzero"`
	Result Result       `json:"result"`
}

// CreatePartitions is answered by CreatePartitionsAnswer.
type CreatePartitions struct {
	Topics       []MorePartitions `json:"topics"`
	ValidateOnly bool             `json:"validateOnly,omitempty"`
}

// MorePartitions raises the number of partitions of a topic to Count.
type MorePartitions struct {
	Name  string `json:"name"`
	Count int32  `json:"count"`
	// Assignments of the new partitions, in their order. nil: the controller places them; an empty list is a list.
	Assignments [][]wire.BrokerID `json:"assignments"`
}

// CreatePartitionsAnswer has a row for each distinct topic of the request.
type CreatePartitionsAnswer struct {
	Topics []NamedResult `json:"topics"`
}

// NamedResult is the outcome for the thing of that name.
type NamedResult struct {
	Name   string `json:"name"`
	Result Result `json:"result"`
}

// IncrementalAlterConfigs is answered by AlterConfigsAnswer.
type IncrementalAlterConfigs struct {
	Resources    []ResourceOps `json:"resources"`
	ValidateOnly bool          `json:"validateOnly,omitempty"`
}

// ResourceOps are the operations on the configs of one resource.
type ResourceOps struct {
	Resource ConfigResource `json:"resource"`
	Ops      []ConfigOp     `json:"ops"`
}

// ConfigOp changes one config. The operation is the protocol's number.
type ConfigOp struct {
	Name  string       `json:"name"`
	Op    ConfigOpType `json:"op"`
	Value *string      `json:"value"`
}

// ConfigOpType is the operation of a ConfigOp; others than these are refused.
type ConfigOpType int8

// The operations (AlterConfigOp.OpType).
const (
	SetConfig      ConfigOpType = 0
	DeleteConfig   ConfigOpType = 1
	AppendConfig   ConfigOpType = 2
	SubtractConfig ConfigOpType = 3
)

// AlterConfigs is the legacy call: it replaces all dynamic configs of a resource. It is answered by AlterConfigsAnswer.
type AlterConfigs struct {
	Resources    []ResourceConfigs `json:"resources"`
	ValidateOnly bool              `json:"validateOnly,omitempty"`
}

// ResourceConfigs are the new configs of a resource.
type ResourceConfigs struct {
	Resource ConfigResource `json:"resource"`
	Configs  []ConfigEntry  `json:"configs"`
}

// AlterConfigsAnswer has a row for each resource of the request.
type AlterConfigsAnswer struct {
	Resources []ResourceResult `json:"resources"`
}

// ResourceResult is the outcome for a config resource.
type ResourceResult struct {
	Resource ConfigResource `json:"resource"`
	Result   Result         `json:"result"`
}

// UpdateFeatures is answered by UpdateFeaturesAnswer.
type UpdateFeatures struct {
	Updates      []FeatureUpdate `json:"updates"`
	ValidateOnly bool            `json:"validateOnly,omitempty"`
}

// FeatureUpdate finalises a feature at another level.
type FeatureUpdate struct {
	Name  string      `json:"name"`
	Level int16       `json:"level"`
	Type  UpgradeType `json:"type"`
}

// UpgradeType says which direction of a feature update is allowed (FeatureUpdate.UpgradeType).
type UpgradeType int8

// The upgrade types.
const (
	UpgradeUnknown  UpgradeType = 0
	Upgrade         UpgradeType = 1
	SafeDowngrade   UpgradeType = 2
	UnsafeDowngrade UpgradeType = 3
)

// UpdateFeaturesAnswer has a result of the whole and one for each update; nothing was changed unless all succeeded.
type UpdateFeaturesAnswer struct {
	Result   Result        `json:"result"`
	Features []NamedResult `json:"features"`
}

// AllocateProducerIDs asks for the next block of producer ids. It is answered by AllocateProducerIDsAnswer.
type AllocateProducerIDs struct {
	BrokerID    wire.BrokerID    `json:"brokerId"`
	BrokerEpoch wire.BrokerEpoch `json:"brokerEpoch"`
}

// AllocateProducerIDsAnswer is a block of ids that nobody else has or had.
type AllocateProducerIDsAnswer struct {
	Result Result          `json:"result"`
	First  wire.ProducerID `json:"first"`
	Length int32           `json:"length"`
}

// RemovalDone tells that nothing of a removed topic is left in the object store. It is answered by RemovalDoneAnswer.
type RemovalDone struct {
	TopicID wire.TopicID `json:"topicId"`
}

// RemovalDoneAnswer is the outcome; one that is not known any more is done.
type RemovalDoneAnswer struct {
	Result Result `json:"result"`
}

func (*CreateTopics) change()            {}
func (*DeleteTopics) change()            {}
func (*CreatePartitions) change()        {}
func (*IncrementalAlterConfigs) change() {}
func (*AlterConfigs) change()            {}
func (*UpdateFeatures) change()          {}
func (*AllocateProducerIDs) change()     {}

func (*RemovalDone) change() {}

func (*CreateTopicsAnswer) answer()        {}
func (*DeleteTopicsAnswer) answer()        {}
func (*CreatePartitionsAnswer) answer()    {}
func (*AlterConfigsAnswer) answer()        {}
func (*UpdateFeaturesAnswer) answer()      {}
func (*AllocateProducerIDsAnswer) answer() {}
func (*RemovalDoneAnswer) answer()         {}
