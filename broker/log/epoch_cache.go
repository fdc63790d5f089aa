package log

import (
	"slices"
	"sort"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// epochCache is Kafka's LeaderEpochCache as an immutable value: epochs and start offsets, both rising. What changes it
// returns a new one, so that readers need no lock.
type epochCache []EpochEntry

// latest is the highest epoch, or wire.NoLeaderEpoch.
func (c epochCache) latest() wire.LeaderEpoch {
	if len(c) == 0 {
		return wire.NoLeaderEpoch
	}
	return c[len(c)-1].Epoch
}

// assign begins epoch at start. Entries that the new one contradicts (a higher epoch, a start at or behind it) go.
func (c epochCache) assign(epoch wire.LeaderEpoch, start wire.Offset) epochCache {
	if epoch < 0 || epoch == c.latest() && start >= c[len(c)-1].Start {
		return c
	}
	keep := len(c)
	for keep > 0 && (c[keep-1].Epoch >= epoch || c[keep-1].Start >= start) {
		keep--
	}
	return append(slices.Clip(c[:keep:keep]), EpochEntry{epoch, start})
}

// truncateEnd drops what begins at end or behind it.
func (c epochCache) truncateEnd(end wire.Offset) epochCache {
	keep := len(c)
	for keep > 0 && c[keep-1].Start >= end {
		keep--
	}
	return c[:keep:keep]
}

// truncateStart lets the epoch that holds start begin there and drops those before it.
func (c epochCache) truncateStart(start wire.Offset) epochCache {
	first := 0
	for first+1 < len(c) && c[first+1].Start <= start {
		first++
	}
	if len(c) == 0 || first == 0 && c[0].Start >= start {
		return c
	}
	moved := slices.Clone(c[first:])
	moved[0].Start = start
	return moved
}

// endOffset answers OffsetForLeaderEpoch of a log that ends at end.
func (c epochCache) endOffset(epoch wire.LeaderEpoch, end wire.Offset) (wire.LeaderEpoch, wire.Offset) {
	if epoch < 0 || epoch > c.latest() {
		return wire.NoLeaderEpoch, wire.NoOffset
	}
	if epoch == c.latest() {
		return epoch, end
	}
	higher := sort.Search(len(c), func(i int) bool { return c[i].Epoch > epoch })
	if higher == 0 {
		return epoch, c[0].Start
	}
	return c[higher-1].Epoch, c[higher].Start
}
