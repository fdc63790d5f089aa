package log

import (
	"time"

	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// LocalStartOffset is the first offset that is on disk here, the log start or behind it. What lies between the two is in the
// object store alone; only a tiered log has that. StartOffset <= LocalStartOffset <= EndOffset.
func (l *Log) LocalStartOffset() wire.Offset {
	segments := *l.segments.Load()
	return max(segments[0].base, l.StartOffset())
}

// SetTiered says up to where, exclusive, the object store holds the log from its start on: by offsets and leader epochs, in a
// manifest that was read back. Local retention ends there. It is forgotten when the log is closed or cut below it.
func (l *Log) SetTiered(end wire.Offset) { l.tieredEnd.Store(int64(end)) }

// TieredEndOffset is what SetTiered said last; wire.NoOffset while nothing is known.
func (l *Log) TieredEndOffset() wire.Offset { return wire.Offset(l.tieredEnd.Load()) }

// StartFromTier drops what is here and starts an empty local log at an offset, of a partition that the object store holds from
// logStart up to there: epochs are its lineage, producerSnapshot a .snapshot file as of at, empty for none. It is durable when
// it returns. What a crash meanwhile leaves ends below at: the caller looks at the manifest again. Nothing is known to be
// tiered until SetTiered.
func (l *Log) StartFromTier(now time.Time, at, logStart wire.Offset, epochs []EpochEntry, producerSnapshot []byte) error {
	return nil
}

// SealedSegment describes a segment to which nothing is appended any more.
type SealedSegment struct {
	Base wire.Offset
	Next wire.Offset // the next segment's base
	Size int64
	// LatestMs is what retention goes by: the largest timestamp, or where the records have none the file's time.
	LatestMs int64
}

// SealedSegments describes the sealed segments that end behind from, oldest first. It may read the disk.
func (l *Log) SealedSegments(from wire.Offset) ([]SealedSegment, error) { return nil, nil }

// UnsealedSince is when the oldest record of the active segment was appended; ok is false when it is empty. After a restart it
// is worked out from the record's timestamp, within what the times of the files allow. It may read the disk.
func (l *Log) UnsealedSince(now time.Time) (since time.Time, ok bool, err error) {
	return time.Time{}, false, nil
}

// Upload is a sealed segment held open, with all that goes to the object store beside it. Everything was verified and is durable
// here. Release must be called once.
type Upload struct {
	Base         wire.Offset
	Next         wire.Offset
	File         vfs.File // the segment is its first Size bytes
	Size         int64
	MinTimestamp int64 // of the batches' first records, -1 when there is none
	MaxTimestamp int64 // -1 when there is none

	OffsetIndex []byte       // an .index file, made from the batches
	TimeIndex   []byte       // a .timeindex file, likewise
	TxnIndex    []byte       // a .txnindex file; empty without aborted transactions
	Producers   []byte       // a .snapshot file as of Next
	Epochs      []EpochEntry // the log's, up to Next

	release func()
}

// Release lets go of the file.
func (u *Upload) Release() { u.release() }

// OpenUpload makes the sealed segment that begins at base durable, reads it whole, and holds it for an upload. Indexes that are
// missing or damaged here are no obstacle. It is ErrDamaged where a batch is unsound, and ErrOffsetOutOfRange where no
// sealed segment begins at base. It blocks on the disk for as long as it takes to read the segment.
func (l *Log) OpenUpload(base wire.Offset) (*Upload, error) { return nil, ErrOffsetOutOfRange }
