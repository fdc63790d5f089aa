package replica

import (
	"context"
	"iter"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// AppendAsCoordinator appends a batch to a partition of an internal topic that this broker leads under epoch, and returns the
// log end offset after it. It does not wait: the listener hears when the high watermark has passed it. It fails without
// effect, with a wire.Code: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR and those of Produce.
func (m *Manager) AppendAsCoordinator(
	now time.Time, tp wire.TopicPartition, epoch wire.LeaderEpoch, batch record.Batch,
) (wire.Offset, error) {
	panic("soon")
}

// ReadLocal reads the batches of a partition of this broker from its log start offset to its log end, for a coordinator that
// loads. It blocks on the disk. A batch is valid until the next one is asked for. It stops with ctx's error.
func (m *Manager) ReadLocal(ctx context.Context, tp wire.TopicPartition) iter.Seq2[record.Batch, error] {
	panic("soon")
}
