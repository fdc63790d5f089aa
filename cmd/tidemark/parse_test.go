package main

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestPositions(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]position{
		"start":                 {kind: atStart},
		"end":                   {kind: atEnd},
		"0":                     {kind: atOffset},
		"42":                    {kind: atOffset, offset: 42},
		"@1700000000000":        {kind: atTime, milli: 1700000000000},
		"@-2h":                  {kind: atTime, milli: now.Add(-2 * time.Hour).UnixMilli()},
		"@2026-01-31T08:00:00Z": {kind: atTime, milli: time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC).UnixMilli()},
		"@2026-01-31":           {kind: atTime, milli: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC).UnixMilli()},
	} {
		if got, err := parsePosition(text, now); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1", "first", "@", "@yesterday", "@24h", "@+1ms", "1.5"} {
		if got, err := parsePosition(text, now); err == nil {
			t.Errorf("%q is taken as %+v", text, got)
		}
	}
}

func TestScopes(t *testing.T) {
	s, err := parseScope([]string{"a:1", "b", "a/3"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		topic     string
		partition int32
		want      bool
	}{{"a", 1, true}, {"a", 2, false}, {"a", 3, true}, {"b", 7, true}, {"c", 0, false}} {
		if got := s.holds(c.topic, c.partition); got != c.want {
			t.Errorf("%s-%d: %v", c.topic, c.partition, got)
		}
	}
	if everything, _ := parseScope(nil); !everything.holds("x", 5) {
		t.Error("the empty scope is not everything")
	}
	for _, text := range []string{"a:", "a:x", "a:-1", "a:99999999999"} {
		if _, err := parseScope([]string{text}); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestLinesBecomeRecords(t *testing.T) {
	for _, c := range []struct {
		flags      produceFlags
		line       string
		key, value []byte
	}{
		{produceFlags{}, "v", nil, []byte("v")},
		{produceFlags{}, "", nil, []byte{}},
		{produceFlags{keySeparator: ":"}, "k:v:w", []byte("k"), []byte("v:w")},
		{produceFlags{keySeparator: ":"}, ":v", []byte{}, []byte("v")},
		{produceFlags{keySeparator: ":"}, "v", nil, []byte("v")},
		{produceFlags{key: "k"}, "v", []byte("k"), []byte("v")},
		{produceFlags{keySeparator: "=>", null: "NULL"}, "k=>NULL", []byte("k"), nil},
	} {
		r := c.flags.record([]byte(c.line))
		if !bytes.Equal(r.Key, c.key) || (r.Key == nil) != (c.key == nil) || !bytes.Equal(r.Value, c.value) || (r.Value == nil) != (c.value == nil) {
			t.Errorf("%q: key %q, value %q", c.line, r.Key, r.Value)
		}
	}
	f := produceFlags{headers: []string{"a=b=c", "d="}}
	headers, err := f.recordHeaders()
	if err != nil || len(headers) != 2 || headers[0].Key != "a" || string(headers[0].Value) != "b=c" {
		t.Errorf("headers %v, %v", headers, err)
	}
}

func TestRecordsInJSON(t *testing.T) {
	text := newRecordView(&kgo.Record{Key: []byte("k"), Value: []byte{}, Headers: []kgo.RecordHeader{{Key: "h"}}})
	if *text.Key != "k" || *text.Value != "" || text.Headers[0].Value != nil || text.Encoding != "" {
		t.Errorf("text %+v", text)
	}
	binary := newRecordView(&kgo.Record{Key: []byte("k"), Value: []byte{0xff}})
	if *binary.Key != "aw==" || *binary.Value != "/w==" || binary.Encoding != "base64" {
		t.Errorf("binary %+v", binary)
	}
	if null := newRecordView(&kgo.Record{}); null.Key != nil || null.Value != nil {
		t.Errorf("null %+v", null)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	text := explain(errors.Join(kerr.NonEmptyGroup), []string{"a:1"})
	if !strings.Contains(text, "Stop its members first") {
		t.Errorf("got %s", text)
	}
	if got := describe(kerr.InvalidConfig, "segment.bytes is too small"); got != "INVALID_CONFIG: segment.bytes is too small" {
		t.Errorf("got %s", got)
	}
	if got := became("t", "done", &toldError{kerr.MessageTooLarge, "x"}, ""); got.code != kerr.MessageTooLarge.Code {
		t.Errorf("got %+v", got)
	}
}

// A quantile of the histogram is never below the true one, and at most 1/32 above.
func TestHistogramIsCloseToTheTruth(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var h histogram
	var all []time.Duration
	for range 20_000 {
		d := time.Duration(random.ExpFloat64() * float64(3*time.Millisecond)).Truncate(time.Microsecond)
		h.add(d)
		all = append(all, d)
	}
	slices.Sort(all)
	for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999} {
		truth, got := all[int(q*float64(len(all)))], h.quantile(q)
		if got < truth || got > truth+truth/32+time.Microsecond {
			t.Errorf("quantile %v: %v, in truth %v", q, got, truth)
		}
	}
	if h.quantile(1) != all[len(all)-1] || h.most != all[len(all)-1] {
		t.Errorf("maximum %v", h.quantile(1))
	}
	if huge := (&histogram{}); true {
		huge.add(1<<63 - 1)
		huge.add(-time.Second)
		if huge.most != 1<<63-1 {
			t.Errorf("maximum %v", huge.most)
		}
	}
}

func TestSizesForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1 << 30: "1.0 GiB", 1 << 62: "4096.0 PiB"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

func TestEndIsReachedPartitionByPartition(t *testing.T) {
	ends := endOffsets{{Topic: "t", Partition: 0}: 2, {Topic: "t", Partition: 1}: 1}
	record := func(partition int32, offset int64) *kgo.Record {
		return &kgo.Record{Topic: "t", Partition: partition, Offset: offset}
	}
	for _, step := range []struct {
		r             *kgo.Record
		past, reached bool
	}{
		{record(0, 0), false, false},
		{record(1, 0), false, false},
		{record(1, 1), true, false}, // came while the others were read
		{record(2, 0), true, false}, // was empty at first
		{record(0, 1), false, true},
	} {
		if got := ends.past(step.r); got != step.past {
			t.Errorf("%d-%d past the end: %v", step.r.Partition, step.r.Offset, got)
		}
		ends.saw(step.r)
		if got := ends.reached(); got != step.reached {
			t.Errorf("after %d-%d reached: %v", step.r.Partition, step.r.Offset, got)
		}
	}
	var endless endOffsets
	if endless.past(record(0, 0)) {
		t.Error("without an end a record lies past it")
	}
}
