package replica

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// AppendAsCoordinator appends a batch to a partition of an internal topic that this broker leads under epoch, and returns the
// log end offset after it. It does not wait: Options.HighWatermark hears when the high watermark has passed it, before
// AppendAsCoordinator returns where there is no follower. Coordinators hold a lock of their own over it: fetches that wait for
// the batch are left to the next Advance. It fails without effect, with a wire.Code: NOT_LEADER_OR_FOLLOWER,
// NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR and those of Produce.
func (m *Manager) AppendAsCoordinator(
	now time.Time, tp wire.TopicPartition, epoch wire.LeaderEpoch, batch record.Batch,
) (wire.Offset, error) {
	p, code := m.state.Load().find(tp.Topic, tp.Partition)
	if code != wire.None {
		return wire.NoOffset, code
	}
	r := p.role.Load()
	if r.leaderEpoch != epoch {
		return wire.NoOffset, wire.NotLeaderOrFollower
	}
	policy := r.settings.policy
	policy.Partition, policy.Origin, policy.ZstdAllowed = tp, record.FromCoordinator, true
	valid, err := record.Validate(batch, policy, now.UnixMilli())
	if err != nil {
		return wire.NoOffset, err
	}
	a, err := p.append(now, valid.Batch, appendRules{all: true, origin: log.Coordinator, epoch: epoch})
	if err != nil {
		return wire.NoOffset, err
	}
	if a.moved {
		m.announce(now, p)
	}
	if m.fetches.Len() > 0 {
		m.unheard.add(p)
		if m.wake != nil {
			m.wake(now)
		}
	}
	return a.Last + 1, nil
}

// unheard are the partitions in which coordinators have appended what waiting fetches have not heard of.
type unheard struct {
	mu         sync.Mutex // guards partitions; a leaf lock
	partitions []*partition
}

func (u *unheard) add(p *partition) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !slices.Contains(u.partitions, p) {
		u.partitions = append(u.partitions, p)
	}
}

func (u *unheard) take() []*partition {
	u.mu.Lock()
	defer u.mu.Unlock()
	partitions := u.partitions
	u.partitions = nil
	return partitions
}

// ReadLocal reads the batches of a partition of this broker from its log start offset to its log end, for a coordinator that
// loads. It blocks on the disk. A batch is valid until the next one is asked for. It stops with ctx's error.
func (m *Manager) ReadLocal(ctx context.Context, tp wire.TopicPartition) iter.Seq2[record.Batch, error] {
	return func(yield func(record.Batch, error) bool) {
		p, code := m.state.Load().find(tp.Topic, tp.Partition)
		if code != wire.None {
			yield(nil, code)
			return
		}
		r := p.role.Load()
		l := r.log
		if l == nil {
			yield(nil, wire.KafkaStorageError)
			return
		}
		if r.held { // it may begin anew
			yield(nil, wire.NotLeaderOrFollower)
			return
		}
		var buf []byte
		for from := l.StartOffset(); from < l.EndOffset(); {
			err := ctx.Err()
			if err == nil {
				buf, err = l.ReadBatches(from, l.EndOffset(), slices.Grow(buf[:0], readLocalBytes))
			}
			if err == nil && len(buf) == 0 {
				return // nothing but a gap is left
			}
			for rest := buf; len(rest) > 0 && err == nil; {
				var batch record.Batch
				if batch, rest, err = record.Next(rest); err == nil {
					from = batch.NextOffset()
					if !yield(batch, nil) {
						return
					}
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// readLocalBytes is read at once: much more than a page, little enough for many loads side by side.
const readLocalBytes = 1 << 20
