package replica

import (
	"slices"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// FetchSessionCache remembers what clients fetch (KIP-227), so that they need not say it each time, and hear of partitions
// with news only. It is a core: now comes in, and session ids from the function that it was made with. Safe for use by
// several goroutines.
type FetchSessionCache struct {
	slots  int
	random func() uint32

	mu         sync.Mutex // guards all below, sessions too; a leaf lock
	sessions   map[int32]*fetchSession
	partitions int // of all sessions
}

const (
	// evictionAge is how long a session is safe from larger ones after its creation, and how long an unused one stays when
	// another wants its place (MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS).
	evictionAge = 2 * time.Minute
	// sessionPartitionsMax bounds the partitions of all sessions together, about 200 bytes each: clients choose how many they
	// name. Beyond it there are no new sessions; their clients fetch without.
	sessionPartitionsMax = 500_000
)

// NewFetchSessionCache keeps up to slots sessions (max.incremental.fetch.session.cache.slots). random gives the ids: any
// source that clients can't guess.
func NewFetchSessionCache(slots int, random func() uint32) *FetchSessionCache {
	return &FetchSessionCache{slots: slots, random: random, sessions: map[int32]*fetchSession{}}
}

// Len counts the sessions, and the partitions of all of them together.
func (c *FetchSessionCache) Len() (sessions, partitions int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sessions), c.partitions
}

// Begin judges a request: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH and FETCH_SESSION_TOPIC_ID_ERROR are
// answers for the whole request, with session id 0 and without partitions.
func (c *FetchSessionCache) Begin(now time.Time, r SessionRequest) (*FetchContext, wire.Code) {
	f := &FetchContext{cache: c, byID: r.ByID, follower: r.Follower}
	for i := range r.Partitions {
		r.Partitions[i].ByID = r.ByID
	}
	if r.Epoch != initialEpoch && r.Epoch != finalEpoch {
		return f, c.resume(now, f, r)
	}
	if r.ID != 0 {
		c.mu.Lock()
		c.remove(c.sessions[r.ID])
		c.mu.Unlock()
	}
	f.create = r.Epoch == initialEpoch
	f.partitions = distinct(r.Partitions, r.ByID)
	return f, wire.None
}

// resume goes on with a session.
func (c *FetchSessionCache) resume(now time.Time, f *FetchContext, r SessionRequest) wire.Code {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[r.ID]
	switch {
	case s == nil:
		return wire.FetchSessionIDNotFound
	case s.epoch != r.Epoch:
		return wire.InvalidFetchSessionEpoch
	case s.byID != r.ByID:
		return wire.FetchSessionTopicIDError
	}
	s.epoch = nextEpoch(s.epoch) // whoever waits with this session finds itself overtaken, whatever becomes of us
	before := len(s.partitions)
	s.update(r.Partitions, r.Forgotten)
	c.partitions += len(s.partitions) - before
	if len(s.partitions) == 0 {
		c.remove(s)
		return wire.None
	}
	if c.partitions > sessionPartitionsMax {
		c.remove(s)
		return wire.FetchSessionIDNotFound // the client begins anew, with a full fetch
	}
	s.used = now
	f.session, f.epoch = s, s.epoch
	f.partitions = make([]FetchPartition, len(s.partitions))
	for i, p := range s.partitions {
		f.partitions[i] = p.FetchPartition
	}
	return wire.None
}

// create makes a session of a full fetch and returns its id; 0 where there is no room.
func (c *FetchSessionCache) create(now time.Time, f *FetchContext, results []FetchResult) int32 {
	if len(f.partitions) == 0 {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sessions) >= c.slots && !c.evict(now, f.follower, len(f.partitions)) {
		return 0
	}
	if c.partitions+len(f.partitions) > sessionPartitionsMax {
		return 0
	}
	s := newSession(c.newID(), now, f, results)
	c.sessions[s.id] = s
	c.partitions += len(s.partitions)
	return s.id
}

// newID is a positive id that no session has.
func (c *FetchSessionCache) newID() int32 {
	for {
		id := int32(c.random() >> 1)
		if _, taken := c.sessions[id]; id != 0 && !taken {
			return id
		}
	}
}

// evict gives up a session for a new one: the one unused for longest if that is longer than evictionAge, else the least
// valuable one that is worth less. Followers' sessions are worth more than consumers', then larger ones more than smaller;
// against sessions of their own kind, those younger than evictionAge are safe.
func (c *FetchSessionCache) evict(now time.Time, follower bool, size int) bool {
	var oldest, least *fetchSession
	for _, s := range c.sessions {
		if oldest == nil || s.used.Before(oldest.used) || s.used.Equal(oldest.used) && s.id < oldest.id {
			oldest = s
		}
		safe := now.Sub(s.created) <= evictionAge && (s.follower || !follower)
		if !safe && (least == nil || lessValuable(s, least.follower, len(least.partitions), least.id)) {
			least = s
		}
	}
	switch {
	case oldest == nil:
		return false
	case now.Sub(oldest.used) > evictionAge:
		c.remove(oldest)
		return true
	case least != nil && lessValuable(least, follower, size, 0):
		c.remove(least)
		return true
	default:
		return false
	}
}

// lessValuable compares a session with another one of the given kind, size and id.
func lessValuable(s *fetchSession, follower bool, size int, id int32) bool {
	switch {
	case s.follower != follower:
		return follower
	case len(s.partitions) != size:
		return len(s.partitions) < size
	default:
		return s.id < id
	}
}

func (c *FetchSessionCache) remove(s *fetchSession) {
	if s == nil || c.sessions[s.id] != s {
		return
	}
	delete(c.sessions, s.id)
	c.partitions -= len(s.partitions)
}

// distinct drops all but the last mention of each partition, in the place of the first.
func distinct(asked []FetchPartition, byID bool) []FetchPartition {
	if len(asked) < 2 {
		return asked
	}
	seen := make(map[PartitionRef]int, len(asked))
	kept := slices.Grow([]FetchPartition(nil), len(asked))
	for i := range asked {
		ref := refOf(&asked[i], byID)
		if at, again := seen[ref]; again {
			kept[at] = asked[i]
			continue
		}
		seen[ref] = len(kept)
		kept = append(kept, asked[i])
	}
	return kept
}
