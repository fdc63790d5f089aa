package config

// Limits that no setting moves and that more than one package counts on. What a client can make grow within one package is held
// by a constant there; limits_test.go holds how these fit to the settings.
const (
	// RequestElementsMax bounds the elements of all arrays of a request together, before anything is allocated for them: more than
	// the partitions of a cluster. Kafka 4.4 takes a million in each array.
	RequestElementsMax = 1 << 18
	// RepeatsMax is how often a request may name what it has named before, where a few bytes of a name bring kilobytes of an answer:
	// so an answer is bounded by what there is.
	RepeatsMax = 16
	// TaggedFieldsMax bounds the tagged fields of one structure (Kafka 4.4 has the same).
	TaggedFieldsMax = 10_000
	// PartitionsPerRequestMax is the number of partitions that one CreateTopics or CreatePartitions may ask for (Kafka 4.4 has the same).
	PartitionsPerRequestMax = 10_000
	// MetadataEntryBytesMax is the size at which a group commit is closed and the next begins.
	MetadataEntryBytesMax = 1 << 20
	// MetadataQueueMax is the number of changes that wait for the metadata chain.
	MetadataQueueMax = 10_000
)

// Names are those of a request, as far as they were looked at.
type Names[K comparable] struct {
	seen    map[K]struct{}
	repeats int
}

// Repeated notes the next name. It tells whether it is one repetition too many.
func (n *Names[K]) Repeated(name K) bool {
	if _, again := n.seen[name]; again {
		n.repeats++
		return n.repeats > RepeatsMax
	}
	if n.seen == nil {
		n.seen = map[K]struct{}{}
	}
	n.seen[name] = struct{}{}
	return false
}
