package replica

import (
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// SessionRequest is what a Fetch request says about its session. Below Fetch v7 it is {ID: 0, Epoch: -1}.
type SessionRequest struct {
	ID, Epoch  int32
	ByID       bool // topics are named by id (Fetch v13)
	Follower   bool
	Partitions []FetchPartition // all of a full request, those added or changed of an incremental one
	Forgotten  []PartitionRef
}

// PartitionRef names a partition, by topic or by topic id as its request does.
type PartitionRef struct {
	Topic     string
	TopicID   wire.TopicID
	Partition int32
}

// The epochs that begin a full fetch.
const (
	initialEpoch int32 = 0  // asks for a session
	finalEpoch   int32 = -1 // asks for none, and ends the one that it names
)

func nextEpoch(epoch int32) int32 {
	if epoch == 1<<31-1 {
		return 1
	}
	return epoch + 1
}

// FetchContext is one fetch within, or without, a session.
type FetchContext struct {
	cache      *FetchSessionCache
	session    *fetchSession // of an incremental fetch
	epoch      int32         // of session, while nobody has fetched since
	create     bool          // a full fetch that asks for a session
	byID       bool
	follower   bool
	partitions []FetchPartition
}

// Partitions are what is to be fetched, each once, in the order in which they are to be served. The context looks at the slice
// again in Answer: Fetch fills topic names into it.
func (f *FetchContext) Partitions() []FetchPartition { return f.partitions }

// fetchSession is what one client fetches. The cache's lock guards it.
type fetchSession struct {
	id         int32
	follower   bool
	byID       bool
	epoch      int32 // that the next request must have
	created    time.Time
	used       time.Time
	partitions []*sessionPartition // in the order in which they are served
	index      map[PartitionRef]*sessionPartition
}

// sessionPartition is what is asked of a partition, and what its client was told of it last.
type sessionPartition struct {
	FetchPartition
	highWatermark  wire.Offset // NoOffset after an error: whatever comes next is news
	logStartOffset wire.Offset
	forgotten      bool
}

// refOf is the partition's name in a request that names topics by id, or by name.
func refOf(p *FetchPartition, byID bool) PartitionRef {
	if byID {
		return PartitionRef{TopicID: p.TopicID, Partition: p.Partition}
	}
	return PartitionRef{Topic: p.Topic, Partition: p.Partition}
}

func newSession(id int32, now time.Time, f *FetchContext, results []FetchResult) *fetchSession {
	s := &fetchSession{
		id: id, follower: f.follower, byID: f.byID, epoch: nextEpoch(initialEpoch), created: now, used: now,
		partitions: make([]*sessionPartition, len(f.partitions)),
		index:      make(map[PartitionRef]*sessionPartition, len(f.partitions)),
	}
	for i := range f.partitions {
		p := &sessionPartition{
			FetchPartition: f.partitions[i], highWatermark: results[i].HighWatermark, logStartOffset: results[i].LogStartOffset,
		}
		s.partitions[i], s.index[refOf(&p.FetchPartition, s.byID)] = p, p
	}
	return s
}

// update takes what an incremental request adds, changes and forgets.
func (s *fetchSession) update(asked []FetchPartition, forgotten []PartitionRef) {
	for i := range asked {
		ref := refOf(&asked[i], s.byID)
		if p := s.index[ref]; p != nil {
			name := p.Topic
			p.FetchPartition = asked[i]
			if s.byID {
				p.Topic = name
			}
			continue
		}
		p := &sessionPartition{FetchPartition: asked[i], highWatermark: wire.NoOffset, logStartOffset: wire.NoOffset}
		s.partitions, s.index[ref] = append(s.partitions, p), p
	}
	removed := false
	for _, ref := range forgotten {
		if s.byID {
			ref.Topic = ""
		} else {
			ref.TopicID = wire.TopicID{}
		}
		if p := s.index[ref]; p != nil {
			p.forgotten, removed = true, true
			delete(s.index, ref)
		}
	}
	if removed {
		s.partitions = slices.DeleteFunc(s.partitions, func(p *sessionPartition) bool { return p.forgotten })
	}
}

// news tells whether a result goes into an incremental answer, and remembers that the client was told.
func (p *sessionPartition) news(r *FetchResult) bool {
	news := r.Records.Length > 0 || r.Code != wire.None || r.Diverging != noEpochEnd || r.PreferredReadReplica != wire.NoBroker ||
		r.HighWatermark != p.highWatermark || r.LogStartOffset != p.logStartOffset
	p.highWatermark, p.logStartOffset = r.HighWatermark, r.LogStartOffset
	return news
}

// rotate moves the partitions that gave records behind those that did not, so that a small limit serves all in turn
// (KAFKA-12330).
func (s *fetchSession) rotate(results []FetchResult) {
	order := make([]*sessionPartition, 0, len(s.partitions))
	for i, p := range s.partitions {
		if results[i].Records.Length == 0 {
			order = append(order, p)
		}
	}
	if len(order) == len(s.partitions) {
		return
	}
	for i, p := range s.partitions {
		if results[i].Records.Length > 0 {
			order = append(order, p)
		}
	}
	s.partitions = order
}

// Answer takes the results of Partitions, in that order, and says what the response has: its session id, its top-level
// code, and which results go into it (indexes into results, ascending). Results that are left out hold no records; those of a
// request that was overtaken by another one of its session are released.
func (f *FetchContext) Answer(now time.Time, results []FetchResult) (id int32, code wire.Code, include []int) {
	switch {
	case f.session != nil:
		return f.answerIncremental(results)
	case f.create:
		id = f.cache.create(now, f, results)
	}
	include = make([]int, len(results))
	for i := range include {
		include[i] = i
	}
	return id, wire.None, include
}

func (f *FetchContext) answerIncremental(results []FetchResult) (id int32, code wire.Code, include []int) {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	s := f.session
	if s.epoch != f.epoch {
		releaseRecords(results)
		return s.id, wire.InvalidFetchSessionEpoch, nil
	}
	for i, p := range s.partitions {
		p.Topic = f.partitions[i].Topic
		if p.news(&results[i]) {
			include = append(include, i)
		}
	}
	s.rotate(results)
	return s.id, wire.None, include
}
