package metadata

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// large is an image of 10,000 topics with 10 partitions each.
func large(b *testing.B) *Image {
	b.Helper()
	var records []Record
	for i := range 10_000 {
		records = append(records, &TopicRecord{Name: fmt.Sprintf("topic-%05d", i), ID: benchID(i)})
		for p := range 10 {
			records = append(records, &PartitionRecord{TopicID: benchID(i), Index: int32(p), Partition: newPartition(1, 2, 3)})
		}
	}
	image, _, err := Empty().Apply(0, records)
	if err != nil {
		b.Fatal(err)
	}
	return image
}

func benchID(i int) (id wire.TopicID) {
	binary.LittleEndian.PutUint64(id[:], uint64(i+1)*0x9e3779b97f4a7c15)
	return id
}

func BenchmarkTopicByID(b *testing.B) {
	image := large(b)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i = (i + 7919) % 10_000
		if image.TopicByID(benchID(i)) == nil {
			b.Fatal("missing")
		}
	}
}

func BenchmarkApplyOneChange(b *testing.B) {
	image := large(b)
	b.ReportAllocs()
	records := []Record{&PartitionChangeRecord{TopicID: benchID(5000), PartitionEpoch: 6, ISR: []wire.BrokerID{1}}}
	for b.Loop() {
		if _, _, err := image.Apply(image.Offset()+1, records); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSnapshot(b *testing.B) {
	image := large(b)
	b.ReportAllocs()
	for b.Loop() {
		b.SetBytes(int64(len(image.Snapshot())))
	}
}

func BenchmarkDecodeSnapshot(b *testing.B) {
	data := large(b).Snapshot()
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeSnapshot(data); err != nil {
			b.Fatal(err)
		}
	}
}
