package record

import (
	"encoding/binary"
	"fmt"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// createTime is the timestamp of test records, as in the scenarios of the differential tester.
const createTime = 1700000000000

// rec is a record of a test batch; nil bytes are null.
type rec struct {
	key, value []byte
	delta      int32
	time       int64
}

func numbered(n int) (list []rec) {
	for i := range n {
		list = append(list, rec{fmt.Appendf(nil, "k%d", i), fmt.Appendf(nil, "value-%d", i), int32(i), createTime + int64(i)})
	}
	return list
}

// build encodes a batch and damages it: change gets the header before the checksum is set.
func build(codec Codec, records []rec, change ...func(Batch)) Batch {
	w := Builder{LeaderEpoch: wire.NoLeaderEpoch, Compression: Compression{Codec: codec}}
	for _, r := range records {
		w.AppendAt(r.delta, r.time, r.key, r.value)
	}
	if len(records) == 0 { // Build refuses to
		w.Append(createTime, nil, nil)
		w.body, w.last = w.body[:0], -1
	}
	b, err := w.Build()
	if err != nil {
		panic(err)
	}
	if len(records) == 0 {
		putInt32(b, atCount, 0)
	}
	for _, f := range change {
		f(b)
	}
	b.SetCRC()
	return b
}

func sample(n int) Batch { return build(None, numbered(n)) }

// withBody puts other bytes in the place of the records.
func withBody(codec Codec, body string, count int32) Batch {
	header := build(None, numbered(1), setInt32(atCount, count), setInt32(atLastDelta, count-1), setAttributes(uint16(codec)))
	b := append(header[:HeaderSize:HeaderSize], body...)
	putInt32(b, atLength, int32(len(b)-SizePrefix))
	b.SetCRC()
	return b
}

func putInt32(b []byte, at int, v int32) { binary.BigEndian.PutUint32(b[at:], uint32(v)) }

func setInt32(at int, v int32) func(Batch) { return func(b Batch) { putInt32(b, at, v) } }

func setInt64(at int, v int64) func(Batch) {
	return func(b Batch) { binary.BigEndian.PutUint64(b[at:], uint64(v)) }
}

// setAttributes replaces the attributes whole, codec included.
func setAttributes(bits uint16) func(Batch) {
	return func(b Batch) { binary.BigEndian.PutUint16(b[atAttributes:], bits) }
}

func addAttributes(bits uint16) func(Batch) {
	return func(b Batch) { binary.BigEndian.PutUint16(b[atAttributes:], b.Attributes()|bits) }
}

func producer(id int64, epoch int16, sequence int32) func(Batch) {
	return func(b Batch) {
		binary.BigEndian.PutUint64(b[atProducerID:], uint64(id))
		binary.BigEndian.PutUint16(b[atProducerEpoch:], uint16(epoch))
		binary.BigEndian.PutUint32(b[atBaseSequence:], uint32(sequence))
	}
}
