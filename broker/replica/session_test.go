package replica_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// counter gives 1, 2, 3 as session ids.
func counter() func() uint32 {
	var n uint32
	return func() uint32 { n += 2; return n }
}

func ask(partitions ...int32) []replica.FetchPartition {
	asked := make([]replica.FetchPartition, len(partitions))
	for i, p := range partitions {
		asked[i] = replica.FetchPartition{Topic: "t", Partition: p}
	}
	return asked
}

// answers makes a result for each partition of a context: of n bytes where bytes has it, at the high watermark hw.
func answers(f *replica.FetchContext, hw wire.Offset, bytes map[int32]int64) []replica.FetchResult {
	results := make([]replica.FetchResult, len(f.Partitions()))
	for i, p := range f.Partitions() {
		results[i] = replica.FetchResult{
			HighWatermark: hw, Records: vfs.Range{Length: bytes[p.Partition]},
			Diverging:            replica.EpochEnd{Epoch: wire.NoLeaderEpoch, Offset: wire.NoOffset},
			PreferredReadReplica: wire.NoBroker,
		}
	}
	return results
}

func partitionsOf(f *replica.FetchContext) []int32 {
	var list []int32
	for _, p := range f.Partitions() {
		list = append(list, p.Partition)
	}
	return list
}

// session is a client's side of a fetch session.
type session struct {
	t     *testing.T
	cache *replica.FetchSessionCache
	id    int32
	epoch int32
	now   time.Time
}

// fetch makes one round and returns the partitions asked of the log and those that the answer has.
func (s *session) fetch(r replica.SessionRequest, hw wire.Offset, bytes map[int32]int64) (asked, answered []int32) {
	s.t.Helper()
	r.ID, r.Epoch = s.id, s.epoch
	f, code := s.cache.Begin(s.now, r)
	if code != wire.None {
		s.t.Fatalf("session %d, epoch %d: %v", s.id, s.epoch, code)
	}
	id, code, include := f.Answer(s.now, answers(f, hw, bytes))
	if code != wire.None {
		s.t.Fatal(code)
	}
	for _, i := range include {
		answered = append(answered, f.Partitions()[i].Partition)
	}
	s.id = id
	s.epoch++
	return partitionsOf(f), answered
}

func want(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func TestSessionAnswersWithNewsOnly(t *testing.T) {
	s := &session{t: t, cache: replica.NewFetchSessionCache(10, counter())}
	_, got := s.fetch(replica.SessionRequest{Partitions: ask(0, 1, 2)}, 5, nil)
	want(t, "full answer", got, []int32{0, 1, 2})
	if s.id == 0 {
		t.Fatal("no session")
	}
	asked, got := s.fetch(replica.SessionRequest{}, 5, nil)
	want(t, "asked", asked, []int32{0, 1, 2})
	want(t, "no news", got, []int32(nil))
	_, got = s.fetch(replica.SessionRequest{}, 6, nil)
	want(t, "high watermark moved", got, []int32{0, 1, 2})
	_, got = s.fetch(replica.SessionRequest{}, 6, map[int32]int64{1: 10})
	want(t, "records", got, []int32{1})
	asked, _ = s.fetch(replica.SessionRequest{Forgotten: []replica.PartitionRef{{Topic: "t", Partition: 0}}, Partitions: ask(7)}, 6, nil)
	want(t, "one forgotten, one added", asked, []int32{2, 1, 7})
	asked, _ = s.fetch(replica.SessionRequest{}, 6, nil)
	want(t, "and it stays so", asked, []int32{2, 1, 7})
}

func TestSessionRemembersWhatAPartitionIsAskedFor(t *testing.T) {
	s := &session{t: t, cache: replica.NewFetchSessionCache(10, counter())}
	s.fetch(replica.SessionRequest{Partitions: ask(0, 1)}, 5, nil)
	changed := ask(1)
	changed[0].FetchOffset = 42
	s.fetch(replica.SessionRequest{Partitions: changed}, 5, nil)
	f, _ := s.cache.Begin(start, replica.SessionRequest{ID: s.id, Epoch: s.epoch})
	if got := f.Partitions(); got[0].FetchOffset != 0 || got[1].FetchOffset != 42 {
		t.Fatalf("asks for offsets %d and %d", got[0].FetchOffset, got[1].FetchOffset)
	}
}

// An error, a diverging epoch and a moved log start are news; after an error, so is the next good answer.
func TestSessionNews(t *testing.T) {
	cache := replica.NewFetchSessionCache(10, counter())
	f, _ := cache.Begin(start, replica.SessionRequest{Partitions: ask(0)})
	id, _, _ := f.Answer(start, answers(f, 5, nil))
	for i, step := range []struct {
		what   string
		change func(*replica.FetchResult)
		news   bool
	}{
		{"the same", func(*replica.FetchResult) {}, false},
		{"an error", func(r *replica.FetchResult) { r.Code, r.HighWatermark = wire.NotLeaderOrFollower, wire.NoOffset }, true},
		{"the same error", func(r *replica.FetchResult) { r.Code, r.HighWatermark = wire.NotLeaderOrFollower, wire.NoOffset }, true},
		{"good again", func(*replica.FetchResult) {}, true},
		{"and again", func(*replica.FetchResult) {}, false},
		{"log start", func(r *replica.FetchResult) { r.LogStartOffset = 3 }, true},
		{"same log start", func(r *replica.FetchResult) { r.LogStartOffset = 3 }, false},
		{"last stable offset alone", func(r *replica.FetchResult) { r.LogStartOffset, r.LastStableOffset = 3, 4 }, false},
		{"diverging epoch", func(r *replica.FetchResult) { r.LogStartOffset, r.Diverging = 3, replica.EpochEnd{Epoch: 2, Offset: 9} }, true},
		{"BO-018: a nearer replica", func(r *replica.FetchResult) { r.LogStartOffset, r.PreferredReadReplica = 3, 4 }, true},
	} {
		f, code := cache.Begin(start, replica.SessionRequest{ID: id, Epoch: int32(i + 1)})
		if code != wire.None {
			t.Fatal(code)
		}
		results := answers(f, 5, nil)
		step.change(&results[0])
		if _, _, include := f.Answer(start, results); (len(include) > 0) != step.news {
			t.Errorf("%s: news %v", step.what, include)
		}
	}
}

func TestSessionErrors(t *testing.T) {
	cache := replica.NewFetchSessionCache(10, counter())
	open := func(byID bool) int32 {
		f, _ := cache.Begin(start, replica.SessionRequest{ByID: byID, Partitions: ask(0)})
		id, _, _ := f.Answer(start, answers(f, 0, nil))
		return id
	}
	named, byID := open(false), open(true)
	for _, c := range []struct {
		what string
		r    replica.SessionRequest
		code wire.Code
	}{
		{"unknown id", replica.SessionRequest{ID: 4711, Epoch: 1}, wire.FetchSessionIDNotFound},
		{"no id", replica.SessionRequest{ID: 0, Epoch: 1}, wire.FetchSessionIDNotFound},
		{"epoch ahead", replica.SessionRequest{ID: named, Epoch: 2}, wire.InvalidFetchSessionEpoch},
		{"ids in a session of names", replica.SessionRequest{ID: named, Epoch: 1, ByID: true}, wire.FetchSessionTopicIDError},
		{"names in a session of ids", replica.SessionRequest{ID: byID, Epoch: 1}, wire.FetchSessionTopicIDError},
		{"right", replica.SessionRequest{ID: named, Epoch: 1}, wire.None},
		{"the same epoch again", replica.SessionRequest{ID: named, Epoch: 1}, wire.InvalidFetchSessionEpoch},
		{"closed", replica.SessionRequest{ID: named, Epoch: -1}, wire.None},
		{"after the close", replica.SessionRequest{ID: named, Epoch: 2}, wire.FetchSessionIDNotFound},
		{"begun anew", replica.SessionRequest{ID: byID, Epoch: 0, ByID: true, Partitions: ask(0)}, wire.None},
		{"the one before", replica.SessionRequest{ID: byID, Epoch: 1, ByID: true}, wire.FetchSessionIDNotFound},
	} {
		if _, code := cache.Begin(start, c.r); code != c.code {
			t.Errorf("%s: %v, want %v", c.what, code, c.code)
		}
	}
}

func TestSessionEpochWraps(t *testing.T) {
	s := &session{t: t, cache: replica.NewFetchSessionCache(10, counter())}
	s.fetch(replica.SessionRequest{Partitions: ask(0)}, 0, nil)
	replica.SetSessionEpoch(s.cache, s.id, 1<<31-1)
	s.epoch = 1<<31 - 1
	s.fetch(replica.SessionRequest{}, 0, nil)
	s.epoch = 1
	s.fetch(replica.SessionRequest{}, 0, nil)
}

// A request that another one of the session overtook while it waited is told so, and changes nothing.
func TestSessionOvertaken(t *testing.T) {
	cache := replica.NewFetchSessionCache(10, counter())
	f, _ := cache.Begin(start, replica.SessionRequest{Partitions: ask(0, 1)})
	id, _, _ := f.Answer(start, answers(f, 0, nil))
	slow, _ := cache.Begin(start, replica.SessionRequest{ID: id, Epoch: 1})
	quick, code := cache.Begin(start, replica.SessionRequest{ID: id, Epoch: 2, Forgotten: []replica.PartitionRef{{Topic: "t"}}})
	if code != wire.None {
		t.Fatal(code)
	}
	late, released := answers(slow, 9, map[int32]int64{1: 100}), 0
	late[1].Records.Release = func() { released++ }
	if _, code, include := slow.Answer(start, late); code != wire.InvalidFetchSessionEpoch || include != nil {
		t.Fatalf("%v %v", code, include)
	}
	if released != 1 {
		t.Errorf("its records were released %d times", released)
	}
	if _, code, include := quick.Answer(start, answers(quick, 9, nil)); code != wire.None || !slices.Equal(include, []int{0}) {
		t.Fatalf("%v %v", code, include)
	}
}

// The one that overtakes may end the session, too.
func TestSessionOvertakenByOneThatEndsIt(t *testing.T) {
	many := make([]int32, replica.SessionPartitionsMax-1)
	for i := range many {
		many[i] = int32(i)
	}
	for _, tt := range []struct {
		name  string
		quick replica.SessionRequest
		want  wire.Code
	}{
		{"it forgets all partitions", replica.SessionRequest{Forgotten: []replica.PartitionRef{{Topic: "t"}}}, wire.None},
		{"it names more than there is room for", replica.SessionRequest{Partitions: ask(1, 2)}, wire.FetchSessionIDNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cache := replica.NewFetchSessionCache(10, counter())
			f, _ := cache.Begin(start, replica.SessionRequest{Partitions: ask(0)})
			id, _, _ := f.Answer(start, answers(f, 0, nil))
			if len(tt.quick.Partitions) > 0 {
				f, _ = cache.Begin(start, replica.SessionRequest{Partitions: ask(many...)})
				f.Answer(start, answers(f, 0, nil))
			}
			slow, _ := cache.Begin(start, replica.SessionRequest{ID: id, Epoch: 1})
			tt.quick.ID, tt.quick.Epoch = id, 2
			if _, code := cache.Begin(start, tt.quick); code != tt.want {
				t.Fatal(code)
			}
			late, released := answers(slow, 9, map[int32]int64{0: 100}), 0
			late[0].Records.Release = func() { released++ }
			if _, code, include := slow.Answer(start, late); code != wire.InvalidFetchSessionEpoch || include != nil || released != 1 {
				t.Errorf("%v, %v, released %d times", code, include, released)
			}
		})
	}
}

// BO-015: forgetting a partition by the zero id is forgetting nothing.
func TestBO015ForgettingByTheZeroID(t *testing.T) {
	cache := replica.NewFetchSessionCache(10, counter())
	asked := []replica.FetchPartition{{TopicID: wire.TopicID{1}}, {TopicID: wire.TopicID{2}}}
	f, _ := cache.Begin(start, replica.SessionRequest{ByID: true, Partitions: asked})
	id, _, _ := f.Answer(start, answers(f, 0, nil))
	f, code := cache.Begin(start, replica.SessionRequest{ID: id, Epoch: 1, ByID: true, Forgotten: []replica.PartitionRef{{}}})
	if code != wire.None || len(f.Partitions()) != 2 {
		t.Fatalf("%v, %d partitions", code, len(f.Partitions()))
	}
	f.Answer(start, answers(f, 0, nil))
	// A name beside the id, as the codec may leave it, changes nothing.
	f, code = cache.Begin(start, replica.SessionRequest{
		ID: id, Epoch: 2, ByID: true,
		Forgotten: []replica.PartitionRef{{Topic: "t", TopicID: wire.TopicID{2}}},
	})
	if code != wire.None || len(f.Partitions()) != 1 {
		t.Fatalf("%v, %d partitions", code, len(f.Partitions()))
	}
}

// BO-017: ten partitions with more than one answer holds are all served within ten rounds.
func TestBO017EveryPartitionHasItsTurn(t *testing.T) {
	s := &session{t: t, cache: replica.NewFetchSessionCache(10, counter())}
	all := []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	s.fetch(replica.SessionRequest{Partitions: ask(all...)}, 5, map[int32]int64{0: 10})
	served := map[int32]bool{}
	for range all {
		f, code := s.cache.Begin(start, replica.SessionRequest{ID: s.id, Epoch: s.epoch})
		if code != wire.None {
			t.Fatal(code)
		}
		asked := partitionsOf(f)
		f.Answer(start, answers(f, 5, map[int32]int64{asked[0]: 10}))
		s.epoch++
		served[asked[0]] = true
	}
	if len(served) != len(all) {
		t.Fatalf("served %v", served)
	}
}

// What a request names twice counts once: as it was named last.
func TestPartitionNamedTwice(t *testing.T) {
	cache := replica.NewFetchSessionCache(10, counter())
	asked := ask(0, 1, 0)
	asked[2].FetchOffset = 7
	f, _ := cache.Begin(start, replica.SessionRequest{Epoch: -1, Partitions: asked})
	if got := f.Partitions(); len(got) != 2 || got[0].FetchOffset != 7 || got[1].Partition != 1 {
		t.Fatalf("%+v", got)
	}
}

func TestSessionlessFetchHasNoSession(t *testing.T) {
	s := &session{t: t, cache: replica.NewFetchSessionCache(10, counter()), epoch: -1}
	_, got := s.fetch(replica.SessionRequest{Partitions: ask(0, 1)}, 0, nil)
	want(t, "answer", got, []int32{0, 1})
	if sessions, _ := s.cache.Len(); s.id != 0 || sessions != 0 {
		t.Fatalf("session %d, %d in all", s.id, sessions)
	}
}

func TestSessionThatForgetsAllIsOver(t *testing.T) {
	s := &session{t: t, cache: replica.NewFetchSessionCache(10, counter())}
	s.fetch(replica.SessionRequest{Partitions: ask(0)}, 0, nil)
	s.fetch(replica.SessionRequest{Forgotten: []replica.PartitionRef{{Topic: "t"}}}, 0, nil)
	if sessions, partitions := s.cache.Len(); s.id != 0 || sessions != 0 || partitions != 0 {
		t.Fatalf("session %d, %d in all with %d partitions", s.id, sessions, partitions)
	}
}

// Who may take whose place in a full cache: anybody that of a session unused for two minutes; followers that of a consumer;
// larger sessions that of smaller ones older than two minutes.
func TestEviction(t *testing.T) {
	const second = time.Second
	for _, c := range []struct {
		what     string
		held     replica.SessionRequest
		idle     time.Duration // since the session was used
		age      time.Duration // since it was made
		newcomer replica.SessionRequest
		room     bool
	}{
		{"of the same kind and young", replica.SessionRequest{Partitions: ask(0)}, 0, 120 * second, replica.SessionRequest{Partitions: ask(0, 1)}, false},
		{"larger than an older one", replica.SessionRequest{Partitions: ask(0)}, 0, 121 * second, replica.SessionRequest{Partitions: ask(0, 1)}, true},
		{"smaller than an older one", replica.SessionRequest{Partitions: ask(0, 1)}, 0, 121 * second, replica.SessionRequest{Partitions: ask(0)}, false},
		{"as large as an older one", replica.SessionRequest{Partitions: ask(0)}, 0, 121 * second, replica.SessionRequest{Partitions: ask(0)}, false},
		{"unused for two minutes", replica.SessionRequest{Partitions: ask(0, 1)}, 121 * second, 121 * second, replica.SessionRequest{Partitions: ask(0)}, true},
		{"a follower after a consumer", replica.SessionRequest{Partitions: ask(0, 1)}, 0, 0, replica.SessionRequest{Partitions: ask(0), Follower: true}, true},
		{"a consumer after a follower", replica.SessionRequest{Partitions: ask(0), Follower: true}, 0, 121 * second, replica.SessionRequest{Partitions: ask(0, 1)}, false},
		{"a follower after a young follower", replica.SessionRequest{Partitions: ask(0), Follower: true}, 0, 0, replica.SessionRequest{Partitions: ask(0, 1), Follower: true}, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			cache := replica.NewFetchSessionCache(1, counter())
			f, _ := cache.Begin(start, c.held)
			held, _, _ := f.Answer(start, answers(f, 0, nil))
			used := start.Add(c.age - c.idle)
			if used.After(start) {
				if _, code := cache.Begin(used, replica.SessionRequest{ID: held, Epoch: 1}); code != wire.None {
					t.Fatal(code)
				}
			}
			now := start.Add(c.age)
			f, _ = cache.Begin(now, c.newcomer)
			id, code, include := f.Answer(now, answers(f, 0, nil))
			if code != wire.None || len(include) != len(c.newcomer.Partitions) {
				t.Fatalf("%v %v", code, include)
			}
			if (id != 0) != c.room {
				t.Fatalf("session %d", id)
			}
			if sessions, _ := cache.Len(); sessions != 1 {
				t.Fatalf("%d sessions", sessions)
			}
		})
	}
}

// The partitions of all sessions are bounded: beyond, clients fetch without a session, and one that grows has to begin anew.
func TestSessionPartitionsAreBounded(t *testing.T) {
	cache := replica.NewFetchSessionCache(1000, counter())
	many := make([]int32, replica.SessionPartitionsMax-1)
	for i := range many {
		many[i] = int32(i)
	}
	f, _ := cache.Begin(start, replica.SessionRequest{Partitions: ask(many...)})
	large, _, _ := f.Answer(start, answers(f, 0, nil))
	f, _ = cache.Begin(start, replica.SessionRequest{Partitions: ask(0, 1)})
	if id, code, include := f.Answer(start, answers(f, 0, nil)); id != 0 || code != wire.None || len(include) != 2 {
		t.Fatalf("session %d, %v, %v", id, code, include)
	}
	if _, code := cache.Begin(start, replica.SessionRequest{ID: large, Epoch: 1, Partitions: ask(-1, -2)}); code != wire.FetchSessionIDNotFound {
		t.Fatal(code)
	}
	if sessions, partitions := cache.Len(); sessions != 0 || partitions != 0 {
		t.Fatalf("%d sessions with %d partitions", sessions, partitions)
	}
}

// Against a model: whatever a client adds and forgets, the session asks for exactly what the client has in mind, and the
// cache's count is that of its sessions.
func TestSessionFollowsItsClient(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cache := replica.NewFetchSessionCache(100, counter())
		mind := map[int32]wire.Offset{}
		var id, epoch int32
		t.Repeat(map[string]func(*rapid.T){
			"fetch": func(t *rapid.T) {
				var r replica.SessionRequest
				for _, p := range rapid.SliceOfNDistinct(rapid.Int32Range(0, 9), 0, 5, rapid.ID).Draw(t, "asked") {
					offset := wire.Offset(rapid.IntRange(0, 100).Draw(t, "offset"))
					mind[p] = offset
					r.Partitions = append(r.Partitions, replica.FetchPartition{Topic: "t", Partition: p, FetchOffset: offset})
				}
				if id == 0 {
					clear(mind)
					for _, p := range r.Partitions {
						mind[p.Partition] = p.FetchOffset
					}
					epoch = 0
				} else {
					for _, p := range rapid.SliceOfN(rapid.Int32Range(0, 9), 0, 3).Draw(t, "forgotten") {
						r.Forgotten = append(r.Forgotten, replica.PartitionRef{Topic: "t", Partition: p})
						delete(mind, p)
					}
				}
				r.ID, r.Epoch = id, epoch
				f, code := cache.Begin(start, r)
				if code != wire.None {
					t.Fatal(code)
				}
				if len(f.Partitions()) != len(mind) {
					t.Fatalf("asks for %d partitions, client for %v", len(f.Partitions()), mind)
				}
				bytes := map[int32]int64{}
				for _, p := range f.Partitions() {
					if offset, ok := mind[p.Partition]; !ok || offset != p.FetchOffset {
						t.Fatalf("asks for %d at %d, client for %v", p.Partition, p.FetchOffset, mind)
					}
					bytes[p.Partition] = int64(rapid.IntRange(0, 1).Draw(t, "bytes"))
				}
				id, code, _ = f.Answer(start, answers(f, 0, bytes))
				if code != wire.None {
					t.Fatal(code)
				}
				epoch++
				sessions, partitions := cache.Len()
				if (sessions == 1) != (id != 0) || sessions == 1 && partitions != len(mind) {
					t.Fatalf("%d sessions with %d partitions, client has session %d and %v", sessions, partitions, id, mind)
				}
			},
		})
	})
}
