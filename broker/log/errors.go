package log

import (
	"fmt"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// Errors that callers tell apart. They carry the protocol's codes, so wire.CodeOf works on whatever wraps them.
var (
	// ErrStorage says that the disk failed or is full, that the log directory is offline, or that the range is damaged.
	ErrStorage error = wire.KafkaStorageError
	// ErrOffsetOutOfRange says that an offset is outside [StartOffset, EndOffset].
	ErrOffsetOutOfRange error = wire.OffsetOutOfRange
	// ErrRecordListTooLarge says that what is to be appended does not fit into one segment.
	ErrRecordListTooLarge error = wire.RecordListTooLarge
	// ErrNotLocal says that an offset is in the log and not here: the object store has it.
	ErrNotLocal error = wire.OffsetMovedToTieredStorage
	// ErrDamaged says that a sealed segment holds an unsound batch. It is an ErrStorage.
	ErrDamaged = fmt.Errorf("%w: segment is damaged", ErrStorage)
)
