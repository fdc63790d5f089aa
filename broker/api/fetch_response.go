package api

import (
	"encoding/binary"
	"slices"

	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// fetchRow is a partition of a Fetch answer.
type fetchRow struct {
	asked *replica.FetchPartition
	got   *replica.FetchResult
}

// answerFetch sends a Fetch answer (FetchResponse.json). It is encoded here and not by kmsg, because the records stay where they
// are: the frame's parts are the bytes between them and ranges of log files.
func (c *call) answerFetch(s *Server, session int32, code wire.Code, rows []fetchRow) {
	e := &fetchEncoder{version: c.Version, flexible: c.Version >= fetchFlexible}
	e.buf = c.startFrame(e.flexible, 64+96*len(rows))
	e.int32(0) // throttle time
	if c.Version >= fetchSessions {
		e.int16(int16(code))
		e.int32(session)
	}
	errorsFirst(rows)
	var leaders leaderHints
	topics := 0
	for i := range rows {
		if i == 0 || !sameTopic(rows[i-1].asked, rows[i].asked) {
			topics++
		}
	}
	e.arrayLen(topics)
	for start := 0; start < len(rows); {
		end := start + 1
		for end < len(rows) && sameTopic(rows[start].asked, rows[end].asked) {
			end++
		}
		e.topic(rows[start].asked)
		e.arrayLen(end - start)
		for _, row := range rows[start:end] {
			e.partition(row)
			if row.got.Leader.Known {
				leaders.add(row.got.Leader.ID)
			}
		}
		e.tags(0)
		start = end
	}
	if c.Version >= fetchLeaders {
		e.endpoints(leaders.endpoints(s, c))
	} else {
		e.tags(0)
	}
	c.finish(Reply{Outcome: Respond, Parts: e.parts()})
}

// errorsFirst puts partitions that do not exist before the others, as Kafka answers them.
func errorsFirst(rows []fetchRow) {
	slices.SortStableFunc(rows, func(a, b fetchRow) int {
		missing := func(r fetchRow) int {
			if r.got.Code == wire.UnknownTopicOrPartition || r.got.Code == wire.UnknownTopicID {
				return 0
			}
			return 1
		}
		return missing(a) - missing(b)
	})
}

func sameTopic(a, b *replica.FetchPartition) bool {
	return a.Topic == b.Topic && a.TopicID == b.TopicID
}

// fetchEncoder builds the bytes of an answer and remembers where ranges belong between them.
type fetchEncoder struct {
	version  int16
	flexible bool
	buf      []byte
	cuts     []cut
	ranged   int64
}

// cut is a range of a file and the place in the buffer where it belongs.
type cut struct {
	at     int
	record vfs.Range
}

func (e *fetchEncoder) int16(v int16) { e.buf = binary.BigEndian.AppendUint16(e.buf, uint16(v)) }
func (e *fetchEncoder) int32(v int32) { e.buf = binary.BigEndian.AppendUint32(e.buf, uint32(v)) }
func (e *fetchEncoder) int64(v int64) { e.buf = binary.BigEndian.AppendUint64(e.buf, uint64(v)) }
func (e *fetchEncoder) uvarint(v int) { e.buf = binary.AppendUvarint(e.buf, uint64(v)) }

// arrayLen writes the length of an array or of bytes; both are plain int32s before flexible versions, and compact after.
func (e *fetchEncoder) arrayLen(n int) {
	if e.flexible {
		e.uvarint(n + 1)
	} else {
		e.int32(int32(n))
	}
}

// null writes a null array.
func (e *fetchEncoder) null() {
	if e.flexible {
		e.uvarint(0)
	} else {
		e.int32(-1)
	}
}

// tags writes how many tagged fields follow.
func (e *fetchEncoder) tags(n int) {
	if e.flexible {
		e.uvarint(n)
	}
}

func (e *fetchEncoder) compactString(s string) {
	e.uvarint(len(s) + 1)
	e.buf = append(e.buf, s...)
}

func (e *fetchEncoder) topic(p *replica.FetchPartition) {
	switch {
	case e.version >= fetchTopicID:
		e.buf = append(e.buf, p.TopicID[:]...)
	case e.flexible:
		e.compactString(p.Topic)
	default:
		e.int16(int16(len(p.Topic)))
		e.buf = append(e.buf, p.Topic...)
	}
}

func (e *fetchEncoder) partition(row fetchRow) {
	r := row.got
	e.int32(row.asked.Partition)
	e.int16(int16(r.Code))
	e.int64(int64(r.HighWatermark))
	e.int64(int64(r.LastStableOffset))
	if e.version >= 5 {
		e.int64(int64(r.LogStartOffset))
	}
	if r.Aborted == nil {
		e.null()
	} else {
		e.arrayLen(len(r.Aborted))
		for _, a := range r.Aborted {
			e.int64(int64(a.ProducerID))
			e.int64(int64(a.FirstOffset))
			e.tags(0)
		}
	}
	if e.version >= fetchReadReplica {
		e.int32(int32(r.PreferredReadReplica))
	}
	e.arrayLen(int(r.Records.Length))
	if r.Records.Length > 0 {
		e.cuts = append(e.cuts, cut{at: len(e.buf), record: r.Records})
		e.ranged += r.Records.Length
	}
	e.partitionTags(r)
}

// partitionTags writes DivergingEpoch (tag 0) and CurrentLeader (tag 1), both structs of fixed size with tags of their own.
func (e *fetchEncoder) partitionTags(r *replica.FetchResult) {
	if !e.flexible {
		return
	}
	diverging := r.Diverging.Epoch != wire.NoLeaderEpoch
	count := 0
	if diverging {
		count++
	}
	if r.Leader.Known {
		count++
	}
	e.uvarint(count)
	if diverging {
		e.uvarint(0)
		e.uvarint(4 + 8 + 1)
		e.int32(int32(r.Diverging.Epoch))
		e.int64(int64(r.Diverging.Offset))
		e.uvarint(0)
	}
	if r.Leader.Known {
		e.uvarint(1)
		e.uvarint(4 + 4 + 1)
		e.int32(int32(r.Leader.ID))
		e.int32(int32(r.Leader.Epoch))
		e.uvarint(0)
	}
}

// endpoints writes the answer's tags: the addresses of leaders that it names (tag 0, from version 16).
func (e *fetchEncoder) endpoints(nodes []endpoint) {
	if len(nodes) == 0 {
		e.tags(0)
		return
	}
	inner := fetchEncoder{flexible: true}
	inner.arrayLen(len(nodes))
	for _, n := range nodes {
		inner.int32(int32(n.id))
		inner.compactString(n.host)
		inner.int32(n.port)
		if n.rack == nil {
			inner.uvarint(0)
		} else {
			inner.compactString(*n.rack)
		}
		inner.tags(0)
	}
	e.tags(1)
	e.uvarint(0)
	e.uvarint(len(inner.buf))
	e.buf = append(e.buf, inner.buf...)
}

// parts finishes the frame.
func (e *fetchEncoder) parts() []Part {
	wire.FinishFrame(e.buf, int(e.ranged))
	parts := make([]Part, 0, 2*len(e.cuts)+1)
	from := 0
	for _, c := range e.cuts {
		parts = append(parts, Part{Bytes: e.buf[from:c.at]}, Part{Range: c.record})
		from = c.at
	}
	return append(parts, Part{Bytes: e.buf[from:]})
}
