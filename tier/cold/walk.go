package cold

import (
	"errors"
	"fmt"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/cache"
)

// indexSlack is how far the offset index points before what is looked for, mostly: log.index.interval.bytes. So much is read
// beyond the limit where the position is not exact.
const indexSlack = 4 << 10

// Positions in a batch's header: where what the checksum covers begins.
const atAttributes = 21

// walk goes over the batches of a segment from a spot on: it passes over those before the offset, verifies those that fit the
// limit, and ends before the batch that holds the end of what may be read.
type walk struct {
	*task
	spot
	pin     *cache.Pin
	pinned  int64                        // pinned up to here
	stalled bool                         // bytes had to be waited for
	open    map[wire.ProducerID]struct{} // with records of a transaction in what is served, and no marker behind them
	txns    bool                         // what is served has something of transactions
	scratch [record.HeaderSize]byte
}

// errLater: the bytes have not come yet, and there is something to answer with.
var errLater = errors.New("bytes have not come yet")

// run returns what is there. end tells that the segment has no batch at or behind the offset.
func (w *walk) run() (result Result, end bool, err error) {
	if w.position >= w.object.Size {
		return Result{}, true, nil
	}
	if err := w.acquire(); err != nil {
		return Result{}, false, err
	}
	begin, served, next, end, err := w.batches()
	if served == begin { // nothing, or an error before anything; what is sound before an error is served
		w.pin.Release()
		return Result{}, end, err
	}
	w.pin.MarkSound(begin, served)
	result = Result{Next: next}
	if w.committed && w.txns {
		if result.Aborted, err = w.aborted(next); err != nil {
			w.pin.Release()
			return Result{}, false, err
		}
	}
	w.pin.Trim(begin, served)
	result.Records = vfs.Range{File: w.pin.File(), Offset: begin, Length: served - begin, Release: w.pin.Release}
	w.leave(next, served, served-begin)
	return result, false, nil
}

// acquire pins what may be served, and has what follows brought in where the read is one of a sequence.
func (w *walk) acquire() error {
	most := max(w.cache.PinBytesMax()/4, 1)
	w.limit = min(w.limit, most)
	to := w.position + max(w.limit, record.HeaderSize)
	if !w.exact {
		to += indexSlack
	}
	if w.mark.name != w.segment.Name {
		w.mark.ahead = 0
	}
	ahead := to
	switch {
	case w.crowded:
		ahead = w.turnEnd(w.mark, w.position, w.limit)
		to = min(to, ahead)
		w.mark.ahead = ahead
	case w.mark.stream != nil && !w.idle:
		ahead = w.ahead(to)
	}
	var err error
	w.pin, err = w.cache.Pin(w.room, cache.Want{Object: w.object, From: w.position, To: to, Ahead: ahead, Wait: true})
	w.pinned = min(to, w.object.Size)
	return err
}

// ahead is up to where bytes are asked for: in whole chunks where the window holds one, else when half of it is used up, so that
// gets stay large.
func (w *walk) ahead(to int64) int64 {
	chunk := w.o.Cache.RangeBytes
	window := w.streams.window(w.mark, w.cache.PinBytesMax()/2, chunk)
	whole := window >= chunk
	if whole {
		window -= chunk / 2 // what alignment adds
	}
	if w.rate.debt() > 0 {
		return to
	}
	ahead := w.mark.ahead
	switch {
	case whole:
		ahead = max(ahead, w.align(to+window))
	case ahead-to < window/2:
		ahead = to + window
	}
	w.mark.ahead = ahead
	w.next = ahead - w.object.Size
	return ahead
}

// batches walks. What is served is [begin, served), and the next read begins at next.
func (w *walk) batches() (begin, served int64, next wire.Offset, end bool, err error) {
	at, sound := w.position, w.pin.SoundTo(w.position)
	begin, served, next = at, at, w.offset
	least := w.segment.Base
	for {
		if at >= w.object.Size {
			return begin, served, next, served == begin, nil
		}
		if at+record.HeaderSize > w.object.Size {
			return begin, served, next, false, w.damage(at, w.object.Size, "ends within a header")
		}
		if err := w.need(at, at+record.HeaderSize, begin, served); err != nil {
			return begin, served, next, false, err
		}
		header, err := w.pin.View(at, record.HeaderSize, w.scratch[:])
		if err != nil {
			return begin, served, next, false, err
		}
		b := record.Batch(header)
		size, err := record.SizeOf(header)
		after := at + int64(size)
		outside := b.BaseOffset() < least || b.LastOffset() >= w.segment.End && !w.segment.Clipped
		if err != nil || after > w.object.Size || b.Magic() != 2 || b.LastOffsetDelta() < 0 || outside {
			return begin, served, next, false, w.damage(at, at+record.HeaderSize, "has no batch of its own")
		}
		least = b.NextOffset()
		switch {
		case least <= w.offset:
			at = after
			begin, served = at, at
			continue
		case b.BaseOffset() >= w.segment.End:
			return begin, served, next, served == begin, nil
		case b.LastOffset() >= w.UpTo:
			return begin, served, next, false, nil
		case after-begin > w.limit && (at > begin || !w.first):
			return begin, served, next, false, nil
		}
		transactional, control, producer := b.IsTransactional(), b.IsControl(), b.ProducerID()
		last := least
		if err := w.need(at, after, begin, served); err != nil {
			return begin, served, next, false, err
		}
		if after > sound {
			if err := w.verify(at, after); err != nil {
				return begin, served, next, false, err
			}
		}
		if transactional {
			w.follow(producer, control)
		}
		at, served, next = after, after, last
	}
}

// need waits for bytes. A read that is not one of a sequence takes what has come: its reader waits for a first byte.
func (w *walk) need(from, to, begin, served int64) error {
	if to > w.pinned {
		if served > begin {
			return errLater
		}
		if to-from > w.cache.PinBytesMax() {
			return fmt.Errorf("%w: %d bytes at position %d of %s", errLarge, to-from, from, w.object.Key)
		}
		w.pin.Release()
		upTo := max(to, min(from+w.limit, w.object.Size))
		pin, err := w.cache.Pin(w.room, cache.Want{Object: w.object, From: from, To: upTo, Wait: true})
		if err != nil {
			return err
		}
		w.pin, w.pinned = pin, upTo
	}
	if w.pin.Ready(from, to) {
		return w.pin.Wait(w.ctx, from, to)
	}
	if served > begin && w.mark.stream == nil {
		return errLater
	}
	w.stalled = true
	if w.crowded {
		return w.pin.Wait(w.room, from, to)
	}
	return w.pin.Wait(w.ctx, from, to)
}

// verify compares a batch with its checksum.
func (w *walk) verify(from, to int64) error {
	header, err := w.pin.View(from, record.HeaderSize, w.scratch[:])
	if err != nil {
		return err
	}
	stored := record.Batch(header).CRC()
	computed, err := w.pin.Checksum(from+atAttributes, to)
	if err != nil {
		return err
	}
	if computed != stored {
		return w.damage(from, to, fmt.Sprintf("has a batch with checksum %08x, not %08x,", computed, stored))
	}
	return nil
}

// damage has bytes forgotten that are not what they should be.
func (w *walk) damage(from, to int64, what string) error {
	w.pin.Drop(from, to)
	return fmt.Errorf("%w: %s %s at position %d", errDamaged, w.object.Key, what, from)
}

// leave notes where the read has left off.
func (w *walk) leave(next wire.Offset, position, bytes int64) {
	chunk := w.o.Cache.RangeBytes
	w.streams.note(w.now, left{
		at: w.mark, next: w.place(next),
		mark:  mark{name: w.segment.Name, object: w.object, position: position, ahead: w.mark.ahead},
		bytes: bytes, stalled: w.stalled, get: w.store.duration(chunk),
	}, chunk, w.o.Config().ReadAheadBytes)
}

// follow notes a batch of a transaction.
func (w *walk) follow(producer wire.ProducerID, marker bool) {
	w.txns = true
	if marker {
		delete(w.open, producer)
		return
	}
	if w.open == nil {
		w.open = map[wire.ProducerID]struct{}{}
	}
	w.open[producer] = struct{}{}
}
