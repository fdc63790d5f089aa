package reasons_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/plan"
	"github.com/tidemark-io/tidemark/tier/reasons"
)

var now = time.UnixMilli(1_800_000_000_000)

func view() plan.View {
	day := int64(24 * 3600 * 1000)
	return plan.View{
		Config:    plan.Config{Tiered: true, CleanupDelete: true, RetentionMs: 7 * day, RetentionBytes: -1, LocalRetentionMs: day, LocalRetentionBytes: -1, DeleteGrace: time.Hour, MaxUnsealed: time.Minute},
		Confirmed: true, ClockKnown: true, LeaderEpoch: 3,
		Local: plan.Local{
			Start: 10, HighWatermark: 30, LastStableOffset: 30, End: 30,
			Segments: []plan.LocalSegment{{Base: 10, Next: 20, Size: 100, LatestMs: now.UnixMilli()}, {Base: 20, Next: 30, Size: 100, LatestMs: now.UnixMilli()}},
		},
		Bucket: plan.Bucket{
			Read: true, End: 10, Segments: 1, Bytes: 100, Tail: 1,
			Oldest: []plan.RemoteSegment{{Start: 0, End: 10, Size: 100, MaxTimestamp: now.UnixMilli(), UploadedMs: now.UnixMilli()}},
		},
	}
}

func TestEachCopyOfASegmentHasItsReason(t *testing.T) {
	p := reasons.Of(now, view())
	if len(p.Segments) != 3 || p.Segments[0].Where != reasons.Bucket || p.Segments[1].Where != reasons.Local || p.TieredEnd != 10 || p.End != 30 || !p.Tiered {
		t.Errorf("%+v", p)
	}
	for _, s := range p.Segments {
		if s.Why == "" {
			t.Errorf("no reason for %+v", s)
		}
	}
	if week := now.Add(7 * 24 * time.Hour).UnixMilli(); p.Segments[0].UntilMs < week || p.Segments[0].UntilMs > week+1000 {
		t.Errorf("the copy in the bucket is kept until %d", p.Segments[0].UntilMs)
	}
	if len(p.Next) == 0 || !strings.HasPrefix(p.Next[0], "copy the segment at 10: ") {
		t.Errorf("of the segment that is to be uploaded is said %q", p.Next)
	}
}

// FM-49: a damaged segment holds back what is behind it, until retention has passed it. People are to see that.
func TestADamagedSegmentIsNamed(t *testing.T) {
	v := view()
	if p := reasons.Of(now, v); p.Damaged != nil {
		t.Errorf("%v are damaged", p.Damaged)
	}
	v.Local.Segments[0].Damaged = true
	v.Local.Segments = append(v.Local.Segments, plan.LocalSegment{Base: 30, Next: 30})
	p := reasons.Of(now, v)
	if want := []reasons.Range{{Start: 10, End: 20}}; !reflect.DeepEqual(p.Damaged, want) {
		t.Errorf("%v are damaged, want %v", p.Damaged, want)
	}
	if a, b := p.Segments[1].Why, p.Segments[2].Why; !strings.Contains(a, "it is damaged") || !strings.Contains(b, "it waits for an older one") {
		t.Errorf("it is kept since %q, the one behind it since %q", a, b)
	}
	v.Bucket.End = 20 // it was uploaded before it was damaged
	if p := reasons.Of(now, v); p.Damaged != nil {
		t.Errorf("%v are damaged, and in the bucket", p.Damaged)
	}
}

type source struct {
	list []reasons.Partition
	err  error
}

func (s source) Explain(_ context.Context, _ time.Time, topic string) ([]reasons.Partition, error) {
	if topic != "orders" {
		return nil, wire.UnknownTopicOrPartition
	}
	return s.list, s.err
}

func TestTheHandlerSpeaksJSON(t *testing.T) {
	ask := func(s source, query string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		reasons.Handler(s, func() time.Time { return now })(w, httptest.NewRequest(http.MethodGet, reasons.Path+query, nil))
		return w
	}
	want := []reasons.Partition{reasons.Of(now, view())}
	want[0].Topic, want[0].TopicID = "orders", wire.TopicID{1}
	var got []reasons.Partition
	if err := json.Unmarshal(ask(source{list: want}, "?topic=orders").Body.Bytes(), &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if w := ask(source{}, "?topic=orders"); w.Body.String() != "[]\n" {
		t.Errorf("nothing is %q", w.Body)
	}
	if w := ask(source{}, "?topic=nobody"); w.Code != http.StatusNotFound {
		t.Error(w.Code)
	}
	if w := ask(source{err: errors.New("stopping")}, "?topic=orders"); w.Code != http.StatusServiceUnavailable {
		t.Error(w.Code)
	}
}
