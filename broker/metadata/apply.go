package metadata

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// Apply gives the image after records, the first of which has the offset base, and what they changed. It takes time in
// proportion to the records and what they touch, not to the image.
//
// A gap before base, an epoch that would go down or a record that doesn't fit the image is an error: the log is damaged or
// belongs to another history. The image itself stays as it is.
func (i *Image) Apply(base wire.Offset, records []Record) (*Image, Delta, error) {
	if base != i.offset+1 {
		return nil, Delta{}, fmt.Errorf("metadata record %d follows record %d", base, i.offset)
	}
	b := newBuilder(i)
	for _, r := range records {
		b.next.offset++
		if err := b.apply(r); err != nil {
			return nil, Delta{}, fmt.Errorf("metadata record %d, %s: %w", b.next.offset, r.recordType().name, err)
		}
	}
	return b.next, b.delta(), nil
}

// builder applies records to an image that nobody else sees yet. What it has touched (the keys of its maps) is its own copy and
// may be changed in place; all else is shared with the image it started from.
type builder struct {
	from, next *Image
	snapshot   bool // the records are a snapshot's: their offsets say nothing
	topics     map[wire.TopicID]bool
	configs    map[ConfigResource]bool
	brokers    map[wire.BrokerID]bool
}

func newBuilder(from *Image) *builder {
	next := *from
	return &builder{
		from:    from,
		next:    &next,
		topics:  map[wire.TopicID]bool{},
		configs: map[ConfigResource]bool{},
		brokers: map[wire.BrokerID]bool{},
	}
}

func (b *builder) apply(r Record) error {
	switch r := r.(type) {
	case *ControllerElectedRecord:
		if r.Epoch <= b.next.controller.Epoch {
			return fmt.Errorf("epoch %d after epoch %d", r.Epoch, b.next.controller.Epoch)
		}
		b.next.controller = Controller{BrokerID: r.BrokerID, Epoch: r.Epoch}
		return nil
	case *NoOpRecord:
		return nil
	case *TopicRecord:
		return b.createTopic(r)
	case *RemoveTopicRecord:
		return b.removeTopic(r)
	case *RemovalRecord:
		return b.putRemoval(r)
	case *RemovalDoneRecord:
		if _, ok := b.next.Removal(r.TopicID); !ok {
			return fmt.Errorf("removal of topic id %s is unknown", r.TopicID)
		}
		b.next.removals = b.next.removals.without(r.TopicID)
		return nil
	case *ClusterRecoveredRecord:
		if r.Incarnation <= b.next.incarnation {
			return fmt.Errorf("cluster incarnation %d after %d", r.Incarnation, b.next.incarnation)
		}
		b.next.incarnation = r.Incarnation
		return nil
	case *PartitionRecord:
		return b.putPartition(r)
	case *PartitionChangeRecord:
		return b.changePartition(r)
	case *ConfigRecord:
		return b.putConfig(r)
	case *BrokerRegistrationRecord:
		return b.registerBroker(r)
	case *BrokerChangeRecord:
		return b.changeBroker(r)
	case *UnregisterBrokerRecord:
		return b.unregisterBroker(r)
	case *ProducerIDBlockRecord:
		if r.NextProducerID <= b.next.nextProducerID {
			return fmt.Errorf("next producer id %d after %d", r.NextProducerID, b.next.nextProducerID)
		}
		b.next.nextProducerID = r.NextProducerID
		return nil
	case *FeatureLevelRecord:
		return b.putFeature(r)
	default:
		return fmt.Errorf("no rule for %T", r)
	}
}

func (b *builder) createTopic(r *TopicRecord) error {
	switch {
	case r.ID.IsZero():
		return fmt.Errorf("topic %q has no id", r.Name)
	case !wire.ValidTopicName(r.Name):
		return fmt.Errorf("topic name %q is not valid", r.Name)
	case b.next.Topic(r.Name) != nil:
		return fmt.Errorf("topic %s exists", r.Name)
	case b.next.TopicByID(r.ID) != nil:
		return fmt.Errorf("topic id %s exists", r.ID)
	}
	if _, ok := b.next.Removal(r.ID); ok {
		return fmt.Errorf("topic id %s is being removed", r.ID)
	}
	b.putTopic(&Topic{Name: r.Name, ID: r.ID})
	return nil
}

func (b *builder) putTopic(t *Topic) {
	b.topics[t.ID] = true
	b.next.topics = b.next.topics.with(t.Name, t)
	b.next.topicIDs = b.next.topicIDs.with(t.ID, t)
}

func (b *builder) removeTopic(r *RemoveTopicRecord) error {
	t := b.next.TopicByID(r.ID)
	if t == nil {
		return fmt.Errorf("topic id %s is unknown", r.ID)
	}
	configs := ConfigResource{TopicResource, t.Name}
	b.topics[t.ID] = true
	b.configs[configs] = true
	b.next.topics = b.next.topics.without(t.Name)
	b.next.topicIDs = b.next.topicIDs.without(t.ID)
	b.next.configs = b.next.configs.without(configs)
	b.next.partitionCount -= len(t.Partitions)
	return nil
}

// putRemoval refuses to have anything deleted of a topic that is there.
func (b *builder) putRemoval(r *RemovalRecord) error {
	_, known := b.next.Removal(r.TopicID)
	switch {
	case r.TopicID.IsZero() || !wire.ValidTopicName(r.Topic):
		return fmt.Errorf("topic %q of id %s", r.Topic, r.TopicID)
	case b.next.TopicByID(r.TopicID) != nil:
		return fmt.Errorf("topic id %s is still there", r.TopicID)
	case known:
		return fmt.Errorf("removal of topic id %s is known already", r.TopicID)
	}
	b.next.removals = b.next.removals.with(r.TopicID, Removal{Topic: r.Topic, TopicID: r.TopicID, RemovedMs: r.RemovedMs})
	return nil
}

// topic to change in place; nil if the id is unknown.
func (b *builder) topic(id wire.TopicID) *Topic {
	t := b.next.TopicByID(id)
	if t != nil && !b.topics[id] {
		t = &Topic{Name: t.Name, ID: t.ID, Partitions: slices.Clone(t.Partitions)}
		b.putTopic(t)
	}
	return t
}

func (b *builder) putPartition(r *PartitionRecord) error {
	t := b.topic(r.TopicID)
	if t == nil {
		return fmt.Errorf("topic id %s is unknown", r.TopicID)
	}
	if r.Index < 0 || int(r.Index) > len(t.Partitions) {
		return fmt.Errorf("partition %s-%d with %d partitions", t.Name, r.Index, len(t.Partitions))
	}
	p := r.Partition.canonical()
	old := t.Partition(r.Index)
	if err := p.check(old); err != nil {
		return fmt.Errorf("partition %s-%d: %w", t.Name, r.Index, err)
	}
	if old != nil {
		t.Partitions[r.Index] = p
		return nil
	}
	t.Partitions = append(t.Partitions, p)
	b.next.partitionCount++
	return nil
}

func (b *builder) changePartition(r *PartitionChangeRecord) error {
	t := b.topic(r.TopicID)
	if t == nil {
		return fmt.Errorf("topic id %s is unknown", r.TopicID)
	}
	old := t.Partition(r.Index)
	if old == nil {
		return fmt.Errorf("partition %s-%d with %d partitions", t.Name, r.Index, len(t.Partitions))
	}
	next := *old
	next.PartitionEpoch = r.PartitionEpoch
	if r.Leader != nil {
		next.Leader = *r.Leader
	}
	if r.LeaderEpoch != nil {
		next.LeaderEpoch = *r.LeaderEpoch
	}
	if r.ISR != nil {
		next.ISR = r.ISR
	}
	if r.Directories != nil {
		next.Directories = r.Directories
	}
	if r.ELR != nil {
		next.ELR = r.ELR
	}
	if r.LastKnownELR != nil {
		next.LastKnownELR = r.LastKnownELR
	}
	if r.Recovery != nil {
		next.Recovery = *r.Recovery
		if next.Recovery == Recovered {
			next.RecoverySince = 0
		}
	}
	if r.Empty != nil {
		next.Empty = *r.Empty
	}
	p := next.canonical()
	if err := p.check(old); err != nil {
		return fmt.Errorf("partition %s-%d: %w", t.Name, r.Index, err)
	}
	t.Partitions[r.Index] = p
	return nil
}

// canonical copy: equal states have equal JSON.
func (p Partition) canonical() *Partition {
	p.Replicas, p.Directories, p.ISR = notNil(p.Replicas), notNil(p.Directories), notNil(p.ISR)
	return &p
}

// check holds the invariants of a partition, alone and after its former state (nil if it is new).
func (p *Partition) check(old *Partition) error {
	isReplica := func(id wire.BrokerID) bool { return slices.Contains(p.Replicas, id) }
	switch {
	case len(p.Replicas) == 0 || len(p.Directories) != len(p.Replicas):
		return fmt.Errorf("%d replicas with %d directories", len(p.Replicas), len(p.Directories))
	case p.Leader != wire.NoBroker && !isReplica(p.Leader):
		return fmt.Errorf("leader %d is not a replica of %v", p.Leader, p.Replicas)
	case !all(p.ISR, isReplica):
		return fmt.Errorf("ISR %v is not within the replicas %v", p.ISR, p.Replicas)
	case p.LeaderEpoch < 0 || p.PartitionEpoch < 0:
		return fmt.Errorf("leader epoch %d, partition epoch %d", p.LeaderEpoch, p.PartitionEpoch)
	case p.Empty && p.Leader != wire.NoBroker:
		return fmt.Errorf("leader %d of a log that is said to be empty may append to it", p.Leader)
	case old == nil:
		return nil
	case p.LeaderEpoch < old.LeaderEpoch || p.Leader != old.Leader && p.LeaderEpoch == old.LeaderEpoch:
		return fmt.Errorf("leader %d of epoch %d after leader %d of epoch %d", p.Leader, p.LeaderEpoch, old.Leader, old.LeaderEpoch)
	case p.PartitionEpoch <= old.PartitionEpoch:
		return fmt.Errorf("partition epoch %d after %d", p.PartitionEpoch, old.PartitionEpoch)
	}
	return nil
}

func (b *builder) putConfig(r *ConfigRecord) error {
	resource := ConfigResource{r.ResourceType, r.ResourceName}
	switch {
	case resourceTypeNames[r.ResourceType] == "":
		return fmt.Errorf("resource type %d is unknown", r.ResourceType)
	case r.ResourceType == TopicResource && b.next.Topic(r.ResourceName) == nil:
		return fmt.Errorf("topic %s is unknown", r.ResourceName)
	case !utf8.ValidString(r.ResourceName) || !utf8.ValidString(r.Name) || r.Value != nil && !utf8.ValidString(*r.Value):
		// It would come back from the log as another text.
		return fmt.Errorf("config %q of %q is not valid UTF-8", r.Name, r.ResourceName)
	}
	configs := b.next.Configs(resource)
	if !b.configs[resource] {
		b.configs[resource] = true
		configs = maps.Clone(configs)
	}
	if r.Value == nil {
		delete(configs, r.Name)
	} else {
		if configs == nil {
			configs = map[string]string{}
		}
		configs[r.Name] = *r.Value
	}
	if len(configs) == 0 {
		b.next.configs = b.next.configs.without(resource)
	} else {
		b.next.configs = b.next.configs.with(resource, configs)
	}
	return nil
}

func (b *builder) registerBroker(r *BrokerRegistrationRecord) error {
	if !b.snapshot && r.Epoch != wire.BrokerEpoch(b.next.offset) {
		return fmt.Errorf("broker %d has epoch %d", r.ID, r.Epoch)
	}
	broker := r.Broker
	broker.Directories, broker.Listeners, broker.Features = notNil(r.Directories), notNil(r.Listeners), notNil(r.Features)
	b.putBroker(&broker)
	return nil
}

func (b *builder) putBroker(broker *Broker) {
	b.brokers[broker.ID] = true
	b.next.brokers = b.next.brokers.with(broker.ID, broker)
}

// broker with that epoch.
func (b *builder) broker(id wire.BrokerID, epoch wire.BrokerEpoch) (*Broker, error) {
	broker := b.next.Broker(id)
	if broker == nil {
		return nil, fmt.Errorf("broker %d is unknown", id)
	}
	if broker.Epoch != epoch {
		return nil, fmt.Errorf("broker %d of epoch %d has epoch %d", id, epoch, broker.Epoch)
	}
	return broker, nil
}

func (b *builder) changeBroker(r *BrokerChangeRecord) error {
	old, err := b.broker(r.BrokerID, r.Epoch)
	if err != nil {
		return err
	}
	broker := *old
	if r.Fenced != nil {
		broker.Fenced = *r.Fenced
	}
	if r.InControlledShutdown != nil {
		broker.InControlledShutdown = *r.InControlledShutdown
	}
	if r.Whole != nil {
		broker.Whole = *r.Whole
	}
	if r.Directories != nil {
		broker.Directories = r.Directories
	}
	b.putBroker(&broker)
	return nil
}

func (b *builder) unregisterBroker(r *UnregisterBrokerRecord) error {
	broker, err := b.broker(r.BrokerID, r.Epoch)
	if err != nil {
		return err
	}
	b.brokers[broker.ID] = true
	b.next.brokers = b.next.brokers.without(broker.ID)
	return nil
}

func (b *builder) putFeature(r *FeatureLevelRecord) error {
	if r.Level < 0 {
		return fmt.Errorf("feature %s has level %d", r.Name, r.Level)
	}
	levels := slices.Clone(b.next.features.Levels)
	at, found := slices.BinarySearchFunc(levels, r.Name, func(l FeatureLevel, name string) int { return strings.Compare(l.Name, name) })
	switch {
	case r.Level == 0 && found:
		levels = slices.Delete(levels, at, at+1)
	case r.Level != 0 && found:
		levels[at].Level = r.Level
	case r.Level != 0:
		levels = slices.Insert(levels, at, FeatureLevel{r.Name, r.Level})
	}
	b.next.features = Features{Epoch: b.next.offset, Levels: levels}
	return nil
}

func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func all[T any](list []T, is func(T) bool) bool {
	return !slices.ContainsFunc(list, func(v T) bool { return !is(v) })
}
