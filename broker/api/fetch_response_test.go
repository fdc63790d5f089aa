package api

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/replica"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// The hand-made encoding of Fetch answers is kmsg's, byte for byte, in all versions and whatever they hold.
func TestFetchAnswersAreEncodedAsKmsgDoes(t *testing.T) {
	image := twoBrokers(t)
	s := &Server{Image: func() *metadata.Image { return image }}
	for version := lookup(1).Min; version <= lookup(1).Max; version++ {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			for seed := range uint64(300) {
				random := rand.New(rand.NewPCG(uint64(version), seed))
				rows := randomRows(random, version)
				session, code := int32(random.Uint32()), wire.Code(random.IntN(3)*70)

				c := &call{
					Request: &Request{
						RequestHeader: wire.RequestHeader{Key: 1, Version: version, CorrelationID: 5},
						Session:       &Session{Listener: "PLAINTEXT"},
					},
					entry: lookup(1),
				}
				c.answerFetch(s, session, code, rows)
				got := assembled(t, c.result())
				if want := encodedByKmsg(version, session, code, rows); !bytes.Equal(got, want) {
					t.Fatalf("seed %d:\n%x is not\n%x", seed, got, want)
				}
			}
		})
	}
}

func twoBrokers(t *testing.T) *metadata.Image {
	t.Helper()
	var records []metadata.Record
	for i, rack := range []string{"", "r"} {
		records = append(records, &metadata.BrokerRegistrationRecord{Broker: metadata.Broker{
			ID: wire.BrokerID(i), Epoch: wire.BrokerEpoch(i), Incarnation: "i", Directories: []string{"AAAAAAAAAAAAAAAAAAAABA"}, Rack: rack,
			Listeners: []metadata.Listener{{Name: "PLAINTEXT", Host: fmt.Sprint("host", i), Port: uint16(9092 + i), Protocol: "PLAINTEXT"}},
		}})
	}
	image, _, err := metadata.Empty().Apply(0, records)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// bytesFile is a file in memory.
type bytesFile struct {
	vfs.File
	*bytes.Reader
}

func (f bytesFile) ReadAt(p []byte, off int64) (int, error) { return f.Reader.ReadAt(p, off) }
func (f bytesFile) Size() (int64, error)                    { return f.Reader.Size(), nil }

// randomRows are what an answer may hold, in the order of the request. Rows of one topic are neighbours.
func randomRows(random *rand.Rand, version int16) []fetchRow {
	var rows []fetchRow
	for topic := range random.IntN(4) {
		asked := replica.FetchPartition{ByID: version >= fetchTopicID}
		if version >= fetchTopicID {
			asked.TopicID = wire.TopicID{byte(topic), 7}
		} else {
			asked.Topic = fmt.Sprint("topic", topic)
		}
		for range 1 + random.IntN(3) {
			part := asked
			part.Partition = random.Int32N(9)
			rows = append(rows, fetchRow{asked: &part, got: randomResult(random)})
		}
	}
	return rows
}

func randomResult(random *rand.Rand) *replica.FetchResult {
	r := &replica.FetchResult{
		Code: wire.Code(random.IntN(2) * 6), HighWatermark: wire.Offset(random.Int64()), LastStableOffset: wire.Offset(random.Int64()),
		LogStartOffset: wire.Offset(random.IntN(9)), PreferredReadReplica: wire.BrokerID(random.IntN(3) - 1),
		Diverging: replica.EpochEnd{Epoch: wire.NoLeaderEpoch, Offset: wire.NoOffset},
	}
	if random.IntN(3) == 0 {
		r.Diverging = replica.EpochEnd{Epoch: wire.LeaderEpoch(random.Int32N(9)), Offset: wire.Offset(random.Int64())}
	}
	if random.IntN(3) == 0 {
		r.Leader = replica.LeaderHint{Known: true, ID: wire.BrokerID(random.IntN(3)), Epoch: wire.LeaderEpoch(random.Int32N(9))}
	}
	switch random.IntN(3) {
	case 0:
		r.Aborted = []replica.AbortedTransaction{}
	case 1:
		for range 1 + random.IntN(200) {
			r.Aborted = append(r.Aborted, replica.AbortedTransaction{
				ProducerID: wire.ProducerID(random.Int64()), FirstOffset: wire.Offset(random.Int64()),
			})
		}
	}
	if n := random.IntN(3) * random.IntN(300); n > 0 {
		data := make([]byte, 10+n)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		r.Records = vfs.Range{File: bytesFile{Reader: bytes.NewReader(data)}, Offset: 10, Length: int64(n)}
	}
	return r
}

// assembled is the frame as it goes over the wire.
func assembled(t *testing.T, reply Reply) []byte {
	t.Helper()
	var b []byte
	for _, p := range reply.Parts {
		b = append(b, p.Bytes...)
		if p.Range.Length > 0 {
			b = append(b, recordsOf(p.Range)...)
		}
	}
	return b
}

func recordsOf(r vfs.Range) []byte {
	if r.Length == 0 {
		return []byte{}
	}
	data := make([]byte, r.Length)
	if _, err := r.File.ReadAt(data, r.Offset); err != nil {
		panic(err)
	}
	return data
}

func encodedByKmsg(version int16, session int32, code wire.Code, rows []fetchRow) []byte {
	response := kmsg.NewPtrFetchResponse()
	response.Version, response.SessionID, response.ErrorCode = version, session, int16(code)
	leaders := map[int32]bool{}
	for i, row := range rows {
		if i == 0 || rows[i-1].asked.Topic != row.asked.Topic || rows[i-1].asked.TopicID != row.asked.TopicID {
			topic := kmsg.NewFetchResponseTopic()
			topic.Topic, topic.TopicID = row.asked.Topic, row.asked.TopicID
			response.Topics = append(response.Topics, topic)
		}
		part := kmsg.NewFetchResponseTopicPartition()
		part.Partition, part.ErrorCode = row.asked.Partition, int16(row.got.Code)
		part.HighWatermark, part.LastStableOffset = int64(row.got.HighWatermark), int64(row.got.LastStableOffset)
		part.LogStartOffset, part.PreferredReadReplica = int64(row.got.LogStartOffset), int32(row.got.PreferredReadReplica)
		if row.got.Aborted != nil {
			part.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
		}
		for _, a := range row.got.Aborted {
			aborted := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
			aborted.ProducerID, aborted.FirstOffset = int64(a.ProducerID), int64(a.FirstOffset)
			part.AbortedTransactions = append(part.AbortedTransactions, aborted)
		}
		part.RecordBatches = recordsOf(row.got.Records)
		if version >= fetchFlexible && row.got.Diverging.Epoch != wire.NoLeaderEpoch {
			part.DivergingEpoch.Epoch, part.DivergingEpoch.EndOffset = int32(row.got.Diverging.Epoch), int64(row.got.Diverging.Offset)
		}
		if hint := row.got.Leader; version >= fetchFlexible && hint.Known {
			part.CurrentLeader.LeaderID, part.CurrentLeader.LeaderEpoch = int32(hint.ID), int32(hint.Epoch)
			if id := int32(hint.ID); version >= fetchLeaders && !leaders[id] && id < 2 {
				leaders[id] = true
				broker := kmsg.NewFetchResponseBroker()
				broker.NodeID, broker.Host, broker.Port = id, fmt.Sprint("host", id), 9092+id
				if id == 1 {
					broker.Rack = kmsg.StringPtr("r")
				}
				response.Brokers = append(response.Brokers, broker)
			}
		}
		topic := &response.Topics[len(response.Topics)-1]
		topic.Partitions = append(topic.Partitions, part)
	}
	frame := wire.AppendResponseHeader(nil, 5, version >= fetchFlexible)
	frame = response.AppendTo(frame)
	wire.FinishFrame(frame, 0)
	return frame
}

// Partitions that do not exist come first, as Kafka answers them; the others keep the order of the request.
func TestFetchAnswersNameMissingTopicsFirst(t *testing.T) {
	row := func(topic string, code wire.Code) fetchRow {
		return fetchRow{asked: &replica.FetchPartition{Topic: topic}, got: &replica.FetchResult{Code: code}}
	}
	rows := []fetchRow{
		row("a", wire.None), row("b", wire.UnknownTopicID), row("c", wire.NotLeaderOrFollower), row("d", wire.UnknownTopicOrPartition),
	}
	errorsFirst(rows)
	var got string
	for _, r := range rows {
		got += r.asked.Topic
	}
	if got != "bdac" {
		t.Errorf("in the order %s", got)
	}
}
