package cold

import (
	"hash/crc32"
	"slices"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
)

// sampleOf is how many segments without aborted transactions share one sidecar that is read to see whether a transaction is still
// open: without it a transaction that was committed would be looked for to the end of the tier.
const sampleOf = 16

// sampled picks the segments whose sidecars are read for that, the same ones for every reader.
func sampled(s manifest.Segment) bool { return crc32.ChecksumIEEE([]byte(s.Nonce))%sampleOf == 0 }

// aborted lists the aborted transactions with records in what is served, [w.offset, next). A segment's transaction index has those
// whose markers lie in it, so that of a transaction that is open at the end of the range lies in a later segment, or in the local
// log. Segments without such entries are not asked (BO-085).
func (w *walk) aborted(next wire.Offset) ([]log.AbortedTransaction, error) {
	var list []log.AbortedTransaction
	segment := w.segment
	for {
		if segment.Aborted || len(w.open) > 0 && sampled(segment) {
			s, err := w.sidecars.get(w.look, w.Partition, segment)
			if err != nil {
				return nil, err
			}
			found, complete := s.Aborted(w.offset, next)
			list = append(list, found...)
			if complete {
				return list, nil
			}
			if data, ok := s.ProducerSnapshot(); ok && len(w.open) > 0 {
				if err := w.settle(data, next); err != nil {
					return nil, err
				}
			}
		}
		if len(w.open) == 0 {
			return list, nil
		}
		following, ok, err := w.Manifest.After(w.look, segment)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		segment = following
	}
	return w.local(list, next)
}

// settle drops the transactions that are over at the end of a segment from those that are open at the end of the range.
func (w *walk) settle(snapshot []byte, next wire.Offset) error {
	producers, err := log.DecodeProducerSnapshot(snapshot)
	if err != nil {
		return err
	}
	still := map[wire.ProducerID]bool{}
	for _, p := range producers {
		still[p.ID] = p.TxnStart >= 0 && p.TxnStart < next
	}
	for id := range w.open {
		if !still[id] {
			delete(w.open, id)
		}
	}
	return nil
}

// local adds what the local log knows of the range and the tier does not.
func (w *walk) local(list []log.AbortedTransaction, next wire.Offset) ([]log.AbortedTransaction, error) {
	if w.LocalAborted == nil {
		return list, nil
	}
	more, err := w.LocalAborted(w.offset, next)
	if err != nil {
		return nil, err
	}
	for _, t := range more {
		known := slices.ContainsFunc(list, func(have log.AbortedTransaction) bool {
			return have.ProducerID == t.ProducerID && have.First == t.First
		})
		if !known {
			list = append(list, t)
		}
	}
	return list, nil
}
