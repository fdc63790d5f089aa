package replica

import (
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// FetchSessionCache remembers what clients fetch (KIP-227), so that they need not say it each time, and hears of partitions
// without news only that nothing was said about them. It is a core: now comes in, and session ids from the function that it
// was made with. Safe for use by several goroutines.
type FetchSessionCache struct{}

// NewFetchSessionCache keeps up to slots sessions (max.incremental.fetch.session.cache.slots). random gives the ids: any
// source that clients can't guess.
func NewFetchSessionCache(slots int, random func() uint32) *FetchSessionCache { panic("soon") }

// SessionRequest is what a Fetch request says about its session. Below Fetch v7 it is {ID: 0, Epoch: -1}.
type SessionRequest struct {
	ID, Epoch  int32
	ByID       bool // topics are named by id (Fetch v13)
	Follower   bool
	Partitions []FetchPartition // all of a full request, those added or changed of an incremental one
	Forgotten  []PartitionRef
}

// PartitionRef names a partition by topic or, where Topic is empty, by topic id.
type PartitionRef struct {
	Topic     string
	TopicID   wire.TopicID
	Partition int32
}

// FetchContext is one fetch within, or without, a session.
type FetchContext struct{}

// Begin judges a request: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH and FETCH_SESSION_TOPIC_ID_ERROR are
// answers for the whole request, with session id 0 and without partitions.
func (c *FetchSessionCache) Begin(now time.Time, r SessionRequest) (*FetchContext, wire.Code) {
	panic("soon")
}

// Partitions are what is to be fetched, each once, in the order in which they are to be served. The slice is the context's
// caller's; it aliases nothing.
func (f *FetchContext) Partitions() []FetchPartition { panic("soon") }

// Answer takes the results of Partitions, in that order, and says what the response has: its session id, its top-level
// code, and which results go into it (indexes into results, ascending). Results that are left out hold no records.
func (f *FetchContext) Answer(now time.Time, results []FetchResult) (id int32, code wire.Code, include []int) {
	panic("soon")
}

// SessionID is the id for an answer without partitions: of a throttled request.
func (f *FetchContext) SessionID() int32 { panic("soon") }

// Len is the number of sessions; Partitions of all of them together are what the second figure counts.
func (c *FetchSessionCache) Len() (sessions, partitions int) { panic("soon") }
