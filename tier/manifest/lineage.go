package manifest

import (
	"sort"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// EpochStart is the first offset of a leader epoch.
type EpochStart struct {
	Epoch wire.LeaderEpoch `json:"epoch"`
	Start wire.Offset      `json:"start"`
}

// Lineage is the part of a log's leader epochs, both rising, that the records in [from, to) have, as Segment.Epochs wants it:
// the first begins at from, and none is without records. It is empty where the epoch of from is not known.
func Lineage(epochs []EpochStart, from, to wire.Offset) []EpochStart {
	first := epochIndex(epochs, from)
	if first < 0 || from >= to {
		return nil
	}
	clipped := []EpochStart{{epochs[first].Epoch, from}}
	for i := first + 1; i < len(epochs) && epochs[i].Start < to; i++ {
		if i+1 == len(epochs) || epochs[i+1].Start > epochs[i].Start {
			clipped = append(clipped, epochs[i])
		}
	}
	return clipped
}

// epochIndex is the index of the epoch of the record at offset, -1 where there is none.
func epochIndex(epochs []EpochStart, offset wire.Offset) int {
	return sort.Search(len(epochs), func(i int) bool { return epochs[i].Start > offset }) - 1
}

// checkLineage tells what keeps epochs from being a Lineage of records in [from, to).
func checkLineage(epochs []EpochStart, from, to wire.Offset) error {
	for i, e := range epochs {
		if e.Epoch < 0 || e.Start < from || e.Start >= to || i > 0 && (e.Epoch <= epochs[i-1].Epoch || e.Start <= epochs[i-1].Start) {
			return illegal("epoch %d at %d, in [%d, %d)", e.Epoch, e.Start, from, to)
		}
	}
	return nil
}

// extend appends the lineage of what follows.
func extend(epochs, more []EpochStart) []EpochStart {
	if n := len(epochs); n > 0 && len(more) > 0 && epochs[n-1].Epoch == more[0].Epoch {
		more = more[1:]
	}
	return append(epochs, more...)
}

// CommonEnd is the offset up to which the manifest and a log that ends at logEnd, with that lineage, tell one history; it is not
// above either's end. With a result below End the manifest has to be cut there before the log's owner leads (safety rule 18). What
// lies below the log's first known epoch can't be compared and counts as common: leaders of one epoch have one past.
func (s *State) CommonEnd(lineage []EpochStart, logEnd wire.Offset) wire.Offset {
	end := min(s.End, logEnd)
	for at := s.LogStart; at < end; {
		if next := s.SkipLost(at); next > at {
			at = next
			continue
		}
		ours, theirs := epochIndex(s.Epochs, at), epochIndex(lineage, at)
		if theirs >= 0 && (ours < 0 || s.Epochs[ours].Epoch != lineage[theirs].Epoch) {
			return at
		}
		at = min(nextStart(s.Epochs, ours), nextStart(lineage, theirs), s.nextLost(at), end)
	}
	return end
}

func nextStart(epochs []EpochStart, i int) wire.Offset {
	if i+1 < len(epochs) {
		return epochs[i+1].Start
	}
	return maxOffset
}

// nextLost is where the first lost range behind the offset begins.
func (s *State) nextLost(offset wire.Offset) wire.Offset {
	for _, r := range s.Lost {
		if r.Start > offset {
			return r.Start
		}
	}
	return maxOffset
}

// EndOffsetForEpoch is the largest epoch of at most epoch, and the offset at which it ends in the manifest. NoLeaderEpoch and
// NoOffset where the manifest has no such epoch.
func (s *State) EndOffsetForEpoch(epoch wire.LeaderEpoch) (wire.LeaderEpoch, wire.Offset) {
	higher := sort.Search(len(s.Epochs), func(i int) bool { return s.Epochs[i].Epoch > epoch })
	switch higher {
	case 0:
		return wire.NoLeaderEpoch, wire.NoOffset
	case len(s.Epochs):
		return s.Epochs[higher-1].Epoch, s.End
	}
	return s.Epochs[higher-1].Epoch, s.Epochs[higher].Start
}
