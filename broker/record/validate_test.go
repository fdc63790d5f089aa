package record

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// now is the moment of the tests: a minute after the records.
const now = createTime + 60_000

// lenient is a topic with Kafka's defaults, asked by the newest Produce.
var lenient = Policy{
	Partition:       wire.TopicPartition{Topic: "a", Partition: 0},
	ZstdAllowed:     true,
	MaxMessageBytes: 1048588,
	MaxDecompressed: math.MaxInt32 - 8,
	BeforeMaxMs:     math.MaxInt64,
	AfterMaxMs:      3_600_000,
}

func with(change func(*Policy)) Policy {
	p := lenient
	change(&p)
	return p
}

func cat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// rows of refusals: what Apache Kafka 4.4.0 answered to the same bytes. Where a row deviates on purpose it says so.
var refusals = []struct {
	name   string
	batch  []byte
	policy Policy
	code   wire.Code // None: accepted
	early  bool      // the answer has no log start offset
}{
	{"null or no bytes", nil, lenient, wire.InvalidRecord, true},
	{"BO-020 one bit flipped among the records", flip(sample(2), HeaderSize+9), lenient, wire.CorruptMessage, true},
	{"BO-020 wrong checksum", flip(sample(2), atCRC), lenient, wire.CorruptMessage, true},
	{"BO-020 one bit flipped, compressed", flip(build(LZ4, numbered(9)), HeaderSize+9), lenient, wire.CorruptMessage, true},

	{"BO-021 message of format 0", oldMessage(0), lenient, wire.InvalidRecord, true},
	{"BO-021 message of format 1", oldMessage(1), lenient, wire.InvalidRecord, true},
	{"BO-021 three messages of format 1", cat(oldMessage(1), oldMessage(1), oldMessage(1)), lenient, wire.InvalidRecord, true},
	{"magic 3", withMagic(3), lenient, wire.CorruptMessage, true},
	{"magic -1", withMagic(-1), lenient, wire.CorruptMessage, true},

	{"BO-022 two batches", cat(sample(1), sample(2)), lenient, wire.InvalidRecord, true},
	{"BO-022 two batches, the second damaged", cat(sample(1), flip(sample(2), atCRC)), lenient, wire.InvalidRecord, true},
	{
		"BO-022 two batches of a producer", cat(build(None, numbered(1), producer(9, 0, 0)), build(None, numbered(1), producer(9, 0, 1))),
		lenient, wire.InvalidRecord, true,
	},

	{"BO-023 count above", build(None, numbered(2), setInt32(atCount, 3)), lenient, wire.InvalidRecord, false},
	{"BO-023 count below", build(None, numbered(2), setInt32(atCount, 1)), lenient, wire.InvalidRecord, false},
	{"BO-023 count 0", build(None, numbered(2), setInt32(atCount, 0)), lenient, wire.InvalidRecord, false},
	{"BO-023 count -1", build(None, numbered(2), setInt32(atCount, -1)), lenient, wire.InvalidRecord, false},
	{"BO-023 count 2000000000", build(None, numbered(2), setInt32(atCount, 2e9)), lenient, wire.InvalidRecord, false},
	{"BO-023 last delta above", build(None, numbered(2), setInt32(atLastDelta, 5)), lenient, wire.InvalidRecord, false},
	{"BO-023 last delta below", build(None, numbered(2), setInt32(atLastDelta, 0)), lenient, wire.InvalidRecord, false},
	{"BO-023 last delta -1", build(None, numbered(2), setInt32(atLastDelta, -1)), lenient, wire.InvalidRecord, false},
	{"BO-023 header says 5, holds 3", build(None, numbered(3), setInt32(atCount, 5), setInt32(atLastDelta, 4)), lenient, wire.InvalidRecord, false},
	{"BO-023 header says 3, holds 5", build(None, numbered(5), setInt32(atCount, 3), setInt32(atLastDelta, 2)), lenient, wire.InvalidRecord, false},
	{"BO-023 header says 5, holds 3, gzip", build(Gzip, numbered(3), setInt32(atCount, 5), setInt32(atLastDelta, 4)), lenient, wire.InvalidRecord, false},
	{"BO-023 header says 3, holds 5, gzip", build(Gzip, numbered(5), setInt32(atCount, 3), setInt32(atLastDelta, 2)), lenient, wire.InvalidRecord, false},
	{"BO-023 count and delta at the maximum", build(None, numbered(2), setInt32(atCount, math.MinInt32), setInt32(atLastDelta, math.MaxInt32)), lenient, wire.InvalidRecord, false},
	{"gzip, count above", build(Gzip, numbered(2), setInt32(atCount, 3)), lenient, wire.InvalidRecord, false},
	{"lz4, last delta above", build(LZ4, numbered(2), setInt32(atLastDelta, 5)), lenient, wire.InvalidRecord, false},
	{"no records", build(None, nil), lenient, wire.InvalidRecord, false},
	{"no records, gzip", build(Gzip, nil), lenient, wire.InvalidRecord, false},

	{"BO-024 null key on a compacted topic", build(None, []rec{{nil, []byte("v"), 0, createTime}}), compacted, wire.InvalidRecord, false},
	{"BO-024 null key on a compacted topic, gzip", build(Gzip, []rec{{nil, []byte("v"), 0, createTime}}), compacted, wire.InvalidRecord, false},
	{"BO-024 empty key on a compacted topic", build(None, []rec{{[]byte{}, []byte("v"), 0, createTime}}), compacted, wire.None, false},

	{"BO-025 two hours ahead", build(None, at(now+7_200_000)), lenient, wire.InvalidTimestamp, false},
	{"BO-025 ten minutes ahead", build(None, at(now+600_000)), lenient, wire.None, false},
	{"BO-025 exactly the hour ahead", build(None, at(now+3_600_000)), lenient, wire.None, false},
	{"BO-025 a millisecond more", build(None, at(now+3_600_001)), lenient, wire.InvalidTimestamp, false},
	{"BO-025 year 56000", build(None, at(createTime*1000)), lenient, wire.InvalidTimestamp, false},
	{"BO-025 1970", build(None, at(0)), lenient, wire.None, false},
	{"BO-025 1970 with a bound", build(None, at(0)), bounded, wire.InvalidTimestamp, false},
	{"BO-025 exactly the hour back", build(None, at(now-3_600_000)), bounded, wire.None, false},
	{"BO-025 a millisecond more back", build(None, at(now-3_600_001)), bounded, wire.InvalidTimestamp, false},
	{"BO-025 two hours ahead, zstd", build(Zstd, at(now+7_200_000)), lenient, wire.InvalidTimestamp, false},
	{"BO-025 not checked under LogAppendTime", build(None, at(now+7_200_000)), appendTime, wire.None, false},
	{"no timestamp", build(None, at(NoTimestamp)), bounded, wire.None, false},
	{"timestamp -2", build(None, at(-2)), lenient, wire.None, false},
	{"the smallest timestamp", build(None, at(math.MinInt64)), lenient, wire.InvalidTimestamp, false},

	{"BO-027 at the size limit", sample(4), with(func(p *Policy) { p.MaxMessageBytes = len(sample(4)) }), wire.None, false},
	{"BO-027 above the size limit", sample(4), with(func(p *Policy) { p.MaxMessageBytes = len(sample(4)) - 1 }), wire.MessageTooLarge, true},
	{"BO-027 10 KB of zeros fit by gzip", zeros(Gzip, 10_000), with(func(p *Policy) { p.MaxMessageBytes = 2000 }), wire.None, false},
	{"BO-027 10 KB of zeros, stored plain, do not", zeros(Gzip, 10_000), with(func(p *Policy) { p.MaxMessageBytes = 2000; p.Target = &Compression{} }), wire.MessageTooLarge, true},
	{"BO-027 1 KB of zeros, stored plain", zeros(Gzip, 1_000), with(func(p *Policy) { p.MaxMessageBytes = 2000; p.Target = &Compression{} }), wire.None, false},
	{"BO-027 too large as it came, though gzip would help", zeros(None, 3_000), with(func(p *Policy) { p.MaxMessageBytes = 2000; p.Target = &Compression{Codec: Gzip} }), wire.MessageTooLarge, true},

	{"BO-030 zstd below Produce v7", build(Zstd, numbered(1)), with(func(p *Policy) { p.ZstdAllowed = false }), wire.UnsupportedCompressionType, true},
	{"BO-030 lz4 below Produce v7", build(LZ4, numbered(1)), with(func(p *Policy) { p.ZstdAllowed = false }), wire.None, false},

	{"length beyond the end", resized(sample(2), 5), lenient, wire.InvalidRecord, true},
	{"length before the end", resized(sample(2), -5), lenient, wire.CorruptMessage, true},
	{"cut", sample(2)[:len(sample(2))-3], lenient, wire.InvalidRecord, true},
	{"negative length", resized(sample(2), -1000), lenient, wire.CorruptMessage, true},
	{"no room for a header", cat(make([]byte, 11), []byte{32}, make([]byte, 4), []byte{2}, make([]byte, 27)), lenient, wire.CorruptMessage, true}, // Kafka: -1
	{"a byte behind the batch", cat(sample(2), []byte{0}), lenient, wire.None, false},
	{"half a header behind the batch", cat(sample(2), make([]byte, 11), []byte{16}, make([]byte, 4)), lenient, wire.None, false},
	{"half a batch behind the batch", cat(sample(2), sample(2)[:70]), lenient, wire.None, false},
	{"an impossible length behind the batch", cat(sample(2), make([]byte, 20)), lenient, wire.CorruptMessage, true},
	{"an impossible magic behind the batch", cat(sample(2), withMagic(7)), lenient, wire.CorruptMessage, true},
	{"seven bytes", []byte("garbage"), lenient, wire.InvalidRecord, true},
	{"a hundred bytes", bytes.Repeat([]byte("g"), 100), lenient, wire.CorruptMessage, true},

	{"control batch of a client", build(None, numbered(1), addAttributes(controlBit)), lenient, wire.InvalidRecord, false},
	{"control batch of the coordinator", NewEndTxnMarker(9, 0, createTime, EndTxnMarker{}), coordinator, wire.None, false},
	{"transactional batch", build(None, numbered(1), addAttributes(txnBit)), lenient, wire.None, false},
	{"base offset 100", build(None, numbered(2), setInt64(atBaseOffset, 100)), lenient, wire.InvalidRecord, false},
	{"base offset -5", build(None, numbered(2), setInt64(atBaseOffset, -5)), lenient, wire.InvalidRecord, false},
	{"base offset 3 and a wrong checksum", flip(build(Gzip, numbered(1), setInt64(atBaseOffset, 3)), atCRC), lenient, wire.InvalidRecord, false},
	{"leader epoch 42", build(None, numbered(2), setInt32(atLeaderEpoch, 42)), lenient, wire.None, false},
	{"a gap in the offsets", build(None, deltas(0, 5)), lenient, wire.InvalidRecord, false},
	{"offsets that fall", build(None, deltas(1, 0)), lenient, wire.InvalidRecord, false},
	{"two records with one offset", build(None, deltas(0, 0), setInt32(atLastDelta, 1)), lenient, wire.None, false},
	{"two records with one offset, gzip", build(Gzip, deltas(0, 0), setInt32(atLastDelta, 1)), lenient, wire.UnknownServerError, false},
	{"two records with one offset, gzip to gzip", build(Gzip, deltas(0, 0), setInt32(atLastDelta, 1)), stored(Gzip), wire.UnknownServerError, false},
	{"two records with one offset, gzip to lz4", build(Gzip, deltas(0, 0), setInt32(atLastDelta, 1)), stored(LZ4), wire.None, false},

	{"producer without epoch and sequence", build(None, numbered(1), producer(9, -1, -1)), lenient, wire.InvalidRecord, false},
	{"producer without sequence", build(None, numbered(1), producer(9, 0, -1)), lenient, wire.InvalidRecord, false},
	{"sequence without producer", build(None, numbered(1), producer(-1, 0, 0)), lenient, wire.None, false},
	{"producer -5", build(None, numbered(1), producer(-5, 0, 0)), lenient, wire.None, false},

	{"timestamp type set by the producer", build(None, numbered(1), addAttributes(appendTimeBit)), lenient, wire.None, false},
	{"timestamp type set by the producer, without a time", build(None, at(-1), addAttributes(appendTimeBit)), lenient, wire.InvalidTimestamp, false},
	{"timestamp type set by the producer under LogAppendTime", build(None, numbered(1), addAttributes(appendTimeBit)), appendTime, wire.InvalidTimestamp, false},
	{"timestamp type set by the producer, late maximum", build(Gzip, numbered(2), addAttributes(appendTimeBit), setInt64(atMaxTime, now+7_200_000)), lenient, wire.InvalidTimestamp, false},
	{"delete horizon set by the producer", build(None, numbered(1), addAttributes(deleteHorizon)), lenient, wire.None, false},
	{"unknown attribute", build(None, numbered(1), addAttributes(0x8000)), lenient, wire.None, false},

	{"garbage for records", withBody(None, "garbage", 1), lenient, wire.InvalidRecord, false},
	{"garbage for gzip", withBody(Gzip, "garbage", 1), lenient, wire.UnknownServerError, false},
	{"garbage for snappy", withBody(Snappy, "garbage", 1), lenient, wire.UnknownServerError, false},
	{"garbage for lz4", withBody(LZ4, "garbage", 1), lenient, wire.UnknownServerError, false},
	{"garbage for zstd", withBody(Zstd, "garbage", 1), lenient, wire.UnknownServerError, false},
	{"garbage for gzip, stored as lz4", withBody(Gzip, "garbage", 1), stored(LZ4), wire.UnknownServerError, false},
	{"codec 5", build(None, numbered(1), setAttributes(5)), lenient, wire.UnknownServerError, false},
	{"codec 7", build(None, numbered(1), setAttributes(7)), lenient, wire.UnknownServerError, false},
	{"empty gzip body", withBody(Gzip, "", 1), lenient, wire.UnknownServerError, false},
	{"empty snappy body", withBody(Snappy, "", 1), lenient, wire.UnknownServerError, false},
	{"empty lz4 body", withBody(LZ4, "", 1), lenient, wire.UnknownServerError, false},
	{"empty zstd body", withBody(Zstd, "", 1), lenient, wire.InvalidRecord, false},
	{"gzip body cut", cutBody(build(Gzip, numbered(3)), 9), lenient, wire.UnknownServerError, false},
	{"snappy body cut", cutBody(build(Snappy, numbered(3)), 9), lenient, wire.UnknownServerError, false},
	{"lz4 body cut", cutBody(build(LZ4, numbered(3)), 9), lenient, wire.UnknownServerError, false},
	{"zstd body cut", cutBody(build(Zstd, numbered(3)), 9), lenient, wire.UnknownServerError, false},

	{"record of length 0", withBody(None, "\x00", 1), lenient, wire.InvalidRecord, false},
	{"smallest record", withBody(None, "\x0c\x00\x00\x00\x01\x01\x00", 1), lenient, wire.None, false},
	{"smallest record on a compacted topic", withBody(None, "\x0c\x00\x00\x00\x01\x01\x00", 1), compacted, wire.InvalidRecord, false},
	{"key and value of length -2", withBody(None, "\x0c\x00\x00\x00\x03\x03\x00", 1), lenient, wire.None, false},
	{"record attributes", withBody(None, "\x0c\xff\x00\x00\x01\x01\x00", 1), lenient, wire.None, false},
	{"header count -1", withBody(None, "\x0c\x00\x00\x00\x01\x01\x01", 1), lenient, wire.InvalidRecord, false},
	{"header that is missing", withBody(None, "\x0c\x00\x00\x00\x01\x01\x02", 1), lenient, wire.InvalidRecord, false},
	{"header with an empty name and null", withBody(None, "\x10\x00\x00\x00\x01\x01\x02\x00\x01", 1), lenient, wire.None, false},
	{"header with a null name", withBody(None, "\x10\x00\x00\x00\x01\x01\x02\x01\x01", 1), lenient, wire.InvalidRecord, false},
	{"length in two bytes where one does", withBody(None, "\x8c\x00\x00\x00\x00\x01\x01\x00", 1), lenient, wire.None, false},
	{"length in six bytes", withBody(None, "\x8c\x80\x80\x80\x80\x00\x00\x00\x00\x01\x01\x00", 1), lenient, wire.InvalidRecord, false}, // Kafka: -1
	{"key longer than the record", withBody(None, "\x0c\x00\x00\x00\x7e\x01\x00", 1), lenient, wire.InvalidRecord, false},
	{"bytes after the last record", withBody(None, "\x0c\x00\x00\x00\x01\x01\x00xyz", 1), lenient, wire.InvalidRecord, false},

	{"record at the decompression limit", zeros(Gzip, 991), with(func(p *Policy) { p.MaxDecompressed = 1000 }), wire.None, false},
	{"record above the decompression limit", zeros(Gzip, 992), with(func(p *Policy) { p.MaxDecompressed = 1000 }), wire.InvalidRecord, false},
	{"several records above the decompression limit", build(Snappy, numbered(50)), with(func(p *Policy) { p.MaxDecompressed = 50 }), wire.None, false},
	{"plain record above the decompression limit", zeros(None, 2000), with(func(p *Policy) { p.MaxDecompressed = 1000 }), wire.None, false},
	{"record above the decompression limit, recompressed", zeros(Gzip, 992), with(func(p *Policy) { p.MaxDecompressed = 1000; p.Target = &Compression{Codec: LZ4} }), wire.InvalidRecord, false},
	{"plain record above the decompression limit, compressed", zeros(None, 992), with(func(p *Policy) { p.MaxDecompressed = 1000; p.Target = &Compression{Codec: LZ4} }), wire.None, false},
}

var (
	compacted   = with(func(p *Policy) { p.Compacted = true })
	bounded     = with(func(p *Policy) { p.BeforeMaxMs = 3_600_000 })
	appendTime  = with(func(p *Policy) { p.AppendTime = true })
	coordinator = with(func(p *Policy) { p.Origin = FromCoordinator })
)

func stored(codec Codec) Policy {
	return with(func(p *Policy) { p.Target = &Compression{Codec: codec} })
}

func at(timestamps ...int64) []rec {
	list := numbered(len(timestamps))
	for i, t := range timestamps {
		list[i].time = t
	}
	return list
}

func deltas(list ...int32) []rec {
	records := numbered(len(list))
	for i, d := range list {
		records[i].delta = d
	}
	return records
}

// zeros is a batch of one record of n value bytes, whose body unfolded is n + 9 bytes, its own length not counted.
func zeros(codec Codec, n int) Batch {
	return build(codec, []rec{{[]byte("k0"), make([]byte, n), 0, createTime}})
}

func flip(b Batch, at int) Batch {
	b[at] ^= 4
	return b
}

func resized(b Batch, by int) Batch {
	putInt32(b, atLength, int32(len(b)-SizePrefix+by))
	return b
}

func cutBody(b Batch, n int) Batch {
	b = resized(b[:len(b)-n], 0)
	b.SetCRC()
	return b
}

func withMagic(magic int8) Batch {
	b := sample(1)
	b[atMagic] = byte(magic)
	return b
}

func oldMessage(magic byte) []byte {
	message := cat(make([]byte, 4), []byte{magic, 0}, make([]byte, 8*int(magic)), []byte("\x00\x00\x00\x03key\x00\x00\x00\x05value"))
	return cat(make([]byte, 11), []byte{byte(len(message))}, message)
}

func TestValidateAnswersAsKafka(t *testing.T) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			result, err := Validate(bytes.Clone(c.batch), c.policy, now)
			if got := wire.CodeOf(err); got != c.code {
				t.Fatalf("%v, want %v", err, c.code)
			}
			if err != nil {
				var refused *Error
				if !errors.As(err, &refused) || refused.Early != c.early {
					t.Errorf("%#v: early should be %v", err, c.early)
				}
				return
			}
			if err := result.Batch.Check(); err != nil {
				t.Errorf("the accepted batch: %v", err)
			}
			if !result.Full {
				t.Error("not every record was visited")
			}
		})
	}
}

func TestAcceptedPlainBatchIsTheSameMemory(t *testing.T) {
	in := sample(3)
	before := string(in)
	result, err := Validate(cat(in)[:len(in):len(in)], lenient, now)
	if err != nil || string(result.Batch) != before || result.LogAppendTime != NoTimestamp {
		t.Errorf("%v %v", result, err)
	}
	result, err = Validate(in, lenient, now)
	if err != nil || &result.Batch[0] != &in[0] {
		t.Errorf("the batch was copied: %v", err)
	}
}

func TestWrongMaximumTimestampIsCorrected(t *testing.T) {
	for _, codec := range []Codec{None, Gzip} {
		for _, c := range []struct {
			name    string
			records []rec
			stated  int64
			want    int64
		}{
			{"too small", numbered(2), 5, createTime + 1},
			{"too large", numbered(2), now + 9e9, createTime + 1},
			{"in the middle", at(createTime, createTime+9, createTime+3), 5, createTime + 9},
			{"none", at(-1), 5, -1},
			{"below none", at(-2), -2, -1},
		} {
			result, err := Validate(build(codec, c.records, setInt64(atMaxTime, c.stated)), lenient, now)
			if err != nil || result.Batch.MaxTimestamp() != c.want || result.Batch.Check() != nil {
				t.Errorf("%v, %s: %d, want %d (%v)", codec, c.name, result.Batch.MaxTimestamp(), c.want, err)
			}
		}
	}
}

func TestLogAppendTimeIsStamped(t *testing.T) {
	for _, p := range []Policy{appendTime, with(func(p *Policy) { p.AppendTime, p.Target = true, &Compression{Codec: Zstd} })} {
		for codec := None; codec <= Zstd; codec++ {
			result, err := Validate(build(codec, numbered(2)), p, now)
			if err != nil {
				t.Fatal(err)
			}
			b := result.Batch
			if result.LogAppendTime != now || b.MaxTimestamp() != now || b.TimestampType() != LogAppendTime ||
				b.BaseTimestamp() != createTime || b.Check() != nil {
				t.Errorf("%v: %s", codec, describe(b))
			}
			for r, err := range Records(b, 1000) {
				if err != nil || r.Timestamp != now {
					t.Errorf("%v: record at %d: %v", codec, r.Timestamp, err)
				}
			}
		}
	}
}

func TestRecordErrorsNameTheRecords(t *testing.T) {
	mixed := []rec{
		{[]byte("a"), nil, 0, createTime},
		{nil, nil, 1, createTime},
		{nil, nil, 2, createTime},
		{[]byte("b"), nil, 3, createTime},
	}
	for _, codec := range []Codec{None, Snappy} {
		for _, p := range []Policy{compacted, with(func(p *Policy) { p.Compacted, p.Target = true, &Compression{Codec: LZ4} })} {
			_, err := Validate(build(codec, mixed), p, now)
			var refused *Error
			if !errors.As(err, &refused) {
				t.Fatal(err)
			}
			const missing = "Compacted topic cannot accept message without key in topic partition a-0"
			want := []RecordError{{1, missing}, {2, missing}}
			if fmt.Sprint(refused.Records) != fmt.Sprint(want) {
				t.Errorf("%v: %v, want %v", codec, refused.Records, want)
			}
			const text = "One or more records have been rejected due to 2 record errors in total, and only showing the first three errors at most: " +
				"[RecordError(batchIndex=1, message='" + missing + "'), RecordError(batchIndex=2, message='" + missing + "')]"
			if refused.Message != text {
				t.Errorf("%v: %q, want %q", codec, refused.Message, text)
			}
		}
	}
}

func TestBadTimestampOutweighsMissingKey(t *testing.T) {
	p := with(func(p *Policy) { p.Compacted, p.BeforeMaxMs = true, 3_600_000 })
	_, err := Validate(build(None, []rec{{nil, nil, 0, createTime}, {[]byte("k"), nil, 1, 5}}), p, now)
	var refused *Error
	if !errors.As(err, &refused) || refused.Code != wire.InvalidTimestamp || len(refused.Records) != 2 {
		t.Fatal(err)
	}
	if refused.Message != "One or more records have been rejected due to invalid timestamp" {
		t.Error(refused.Message)
	}
	want := fmt.Sprintf("Timestamp 5 of message with offset 1 is out of range. The timestamp should be within [%d, %d]",
		int64(now-3_600_000), int64(now+3_600_000))
	if refused.Records[1] != (RecordError{1, want}) {
		t.Errorf("%v, want %q", refused.Records[1], want)
	}
}

func TestRecordErrorsAreBounded(t *testing.T) {
	records := numbered(5000)
	for i := range records {
		records[i].key = nil
	}
	_, err := Validate(build(None, records), compacted, now)
	var refused *Error
	if !errors.As(err, &refused) || len(refused.Records) != maxRecordErrors {
		t.Fatalf("%d record errors", len(refused.Records))
	}
	if !strings.Contains(refused.Message, "due to 5000 record errors") {
		t.Error(refused.Message)
	}
}

func TestTopicsCodecDecidesWhatIsStored(t *testing.T) {
	records := numbered(3)
	records[1].value = nil
	for from := None; from <= Zstd; from++ {
		for to := None; to <= Zstd; to++ {
			in := build(from, records, producer(9, 1, 7), addAttributes(txnBit))
			want := strings.Replace(describe(in), fmt.Sprintf("size=%d %v", len(in), from), "", 1)
			result, err := Validate(in, stored(to), now)
			if err != nil {
				t.Errorf("%v to %v: %v", from, to, err)
				continue
			}
			b := result.Batch
			got := strings.Replace(describe(b), fmt.Sprintf("size=%d %v", len(b), to), "", 1)
			if got != want || b.Codec() != to || b.Check() != nil {
				t.Errorf("%v to %v: got\n%swant\n%s", from, to, describe(b), want)
			}
		}
	}
}

func TestMarkersAreNotCompressed(t *testing.T) {
	p := stored(Gzip)
	p.Origin = FromCoordinator
	result, err := Validate(NewEndTxnMarker(9, 0, createTime, EndTxnMarker{}), p, now)
	if err != nil || result.Batch.Codec() != None || !result.Batch.IsControl() {
		t.Errorf("%v %v", result.Batch.Codec(), err)
	}
}

func TestRewritingNumbersOffsetsAnew(t *testing.T) {
	in := build(Gzip, deltas(0, 0, 1), setInt32(atLastDelta, 2))
	result, err := Validate(in, stored(None), now)
	if err != nil {
		t.Fatal(err)
	}
	var offsets []wire.Offset
	for r := range Records(result.Batch, 0) {
		offsets = append(offsets, r.Offset)
	}
	if fmt.Sprint(offsets) != "[0 1 2]" {
		t.Error(offsets)
	}
}

func TestHeaderOnlyTrustsTheHeader(t *testing.T) {
	header := func(change func(*Policy)) Policy {
		p := with(change)
		p.HeaderOnly = true
		return p
	}
	keep := func(*Policy) {}
	for _, c := range []struct {
		name   string
		batch  Batch
		policy Policy
		full   bool
		code   wire.Code
	}{
		{"compressed", build(LZ4, numbered(3)), header(keep), false, wire.None},
		{"garbage inside", withBody(LZ4, "garbage", 1), header(keep), false, wire.None},
		{"garbage inside, damaged on the way", flip(withBody(LZ4, "garbage", 1), HeaderSize), header(keep), false, wire.CorruptMessage},
		{"header that contradicts itself", build(LZ4, numbered(3), setInt32(atCount, 4)), header(keep), false, wire.InvalidRecord},
		{"plain", sample(3), header(keep), true, wire.None},
		{"plain garbage", withBody(None, "garbage", 1), header(keep), false, wire.InvalidRecord},
		{"compacted topic", build(LZ4, numbered(3)), header(func(p *Policy) { p.Compacted = true }), true, wire.None},
		{"another codec is stored", build(LZ4, numbered(3)), header(func(p *Policy) { p.Target = &Compression{Codec: Gzip} }), true, wire.None},
		{"late maximum that is true", build(LZ4, at(now+7_200_000)), header(keep), false, wire.InvalidTimestamp},
		{"late maximum that is a lie", build(LZ4, numbered(2), setInt64(atMaxTime, now+7_200_000)), header(keep), true, wire.None},
		{"early base", build(LZ4, at(0)), header(func(p *Policy) { p.BeforeMaxMs = 1 }), false, wire.InvalidTimestamp},
		{"maximum below the base", build(LZ4, numbered(2), setInt64(atMaxTime, 5)), header(keep), true, wire.None},
		{"timestamp type set by the producer", build(LZ4, numbered(2), addAttributes(appendTimeBit)), header(keep), true, wire.None},
		{"LogAppendTime", build(LZ4, at(now+7_200_000)), header(func(p *Policy) { p.AppendTime = true }), false, wire.None},
	} {
		result, err := Validate(c.batch, c.policy, now)
		if wire.CodeOf(err) != c.code || result.Full != c.full {
			t.Errorf("%s: full %v, %v; want %v, %v", c.name, result.Full, err, c.full, c.code)
		}
	}
}

func TestCoordinatorMayChooseOffsets(t *testing.T) {
	b := build(None, numbered(2), setInt64(atBaseOffset, 100))
	if _, err := Validate(b, coordinator, now); err != nil {
		t.Error(err)
	}
}
