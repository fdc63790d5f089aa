// Package reasons says for people why a tiered partition is as it is: what of it is in the bucket, what is not and why, and for
// each segment here and there why it is kept and until when. It is the form of a running broker's answers over HTTP, and of those
// that a tool works out from a bucket alone.
//
// It decides nothing: the reasons are those of package plan.
package reasons

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/plan"
)

// Partition is what there is to say of one partition.
type Partition struct {
	Topic       string           `json:"topic"`
	TopicID     wire.TopicID     `json:"topicId"`
	Partition   int32            `json:"partition"`
	LeaderEpoch wire.LeaderEpoch `json:"leaderEpoch"`
	Tiered      bool             `json:"tiered"` // remote.storage.enable
	Live        bool             `json:"live"`   // its leader says so; else only the bucket was asked

	LogStart   wire.Offset `json:"logStart"`
	TieredEnd  wire.Offset `json:"tieredEnd"` // exclusive; what is below is in the bucket
	LocalStart wire.Offset `json:"localStart"`
	LastStable wire.Offset `json:"lastStableOffset"` // what is not below is not uploaded yet
	End        wire.Offset `json:"end"`              // of the log

	Segments []Segment `json:"segments"`
	Lost     []Range   `json:"lost,omitempty"` // recorded as lost
	// Damaged are segments here that can't be uploaded, and so hold back what is behind them.
	Damaged []Range  `json:"damaged,omitempty"`
	Next    []string `json:"next,omitempty"` // what the leader does next, or would do
	// OldestMs is the timestamp of the oldest record that is not in the bucket; 0 where there is none, or only the bucket was asked.
	OldestMs int64 `json:"oldestMs,omitempty"`
	// Error is what stands in the way, since SinceMs; empty if nothing does.
	Error   string `json:"error,omitempty"`
	SinceMs int64  `json:"sinceMs,omitempty"`
}

// Range is a range of offsets; End is exclusive.
type Range struct {
	Start wire.Offset `json:"start"`
	End   wire.Offset `json:"end"`
}

// Segment is a copy of a segment.
type Segment struct {
	Where   Where       `json:"where"`
	Start   wire.Offset `json:"start"`
	End     wire.Offset `json:"end"` // exclusive
	Bytes   int64       `json:"bytes"`
	Why     string      `json:"why"`
	UntilMs int64       `json:"untilMs,omitempty"` // when it goes by time alone; 0 where that can't be told
}

// Where says where a copy lies.
type Where string

// The places.
const (
	Bucket Where = "bucket"
	Local  Where = "local"
)

// Of works out what there is to say of a view. The caller adds what a view does not have: names, lost ranges, errors.
func Of(now time.Time, v plan.View) Partition {
	p := Partition{
		LeaderEpoch: v.LeaderEpoch, Tiered: v.Config.Tiered, LogStart: v.Local.LogStart, TieredEnd: v.Bucket.End,
		LocalStart: v.Local.Start, LastStable: v.Local.LastStableOffset, End: v.Local.End, Segments: []Segment{},
	}
	for _, r := range plan.Explain(now, v) {
		s := Segment{Where: Local, Start: r.Start, End: r.End, Bytes: r.Size, Why: r.Why}
		if r.Remote {
			s.Where = Bucket
		}
		if !r.Until.IsZero() {
			s.UntilMs = r.Until.UnixMilli()
		}
		p.Segments = append(p.Segments, s)
	}
	for _, s := range v.Local.Segments {
		if s.Damaged && v.Config.Tiered && s.Next > max(v.Bucket.End, v.Local.LogStart) {
			p.Damaged = append(p.Damaged, Range{Start: s.Base, End: s.Next})
		}
	}
	for _, t := range plan.Plan(now, v) {
		p.Next = append(p.Next, describe(t)+": "+t.Why)
	}
	return p
}

// describe says for a person what a task is.
func describe(t plan.Task) string {
	switch t.Kind {
	case plan.MoveStart:
		return fmt.Sprintf("move the log start here to %d", t.Offset)
	case plan.DeleteLocal:
		return "delete segments here"
	case plan.Seal:
		return "seal the active segment"
	case plan.RecordStart:
		return fmt.Sprintf("record in the bucket that the log starts at %d", t.Offset)
	case plan.RecordLost:
		return fmt.Sprintf("record that the offsets %d to %d are lost", t.Offset, t.End-1)
	case plan.Drop:
		return fmt.Sprintf("drop the oldest %d segments in the bucket", t.Count)
	case plan.Copy:
		return fmt.Sprintf("copy the segment at %d", t.Segment)
	case plan.Page:
		return fmt.Sprintf("move %d segments of the manifest into a page", t.Count)
	case plan.DeleteObjects:
		return fmt.Sprintf("delete the objects of %d dropped uploads", t.Count)
	case plan.Close:
		return fmt.Sprintf("record that the log ends at %d", t.Offset)
	}
	return fmt.Sprint("task ", t.Kind)
}

// Source is a broker that leads partitions.
type Source interface {
	// Explain says it of the partitions of a topic that this broker leads, or of all topics where the name is empty, in the order
	// of names and numbers. wire.UnknownTopicOrPartition where there is no such topic.
	Explain(ctx context.Context, now time.Time, topic string) ([]Partition, error)
}

// Path is where a broker's admin listener serves Handler; the query ?topic= names a topic.
const Path = "/tier/explain"

// Handler answers with the JSON of a list of Partitions.
func Handler(source Source, now func() time.Time) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		list, err := source.Explain(r.Context(), now(), r.URL.Query().Get("topic"))
		switch {
		case errors.Is(err, wire.UnknownTopicOrPartition):
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		case list == nil:
			list = []Partition{}
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(list) //nolint:errcheck,errchkjson // the asker has gone
	}
}
