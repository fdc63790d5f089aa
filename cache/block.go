package cache

import "container/list"

// id names a block of an object.
type id struct {
	object string
	index  int64
}

// where says who keeps a block.
type where int8

const (
	windowed where = iota // the window: its map finds it
	resting               // the main part, or on its way there
	lying                 // the disk: found as long as it is pinned, and takes no buffer and no unit
	detached              // nobody finds it any more; its buffer goes back when the last pin does
)

// block is a piece of an object, in a buffer or in a slot of the disk. Both are set before ready is closed and read only after that.
type block struct {
	id    id
	size  int           // of the piece; less than a buffer at the end of an object
	ready chan struct{} // closed when the block was filled, or failed
	buf   []byte
	sums  []uint32 // of the whole pieces of buf; see pieceBytes
	slot  *slot    // held; nil for a block with a buffer
	err   error    // why it was not filled; set before ready is closed

	// What follows is guarded by Cache.mu.
	at      where
	pins    int
	loading bool
	unread  bool          // it was brought in ahead and not pinned yet
	born    int64         // Cache.brought when it was made
	sound   span          // what readers have verified
	order   *list.Element // in Cache.idle or Cache.ahead, while it is in the window and not in use
}

// inUse tells whether the block takes a unit of what may be in use, unless it lies on the disk.
func (b *block) inUse() bool { return b.pins > 0 || b.loading }

// isReady tells whether the block was filled, or failed.
func (b *block) isReady() bool {
	select {
	case <-b.ready:
		return true
	default:
		return false
	}
}

// span is a range of bytes, to exclusive.
type span struct{ from, to int64 }

// joined is the union where the two touch, else the other one.
func (s span) joined(other span) span {
	if other.from > s.to || s.from > other.to || s.from == s.to {
		return other
	}
	return span{min(s.from, other.from), max(s.to, other.to)}
}
