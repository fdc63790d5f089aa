package group

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// allocated is how many bytes are allocated while f runs.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Each record of an offset names the group: few bytes of a request, over and over, would be gigabytes of records.
func TestRecordsThatDoNotFitABatchAreNotMade(t *testing.T) {
	const repeats, most = 10_000, 16 << 20
	w := newWorld(nil)
	long := strings.Repeat("g", 32767)
	w.OffsetCommit(w.now, commitRequest(long, "t", 0, 1), func(r *kmsg.OffsetCommitResponse) {
		if code := r.Topics[0].Partitions[0].ErrorCode; code != 0 {
			t.Fatal(wire.Code(code))
		}
	})
	written := w.log.end

	commit := commitRequest(long, "t", 0, 2)
	commit.Topics[0].Partitions = slices.Repeat(commit.Topics[0].Partitions, repeats)
	var committed *kmsg.OffsetCommitResponse
	if n := allocated(func() {
		w.OffsetCommit(w.now, commit, func(r *kmsg.OffsetCommitResponse) { committed = r })
	}); n > most {
		t.Errorf("OffsetCommit allocates %d bytes", n)
	}
	if rows := committed.Topics[0].Partitions; len(rows) != repeats || wire.Code(rows[repeats-1].ErrorCode) != wire.UnknownServerError {
		t.Errorf("%d rows, the last is %+v", len(rows), rows[len(rows)-1])
	}

	remove := kmsg.NewPtrOffsetDeleteRequest()
	remove.Group = long
	topic := kmsg.NewOffsetDeleteRequestTopic()
	topic.Topic, topic.Partitions = "t", make([]kmsg.OffsetDeleteRequestTopicPartition, repeats)
	remove.Topics = append(remove.Topics, topic)
	code := wire.None
	if n := allocated(func() {
		w.OffsetDelete(w.now, remove, func(r *kmsg.OffsetDeleteResponse) { code = wire.Code(r.ErrorCode) })
	}); n > most {
		t.Errorf("OffsetDelete allocates %d bytes", n)
	}
	if code != wire.UnknownServerError {
		t.Errorf("OffsetDelete: %v", code)
	}
	if w.log.end != written {
		t.Errorf("%d records were written", w.log.end-written)
	}
}

func TestOfAPartitionThatIsCommittedTwiceTheLastOffsetCounts(t *testing.T) {
	w := newWorld(nil)
	commit := commitRequest("g", "t", 0, 1)
	commit.Topics = append(commit.Topics, commitRequest("g", "t", 0, 2).Topics...)
	w.OffsetCommit(w.now, commit, func(*kmsg.OffsetCommitResponse) {})
	if got := w.fetchOne(7, wire.TopicID{}); got != 2 {
		t.Errorf("got %d", got)
	}
}

// within fails when f takes so long that it must have gone through a list for each of its elements.
func within(t *testing.T, f func()) {
	t.Helper()
	began := time.Now()
	if f(); time.Since(began) > 8*time.Second {
		t.Errorf("it took %s", time.Since(began))
	}
}

// Nobody else's group answers while a join is looked at.
func TestJoinsWithManyProtocolsAreLinear(t *testing.T) {
	const names = 150_000
	w := newWorld(nil)
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.ProtocolType, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 3, "g", "x", 10_000, 10_000
	for i := range names {
		join.Protocols = append(join.Protocols, kmsg.JoinGroupRequestProtocol{Name: fmt.Sprintf("%06d", i)})
	}
	within(t, func() {
		for range 2 {
			w.JoinGroup(w.now, join, Client{}, func(r *kmsg.JoinGroupResponse) {
				if r.ErrorCode != 0 || *r.Protocol != "000000" {
					t.Errorf("%v, protocol %v", wire.Code(r.ErrorCode), r.Protocol)
				}
				join.MemberID = r.MemberID
			})
		}
	})
}

func TestOfAProtocolThatIsNamedTwiceTheFirstCounts(t *testing.T) {
	got := protocolsOf([]kmsg.JoinGroupRequestProtocol{
		{Name: "b", Metadata: []byte("1")}, {Name: "a", Metadata: []byte("2")}, {Name: "b", Metadata: []byte("3")}, {Name: "c"},
	})
	if fmt.Sprintf("%s", got) != "[{b 1} {a 2} {c }]" {
		t.Errorf("got %s", got)
	}
}

func TestLongFiltersOfListGroupsAreLinear(t *testing.T) {
	const groups, filters = 20_000, 200_000
	w := newWorld(nil)
	for i := range groups {
		w.OffsetCommit(w.now, commitRequest(fmt.Sprint(i), "t", 0, 1), func(*kmsg.OffsetCommitResponse) {})
	}
	list := kmsg.NewPtrListGroupsRequest()
	list.StatesFilter = slices.Repeat([]string{"Engaged"}, filters)
	within(t, func() {
		if got := len(w.ListGroups(list).Groups); got != 0 {
			t.Errorf("%d groups", got)
		}
		list.StatesFilter = append(list.StatesFilter, "eMPTY")
		if got := len(w.ListGroups(list).Groups); got != groups {
			t.Errorf("%d groups", got)
		}
	})
}
