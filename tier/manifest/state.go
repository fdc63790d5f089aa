package manifest

import (
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
)

// State is a manifest at one place of its chain. It is immutable, and so is what it hands out.
//
// The live segments are those that serve reads: Pages, then Tail, in the order of their offsets, without overlap. What is
// between them is lost, or below the log start. LogStart <= End.
type State struct {
	Position chain.Position // the place in the chain
	LogStart wire.Offset
	End      wire.Offset  // the tiered end, exclusive; LogStart while nothing is there
	Closed   bool         // the last entry says that the log ends at End
	Pages    []Page       // the older live segments; Load has them
	Tail     []Segment    // the newer ones
	Epochs   []EpochStart // lineage of the live segments
	Lost     []Range      // lost ranges above the log start, oldest first
	Dropped  []Dropped    // objects that are off the list and not deleted yet, in the order in which they were dropped

	Segments int   // live
	Bytes    int64 // of the live segments' .log objects
	AuxBytes int64
}

// Range is a range of offsets; End is exclusive.
type Range struct {
	Start wire.Offset `json:"start"`
	End   wire.Offset `json:"end"`
}

// Dropped is a segment or a page that waits for its deletion.
type Dropped struct {
	DroppedRange
	Page   bool  `json:"page,omitempty"`
	TimeMs int64 `json:"time_ms"` // when it was dropped, by the leader's clock
}

// LeaderEpoch is that of the leader that wrote the newest entry, NoLeaderEpoch without an entry.
func (s *State) LeaderEpoch() wire.LeaderEpoch { return wire.LeaderEpoch(s.Position.Epoch - 1) }

// Covers tells whether the records in [from, to) of a log with that lineage are in the manifest: offsets and leader epochs agree,
// and nothing of the range is lost (safety rule 21).
func (s *State) Covers(from, to wire.Offset, lineage []EpochStart) bool { return false }

// CommonEnd is the offset up to which the manifest and a log that ends at logEnd, with that lineage, tell one history. With a
// result below End the manifest has to be cut there before the log's owner leads (safety rule 18).
func (s *State) CommonEnd(lineage []EpochStart, logEnd wire.Offset) wire.Offset { return 0 }

// EndOffsetForEpoch is the largest epoch of at most epoch, and where it ends; NoLeaderEpoch and NoOffset where the manifest has
// none.
func (s *State) EndOffsetForEpoch(epoch wire.LeaderEpoch) (wire.LeaderEpoch, wire.Offset) {
	return wire.NoLeaderEpoch, wire.NoOffset
}

// SkipLost is where a read at the offset goes on: the end of the lost range that it lies in, or the offset itself.
func (s *State) SkipLost(offset wire.Offset) wire.Offset { return offset }

// Has tells whether an upload is among the segments of the tail: whoever doesn't know what became of its AddRecord asks after a
// Refresh.
func (s *State) Has(name Name) bool { return false }
