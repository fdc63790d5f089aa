package record

import "github.com/tidemark-io/tidemark/broker/wire"

// ControlType is what a control record says (ControlRecordType of Kafka).
type ControlType int16

// The control records of transactions.
const (
	Abort  ControlType = 0
	Commit ControlType = 1
)

// EndTxnMarker ends a transaction in a partition (EndTxnMarker.json).
type EndTxnMarker struct {
	Type             ControlType
	CoordinatorEpoch int32
}

// NewEndTxnMarker builds the control batch of a marker, with base offset 0.
func NewEndTxnMarker(producer wire.ProducerID, epoch wire.ProducerEpoch, timestamp int64, marker EndTxnMarker) Batch {
	panic("soon")
}

// ParseControlType reads the key of a control record; types from the future are returned as they are.
func ParseControlType(key []byte) (ControlType, error) { panic("soon") }

// ParseEndTxnMarker reads key and value of the record of an end marker.
func ParseEndTxnMarker(key, value []byte) (EndTxnMarker, error) { panic("soon") }

// ReadEndTxnMarker reads the marker in a control batch; ok is false for another kind of control batch.
func ReadEndTxnMarker(b Batch) (marker EndTxnMarker, ok bool, err error) { panic("soon") }
