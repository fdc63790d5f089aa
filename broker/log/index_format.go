package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// OffsetEntry is an entry of a .index file: the last offset of a batch and where the batch begins.
type OffsetEntry struct {
	Offset   wire.Offset
	Position int64
}

// TimeEntry is an entry of a .timeindex file: the largest timestamp so far and the last offset of the batch that has it.
type TimeEntry struct {
	Timestamp int64
	Offset    wire.Offset
}

func appendOffsetEntry(b []byte, base, last wire.Offset, position int64) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(last-base))
	return binary.BigEndian.AppendUint32(b, uint32(position))
}

func appendTimeEntry(b []byte, base wire.Offset, timestamp int64, last wire.Offset) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(timestamp))
	return binary.BigEndian.AppendUint32(b, uint32(last-base))
}

// DecodeOffsetIndex reads the .index file of the segment at base: it says where the entries stop rising.
func DecodeOffsetIndex(data []byte, base wire.Offset) ([]OffsetEntry, error) {
	if len(data)%offsetEntrySize != 0 {
		return nil, fmt.Errorf("%w: size %d", errIndex, len(data))
	}
	entries := make([]OffsetEntry, 0, len(data)/offsetEntrySize)
	for i := 0; i < len(data); i += offsetEntrySize {
		e := OffsetEntry{
			Offset:   base + wire.Offset(binary.BigEndian.Uint32(data[i:])),
			Position: int64(binary.BigEndian.Uint32(data[i+4:])),
		}
		if n := len(entries); n > 0 && (e.Offset <= entries[n-1].Offset || e.Position <= entries[n-1].Position) {
			return entries, fmt.Errorf("%w: entry %d (offset %d, position %d) does not rise", errIndex, n, e.Offset, e.Position)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// DecodeTimeIndex reads the .timeindex file of the segment at base: it says where the entries stop rising.
func DecodeTimeIndex(data []byte, base wire.Offset) ([]TimeEntry, error) {
	if len(data)%timeEntrySize != 0 {
		return nil, fmt.Errorf("%w: size %d", errIndex, len(data))
	}
	entries := make([]TimeEntry, 0, len(data)/timeEntrySize)
	for i := 0; i < len(data); i += timeEntrySize {
		e := TimeEntry{
			Timestamp: int64(binary.BigEndian.Uint64(data[i:])),
			Offset:    base + wire.Offset(binary.BigEndian.Uint32(data[i+8:])),
		}
		if n := len(entries); n > 0 && (e.Timestamp <= entries[n-1].Timestamp || e.Offset < entries[n-1].Offset) {
			return entries, fmt.Errorf("%w: entry %d (timestamp %d, offset %d) does not rise", errIndex, n, e.Timestamp, e.Offset)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// Entries of a .txnindex file: version 2, producer id 8, first offset 8, last offset 8, last stable offset 8.
const (
	txnEntrySize    = 34
	txnEntryVersion = 0
)

var errTxnIndex = errors.New("transaction index is damaged")

func appendTxnEntry(b []byte, t AbortedTransaction) []byte {
	b = binary.BigEndian.AppendUint16(b, txnEntryVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(t.ProducerID))
	b = binary.BigEndian.AppendUint64(b, uint64(t.First))
	b = binary.BigEndian.AppendUint64(b, uint64(t.Last))
	return binary.BigEndian.AppendUint64(b, uint64(t.LastStableOffset))
}

// DecodeTransactionIndex reads a .txnindex file.
func DecodeTransactionIndex(data []byte) ([]AbortedTransaction, error) {
	if len(data)%txnEntrySize != 0 {
		return nil, fmt.Errorf("%w: size %d", errTxnIndex, len(data))
	}
	list := make([]AbortedTransaction, 0, len(data)/txnEntrySize)
	last := wire.Offset(math.MinInt64)
	for i := 0; i < len(data); i += txnEntrySize {
		e := data[i:]
		t := AbortedTransaction{
			ProducerID:       wire.ProducerID(binary.BigEndian.Uint64(e[2:])),
			First:            wire.Offset(binary.BigEndian.Uint64(e[10:])),
			Last:             wire.Offset(binary.BigEndian.Uint64(e[18:])),
			LastStableOffset: wire.Offset(binary.BigEndian.Uint64(e[26:])),
		}
		if version := binary.BigEndian.Uint16(e); version != txnEntryVersion || t.Last <= last || t.First > t.Last {
			return list, fmt.Errorf("%w: entry %d (version %d, offsets %d to %d)", errTxnIndex, len(list), version, t.First, t.Last)
		}
		last = t.Last
		list = append(list, t)
	}
	return list, nil
}
