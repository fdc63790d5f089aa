package fsck

import (
	"bufio"
	"context"
	"fmt"
	"iter"
	"math"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/sidecar"
)

// Records yields the records of a partition from an offset on, straight from the bucket, each batch verified. Transaction markers are
// left out, records of aborted transactions are not. A record is valid until the next. An error ends the sequence.
func Records(ctx context.Context, s object.Store, m *manifest.Manifest, from wire.Offset) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		state := m.State()
		from := state.SkipLost(max(from, state.LogStart))
		segment, ok, err := m.Find(ctx, from)
		for ok && err == nil {
			for r, bad := range segmentRecords(ctx, s, m, segment, max(from, segment.Start), math.MinInt64) {
				if !yield(r, bad) || bad != nil {
					return
				}
			}
			segment, ok, err = m.After(ctx, segment)
		}
		if err != nil {
			yield(record.Record{}, err)
		}
	}
}

// OffsetForTime is the offset of the first record with a timestamp of ts or later; ok is false where the bucket has none.
func OffsetForTime(ctx context.Context, s object.Store, m *manifest.Manifest, ts int64) (offset wire.Offset, ok bool, err error) {
	for segment, err := range m.FindTime(ctx, ts) {
		if err != nil {
			return 0, false, err
		}
		for r, err := range segmentRecords(ctx, s, m, segment, max(segment.Start, m.State().LogStart), ts) {
			if err != nil {
				return 0, false, err
			}
			if r.Timestamp >= ts {
				return r.Offset, true, nil
			}
		}
	}
	return 0, false, nil
}

// segmentRecords yields the records of a segment from an offset on. Batches without a record of ts or later are passed over.
func segmentRecords(
	ctx context.Context, s object.Store, m *manifest.Manifest, segment manifest.Segment, from wire.Offset, ts int64,
) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		fail := func(err error) {
			yield(record.Record{}, fmt.Errorf("segment %s: %w", m.Key(segment.Name, manifest.LogObject), err))
		}
		at := positionOf(ctx, s, m, segment, from)
		o, err := s.Get(ctx, m.Key(segment.Name, manifest.LogObject), object.Range{Offset: at})
		if err != nil {
			fail(err)
			return
		}
		defer o.Body.Close()
		in := bufio.NewReaderSize(o.Body, readBuffer)
		for at < segment.Size {
			b, err := readBatch(in, segment.Size-at)
			if err == nil {
				err = b.Check()
			}
			if err != nil {
				fail(err)
				return
			}
			at += int64(len(b))
			if b.BaseOffset() >= segment.End {
				return
			}
			if b.LastOffset() < from || b.IsControl() || b.MaxTimestamp() < ts {
				continue
			}
			for r, err := range record.Records(b, unfoldedMax) {
				if err != nil {
					fail(err)
					return
				}
				if r.Offset >= from && r.Offset < segment.End && !yield(r, nil) {
					return
				}
			}
		}
	}
}

// positionOf is where in a segment to begin to look for an offset; at its beginning where no sidecar tells.
func positionOf(ctx context.Context, s object.Store, m *manifest.Manifest, segment manifest.Segment, offset wire.Offset) int64 {
	if offset <= segment.Base {
		return 0
	}
	data, _, err := object.Read(ctx, s, m.Key(segment.Name, manifest.AuxObject), sidecar.BytesMax)
	if err != nil {
		return 0
	}
	aux, err := sidecar.Decode(data)
	if err != nil {
		return 0
	}
	return aux.Position(offset)
}
