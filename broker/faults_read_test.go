package broker_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// The tests of faults_*_test.go are the entries of docs/known-faults.md that show on the wire of one broker: real bytes, all that is
// served of the versions.

// found is what a look-up by time must bring.
type found struct {
	offset, timestamp int64
	code              wire.Code
}

var notFound = found{offset: -1, timestamp: -1}

func TestListOffsetsFaults(t *testing.T) {
	r := startBroker(t)
	c := r.dial()
	base := time.Now().Add(-time.Hour).UnixMilli()
	r.create("times", 2)
	for _, ts := range []int64{2, 4, 6, 8} {
		c.produce(9, "times", batchOf(t, record.Builder{}, base+ts))
	}
	r.create("peak", 1)
	c.produce(9, "peak", batchOf(t, record.Builder{}, base+10, base+50, base+20))
	r.create("empty", 1)
	r.create("append-time", 1, "message.timestamp.type=LogAppendTime")
	before := time.Now().UnixMilli()
	c.produce(9, "append-time", batchOf(t, record.Builder{}, 0, base, base+1))

	for _, q := range []struct {
		name, topic string
		timestamp   int64
		since       int16 // first version that knows the timestamp
		want        found
	}{
		{"BO-001 later than every record", "times", base + time.Hour.Milliseconds() + 100_000, 1, notFound},
		{"BO-002 between the first and the second", "times", base + 3, 1, found{offset: 1, timestamp: base + 4}},
		{"BO-002 between the second and the third", "times", base + 5, 1, found{offset: 2, timestamp: base + 6}},
		{"BO-002 between the third and the fourth", "times", base + 7, 1, found{offset: 3, timestamp: base + 8}},
		{"BO-002 exactly the fourth", "times", base + 8, 1, found{offset: 3, timestamp: base + 8}},
		{"BO-002 behind the fourth", "times", base + 9, 1, notFound},
		{"the end", "times", -1, 1, found{offset: 4, timestamp: -1}},
		{"the start", "times", -2, 1, found{offset: 0, timestamp: -1}},
		{"BO-003 the largest timestamp", "peak", -3, 7, found{offset: 1, timestamp: base + 50}},
		{"BO-003 the largest timestamp of nothing", "empty", -3, 7, notFound},
		{"BO-004 the local start", "times", -4, 8, found{offset: 0, timestamp: -1}},
		{"BO-004 the tiered end without tiering", "times", -5, 9, notFound},
		{"BO-004 a sentinel that nobody knows", "times", -99, 100, notFound},
	} {
		t.Run(q.name, func(t *testing.T) {
			for v := int16(1); v <= 11; v++ {
				want := q.want
				if v < q.since {
					want = found{-1, -1, wire.UnsupportedVersion}
				}
				row := c.listOffsets(v, q.topic, 0, q.timestamp)[0]
				got := found{row.Offset, row.Timestamp, wire.Code(row.ErrorCode)}
				if got != want {
					t.Errorf("version %d: %+v, want %+v", v, got, want)
				}
				if v >= 4 && (row.LeaderEpoch >= 0) != (want.offset >= 0) {
					t.Errorf("version %d: leader epoch %d with offset %d", v, row.LeaderEpoch, row.Offset)
				}
			}
		})
	}

	t.Run("BO-005 version 0 means something else", func(t *testing.T) {
		old := r.dial()
		old.send(version(0, listOffsetsOf("times", 0, -1)))
		if !old.closed() {
			t.Error("it is answered")
		}
	})
	t.Run("BO-007 a partition twice", func(t *testing.T) {
		for v := int16(1); v <= 11; v++ {
			request := listOffsetsOf("times", 0, -1, -2)
			request.Topics[0].Partitions = append(request.Topics[0].Partitions, listOffsetsOf("times", 1, -1).Topics[0].Partitions...)
			rows := ask[*kmsg.ListOffsetsResponse](c, version(v, request)).Topics[0].Partitions
			for _, row := range rows {
				want := wire.None
				if row.Partition == 0 {
					want = wire.InvalidRequest
				}
				if wire.Code(row.ErrorCode) != want {
					t.Errorf("version %d: partition %d: %v", v, row.Partition, wire.Code(row.ErrorCode))
				}
			}
			if len(rows) < 2 {
				t.Errorf("version %d: %d answers", v, len(rows))
			}
		}
	})
	t.Run("BO-008 append time covers the whole batch", func(t *testing.T) {
		if row := c.listOffsets(11, "append-time", 0, before-1)[0]; row.Offset != 0 || row.Timestamp < before {
			t.Errorf("offset %d, timestamp %d, appended at %d", row.Offset, row.Timestamp, before)
		}
	})
	r.wantServing()
}

func TestFetchFaults(t *testing.T) {
	r := startBroker(t)
	c := r.dial()
	now := time.Now().UnixMilli()
	large := func(size int) []byte {
		w := record.Builder{}
		w.Append(now, nil, make([]byte, size))
		return batchOf(t, w, now)
	}
	fetch := func(v int16, request *kmsg.FetchRequest) *kmsg.FetchResponse {
		return ask[*kmsg.FetchResponse](c, version(v, request))
	}

	t.Run("BO-009 a batch above the limits is returned whole", func(t *testing.T) {
		r.create("large", 1)
		batch := large(100 << 10)
		c.produce(9, "large", batch)
		for v := int16(4); v <= 12; v++ {
			request := fetchOf(0, "large")
			request.MaxBytes, request.Topics[0].Partitions[0].PartitionMaxBytes = 1, 1
			if row := fetch(v, request).Topics[0].Partitions[0]; len(row.RecordBatches) < len(batch) {
				t.Errorf("version %d: %d of %d bytes", v, len(row.RecordBatches), len(batch))
			}
		}
	})
	t.Run("BO-010 many partitions share the limit", func(t *testing.T) {
		var topics []string
		for i := range 20 {
			topics = append(topics, fmt.Sprintf("busy-%d", i))
			r.create(topics[i], 1)
			for range 8 {
				c.produce(9, topics[i], large(8<<10))
			}
		}
		request := fetchOf(0, topics...)
		request.MaxBytes = 100 << 10
		for i := range request.Topics {
			request.Topics[i].Partitions[0].PartitionMaxBytes = 10 << 10
		}
		total := 0
		for _, topic := range fetch(12, request).Topics {
			row := topic.Partitions[0]
			if row.ErrorCode != 0 || len(row.RecordBatches) > 10<<10 {
				t.Errorf("%s: error %d, %d bytes", topic.Topic, row.ErrorCode, len(row.RecordBatches))
			}
			total += len(row.RecordBatches)
		}
		if total > 100<<10 || total < 80<<10 {
			t.Errorf("%d bytes for a limit of %d", total, 100<<10)
		}
	})
	t.Run("BO-012 each of many partitions is answered once", func(t *testing.T) {
		request := kmsg.NewPtrFetchRequest()
		request.SessionEpoch = -1
		want := map[string]wire.Code{}
		for i := range 15 {
			topic := []string{"large", "none-1", "busy-1", "none-2", "busy-2"}[i%5]
			row := kmsg.NewFetchRequestTopicPartition()
			row.Partition = int32(i / 5)
			request.Topics = append(request.Topics, kmsg.FetchRequestTopic{Topic: topic, Partitions: []kmsg.FetchRequestTopicPartition{row}})
			want[fmt.Sprint(topic, row.Partition)] = wire.UnknownTopicOrPartition
			if i < 5 && topic[:2] != "no" {
				want[fmt.Sprint(topic, row.Partition)] = wire.None
			}
		}
		for _, topic := range fetch(12, request).Topics {
			for _, row := range topic.Partitions {
				key := fmt.Sprint(topic.Topic, row.Partition)
				if code, ok := want[key]; !ok || code != wire.Code(row.ErrorCode) {
					t.Errorf("%s: %v, want %v", key, wire.Code(row.ErrorCode), code)
				}
				delete(want, key)
			}
		}
		if len(want) > 0 {
			t.Errorf("without an answer: %v", want)
		}
	})
	t.Run("BO-013 around the end", func(t *testing.T) {
		end := c.nextOffset("large")
		for offset, want := range map[int64]wire.Code{end: wire.None, end + 1: wire.OffsetOutOfRange, -1: wire.OffsetOutOfRange} {
			if row := fetch(12, fetchOf(offset, "large")).Topics[0].Partitions[0]; wire.Code(row.ErrorCode) != want || len(row.RecordBatches) > 0 {
				t.Errorf("offset %d of %d: %v, %d bytes", offset, end, wire.Code(row.ErrorCode), len(row.RecordBatches))
			}
		}
	})
	t.Run("BO-014 nothing to read", func(t *testing.T) {
		r.create("idle", 1)
		request := fetchOf(0, "idle")
		request.MinBytes, request.MaxWaitMillis = 1, 200
		began := time.Now()
		if row := fetch(12, request).Topics[0].Partitions[0]; row.ErrorCode != 0 || len(row.RecordBatches) > 0 || time.Since(began) < 200*time.Millisecond {
			t.Errorf("%v, %d bytes after %v", wire.Code(row.ErrorCode), len(row.RecordBatches), time.Since(began))
		}
		request.MaxWaitMillis = 30_000
		c.send(version(12, request))
		r.dial().produce(9, "idle", batchOf(t, record.Builder{}, now))
		if row := answer[*kmsg.FetchResponse](c, request).Topics[0].Partitions[0]; len(row.RecordBatches) == 0 {
			t.Error("the record does not arrive")
		}
	})
	r.wantServing()
}

// A client that goes away with a fetch out that may wait for weeks leaves nothing behind for so long.
func TestFetchWaitsNoLongerThanAnIdleConnection(t *testing.T) {
	r := startBroker(t, "connections.max.idle.ms=300")
	r.create("idle", 1)
	request := fetchOf(0, "idle")
	request.MinBytes, request.MaxWaitMillis = 1, math.MaxInt32
	if row := ask[*kmsg.FetchResponse](r.dial(), version(12, request)).Topics[0].Partitions[0]; row.ErrorCode != 0 || len(row.RecordBatches) > 0 {
		t.Errorf("%v, %d bytes", wire.Code(row.ErrorCode), len(row.RecordBatches))
	}
}

func TestFetchSessionFaults(t *testing.T) {
	r := startBroker(t)
	now := time.Now().UnixMilli()
	r.create("good", 1)
	r.create("other", 1)
	byID := func(id [16]byte) kmsg.FetchRequestTopic {
		row := kmsg.NewFetchRequestTopicPartition()
		row.PartitionMaxBytes = 1 << 20
		return kmsg.FetchRequestTopic{TopicID: id, Partitions: []kmsg.FetchRequestTopicPartition{row}}
	}
	session := func(topics ...kmsg.FetchRequestTopic) *kmsg.FetchRequest {
		request := kmsg.NewPtrFetchRequest()
		request.SessionID, request.SessionEpoch, request.Topics = 0, 0, topics
		return request
	}

	t.Run("BO-015 the zero id is forgotten", func(t *testing.T) {
		c := r.dial()
		first := ask[*kmsg.FetchResponse](c, version(13, session(byID(r.topicID("good")), byID(r.topicID("other")))))
		if first.SessionID == 0 {
			t.Fatal("there is no session")
		}
		next := session()
		next.SessionID, next.SessionEpoch = first.SessionID, 1
		next.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{Partitions: []int32{0}}}
		second := ask[*kmsg.FetchResponse](c, version(13, next))
		t.Logf("error %v", wire.Code(second.ErrorCode))
		r.dial().produce(9, "good", batchOf(t, record.Builder{}, now))
		next.SessionEpoch, next.ForgottenTopics = 2, nil
		if third := ask[*kmsg.FetchResponse](c, version(13, next)); second.ErrorCode == 0 && (third.ErrorCode != 0 || len(third.Topics) != 1) {
			t.Errorf("the session does not go on: %v, %d topics", wire.Code(third.ErrorCode), len(third.Topics))
		}
	})
	t.Run("BO-016 an unknown id", func(t *testing.T) {
		c := r.dial()
		good, unknown := r.topicID("other"), [16]byte{9, 9}
		first := ask[*kmsg.FetchResponse](c, version(13, session(byID(good), byID(unknown))))
		if first.SessionID == 0 || first.ErrorCode != 0 {
			t.Fatalf("session %d, %v", first.SessionID, wire.Code(first.ErrorCode))
		}
		for _, topic := range first.Topics {
			want := wire.None
			if topic.TopicID == unknown {
				want = wire.UnknownTopicID
			}
			if row := topic.Partitions[0]; wire.Code(row.ErrorCode) != want {
				t.Errorf("%x: %v", topic.TopicID, wire.Code(row.ErrorCode))
			}
		}
		r.create("later", 1)
		c.produce(9, "other", batchOf(t, record.Builder{}, now))
		next := session(byID(r.topicID("later")))
		next.SessionID, next.SessionEpoch = first.SessionID, 1
		second := ask[*kmsg.FetchResponse](c, version(13, next))
		bytes := 0
		for _, topic := range second.Topics {
			if topic.TopicID == good {
				bytes = len(topic.Partitions[0].RecordBatches)
			}
		}
		if second.ErrorCode != 0 || second.SessionID != first.SessionID || bytes == 0 {
			t.Errorf("%v, session %d, %d bytes of the good partition", wire.Code(second.ErrorCode), second.SessionID, bytes)
		}
	})
	t.Run("BO-017 no partition starves", func(t *testing.T) {
		c := r.dial()
		request := kmsg.NewPtrFetchRequest()
		request.SessionEpoch, request.MaxBytes = 0, 4<<10
		names := map[string]int64{}
		for i := range 10 {
			name := fmt.Sprintf("starving-%d", i)
			r.create(name, 1)
			names[name] = 0
			for range 10 {
				c.produce(9, name, batchOf(t, record.Builder{}, now, now, now))
			}
			request.Topics = append(request.Topics, fetchOf(0, name).Topics...)
			request.Topics[i].Partitions[0].PartitionMaxBytes = 1 << 10
		}
		for round := range 10 {
			response := ask[*kmsg.FetchResponse](c, version(12, request))
			request.SessionID, request.SessionEpoch, request.Topics = response.SessionID, int32(round+1), nil
			for _, topic := range response.Topics {
				if n := len(topic.Partitions[0].RecordBatches); n > 0 {
					names[topic.Topic] += int64(n)
				}
			}
		}
		for name, bytes := range names {
			if bytes == 0 {
				t.Errorf("nothing of %s", name)
			}
		}
	})
	r.wantServing()
}
