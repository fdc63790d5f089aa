package config

// The limits that no setting moves. Everything that a client can make grow is held by one of these or by a setting named beside
// it; limits_test.go holds how they relate.
const (
	// Frames. A request is bounded by socket.request.max.bytes, before authentication by sasl.server.max.receive.size.

	// RequestBytesMax is the largest size that a frame can state at all.
	RequestBytesMax = 1<<31 - 1
	// ArrayElementsMax bounds an array in a request before anything is allocated for it (Kafka 4.4 has the same).
	ArrayElementsMax = 1_000_000
	// TaggedFieldsMax bounds the tagged fields of one structure (Kafka 4.4 has the same).
	TaggedFieldsMax = 10_000

	// Connections.

	// InFlightRequestsMax is the number of requests of one connection that wait for their answers; then reading stops. Java's
	// producer sends 5, franz-go and librdkafka far more where they pipeline.
	InFlightRequestsMax = 256
	// PooledBufferBytesMax is the largest buffer that goes back to a pool.
	PooledBufferBytesMax = 4 << 20
	// PooledBytesMax is what all pools of buffers may hold together.
	PooledBytesMax = 256 << 20

	// Records.

	// BatchBytesMax is the largest batch that max.message.bytes can allow.
	BatchBytesMax = RequestBytesMax
	// DecompressedBytesMax is the largest value of max.decompressed.message.bytes.
	DecompressedBytesMax = 1<<31 - 9
	// SegmentBytesMin is the floor of segment.bytes.
	SegmentBytesMin = 1 << 20
	// SegmentBytesMax is the ceiling of segment.bytes: positions in an index are signed 32-bit numbers.
	SegmentBytesMax = 1<<31 - 1

	// Metadata.

	// PartitionsPerRequestMax is the number of partitions that one CreateTopics or CreatePartitions may ask for (Kafka 4.4 has the same).
	PartitionsPerRequestMax = 10_000
	// MetadataEntryBytesMax is the size at which a group commit is closed and the next begins.
	MetadataEntryBytesMax = 1 << 20
	// MetadataQueueMax is the number of changes that wait for the metadata chain.
	MetadataQueueMax = 10_000
)
