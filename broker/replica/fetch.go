package replica

import (
	"errors"
	"time"

	"github.com/tidemark-io/tidemark/broker/isr"
	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Isolation says up to where a consumer reads.
type Isolation int8

// The isolation levels of the protocol.
const (
	ReadUncommitted Isolation = 0
	ReadCommitted   Isolation = 1
)

// The replica ids of those who are no replica.
const (
	ConsumerID          wire.BrokerID = -1
	DebuggingConsumerID wire.BrokerID = -2 // fetches like a consumer, but asks for log ends
)

// FetchRequest is what a consumer or a follower wants to read. Partitions are served in their order.
type FetchRequest struct {
	ReplicaID    wire.BrokerID // ConsumerID for clients; package api lets other ids in on the cluster listener alone
	ReplicaEpoch wire.BrokerEpoch
	MaxWait      time.Duration
	MinBytes     int32
	MaxBytes     int32 // capped by fetch.max.bytes
	Isolation    Isolation
	Partitions   []FetchPartition
}

// FetchPartition is what is asked of one partition.
type FetchPartition struct {
	ByID               bool // named by TopicID (Fetch v13), else by Topic
	Topic              string
	TopicID            wire.TopicID
	Partition          int32
	CurrentLeaderEpoch wire.LeaderEpoch // negative: not checked
	LastFetchedEpoch   wire.LeaderEpoch // negative: not checked
	FetchOffset        wire.Offset
	LogStartOffset     wire.Offset // the follower's; NoOffset from consumers
	MaxBytes           int32
}

// FetchResult is the answer for one partition. With an error all offsets are -1 and there are no records.
type FetchResult struct {
	Code                 wire.Code
	HighWatermark        wire.Offset
	LastStableOffset     wire.Offset
	LogStartOffset       wire.Offset
	Diverging            EpochEnd      // where the follower's log departs from ours; Epoch is NoLeaderEpoch if it doesn't
	PreferredReadReplica wire.BrokerID // NoBroker: stay here
	Leader               LeaderHint    // set with NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH
	// Aborted lists the aborted transactions within Records for ReadCommitted; empty and not nil where there are none, and
	// for partitions that are not known. It is nil (null on the wire) for ReadUncommitted and with other errors.
	Aborted []AbortedTransaction
	Records vfs.Range // batches as they lie in the log; the receiver releases it
}

// EpochEnd is the end of a leader epoch: the first offset that is not of it.
type EpochEnd struct {
	Epoch  wire.LeaderEpoch
	Offset wire.Offset
}

// noEpochEnd stands for "not known" and "none".
var noEpochEnd = EpochEnd{Epoch: wire.NoLeaderEpoch, Offset: wire.NoOffset}

// AbortedTransaction says from which offset on the batches of a producer were aborted, up to its next abort marker.
type AbortedTransaction struct {
	ProducerID  wire.ProducerID
	FirstOffset wire.Offset
}

// Fetch reads, and calls done with a result for each of r.Partitions in their order: at once when there is enough to say
// (r.MinBytes are there, an error, a diverging epoch, no time to wait), else when an append or a high watermark makes it so,
// at the latest after r.MaxWait. done runs once, before or after Fetch returns. r must not change until then, but for Topic
// of partitions named by id, which Fetch fills in; results and the ranges in them are done's to release.
func (m *Manager) Fetch(now time.Time, r *FetchRequest, done func([]FetchResult)) {
	read := m.read(r)
	if r.ReplicaID >= 0 {
		m.followed(now, r, &read)
	}
	if len(read.remote) > 0 {
		m.fetchRemote(now, r, &read, done)
		return
	}
	if r.MaxWait <= 0 || read.answers(r) {
		done(read.results)
		return
	}
	read.release()
	op := &delayedFetch{manager: m, request: r, waits: read.waits, done: done}
	keys := make([]*partition, len(read.waits))
	for i := range read.waits {
		keys[i] = read.waits[i].partition
	}
	m.park(now, &m.fetches, op, keys, now.Add(r.MaxWait))
}

// followed records what a follower's fetch says about it.
func (m *Manager) followed(now time.Time, r *FetchRequest, read *fetched) {
	for _, w := range read.waits {
		asked := &r.Partitions[w.row]
		if result := &read.results[w.row]; result.Code != wire.None || result.Diverging != noEpochEnd {
			continue
		}
		code := m.followerFetched(now, w.partition, isr.Fetch{
			Broker: r.ReplicaID, BrokerEpoch: r.ReplicaEpoch, LogEndOffset: asked.FetchOffset, LogStart: asked.LogStartOffset,
		})
		if code != wire.None {
			read.fail(w.row, code)
		}
	}
}

// fetched is the outcome of one look at all partitions of a request.
type fetched struct {
	results []FetchResult
	waits   []fetchWait // the partitions that are here, or should be
	remote  []remoteRow // those among them whose records are in the object store alone
	bytes   int64
	urgent  bool // there is something to say however few the bytes are
	full    bool // what more there is does not go into the answer
}

// fetchWait is a partition that a fetch may have to wait for, and its role when it was looked at.
type fetchWait struct {
	row       int
	partition *partition
	role      *role
	from      wire.Offset // of the first record that it waits for
}

// answers tells whether the request is answered with this.
func (f *fetched) answers(r *FetchRequest) bool {
	return f.urgent || f.full || len(f.waits) == 0 || f.bytes >= int64(r.MinBytes)
}

func (f *fetched) release() { releaseRecords(f.results) }

func releaseRecords(results []FetchResult) {
	for i := range results {
		if results[i].Records.Release != nil {
			results[i].Records.Release()
		}
	}
}

// fail replaces a result.
func (f *fetched) fail(row int, code wire.Code) {
	r := &f.results[row]
	f.bytes -= r.Records.Length
	if r.Records.Release != nil {
		r.Records.Release()
	}
	*r = fetchFailure(code)
	f.urgent = true
}

// fetchFailure is the answer with an error. Kafka writes an empty list of aborted transactions where it refuses a partition
// before it looks for a replica, and null elsewhere.
func fetchFailure(code wire.Code) FetchResult {
	r := FetchResult{
		Code: code, HighWatermark: wire.NoOffset, LastStableOffset: wire.NoOffset, LogStartOffset: wire.NoOffset,
		Diverging: noEpochEnd, PreferredReadReplica: wire.NoBroker,
	}
	switch code {
	case wire.UnknownTopicOrPartition, wire.UnknownTopicID:
		r.Aborted = []AbortedTransaction{}
	}
	return r
}

// read looks at every partition once. A partition that is not known does not make the others' fetch urgent: a consumer that
// asks for a deleted topic beside others must not spin.
func (m *Manager) read(r *FetchRequest) fetched {
	s := m.state.Load()
	f := fetched{results: make([]FetchResult, len(r.Partitions)), waits: make([]fetchWait, 0, len(r.Partitions))}
	left := min(int(r.MaxBytes), m.config.Load().FetchMaxBytes)
	for i := range r.Partitions {
		asked, result := &r.Partitions[i], &f.results[i]
		p, code := s.findNamed(asked.ByID, asked.Topic, asked.TopicID, asked.Partition)
		if code == wire.UnknownTopicOrPartition || code == wire.UnknownTopicID {
			*result = fetchFailure(code)
			continue
		}
		if p != nil {
			asked.Topic = p.tp.Topic
			current := p.role.Load()
			f.waits = append(f.waits, fetchWait{row: i, partition: p, role: current, from: asked.FetchOffset})
			limit := min(int(asked.MaxBytes), left)
			var seen look
			seen, code = current.read(r, asked, limit, f.bytes == 0 && len(f.remote) == 0, result)
			if seen.remote {
				if on := m.tier.SkipLost(p.tp, asked.FetchOffset); on >= current.log.LocalStartOffset() {
					behind := *asked
					behind.FetchOffset = on
					f.waits[len(f.waits)-1].from = on
					seen, code = current.read(r, &behind, limit, f.bytes == 0 && len(f.remote) == 0, result)
				}
			}
			f.urgent = f.urgent || seen.more
			f.full = f.full || seen.skipped && limit < int(asked.MaxBytes)
			if seen.remote {
				// What it may come to is set aside before anything is read, so that the answer keeps to its limit.
				f.remote = append(f.remote, remoteRow{row: i, partition: p, role: current, upTo: seen.upTo, limit: limit})
				left -= limit
			}
		}
		if code != wire.None {
			*result = fetchFailure(code)
			if code == wire.NotLeaderOrFollower || code == wire.FencedLeaderEpoch {
				result.Leader = s.hint(asked.ByID, asked.Topic, asked.TopicID, asked.Partition)
			}
		}
		f.urgent = f.urgent || code != wire.None || result.Diverging != noEpochEnd
		f.bytes += result.Records.Length
		left = max(0, left-int(result.Records.Length))
	}
	return f
}

// look is what there is to say of a partition besides its result.
type look struct {
	more    bool        // there is more, in the next segment, so that waiting would not bring more bytes into one answer
	skipped bool        // there is a batch, and it is larger than the limit
	remote  bool        // the records lie in the object store alone
	upTo    wire.Offset // where what may be read of them ends
}

// read reads from one partition: up to limit bytes, or one batch where first is set and that is larger.
func (r *role) read(f *FetchRequest, asked *FetchPartition, limit int, first bool, result *FetchResult) (look, wire.Code) {
	if code := r.checkFetch(asked); code != wire.None {
		return look{}, code
	}
	if limit < 0 {
		return look{}, wire.UnknownServerError // what Kafka makes of a negative limit
	}
	at := positions(r.log)
	*result = FetchResult{
		HighWatermark: at.HighWatermark, LastStableOffset: at.LastStableOffset, LogStartOffset: at.LogStartOffset,
		PreferredReadReplica: wire.NoBroker,
	}
	if f.readsCommitted() {
		result.Aborted = []AbortedTransaction{}
	}
	var code wire.Code
	if result.Diverging, code = r.locate(asked, at); code != wire.None || result.Diverging != noEpochEnd {
		return look{}, code
	}
	upTo := f.upTo(at)
	if asked.FetchOffset >= upTo || limit == 0 && !first {
		return look{skipped: asked.FetchOffset < upTo}, wire.None
	}
	got, err := r.log.Read(log.ReadRequest{From: asked.FetchOffset, UpTo: upTo, MaxBytes: limit, MinOneBatch: first})
	switch {
	case errors.Is(err, log.ErrNotLocal) && f.ReplicaID >= 0:
		return look{}, wire.OffsetMovedToTieredStorage
	case errors.Is(err, log.ErrNotLocal):
		return look{remote: true, upTo: min(upTo, r.log.LocalStartOffset())}, wire.None
	case err != nil:
		return look{}, wire.CodeOf(err)
	case got.Range.Length == 0:
		return look{}, wire.None
	case got.Range.Length < int64(got.FirstBatch): // less than a batch is of no use to a consumer that can wait for its turn
		got.Range.Release()
		return look{skipped: true}, wire.None
	}
	if f.readsCommitted() {
		if err := r.addAborted(asked.FetchOffset, upTo, got, result); err != nil {
			got.Range.Release()
			return look{}, wire.CodeOf(err)
		}
	}
	result.Records = got.Range
	more := got.Range.Length < min(int64(limit), int64(f.MinBytes)) && got.SegmentBase < activeBase(r.log)
	return look{more: more}, wire.None
}

// locate tells whether the offset is in the log, and where the asker's log departs from ours. The latter comes before the
// upper bound: who is beyond our end may have to cut what is not ours.
func (r *role) locate(asked *FetchPartition, at Positions) (diverging EpochEnd, code wire.Code) {
	if asked.FetchOffset < at.LogStartOffset {
		return noEpochEnd, wire.OffsetOutOfRange
	}
	if asked.LastFetchedEpoch >= 0 {
		epoch, end := r.log.EndOffsetForEpoch(asked.LastFetchedEpoch)
		switch {
		case epoch == wire.NoLeaderEpoch || end == wire.NoOffset:
			return noEpochEnd, wire.OffsetOutOfRange
		case epoch < asked.LastFetchedEpoch || end < asked.FetchOffset:
			return EpochEnd{Epoch: epoch, Offset: end}, wire.None
		}
	}
	if asked.FetchOffset > at.LogEndOffset {
		return noEpochEnd, wire.OffsetOutOfRange
	}
	return noEpochEnd, wire.None
}

// activeBase is the base offset of the segment that is appended to.
func activeBase(l *log.Log) wire.Offset {
	end := l.EndOffset()
	nothing, err := l.Read(log.ReadRequest{From: end, UpTo: end})
	if err != nil {
		return 0
	}
	return nothing.SegmentBase
}

// addAborted lists the aborted transactions with records in what was read from an offset on. Where there are none up to the
// last stable offset, as nearly always, it need not be known how far the range goes.
func (r *role) addAborted(from, upTo wire.Offset, got log.ReadResult, result *FetchResult) error {
	aborted, err := r.log.AbortedTransactions(from, upTo)
	if err != nil || len(aborted) == 0 {
		return err
	}
	end := r.log.UpperOffset(got)
	for _, t := range aborted {
		if t.First < end {
			result.Aborted = append(result.Aborted, AbortedTransaction{ProducerID: t.ProducerID, FirstOffset: t.First})
		}
	}
	return nil
}

// checkFetch tells whether the partition can be read here at all.
func (r *role) checkFetch(asked *FetchPartition) wire.Code {
	if r.log == nil && !r.gone {
		return wire.KafkaStorageError
	}
	if asked.CurrentLeaderEpoch >= 0 {
		if code := r.checkEpoch(asked.CurrentLeaderEpoch); code != wire.None {
			return code
		}
	}
	return r.checkLeader()
}

func (f *FetchRequest) readsCommitted() bool { return f.ReplicaID < 0 && f.Isolation == ReadCommitted }

// upTo is the first offset that is not shown.
func (f *FetchRequest) upTo(at Positions) wire.Offset {
	switch {
	case f.ReplicaID >= 0:
		return at.LogEndOffset
	case f.Isolation == ReadCommitted:
		return at.LastStableOffset
	default:
		return at.HighWatermark
	}
}

// delayedFetch is a request that waits for more to say.
type delayedFetch struct {
	manager *Manager
	request *FetchRequest
	waits   []fetchWait
	read    *fetched // with which it completes, where TryComplete had to read to know
	done    func([]FetchResult)
}

// TryComplete tells whether there is enough to say.
func (d *delayedFetch) TryComplete(time.Time) bool {
	news := false
	for i := range d.waits {
		w := &d.waits[i]
		if w.partition.role.Load() != w.role {
			return true // leader, epoch, log or topic changed: whatever it is, the answer says so
		}
		if w.role.log == nil {
			continue
		}
		news = news || d.request.upTo(positions(w.role.log)) > w.from
	}
	if !news {
		return false
	}
	if d.request.MinBytes <= 1 {
		return true
	}
	read := d.manager.read(d.request)
	if !read.answers(d.request) {
		read.release()
		return false
	}
	d.read = &read
	return true
}

// Complete answers.
func (d *delayedFetch) Complete(time.Time) {
	if d.read == nil {
		read := d.manager.read(d.request)
		d.read = &read
	}
	d.done(d.read.results)
}

// Expire answers with what there is.
func (d *delayedFetch) Expire(now time.Time) { d.Complete(now) }
