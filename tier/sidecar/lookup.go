package sidecar

import (
	"encoding/binary"
	"slices"
	"sort"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Entries of Kafka's indexes: the relative offset and the position, 4 bytes each; the timestamp, 8, and the relative offset, 4.
const (
	offsetEntrySize = 8
	timeEntrySize   = 12
)

// Segment describes the segment as it was when it was uploaded.
func (s *Sidecar) Segment() Segment { return s.segment }

// Size is the memory that the sidecar keeps, in bytes, about.
func (s *Sidecar) Size() int { return s.size }

// Position is where in the segment to begin to look for an offset: the beginning of a batch that holds it or lies before
// it, as close as the index knows; 0 where the index knows none.
func (s *Sidecar) Position(offset wire.Offset) int64 {
	relative := int64(offset - s.segment.Base)
	n := sort.Search(len(s.offsets)/offsetEntrySize, func(i int) bool {
		return int64(binary.BigEndian.Uint32(s.offsets[i*offsetEntrySize:])) > relative
	})
	if n == 0 {
		return 0
	}
	return int64(binary.BigEndian.Uint32(s.offsets[(n-1)*offsetEntrySize+4:]))
}

// PositionForTime is where to begin to look for the first record with a timestamp of ts or later: no batch before has one.
func (s *Sidecar) PositionForTime(ts int64) int64 {
	n := sort.Search(len(s.times)/timeEntrySize, func(i int) bool {
		return int64(binary.BigEndian.Uint64(s.times[i*timeEntrySize:])) > ts
	})
	if n == 0 {
		return 0
	}
	return s.Position(s.segment.Base + wire.Offset(binary.BigEndian.Uint32(s.times[(n-1)*timeEntrySize+8:])))
}

// Aborted lists the aborted transactions with records in [from, to) whose markers lie in this segment, in the order of their
// markers. complete tells that no later segment has more of them.
func (s *Sidecar) Aborted(from, to wire.Offset) (list []log.AbortedTransaction, complete bool) {
	for _, t := range s.aborted {
		if t.Last >= from && t.First < to {
			list = append(list, t)
		}
		if t.LastStableOffset >= to {
			return list, true
		}
	}
	return list, false
}

// Epochs are the leader epochs up to the segment's end, oldest first. They must not be changed.
func (s *Sidecar) Epochs() []log.EpochEntry { return s.epochs }

// ProducerSnapshot is Kafka's .snapshot file as of the segment's end. There is none of a clipped sidecar: whoever needs the
// producers there replays them from the snapshot of the segment before. It must not be changed.
func (s *Sidecar) ProducerSnapshot() (data []byte, ok bool) { return s.producer, s.producer != nil }

// Clip is the sidecar of a segment that is served only below end: leader epochs and aborted transactions from there on belong
// to a history that was cut off (safety rule 18).
func (s *Sidecar) Clip(end wire.Offset) *Sidecar {
	if end >= s.segment.End {
		return s
	}
	c := *s
	c.producer, c.segment.End = nil, end
	c.epochs = cutFrom(s.epochs, func(e log.EpochEntry) bool { return e.Start >= end })
	c.aborted = cutFrom(s.aborted, func(t log.AbortedTransaction) bool { return t.Last >= end })
	return &c
}

// cutFrom is the list up to the first element that is gone.
func cutFrom[T any](list []T, gone func(T) bool) []T {
	if i := slices.IndexFunc(list, gone); i >= 0 {
		return list[:i:i]
	}
	return list
}

// checkOffsetIndex refuses what would lead a look-up astray: entries have to rise, inside the segment.
func checkOffsetIndex(data []byte, segment Segment) error {
	if len(data)%offsetEntrySize != 0 {
		return damaged("offset index of %d bytes", len(data))
	}
	lastOffset, lastPosition := int64(-1), int64(-1)
	for i := 0; i < len(data); i += offsetEntrySize {
		offset, position := int64(binary.BigEndian.Uint32(data[i:])), int64(binary.BigEndian.Uint32(data[i+4:]))
		if offset <= lastOffset || position <= lastPosition || offset >= int64(segment.End-segment.Base) || position >= segment.Size {
			return damaged("entry %d of the offset index (offset %d, position %d)", i/offsetEntrySize, offset, position)
		}
		lastOffset, lastPosition = offset, position
	}
	return nil
}

// checkTimeIndex is checkOffsetIndex for the time index.
func checkTimeIndex(data []byte, segment Segment) error {
	if len(data)%timeEntrySize != 0 {
		return damaged("time index of %d bytes", len(data))
	}
	for i := 0; i < len(data); i += timeEntrySize {
		timestamp, offset := int64(binary.BigEndian.Uint64(data[i:])), int64(binary.BigEndian.Uint32(data[i+8:]))
		rises := i == 0 || timestamp > int64(binary.BigEndian.Uint64(data[i-timeEntrySize:])) && offset >= int64(binary.BigEndian.Uint32(data[i-4:]))
		if !rises || offset >= int64(segment.End-segment.Base) {
			return damaged("entry %d of the time index (timestamp %d, offset %d)", i/timeEntrySize, timestamp, offset)
		}
	}
	return nil
}
