package replica

import (
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// ProduceRequest is what a client wants appended.
type ProduceRequest struct {
	Acks    int16
	Timeout time.Duration
	// ZstdAllowed is false below Produce v7, where a zstd batch is UNSUPPORTED_COMPRESSION_TYPE.
	ZstdAllowed bool
	// SeenCodecs is the connection's memory for compressed.batch.validation=first: a bit a codec that was validated in full.
	// Only the goroutine that calls Produce touches it. Nil: every batch counts as the first.
	SeenCodecs *uint8
	Partitions []ProducePartition
}

// ProducePartition is the part for one partition, named by topic or, where Topic is empty, by topic id.
type ProducePartition struct {
	Topic     string
	TopicID   wire.TopicID
	Partition int32
	// Records is one v2 batch as it came from the client; nil was null. Base offset, leader epoch and, where the topic asks
	// for it, timestamps are patched in place. It is not used after Produce returned.
	Records []byte
}

// ProduceResult is the answer for one partition.
type ProduceResult struct {
	Code           wire.Code
	Message        string // for people, "" where Kafka sends null
	BaseOffset     wire.Offset
	LogAppendTime  int64 // milliseconds, -1 where the topic keeps the client's times
	LogStartOffset wire.Offset
	RecordErrors   []record.RecordError
	Leader         LeaderHint // set with NOT_LEADER_OR_FOLLOWER
}

// LeaderHint is who leads a partition as far as this broker knows (KIP-951). The zero value is no hint.
type LeaderHint struct {
	Known bool
	ID    wire.BrokerID
	Epoch wire.LeaderEpoch
}

// Produce appends, and calls done with a result for each of r.Partitions in their order: at once for acks 0 and 1, and for
// acks -1 when every partition's high watermark has passed its batch or r.Timeout is over. done runs once, before or after
// Produce returns; results are its to keep. A request without partitions is answered at once.
func (m *Manager) Produce(now time.Time, r *ProduceRequest, done func([]ProduceResult)) {
	panic("soon")
}
