package broker_test

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Where fields are in a batch.
const (
	countAt = 57
	deltaAt = 23
)

// altered is a batch with a number replaced and the checksum made right again.
func altered(b record.Batch, at int, n uint32) record.Batch {
	b = bytes.Clone(b)
	binary.BigEndian.PutUint32(b[at:], n)
	b.SetCRC()
	return b
}

// oldMessages is a set of messages of a format that is no longer written.
func oldMessages(magic byte, count int) []byte {
	var set []byte
	for i := range count {
		body := []byte{magic, 0}
		if magic == 1 {
			body = binary.BigEndian.AppendUint64(body, uint64(time.Now().UnixMilli()))
		}
		body = append(body, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 'v') // a null key, a value
		message := append(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(body)), body...)
		set = binary.BigEndian.AppendUint64(set, uint64(i))
		set = binary.BigEndian.AppendUint32(set, uint32(len(message)))
		set = append(set, message...)
	}
	return set
}

func TestProduceFaults(t *testing.T) {
	r := startBroker(t)
	c := r.dial()
	r.create("plain", 1)
	r.create("compacted", 1, "cleanup.policy=compact")
	r.create("append-time", 1, "message.timestamp.type=LogAppendTime")
	r.create("window", 1, "message.timestamp.before.max.ms=60000", "message.timestamp.after.max.ms=60000")
	r.create("small", 1, "max.message.bytes=2000")
	r.create("unfolded", 1, "max.message.bytes=2000", "compression.type=uncompressed")
	now := time.Now()
	ms := now.UnixMilli()
	sound := batchOf(t, record.Builder{}, ms, ms, ms)
	gzip := record.Builder{Compression: record.Compression{Codec: record.Gzip}}
	keyless := func(key []byte) record.Batch {
		w := record.Builder{}
		w.Append(ms, key, []byte("v"))
		return batchOf(t, w)
	}
	sized := func(w record.Builder, value []byte) record.Batch {
		w.Append(ms, nil, value)
		return batchOf(t, w)
	}
	noise := make([]byte, 2100)
	rand.Read(noise)

	for _, p := range []struct {
		name, topic string
		records     []byte
		want        wire.Code
	}{
		{"BO-020 one bit flipped", "plain", func() []byte { b := bytes.Clone(sound); b[70] ^= 1; return b }(), wire.CorruptMessage},
		{"BO-021 a message of format 0", "plain", oldMessages(0, 1), wire.InvalidRecord},
		{"BO-021 three messages of format 0", "plain", oldMessages(0, 3), wire.InvalidRecord},
		{"BO-021 a message of format 1", "plain", oldMessages(1, 1), wire.InvalidRecord},
		{"BO-021 three messages of format 1", "plain", oldMessages(1, 3), wire.InvalidRecord},
		{"BO-022 two batches", "plain", slices.Concat(sound, sound), wire.InvalidRecord},
		{"BO-023 the header says 5, it holds 3", "plain", altered(altered(sound, countAt, 5), deltaAt, 4), wire.InvalidRecord},
		{"BO-023 the header says 2, it holds 3", "plain", altered(altered(sound, countAt, 2), deltaAt, 1), wire.InvalidRecord},
		{"BO-023 the header says 5, it holds 3, gzip", "plain", altered(altered(batchOf(t, gzip, ms, ms, ms), countAt, 5), deltaAt, 4), wire.InvalidRecord},
		{"BO-024 no key for a compacted topic", "compacted", keyless(nil), wire.InvalidRecord},
		{"BO-024 an empty key for a compacted topic", "compacted", keyless([]byte{}), wire.None},
		{"BO-025 two hours ahead", "plain", batchOf(t, record.Builder{}, now.Add(2*time.Hour).UnixMilli()), wire.InvalidTimestamp},
		{"BO-025 ten minutes ahead", "plain", batchOf(t, record.Builder{}, now.Add(10*time.Minute).UnixMilli()), wire.None},
		{"BO-025 microseconds", "plain", batchOf(t, record.Builder{}, ms*1000), wire.InvalidTimestamp},
		{"BO-025 1970", "plain", batchOf(t, record.Builder{}, 1), wire.None},
		{"BO-025 ten minutes ahead, outside the window", "window", batchOf(t, record.Builder{}, now.Add(10*time.Minute).UnixMilli()), wire.InvalidTimestamp},
		{"BO-025 1970, outside the window", "window", batchOf(t, record.Builder{}, 1), wire.InvalidTimestamp},
		{"BO-025 two hours ahead with append time", "append-time", batchOf(t, record.Builder{}, now.Add(2*time.Hour).UnixMilli()), wire.None},
		{"BO-027 zeros that shrink", "small", sized(gzip, make([]byte, 10_000)), wire.None},
		{"BO-027 noise that does not", "small", sized(record.Builder{}, noise), wire.MessageTooLarge},
		{"BO-027 zeros that are stored unfolded", "unfolded", sized(gzip, make([]byte, 10_000)), wire.MessageTooLarge},
	} {
		t.Run(p.name, func(t *testing.T) {
			before := c.nextOffset(p.topic)
			for v := int16(3); v <= 12; v++ {
				row := c.produce(v, p.topic, p.records)
				if wire.Code(row.ErrorCode) != p.want {
					t.Errorf("version %d: %v, want %v", v, wire.Code(row.ErrorCode), p.want)
				}
			}
			if grown := c.nextOffset(p.topic) != before; grown != (p.want == wire.None) {
				t.Errorf("the log grew: %v", grown)
			}
		})
	}

	t.Run("BO-020 one bad partition says nothing of the others", func(t *testing.T) {
		request := produceOf("plain", 0, altered(sound, countAt, 5))
		request.Topics = append(request.Topics, produceOf("compacted", 0, sound).Topics...)
		topics := ask[*kmsg.ProduceResponse](c, version(9, request)).Topics
		if bad, good := topics[0].Partitions[0], topics[1].Partitions[0]; wire.Code(bad.ErrorCode) != wire.InvalidRecord || good.ErrorCode != 0 {
			t.Errorf("%v, %v", wire.Code(bad.ErrorCode), wire.Code(good.ErrorCode))
		}
	})
	t.Run("BO-024 the answer names the record", func(t *testing.T) {
		if row := c.produce(8, "compacted", keyless(nil)); len(row.ErrorRecords) != 1 || row.ErrorRecords[0].RelativeOffset != 0 {
			t.Errorf("%+v", row.ErrorRecords)
		}
	})
	t.Run("BO-026 append time", func(t *testing.T) {
		for v := int16(3); v <= 12; v++ {
			if row := c.produce(v, "plain", sound); row.LogAppendTime != -1 {
				t.Errorf("version %d: create time: %d", v, row.LogAppendTime)
			}
			row := c.produce(v, "append-time", sound)
			read := ask[*kmsg.FetchResponse](c, version(12, fetchOf(row.BaseOffset, "append-time"))).Topics[0].Partitions[0].RecordBatches
			if row.LogAppendTime < ms || record.Batch(read).MaxTimestamp() != row.LogAppendTime {
				t.Errorf("version %d: append time %d, a consumer reads %d", v, row.LogAppendTime, record.Batch(read).MaxTimestamp())
			}
		}
	})
	t.Run("BO-028 acks that do not exist", func(t *testing.T) {
		before := c.nextOffset("plain")
		for _, acks := range []int16{2, -2} {
			request := produceOf("plain", 0, sound)
			request.Acks = acks
			if row := ask[*kmsg.ProduceResponse](c, version(9, request)).Topics[0].Partitions[0]; wire.Code(row.ErrorCode) != wire.InvalidRequiredAcks {
				t.Errorf("acks %d: %v", acks, wire.Code(row.ErrorCode))
			}
		}
		if c.nextOffset("plain") != before {
			t.Error("the log grew")
		}
	})
	t.Run("BO-029 Produce is announced from 0", func(t *testing.T) {
		for _, key := range ask[*kmsg.ApiVersionsResponse](c, version(0, kmsg.NewPtrApiVersionsRequest())).ApiKeys {
			if key.ApiKey == 0 && key.MinVersion != 0 {
				t.Errorf("from %d on", key.MinVersion)
			}
		}
		for v := range int16(3) {
			old := r.dial()
			old.send(version(v, produceOf("plain", 0, sound)))
			if !old.closed() {
				t.Errorf("version %d is answered", v)
			}
		}
		for codec := record.Gzip; codec <= record.Zstd; codec++ {
			row := c.produce(9, "plain", batchOf(t, record.Builder{Compression: record.Compression{Codec: codec}}, ms))
			read := ask[*kmsg.FetchResponse](c, version(12, fetchOf(row.BaseOffset, "plain"))).Topics[0].Partitions[0].RecordBatches
			if got := record.Batch(read).Codec(); got != codec {
				t.Errorf("%v is stored as %v", codec, got)
			}
		}
	})
	t.Run("BO-030 zstd and old versions", func(t *testing.T) {
		r.create("zstd", 1)
		batch := batchOf(t, record.Builder{Compression: record.Compression{Codec: record.Zstd}}, ms)
		for v := int16(3); v <= 12; v++ {
			want := wire.None
			if v < 7 {
				want = wire.UnsupportedCompressionType
			}
			if row := c.produce(v, "zstd", batch); wire.Code(row.ErrorCode) != want {
				t.Errorf("produce version %d: %v", v, wire.Code(row.ErrorCode))
			}
		}
		for v := int16(4); v <= 12; v++ {
			row := ask[*kmsg.FetchResponse](c, version(v, fetchOf(0, "zstd"))).Topics[0].Partitions[0]
			if row.ErrorCode == 0 && len(row.RecordBatches) == 0 {
				t.Errorf("fetch version %d goes round in a circle", v)
			}
		}
	})
	t.Run("BO-031 topic ids", func(t *testing.T) {
		r.create("deleted", 1)
		gone := r.topicID("deleted")
		deletion := kmsg.NewPtrDeleteTopicsRequest()
		deletion.TopicNames = []string{"deleted"}
		ask[*kmsg.DeleteTopicsResponse](c, version(5, deletion))
		for name, id := range map[string][16]byte{"zero": {}, "random": {1, 2, 3}, "deleted": gone, "known": r.topicID("plain")} {
			request := produceOf("", 0, sound)
			request.Topics[0].TopicID = id
			want := wire.UnknownTopicID
			if name == "known" {
				want = wire.None
			}
			if row := ask[*kmsg.ProduceResponse](c, version(13, request)).Topics[0].Partitions[0]; wire.Code(row.ErrorCode) != want {
				t.Errorf("%s id: %v", name, wire.Code(row.ErrorCode))
			}
		}
		if n := len(ask[*kmsg.MetadataResponse](c, version(12, kmsg.NewPtrMetadataRequest())).Topics); n != 7 {
			t.Errorf("%d topics: one was created", n)
		}
	})
	r.wantServing()
}

func TestIdempotenceFaults(t *testing.T) {
	r := startBroker(t)
	c := r.dial()
	ms := time.Now().UnixMilli()
	from := func(id int64, sequence int32) record.Batch {
		return batchOf(t, record.Builder{Producer: &record.Producer{ID: wire.ProducerID(id), Sequence: sequence}}, ms)
	}

	t.Run("BO-032 no state is known", func(t *testing.T) {
		r.create("expired", 1)
		for sequence := int32(7); sequence < 9; sequence++ {
			if row := c.produce(9, "expired", from(1000, sequence)); row.ErrorCode != 0 {
				t.Errorf("sequence %d: %v", sequence, wire.Code(row.ErrorCode))
			}
		}
	})
	t.Run("BO-033 five in flight over a clean restart", func(t *testing.T) {
		r.create("restarted", 1)
		for sequence := range int32(5) {
			c.produce(9, "restarted", from(1, sequence))
		}
		r.restart()
		c = r.dial()
		for sequence := range int32(6) {
			if row := c.produce(9, "restarted", from(1, sequence)); row.ErrorCode != 0 || row.BaseOffset != int64(sequence) {
				t.Errorf("sequence %d: %v at %d", sequence, wire.Code(row.ErrorCode), row.BaseOffset)
			}
		}
	})
	t.Run("BO-034 a pipeline", func(t *testing.T) {
		r.create("pipelined", 1)
		const n = 50
		for sequence := range int32(n) {
			c.send(version(9, produceOf("pipelined", 0, from(2, sequence))))
		}
		for sequence := range n {
			row := answer[*kmsg.ProduceResponse](c, version(9, kmsg.NewPtrProduceRequest())).Topics[0].Partitions[0]
			if row.ErrorCode != 0 || row.BaseOffset != int64(sequence) {
				t.Errorf("sequence %d: %v at %d", sequence, wire.Code(row.ErrorCode), row.BaseOffset)
			}
		}
	})
	t.Run("BO-035 a gap on one partition", func(t *testing.T) {
		r.create("gap", 2)
		c.produce(9, "gap", from(3, 0))
		for range 2 {
			request := produceOf("gap", 0, from(3, 5))
			request.Topics[0].Partitions = append(request.Topics[0].Partitions, produceOf("gap", 1, from(3, 0)).Topics[0].Partitions...)
			for _, row := range ask[*kmsg.ProduceResponse](c, version(9, request)).Topics[0].Partitions {
				want := []wire.Code{wire.OutOfOrderSequenceNumber, wire.None}[row.Partition]
				if wire.Code(row.ErrorCode) != want || want == wire.None && row.BaseOffset != 0 {
					t.Errorf("partition %d: %v at %d", row.Partition, wire.Code(row.ErrorCode), row.BaseOffset)
				}
			}
		}
	})
	r.wantServing()
}

func TestDeleteRecordsFaults(t *testing.T) {
	r := startBroker(t)
	c := r.dial()
	ms := time.Now().UnixMilli()
	for _, topic := range []string{"full", "compacted"} {
		r.create(topic, 1, map[string]string{"full": "cleanup.policy=delete", "compacted": "cleanup.policy=compact"}[topic])
		for range 10 {
			c.produce(9, topic, batchOf(t, record.Builder{}, ms))
		}
	}
	r.create("empty", 1)
	for v := range int16(3) {
		for _, d := range []struct {
			topic       string
			partition   int32
			offset, low int64
			want        wire.Code
		}{
			{"full", 0, 11, -1, wire.OffsetOutOfRange},
			{"full", 0, 4, 4, wire.None},
			{"full", 0, 2, 4, wire.None},
			{"full", 0, -1, 10, wire.None},
			{"empty", 0, -1, 0, wire.None},
			{"empty", 0, 1, -1, wire.OffsetOutOfRange},
			{"full", 7, 0, -1, wire.UnknownTopicOrPartition},
			{"missing", 0, 0, -1, wire.UnknownTopicOrPartition},
			{"compacted", 0, 5, -1, wire.PolicyViolation},
		} {
			if v > 0 && d.topic == "full" && d.offset == 4 {
				d.low = 10 // since the first round
			} else if v > 0 && d.topic == "full" && d.offset == 2 {
				d.low = 10
			}
			t.Run(fmt.Sprintf("BO-083 %s-%d to %d, version %d", d.topic, d.partition, d.offset, v), func(t *testing.T) {
				request := kmsg.NewPtrDeleteRecordsRequest()
				request.Topics = []kmsg.DeleteRecordsRequestTopic{{
					Topic: d.topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: d.partition, Offset: d.offset}},
				}}
				row := ask[*kmsg.DeleteRecordsResponse](c, version(v, request)).Topics[0].Partitions[0]
				if wire.Code(row.ErrorCode) != d.want || row.LowWatermark != d.low {
					t.Errorf("%v, low watermark %d", wire.Code(row.ErrorCode), row.LowWatermark)
				}
			})
		}
	}
	t.Run("BO-084 trimmed to the end, over a restart", func(t *testing.T) {
		r.restart()
		c = r.dial()
		if first, end := c.listOffsets(11, "full", 0, -2)[0].Offset, c.nextOffset("full"); first != 10 || end != 10 {
			t.Errorf("from %d to %d", first, end)
		}
		if row := c.produce(9, "full", batchOf(t, record.Builder{}, ms)); row.ErrorCode != 0 || row.BaseOffset != 10 {
			t.Errorf("%v at %d", wire.Code(row.ErrorCode), row.BaseOffset)
		}
	})
	r.wantServing()
}
