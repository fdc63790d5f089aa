// Package sidecar is the .aux object that lies beside each segment in the bucket: the segment's indexes, the producers and
// leader epochs as of its end, and a description of the segment from which a lost manifest can be rebuilt. The parts are
// Kafka's own files. docs/format/sidecar.md has the bytes.
//
// A sidecar is immutable and keeps the bytes it was decoded from; look-ups allocate nothing of their own size. The package
// does no I/O.
package sidecar

import (
	"errors"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Magic begins every sidecar.
const Magic = "TIDEAUX1"

// BytesMax bounds a sidecar: indexes take 20 MiB at most where nobody has raised segment.index.bytes, and a producer 54 bytes.
const BytesMax = 256 << 20

// ErrDamaged: the bytes are not those of a sidecar, or not all of them.
var ErrDamaged = errors.New("sidecar is damaged")

// Segment describes the object beside which a sidecar lies. It repeats what the manifest says, for whoever has to do without
// the manifest.
type Segment struct {
	TopicID      wire.TopicID     `json:"topic_id"`
	Partition    int32            `json:"partition"`
	Base         wire.Offset      `json:"base"`  // of the segment: its indexes count from here
	Start        wire.Offset      `json:"start"` // first offset that the upload was made for, Base or above
	End          wire.Offset      `json:"end"`   // exclusive
	LeaderEpoch  wire.LeaderEpoch `json:"leader_epoch"`
	Size         int64            `json:"size"`
	CRC          uint32           `json:"-"` // CRC-32C of the whole .log object
	MinTimestamp int64            `json:"min_timestamp"`
	MaxTimestamp int64            `json:"max_timestamp"`
	UploadedMs   int64            `json:"uploaded_ms"` // by the uploader's clock
}

// Contents is what a sidecar is made of. Each file is in Kafka's format; a transaction index may be empty.
type Contents struct {
	Segment          Segment
	OffsetIndex      []byte           // .index, without the room that was reserved behind its entries
	TimeIndex        []byte           // .timeindex, likewise
	TransactionIndex []byte           // .txnindex
	ProducerSnapshot []byte           // .snapshot as of the segment's end
	Epochs           []log.EpochEntry // all leader epochs up to the segment's end, oldest first
}

// Sidecar is a sidecar that was read and found whole.
type Sidecar struct {
	segment  Segment
	offsets  []byte
	times    []byte
	aborted  []log.AbortedTransaction
	producer []byte // nil once it is clipped
	epochs   []log.EpochEntry
	size     int
}
