package replica

import (
	"errors"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// ProduceRequest is what a client wants appended.
type ProduceRequest struct {
	Acks    int16
	Timeout time.Duration
	ByID    bool // partitions are named by topic id (Produce v13), else by topic
	// HasTransactionalID says that the request names a transactional id that its principal may write to. Without one no batch
	// may be transactional.
	HasTransactionalID bool
	// ZstdAllowed is false below Produce v7, where a zstd batch is UNSUPPORTED_COMPRESSION_TYPE.
	ZstdAllowed bool
	// SeenCodecs is the connection's memory for compressed.batch.validation=first: a bit a codec that was validated in full.
	// Only the goroutine that calls Produce touches it. Nil: every batch counts as the first.
	SeenCodecs *uint8
	Partitions []ProducePartition
}

// ProducePartition is the part for one partition.
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

// The values of acks.
const (
	acksAll    int16 = -1
	acksNone   int16 = 0
	acksLeader int16 = 1
)

// recordErrorsMax bounds the records that one answer tells of: a hundred bytes of a request can hold a thousand of them.
const recordErrorsMax = 10_000

// Produce appends, and calls done with a result for each of r.Partitions in their order: at once for acks 0 and 1, and for
// acks -1 when every partition's high watermark has passed its batch or r.Timeout is over. done runs once, before or after
// Produce returns; results are its to keep. A request without partitions is answered at once.
func (m *Manager) Produce(now time.Time, r *ProduceRequest, done func([]ProduceResult)) {
	s := m.state.Load()
	results := make([]ProduceResult, len(r.Partitions))
	var buffer [8]produced
	appends := buffer[:0]
	if !r.HasTransactionalID && r.transactional() {
		for i := range results {
			results[i] = refused(wire.TransactionalIDAuthorizationFailed)
		}
		done(results)
		return
	}
	recordErrors := 0
	for i := range r.Partitions {
		appends = m.produceTo(now, s, r, i, &results[i], appends)
		if recordErrors += len(results[i].RecordErrors); recordErrors > recordErrorsMax {
			results[i].RecordErrors = nil // its code and message say what it is
		}
	}
	for i := range appends {
		a := &appends[i]
		if a.moved {
			m.committed(now, a.partition)
		} else if a.written {
			m.fetches.Fire(now, a.partition) // followers read up to the log's end
		}
	}
	waits := appends[:0]
	if r.Acks == acksAll {
		for _, a := range appends {
			if ended, code := a.partition.acknowledged(a.epoch, a.end); !ended {
				waits = append(waits, a)
			} else if code != wire.None {
				results[a.row].Code = code
			}
		}
	}
	if len(waits) == 0 {
		done(results)
		return
	}
	op := &delayedProduce{manager: m, results: results, waits: append([]produced(nil), waits...), done: done}
	keys := make([]*partition, len(waits))
	for i := range waits {
		keys[i] = waits[i].partition
	}
	m.park(now, &m.produces, op, keys, now.Add(r.Timeout))
}

// produced is an append that a request made.
type produced struct {
	row       int // of the results
	partition *partition
	epoch     wire.LeaderEpoch
	end       wire.Offset // offset after the last record
	written   bool        // bytes were appended, and not recognised as a duplicate
	moved     bool        // the high watermark moved
}

// produceTo appends the part for one partition, fills its result, and adds what it appended to appends.
func (m *Manager) produceTo(now time.Time, s *state, r *ProduceRequest, row int, result *ProduceResult, appends []produced) []produced {
	part := &r.Partitions[row]
	p, code := s.findNamed(r.ByID, part.Topic, part.TopicID, part.Partition)
	switch {
	case code != wire.None:
	case r.Acks != acksAll && r.Acks != acksNone && r.Acks != acksLeader:
		code = wire.InvalidRequiredAcks
	case p.internal:
		code = wire.InvalidTopic
	default:
		code = p.role.Load().checkLeader()
	}
	if code != wire.None {
		*result = refused(code)
		if code == wire.NotLeaderOrFollower {
			result.Leader = s.hint(r.ByID, part.Topic, part.TopicID, part.Partition)
		}
		return appends
	}
	if transactional(part.Records) { // there is no coordinator yet that could know the producer
		*result = refused(wire.InvalidProducerIDMapping)
		return appends
	}
	set := p.role.Load().settings
	policy := set.policy
	policy.Partition = p.tp
	policy.Origin = record.FromClient
	policy.ZstdAllowed = r.ZstdAllowed
	policy.HeaderOnly = headerOnly(&set.topic, part.Records, r.SeenCodecs)
	valid, err := record.Validate(part.Records, policy, now.UnixMilli())
	var a appended
	if err == nil {
		a, err = p.append(now, valid.Batch, appendRules{all: r.Acks == acksAll, epoch: wire.NoLeaderEpoch, origin: log.Client})
	}
	if err != nil {
		*result = failed(err, p.logStart())
		if result.Code == wire.NotLeaderOrFollower {
			result.Leader = s.hint(r.ByID, part.Topic, part.TopicID, part.Partition)
		}
		return appends
	}
	if valid.Full && r.SeenCodecs != nil {
		*r.SeenCodecs |= codecBit(valid.Batch)
	}
	*result = ProduceResult{BaseOffset: a.First, LogAppendTime: a.LogAppendTime, LogStartOffset: a.LogStart}
	if a.Duplicate {
		result.LogAppendTime = a.MaxTimestamp // as Kafka answers duplicates, whoever set the time
	}
	return append(appends, produced{
		row: row, partition: p, epoch: a.epoch, end: a.Last + 1, written: a.Bytes > 0, moved: a.moved,
	})
}

// transactional tells whether any batch of the request is part of a transaction.
func (r *ProduceRequest) transactional() bool {
	for i := range r.Partitions {
		if transactional(r.Partitions[i].Records) {
			return true
		}
	}
	return false
}

func transactional(batch record.Batch) bool {
	return len(batch) >= record.HeaderSize && batch.Magic() == 2 && batch.IsTransactional()
}

// headerOnly tells whether a compressed batch need not be unfolded, as compressed.batch.validation says. The cleaner unfolds
// what is in compacted topics, so those are always looked at in full.
func headerOnly(topic *config.Topic, batch record.Batch, seen *uint8) bool {
	switch {
	case topic.CleanupCompact || len(batch) < record.HeaderSize:
		return false
	case topic.CompressedBatchValidation == config.ValidateHeader:
		return true
	case topic.CompressedBatchValidation == config.ValidateFirst:
		return seen != nil && *seen&codecBit(batch) != 0
	default:
		return false
	}
}

func codecBit(b record.Batch) uint8 { return 1 << (b.Codec() & 7) }

// logStart is the log start offset, or NoOffset without a log.
func (p *partition) logStart() wire.Offset {
	if l := p.role.Load().log; l != nil {
		return l.StartOffset()
	}
	return wire.NoOffset
}

// refused is the answer where the log was not looked at.
func refused(code wire.Code) ProduceResult {
	return ProduceResult{Code: code, BaseOffset: wire.NoOffset, LogAppendTime: record.NoTimestamp, LogStartOffset: wire.NoOffset}
}

// failed is the answer to a batch that was not appended. The log start offset goes with it only where Kafka's answers have it: not with
// refusals that it makes before it looks at the log, nor with those of its ReplicaManager's first list.
func failed(err error, logStart wire.Offset) ProduceResult {
	result := refused(wire.CodeOf(err))
	switch result.Code {
	case wire.UnknownTopicOrPartition, wire.NotLeaderOrFollower, wire.MessageTooLarge, wire.RecordListTooLarge,
		wire.CorruptMessage, wire.KafkaStorageError:
	default:
		result.LogStartOffset = logStart
	}
	if invalid, ok := errors.AsType[*record.Error](err); ok {
		result.Message, result.RecordErrors = invalid.Message, invalid.Records
		if invalid.Early {
			result.LogStartOffset = wire.NoOffset
		}
	}
	return result
}

// delayedProduce is a request with acks=-1 whose batches are not on enough replicas yet.
type delayedProduce struct {
	results []ProduceResult
	waits   []produced
	done    func([]ProduceResult)
	manager *Manager
}

// TryComplete settles the partitions that can be and tells whether that was all.
func (d *delayedProduce) TryComplete(time.Time) bool {
	left := d.waits[:0]
	for _, a := range d.waits {
		ended, code := a.partition.acknowledged(a.epoch, a.end)
		if !ended {
			left = append(left, a)
			continue
		}
		if code != wire.None {
			d.fail(a, code)
		}
	}
	d.waits = left
	return len(left) == 0
}

// fail gives a partition's batch another answer. Its offset stays in it: the data does too.
func (d *delayedProduce) fail(a produced, code wire.Code) {
	d.results[a.row].Code = code
	if code == wire.NotLeaderOrFollower {
		d.results[a.row].Leader = d.manager.state.Load().hint(false, a.partition.tp.Topic, a.partition.topicID, a.partition.tp.Partition)
	}
}

// Complete answers.
func (d *delayedProduce) Complete(time.Time) { d.done(d.results) }

// Expire answers; what still waits has timed out, and stays appended.
func (d *delayedProduce) Expire(time.Time) {
	for _, a := range d.waits {
		d.fail(a, wire.RequestTimedOut)
	}
	d.done(d.results)
}
