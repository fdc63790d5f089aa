package controller

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Bounds of one request, whose records are committed as one entry. The first is Kafka's. The second is for the texts in configs:
// they are long where a record is else short. The third is for records that may be as long as the names in them.
const (
	requestRecordsMax = 10_000
	requestTextMax    = 1 << 20 // bytes; JSON may make six of one
	requestBytesMax   = 6 << 20 // of the records; an entry holds 8 MiB
)

// excessive tells whether a request is too large to be looked at: items and texts cost time even where they lead to no records.
func excessive(items, text int) bool { return items > requestRecordsMax || text > requestTextMax }

// tooLarge tells whether records may not fit into one entry: it could never be committed, and the controller would go with it.
func tooLarge(records []metadata.Record) bool {
	if len(records) > requestRecordsMax {
		return true
	}
	size := 0
	for _, r := range records {
		raw, err := metadata.MarshalRecord(r)
		if err != nil {
			panic("the controller made a record that is no JSON: " + err.Error())
		}
		size += len(raw)
	}
	return size > requestBytesMax
}

func (s *step) createTopics(change *metadata.CreateTopics) *metadata.CreateTopicsAnswer {
	before := *s
	answer := &metadata.CreateTopicsAnswer{}
	topics := distinct(change.Topics, func(t metadata.NewTopic) string { return t.Name })
	excess := s.tooManyPartitions(topics)
	if excess == nil && excessive(len(topics), configText(topics)) {
		excess = errLargeBatch
	}
	if excess == nil {
		taken := takenNames(s.image, topics)
		for _, t := range topics {
			created, err := s.createTopic(taken, t)
			if err != nil {
				created = notCreated(t.item.Name, err)
			}
			answer.Topics = append(answer.Topics, created)
		}
		if tooLarge(s.records) {
			excess = errLargeBatch
		}
	}
	if excess != nil {
		*s = before
		answer.Topics = nil
		for _, t := range change.Topics {
			answer.Topics = append(answer.Topics, notCreated(t.Name, excess))
		}
	}
	return answer
}

var errLargeBatch = refusal(wire.PolicyViolation, "Unable to perform excessively large batch operation.")

func notCreated(name string, err error) metadata.CreatedTopic {
	return metadata.CreatedTopic{Name: name, Result: metadata.ResultOf(err), Partitions: -1, ReplicationFactor: -1}
}

// configText is how long the configs of topics are.
func configText(topics []listed[metadata.NewTopic]) int {
	n := 0
	for _, t := range topics {
		for _, entry := range t.item.Configs {
			n += textOf(entry.Name, entry.Value)
		}
	}
	return n
}

func (s *step) tooManyPartitions(topics []listed[metadata.NewTopic]) error {
	sum := 0
	for _, t := range topics {
		switch wanted := int(t.item.Partitions); {
		case t.repeated:
		case len(t.item.Assignments) > 0:
			sum += len(t.item.Assignments)
		case wanted == -1:
			sum += s.effectiveConfig().NumPartitions
		default:
			sum += max(wanted, 0)
		}
	}
	if sum > config.PartitionsPerRequestMax {
		return refusal(wire.PolicyViolation, "Excessively large number of partitions per request.")
	}
	return nil
}

// createTopic adds the records of one topic, all or none.
func (s *step) createTopic(taken map[string]string, topic listed[metadata.NewTopic]) (metadata.CreatedTopic, error) {
	t := topic.item
	if topic.repeated {
		return metadata.CreatedTopic{}, errDuplicateName
	}
	if err := s.checkNewName(taken, t.Name); err != nil {
		return metadata.CreatedTopic{}, err
	}
	configs, err := s.newTopicConfigs(t)
	if err != nil {
		return metadata.CreatedTopic{}, err
	}
	var partitions []metadata.Partition
	if len(t.Assignments) > 0 {
		partitions, err = s.assignedPartitions(t)
	} else {
		partitions, err = s.placedPartitions(t)
	}
	if err != nil {
		return metadata.CreatedTopic{}, err
	}
	id := s.newTopicID()
	records := []metadata.Record{&metadata.TopicRecord{Name: t.Name, ID: id}}
	records = append(records, configRecords(metadata.ConfigResource{Type: metadata.TopicResource, Name: t.Name}, nil, configs)...)
	for i, p := range partitions {
		records = append(records, &metadata.PartitionRecord{TopicID: id, Index: int32(i), Partition: p})
	}
	s.add(records...)
	return metadata.CreatedTopic{
		Name:              t.Name,
		ID:                id,
		Partitions:        int32(len(partitions)),
		ReplicationFactor: int16(len(partitions[0].Replicas)),
		Configs:           configs,
	}, nil
}

func (s *step) checkNewName(taken map[string]string, name string) error {
	if name == wire.ClusterMetadataTopic {
		return refusal(wire.InvalidRequest, "Creation of internal topic %s is prohibited.", name)
	}
	if err := checkName(name); err != nil {
		return err
	}
	if s.image.Topic(name) != nil {
		return refusal(wire.TopicAlreadyExists, "Topic '%s' already exists.", name)
	}
	if other, collides := taken[metricName(name)]; collides {
		return refusal(wire.InvalidTopic, "Topic '%s' collides with existing topic: %s", name, other)
	}
	return nil
}

// metricName is what metrics make of a topic's name: names that differ in '.' and '_' alone would share theirs.
func metricName(name string) string { return strings.ReplaceAll(name, ".", "_") }

// takenNames are the metric names of the existing topics that a new one can collide with. As in Kafka, the new topics of one
// request are not held against each other.
func takenNames(image *metadata.Image, topics []listed[metadata.NewTopic]) map[string]string {
	const ambiguous = "._"
	if !slices.ContainsFunc(topics, func(t listed[metadata.NewTopic]) bool { return strings.ContainsAny(t.item.Name, ambiguous) }) {
		return nil
	}
	taken := map[string]string{}
	for t := range image.Topics("") {
		if strings.ContainsAny(t.Name, ambiguous) {
			taken[metricName(t.Name)] = t.Name
		}
	}
	return taken
}

// checkName says what wire.ValidTopicName doesn't like.
func checkName(name string) error {
	switch {
	case wire.ValidTopicName(name):
		return nil
	case name == "":
		return refusal(wire.InvalidTopic, "Topic name is invalid: the empty string is not allowed")
	case name == "." || name == "..":
		return refusal(wire.InvalidTopic, "Topic name is invalid: '%s' is not allowed", name)
	case len(name) > topicNameMax:
		return refusal(wire.InvalidTopic, "Topic name is invalid: the length of '%s' is longer than the max allowed length %d", name, topicNameMax)
	default:
		return refusal(wire.InvalidTopic, "Topic name is invalid: '%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", name)
	}
}

const topicNameMax = 249

// newTopicID is a version 4 UUID that is not reserved (0 and 1 in Kafka), and whose text doesn't look like a flag.
func (s *step) newTopicID() wire.TopicID {
	for {
		var id wire.TopicID
		binary.BigEndian.PutUint64(id[:8], s.rand.Uint64())
		binary.BigEndian.PutUint64(id[8:], s.rand.Uint64())
		id[6] = id[6]&0x0f | 0x40
		id[8] = id[8]&0x3f | 0x80
		if id.String()[0] != '-' && s.image.TopicByID(id) == nil {
			return id
		}
	}
}

// refKey is what a well-formed TopicRef names a topic by.
type refKey struct {
	name string
	id   wire.TopicID
}

func keyOf(r metadata.TopicRef) refKey {
	if r.Name == nil {
		return refKey{id: r.ID}
	}
	return refKey{name: *r.Name}
}

func (s *step) deleteTopics(change *metadata.DeleteTopics) *metadata.DeleteTopicsAnswer {
	answer := &metadata.DeleteTopicsAnswer{}
	refuse := func(ref metadata.TopicRef, code wire.Code, text string) {
		answer.Topics = append(answer.Topics, metadata.DeletedTopic{Name: ref.Name, ID: ref.ID, Result: metadata.Result{Code: code, Message: text}})
	}
	if excessive(len(change.Topics), 0) {
		for _, ref := range change.Topics {
			answer.Topics = append(answer.Topics, metadata.DeletedTopic{Name: ref.Name, ID: ref.ID, Result: metadata.ResultOf(errLargeBatch)})
		}
		return answer
	}
	count := map[refKey]int{}
	for _, ref := range change.Topics {
		if named := ref.Name != nil; named == ref.ID.IsZero() {
			count[keyOf(ref)]++
		}
	}
	var records []metadata.Record
	answered := map[refKey]bool{}
	for _, ref := range change.Topics {
		key := keyOf(ref)
		switch {
		case ref.Name == nil && ref.ID.IsZero():
			refuse(ref, wire.InvalidRequest, "Neither topic name nor id were specified.")
			continue
		case ref.Name != nil && !ref.ID.IsZero():
			refuse(ref, wire.InvalidRequest, "You may not specify both topic name and topic id.")
			continue
		case answered[key]:
			continue
		}
		answered[key] = true
		switch {
		case count[key] > 1 && ref.Name == nil:
			refuse(ref, wire.InvalidRequest, "Duplicate topic id.")
			continue
		case count[key] > 1:
			refuse(ref, wire.InvalidRequest, "Duplicate topic name.")
			continue
		}
		if ref.Name == nil {
			t := s.image.TopicByID(ref.ID)
			if t == nil {
				refuse(ref, wire.UnknownTopicID, "This server does not host this topic ID.")
				continue
			}
			if count[refKey{name: t.Name}] == 1 {
				continue // refused in the row of the name
			}
			ref.Name = &t.Name
		} else {
			t := s.image.Topic(*ref.Name)
			if t == nil {
				refuse(ref, wire.UnknownTopicOrPartition, "This server does not host this topic-partition.")
				continue
			}
			ref.ID = t.ID
			if count[refKey{id: t.ID}] > 0 {
				refuse(ref, wire.InvalidRequest, "The provided topic name maps to an ID that was already supplied.")
				continue
			}
		}
		records = append(records, &metadata.RemoveTopicRecord{ID: ref.ID})
		if s.mayBeTiered(*ref.Name) {
			records = append(records, &metadata.RemovalRecord{Topic: *ref.Name, TopicID: ref.ID, RemovedMs: s.now.UnixMilli()})
		}
		answer.Topics = append(answer.Topics, metadata.DeletedTopic{Name: ref.Name, ID: ref.ID})
	}
	s.add(records...)
	return answer
}

// mayBeTiered tells whether the object store may hold something of a topic: it is tiered, or somebody has said whether it is, which
// may have been different before.
func (s *step) mayBeTiered(topic string) bool {
	configs := s.image.Configs(metadata.ConfigResource{Type: metadata.TopicResource, Name: topic})
	if _, said := configs[remoteStorageEnable]; said {
		return true
	}
	return s.effectiveConfig().TierEnable
}

const remoteStorageEnable = "remote.storage.enable"

// removalDone forgets a removed topic of which nothing is left.
func (s *step) removalDone(change *metadata.RemovalDone) *metadata.RemovalDoneAnswer {
	if _, ok := s.image.Removal(change.TopicID); ok {
		s.add(&metadata.RemovalDoneRecord{TopicID: change.TopicID})
	}
	return &metadata.RemovalDoneAnswer{}
}

// listed is an item of a request's list, and whether another item has the same name.
type listed[T any] struct {
	item     T
	repeated bool
}

var errDuplicateName = refusal(wire.InvalidRequest, "Duplicate topic name.")

// distinct keeps the first item of each name, in order.
func distinct[T any](items []T, name func(T) string) []listed[T] {
	at := make(map[string]int, len(items))
	var list []listed[T]
	for _, item := range items {
		if i, seen := at[name(item)]; seen {
			list[i].repeated = true
			continue
		}
		at[name(item)] = len(list)
		list = append(list, listed[T]{item: item})
	}
	return list
}
