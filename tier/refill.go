package tier

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/sidecar"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errObject: an object is not what the manifest says of it.
var errObject = errors.New("object differs from its entry in the manifest")

// sidecar reads the indexes of a segment.
func (p *partition) sidecar(ctx context.Context, s manifest.Segment) (*sidecar.Sidecar, error) {
	data, _, err := object.Read(ctx, p.o.Store, p.key(s.Name, manifest.AuxObject), s.AuxSize)
	if err != nil {
		return nil, err
	}
	if crc32.Checksum(data, castagnoli) != uint32(s.AuxCRC) {
		return nil, fmt.Errorf("%w: checksum of %s", errObject, s.Key(manifest.AuxObject))
	}
	aux, err := sidecar.Decode(data)
	if err != nil {
		return nil, err
	}
	return aux.Clip(s.End), nil
}

func (p *partition) key(n manifest.Name, kind manifest.Kind) string {
	return p.prefix + "/" + n.Key(kind)
}

// refillBytes is how much is appended at a time.
const refillBytes = 1 << 20

// refill appends the batches that a segment serves to the log, verbatim. The log verifies each; the checksum of the object tells that
// none is missing.
func (p *partition) refill(ctx context.Context, now time.Time, s manifest.Segment) error {
	o, err := p.o.Store.Get(ctx, p.key(s.Name, manifest.LogObject), object.Range{})
	if err != nil {
		return err
	}
	defer o.Body.Close()
	sum := crc32.New(castagnoli)
	in := io.TeeReader(o.Body, sum)
	var pending []byte
	flush := func() error {
		if len(pending) == 0 {
			return nil
		}
		p.at(pointRefill)
		_, err := p.Log.AppendAsFollower(now, pending)
		pending = pending[:0]
		return err
	}
	for left := s.Size; left > 0; {
		b, err := readBatch(in, left)
		if err != nil {
			return err
		}
		left -= int64(len(b))
		if b.LastOffset() < s.Start || b.BaseOffset() >= s.End {
			continue
		}
		if pending = append(pending, b...); len(pending) >= refillBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if sum.Sum32() != uint32(s.CRC) {
		return fmt.Errorf("%w: checksum of %s", errObject, s.Key(manifest.LogObject))
	}
	return flush()
}

// readBatch reads a batch of at most limit bytes.
func readBatch(r io.Reader, limit int64) (record.Batch, error) {
	head := make([]byte, record.HeaderSize)
	if limit < record.HeaderSize {
		return nil, fmt.Errorf("%w: %d bytes behind the last batch", errObject, limit)
	}
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	size, err := record.SizeOf(head)
	if err != nil || int64(size) > limit {
		return nil, fmt.Errorf("%w: a batch of %d bytes in %d: %w", errObject, size, limit, err)
	}
	b := append(head, make([]byte, size-len(head))...)
	if _, err := io.ReadFull(r, b[record.HeaderSize:]); err != nil {
		return nil, err
	}
	return b, nil
}

// refillGap moves the log's end over offsets that nobody has, by batches without records, as Kafka's cleaner leaves them.
func (p *partition) refillGap(now time.Time, end wire.Offset) error {
	for from := p.Log.EndOffset(); from < end; from = p.Log.EndOffset() {
		if _, err := p.Log.AppendAsFollower(now, emptyBatch(from, min(end, from+math.MaxInt32), p.Epoch)); err != nil {
			return err
		}
	}
	return nil
}

// Where a batch's header has what the builder gives to records only.
const (
	atLength          = 8
	atLastOffsetDelta = 23
	atCount           = 57
)

// emptyBatch covers [from, to) and holds no record.
func emptyBatch(from, to wire.Offset, epoch wire.LeaderEpoch) record.Batch {
	w := record.Builder{BaseOffset: from, LeaderEpoch: epoch}
	w.Append(record.NoTimestamp, nil, nil)
	b, err := w.Build()
	if err != nil {
		panic("tier: a batch of one empty record can't be built: " + err.Error())
	}
	b = b[:record.HeaderSize]
	binary.BigEndian.PutUint32(b[atLength:], uint32(record.HeaderSize-record.SizePrefix))
	binary.BigEndian.PutUint32(b[atLastOffsetDelta:], uint32(to-from-1))
	binary.BigEndian.PutUint32(b[atCount:], 0)
	b.SetCRC()
	return b
}
