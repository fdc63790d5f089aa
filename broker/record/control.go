package record

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// ControlType is what a control record says (ControlRecordType.json). Types from the future keep their number.
type ControlType int16

// The control records of transactions.
const (
	Abort  ControlType = 0
	Commit ControlType = 1
)

func (t ControlType) String() string {
	switch t {
	case Abort:
		return "ABORT"
	case Commit:
		return "COMMIT"
	}
	return fmt.Sprintf("CONTROL-%d", int16(t))
}

// EndTxnMarker ends a transaction in a partition (EndTxnMarker.json).
type EndTxnMarker struct {
	Type             ControlType
	CoordinatorEpoch int32
}

const (
	controlKeySize = 4 // version, type
	endTxnSize     = 6 // version, coordinator epoch
)

// NewEndTxnMarker builds the control batch of a marker, at base offset 0.
func NewEndTxnMarker(producer wire.ProducerID, epoch wire.ProducerEpoch, timestamp int64, marker EndTxnMarker) Batch {
	w := Builder{
		Transactional: true,
		Control:       true,
		Producer:      &Producer{ID: producer, Epoch: epoch, Sequence: NoSequence},
	}
	key := binary.BigEndian.AppendUint16(make([]byte, 2, controlKeySize), uint16(marker.Type))
	value := binary.BigEndian.AppendUint32(make([]byte, 2, endTxnSize), uint32(marker.CoordinatorEpoch))
	w.Append(timestamp, key, value)
	b, err := w.Build()
	if err != nil {
		panic(err) // an uncompressed batch with a record can always be built
	}
	return b
}

// ParseControlType reads the key of a control record. Later versions of the key may be longer.
func ParseControlType(key []byte) (ControlType, error) {
	if len(key) < controlKeySize {
		return 0, fmt.Errorf("%w: control record key of %d bytes", ErrCorrupt, len(key))
	}
	if version := int16(binary.BigEndian.Uint16(key)); version < 0 {
		return 0, fmt.Errorf("%w: control record key version %d", ErrCorrupt, version)
	}
	return ControlType(binary.BigEndian.Uint16(key[2:])), nil
}

// ParseEndTxnMarker reads key and value of the record of an end marker.
func ParseEndTxnMarker(key, value []byte) (EndTxnMarker, error) {
	kind, err := ParseControlType(key)
	if err != nil {
		return EndTxnMarker{}, err
	}
	if kind != Abort && kind != Commit {
		return EndTxnMarker{}, fmt.Errorf("%w: %v is no end of a transaction", ErrCorrupt, kind)
	}
	if len(value) < endTxnSize || int16(binary.BigEndian.Uint16(value)) < 0 {
		return EndTxnMarker{}, fmt.Errorf("%w: end marker value of %d bytes", ErrCorrupt, len(value))
	}
	return EndTxnMarker{Type: kind, CoordinatorEpoch: int32(binary.BigEndian.Uint32(value[2:]))}, nil
}

// ReadEndTxnMarker reads the marker in a control batch; ok is false when it holds another kind of control record.
func ReadEndTxnMarker(b Batch) (marker EndTxnMarker, ok bool, err error) {
	for r, err := range Records(b, math.MaxInt32) {
		if err != nil {
			return marker, false, err
		}
		kind, err := ParseControlType(r.Key)
		if err != nil || kind != Abort && kind != Commit {
			return marker, false, err
		}
		marker, err = ParseEndTxnMarker(r.Key, r.Value)
		return marker, err == nil, err
	}
	return marker, false, fmt.Errorf("%w: control batch without record", ErrCorrupt)
}
