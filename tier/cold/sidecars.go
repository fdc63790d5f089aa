package cold

import (
	"container/list"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
	"sync/atomic"

	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/sidecar"
)

// sidecarBytesMax is how much memory sidecars may take besides those that are being looked at: the indexes of a hundred segments
// of 100 MB.
const sidecarBytesMax = 32 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sidecars keeps the sidecars of segments, least recently used first to leave, each read once however many ask. A read goes on
// when the asker gives up.
type sidecars struct {
	ctx      context.Context // ends when the Reader is closed
	store    *meter
	run      func(func())
	bytesMax int64
	gets     atomic.Int64

	mu    sync.Mutex // guards what follows; a leaf
	at    map[string]*sidecarEntry
	order list.List // of *sidecarEntry that are there, oldest first
	bytes int64
}

type sidecarEntry struct {
	key   string
	ready chan struct{} // closed when one of the next two is set
	found *sidecar.Sidecar
	err   error
	order *list.Element // guarded by sidecars.mu
}

// get is the sidecar of a segment.
func (s *sidecars) get(ctx context.Context, p Partition, seg manifest.Segment) (*sidecar.Sidecar, error) {
	key := p.Manifest.Prefix() + "/" + seg.Key(manifest.AuxObject)
	s.mu.Lock()
	e, ok := s.at[key]
	if !ok {
		e = &sidecarEntry{key: key, ready: make(chan struct{})}
		s.at[key] = e
	} else if e.order != nil {
		s.order.MoveToBack(e.order)
	}
	s.mu.Unlock()
	if !ok {
		s.run(func() { s.load(e, p.Topic, seg) })
	}
	select {
	case <-e.ready: // also when there is no more time
	default:
		select {
		case <-e.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if e.err != nil {
		return nil, e.err
	}
	if seg.Clipped {
		return e.found.Clip(seg.End), nil
	}
	return e.found, nil
}

// load reads a sidecar, once more if it is not what the manifest says.
func (s *sidecars) load(e *sidecarEntry, topic string, seg manifest.Segment) {
	for range 2 {
		var again bool
		if e.found, again, e.err = s.read(topic, e.key, seg); !again {
			break
		}
	}
	s.mu.Lock()
	if e.err != nil || int64(e.found.Size()) > s.bytesMax {
		delete(s.at, e.key)
	} else {
		e.order = s.order.PushBack(e)
		for s.bytes += int64(e.found.Size()); s.bytes > s.bytesMax; {
			oldest := s.order.Remove(s.order.Front()).(*sidecarEntry)
			delete(s.at, oldest.key)
			s.bytes -= int64(oldest.found.Size())
		}
	}
	s.mu.Unlock()
	close(e.ready)
}

func (s *sidecars) read(topic, key string, seg manifest.Segment) (found *sidecar.Sidecar, again bool, err error) {
	if seg.AuxSize <= 0 || seg.AuxSize > sidecar.BytesMax {
		return nil, false, fmt.Errorf("%w: sidecar %s of %d bytes", errDamaged, key, seg.AuxSize)
	}
	s.gets.Add(1)
	body, err := s.store.get(s.ctx, topic, key, object.Range{})
	if err != nil {
		return nil, false, err
	}
	data := make([]byte, seg.AuxSize)
	_, err = io.ReadFull(body, data)
	if closing := body.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return nil, true, fmt.Errorf("read sidecar %s: %w", key, err)
	}
	if crc := crc32.Checksum(data, castagnoli); crc != uint32(seg.AuxCRC) {
		return nil, true, fmt.Errorf("%w: sidecar %s has checksum %08x, not %s", errDamaged, key, crc, seg.AuxCRC)
	}
	if found, err = sidecar.Decode(data); err != nil {
		return nil, true, fmt.Errorf("%w: sidecar %s: %w", errDamaged, key, err)
	}
	return found, false, nil
}
