package group

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// fetchOne is the offset of the group "g" in t-0, or -1, as a version asks for it; by topic id where there is one.
func (w *world) fetchOne(version int16, id wire.TopicID) int64 {
	return w.fetched(version, []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", TopicID: id, Partitions: []int32{0}}})
}

// fetchAll is fetchOne by a request for all topics.
func (w *world) fetchAll(version int16) int64 { return w.fetched(version, nil) }

func (w *world) fetched(version int16, topics []kmsg.OffsetFetchRequestGroupTopic) int64 {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.Group = version, "g"
	for _, topic := range topics {
		req.Topics = append(req.Topics, kmsg.OffsetFetchRequestTopic{Topic: topic.Topic, Partitions: topic.Partitions})
	}
	req.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "g", Topics: topics}}
	offset := int64(-1)
	w.OffsetFetch(w.now, req, func(r *kmsg.OffsetFetchResponse) {
		for _, t := range r.Topics {
			offset = t.Partitions[0].Offset
		}
		for _, g := range r.Groups {
			for _, t := range g.Topics {
				offset = t.Partitions[0].Offset
			}
		}
	})
	return offset
}

// A topic that is made anew under a name does not inherit what was committed for the former one, though its tombstones are lost, or
// came before the commit.
func TestOffsetsOfAFormerTopicAreNone(t *testing.T) {
	former, current := wire.TopicID{1}, wire.TopicID{2}
	for _, row := range []struct {
		name        string
		stored, now wire.TopicID
		want        int64
	}{
		{"the same topic", current, current, 7},
		{"a topic made anew", former, current, -1},
		{"a record without id", wire.TopicID{}, current, 7},
		{"no topic", former, wire.TopicID{}, 7},
	} {
		var id wire.TopicID
		w := newWorld(func(c *Config) { c.TopicID = func(string) wire.TopicID { return id } })
		commit := commitRequest("g", "t", 0, 7)
		commit.Topics[0].TopicID = row.stored
		w.OffsetCommit(w.now, commit, func(*kmsg.OffsetCommitResponse) {})
		id = row.now
		check := func(when string) {
			t.Helper()
			for version := int16(1); version <= 10; version++ {
				var asked wire.TopicID
				if version >= 10 {
					asked = row.now
				}
				if got := w.fetchOne(version, asked); got != row.want {
					t.Errorf("%s: version %d reads %d %s", row.name, version, got, when)
				}
				if got := w.fetchAll(version); version >= 2 && got != row.want {
					t.Errorf("%s: version %d reads %d among all %s", row.name, version, got, when)
				}
			}
		}
		check("at once")
		w.load()
		check("after a load")
		kept := false
		_ = w.View(0, func(s *shard) { kept = s.groups["g"] != nil && s.groups["g"].offsets.get("t", 0) != nil })
		if kept != (row.want >= 0) {
			t.Errorf("%s: kept after a load: %v", row.name, kept)
		}
		commit.Topics[0].TopicID, commit.Topics[0].Partitions[0].Offset, row.want = current, 9, 9
		id = current
		w.OffsetCommit(w.now, commit, func(*kmsg.OffsetCommitResponse) {})
		check("after the next commit")
	}
}

// Who asks for a topic by its id gets no offset of another, even of one that this broker has only just heard of.
func TestOffsetsAreThoseOfTheTopicThatIsAskedFor(t *testing.T) {
	newer := wire.TopicID{2}
	w := newWorld(func(c *Config) { c.TopicID = func(string) wire.TopicID { return newer } })
	commit := commitRequest("g", "t", 0, 7)
	commit.Topics[0].TopicID = newer
	w.OffsetCommit(w.now, commit, func(*kmsg.OffsetCommitResponse) {})
	if got := w.fetchOne(10, wire.TopicID{1}); got != -1 {
		t.Errorf("got %d", got)
	}
	if got := w.fetchOne(10, newer); got != 7 {
		t.Errorf("got %d", got)
	}
}
