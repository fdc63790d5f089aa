package record

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// testdata/kafka-4.4.log is a segment that Apache Kafka 4.4.0 wrote: its console producer with each codec, then two
// transactions of its performance test. testdata/kafka-4.4.txt says what is in it.

func readSegment(t testing.TB) []byte {
	t.Helper()
	segment, err := os.ReadFile("testdata/kafka-4.4.log")
	if err != nil {
		t.Fatal(err)
	}
	return segment
}

func split(t testing.TB, b []byte) (list []Batch) {
	t.Helper()
	for len(b) > 0 {
		batch, rest, err := Next(b)
		if err != nil {
			t.Fatal(err)
		}
		list, b = append(list, batch), rest
	}
	return list
}

func text(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%q", b)
}

func describe(b Batch) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d..%d epoch=%d size=%d %v type=%d txn=%v control=%v horizon=%v time=%d..%d producer=%d/%d sequence=%d..%d count=%d\n",
		b.BaseOffset(), b.LastOffset(), b.LeaderEpoch(), b.Length(), b.Codec(), b.TimestampType(), b.IsTransactional(),
		b.IsControl(), b.HasDeleteHorizon(), b.BaseTimestamp(), b.MaxTimestamp(), b.ProducerID(), b.ProducerEpoch(),
		b.BaseSequence(), b.LastSequence(), b.Count())
	for r, err := range Records(b, 1<<20) {
		if err != nil {
			fmt.Fprintf(&s, "  %v\n", err)
			break
		}
		fmt.Fprintf(&s, "  %d %d %s=%s", r.Offset, r.Timestamp, text(r.Key), text(r.Value))
		for name, value := range r.Headers() {
			fmt.Fprintf(&s, " %s:%s", name, text(value))
		}
		s.WriteByte('\n')
	}
	return s.String()
}

func TestBatchesWrittenByKafka(t *testing.T) {
	var got strings.Builder
	for _, b := range split(t, readSegment(t)) {
		if err := b.Check(); err != nil {
			t.Errorf("batch at %d: %v", b.BaseOffset(), err)
		}
		if b.Length() != len(b) {
			t.Errorf("batch at %d: length %d of %d bytes", b.BaseOffset(), b.Length(), len(b))
		}
		got.WriteString(describe(b))
	}
	want, err := os.ReadFile("testdata/kafka-4.4.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
}

func TestBuilderWritesTheBytesThatKafkaWrites(t *testing.T) {
	for _, want := range split(t, readSegment(t)) {
		if want.Codec() != None {
			continue // the same content, in other bytes
		}
		w := Builder{
			BaseOffset: want.BaseOffset(), LeaderEpoch: want.LeaderEpoch(),
			Transactional: want.IsTransactional(), Control: want.IsControl(),
			Producer: &Producer{want.ProducerID(), want.ProducerEpoch(), want.BaseSequence()},
		}
		for r, err := range Records(want, 0) {
			if err != nil {
				t.Fatal(err)
			}
			w.Append(r.Timestamp, r.Key, r.Value)
		}
		got, err := w.Build()
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("batch at %d:\n got %x\nwant %x", want.BaseOffset(), got, want)
		}
		if w.Size() != len(got) {
			t.Errorf("batch at %d: builder announced %d bytes, wrote %d", want.BaseOffset(), w.Size(), len(got))
		}
	}
}

func TestNextReportsWhatIsNoWholeBatch(t *testing.T) {
	whole := sample(3)
	for n := range len(whole) {
		if _, rest, err := Next(whole[:n]); !errors.Is(err, ErrShort) || len(rest) != n {
			t.Fatalf("%d of %d bytes: %d left, %v; want %v", n, len(whole), len(rest), err, ErrShort)
		}
	}
	for _, length := range []int32{-1, 0, HeaderSize - SizePrefix - 1, math.MinInt32} {
		b := append([]byte{}, whole...)
		putInt32(b, atLength, length)
		if _, _, err := Next(b); !errors.Is(err, ErrCorrupt) {
			t.Errorf("length %d: %v, want %v", length, err, ErrCorrupt)
		}
	}
	batch, rest, err := Next(append(append([]byte{}, whole...), 1, 2))
	if err != nil || len(batch) != len(whole) || cap(batch) != len(whole) || len(rest) != 2 {
		t.Errorf("batch of %d (cap %d), rest of %d, %v", len(batch), cap(batch), len(rest), err)
	}
}

func TestCheckFindsEveryFlippedBitBehindTheChecksum(t *testing.T) {
	whole := sample(2)
	for i := atMagic; i < len(whole); i++ {
		b := append(Batch{}, whole...)
		b[i] ^= 1 << (i % 8)
		if err := b.Check(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("bit of byte %d flipped: %v", i, err)
		}
	}
}

func TestPatchesOfTheLeaderKeepTheChecksum(t *testing.T) {
	b := sample(3)
	b.SetBaseOffset(1 << 40)
	b.SetLeaderEpoch(7)
	if err := b.Check(); err != nil {
		t.Error(err)
	}
	if b.BaseOffset() != 1<<40 || b.LastOffset() != 1<<40+2 || b.NextOffset() != 1<<40+3 || b.LeaderEpoch() != 7 {
		t.Error(describe(b))
	}
}

func TestSetMaxTimestampKeepsWhatIsRight(t *testing.T) {
	b := sample(2)
	b[atAttributes] |= 0x80 // a bit without meaning
	b.SetCRC()
	before := string(b)
	b.SetMaxTimestamp(CreateTime, b.MaxTimestamp())
	if string(b) != before {
		t.Error("the batch was written though nothing changed")
	}
	b.SetMaxTimestamp(LogAppendTime, 99)
	if b.MaxTimestamp() != 99 || b.TimestampType() != LogAppendTime || b.Attributes() != appendTimeBit || b.Check() != nil {
		t.Error(describe(b))
	}
	b.SetMaxTimestamp(CreateTime, 98)
	if b.MaxTimestamp() != 98 || b.TimestampType() != CreateTime || b.Check() != nil {
		t.Error(describe(b))
	}
}

func TestSequencesWrap(t *testing.T) {
	for _, c := range []struct{ base, delta, want int32 }{
		{0, 0, 0},
		{5, 2, 7},
		{math.MaxInt32 - 1, 1, math.MaxInt32},
		{math.MaxInt32, 1, 0},
		{math.MaxInt32, 2, 1},
		{math.MaxInt32, math.MaxInt32, math.MaxInt32 - 1},
		{0, math.MaxInt32, math.MaxInt32},
	} {
		if got := AddSequence(c.base, c.delta); got != c.want {
			t.Errorf("%d after %d: %d, want %d", c.delta, c.base, got, c.want)
		}
	}
	if got := sample(3).LastSequence(); got != NoSequence {
		t.Errorf("without a producer: %d", got)
	}
}

func TestEndTxnMarkersAreKafkas(t *testing.T) {
	var seen int
	for _, want := range split(t, readSegment(t)) {
		if !want.IsControl() {
			continue
		}
		seen++
		marker, ok, err := ReadEndTxnMarker(want)
		if err != nil || !ok || marker != (EndTxnMarker{Commit, 0}) {
			t.Errorf("%+v %v %v", marker, ok, err)
		}
		got := NewEndTxnMarker(want.ProducerID(), want.ProducerEpoch(), want.BaseTimestamp(), marker)
		got.SetBaseOffset(want.BaseOffset())
		if string(got) != string(want) {
			t.Errorf("got  %x\nwant %x", got, want)
		}
	}
	if seen != 2 {
		t.Errorf("%d markers in the segment", seen)
	}
}

func TestControlRecordsOfOtherKinds(t *testing.T) {
	control := func(key, value string) Batch {
		w := Builder{Control: true}
		w.Append(0, []byte(key), []byte(value))
		b, err := w.Build()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, c := range []struct {
		name       string
		key, value string
		want       EndTxnMarker
		ok, fails  bool
	}{
		{"abort", "\x00\x00\x00\x00", "\x00\x00\x00\x00\x00\x07", EndTxnMarker{Abort, 7}, true, false},
		{"later versions may be longer", "\x00\x01\x00\x01more", "\x00\x01\x00\x00\x00\x02more", EndTxnMarker{Commit, 2}, true, false},
		{"leader change", "\x00\x00\x00\x02", "\x00\x00", EndTxnMarker{}, false, false},
		{"short key", "\x00\x00\x00", "\x00\x00\x00\x00\x00\x07", EndTxnMarker{}, false, true},
		{"negative key version", "\xff\xff\x00\x00", "\x00\x00\x00\x00\x00\x07", EndTxnMarker{}, false, true},
		{"short value", "\x00\x00\x00\x00", "\x00\x00\x00\x00\x00", EndTxnMarker{}, false, true},
	} {
		got, ok, err := ReadEndTxnMarker(control(c.key, c.value))
		if got != c.want || ok != c.ok || errors.Is(err, ErrCorrupt) != c.fails {
			t.Errorf("%s: %+v %v %v", c.name, got, ok, err)
		}
	}
}

func TestRecordErrorsUnwrapToTheirCode(t *testing.T) {
	_, err := Validate(nil, Policy{}, 0)
	if !errors.Is(err, wire.InvalidRecord) || wire.CodeOf(err) != wire.InvalidRecord {
		t.Error(err)
	}
}
