package fsck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/sidecar"
)

// restoreSidecar puts a sidecar back that is gone, where the one that the segment leads to is the very same: its checksum is in
// the manifest. Another one, however good, may not come under the old name; it takes a manifest that is written anew. prior is the
// segment before, nil without one.
func (p *partition) restoreSidecar(ctx context.Context, s manifest.Segment, key string, prior *manifest.Segment) (presence, error) {
	if p.Scratch.FS == nil {
		return isGone, nil
	}
	before, err := p.sidecarBefore(ctx, s, prior)
	if err != nil {
		return isGone, err
	}
	err = remake(ctx, p.now, p.Store, p.Scratch, p.group, s.Name, s, before, func(made manifest.Segment, _, aux object.Body) error {
		if made.AuxSize != s.AuxSize || made.AuxCRC != s.AuxCRC {
			return errRemake
		}
		if _, err := p.Store.Put(ctx, key, aux, object.IfAbsent()); err != nil && !errors.Is(err, object.ErrPrecondition) {
			return fmt.Errorf("put sidecar %s back: %w", key, err)
		}
		return nil
	})
	switch {
	case errors.Is(err, errRemake), errors.Is(err, object.ErrNotExist):
		return isGone, nil
	case err != nil:
		return isGone, err
	}
	f := p.segmentFinding(s, KindMissing, "the sidecar was gone")
	f.Key, f.Count, f.Bytes, f.Repaired = key, 1, s.AuxSize, "made anew from its segment, equal to the byte"
	p.found(f)
	return isThere, nil
}

// sidecarBefore is that of the segment before, for the producers and epochs that s begins with; nil where it is not to be had.
func (p *partition) sidecarBefore(ctx context.Context, s manifest.Segment, prior *manifest.Segment) (*sidecar.Sidecar, error) {
	if prior == nil || prior.End != s.Base {
		return nil, nil
	}
	data, _, err := object.Read(ctx, p.Store, p.m.Key(prior.Name, manifest.AuxObject), sidecar.BytesMax)
	if errors.Is(err, object.ErrNotExist) || errors.Is(err, object.ErrTooLarge) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	aux, err := sidecar.Decode(data)
	if err != nil {
		return nil, nil //nolint:nilerr // it is reported where its own segment is checked
	}
	return aux.Clip(prior.End), nil
}

// errRemake: a sidecar can't be made of that segment.
var errRemake = errors.New("sidecar can't be made anew")

// remakeBytes is how much is appended at a time.
const remakeBytes = 1 << 20

// remake makes a sidecar for s from the segment called from, by the code that made the first one: what s serves is appended to a log
// of its own. prior is the sidecar of the segment before, nil where there is none: then producers and epochs begin with this segment.
// use gets s as it is there, and its objects, which are gone afterwards.
func remake(
	ctx context.Context, now time.Time, store object.Store, scratch Scratch, g *group, from manifest.Name, s manifest.Segment,
	prior *sidecar.Sidecar, use func(made manifest.Segment, data, aux object.Body) error,
) error {
	dir := path.Join(scratch.Dir, fmt.Sprintf("%020d-%d-%s", s.Base, s.Epoch, s.Nonce))
	l, err := log.Open(now, log.Options{
		FS: scratch.FS, Dir: dir, TopicPartition: g.tp, TopicID: g.id, Config: scratch.Config(g.tp.Topic),
		LogStart: wire.NoOffset, RecoveryPoint: 0, Stop: log.StopClean,
	})
	if err != nil {
		return fmt.Errorf("open scratch log: %w", err)
	}
	defer func() {
		_ = l.Close(now)
		_ = scratch.FS.RemoveAll(dir)
	}()
	var snapshot []byte
	var epochs []log.EpochEntry
	if prior != nil {
		snapshot, _ = prior.ProducerSnapshot()
		epochs = prior.Epochs()
	}
	if err := l.StartFromTier(now, s.Base, s.Base, epochs, snapshot); err != nil {
		return fmt.Errorf("%w: %w", errRemake, err)
	}
	if err := appendSegment(ctx, now, store, g.prefix+"/"+from.Key(manifest.LogObject), s, l); err != nil {
		return err
	}
	if err := l.Roll(now); err != nil {
		return fmt.Errorf("%w: %w", errRemake, err)
	}
	var sums object.Sums
	u, err := l.OpenUpload(s.Base, &sums)
	if err != nil {
		return fmt.Errorf("%w: %w", errRemake, err)
	}
	defer u.Release()
	if end := l.EndOffset(); u.Next != end {
		return fmt.Errorf("%w: the log rolled at %d, before %d", errRemake, u.Next, end)
	}
	s.Size, s.CRC, s.Clipped = u.Size, manifest.Checksum(sums.Whole()), u.Next > s.End
	s.MinTimestamp, s.MaxTimestamp, s.Aborted = u.MinTimestamp, u.MaxTimestamp, len(u.TxnIndex) > 0
	all := u.Epochs
	if len(epochs) > 0 { // the log has forgotten what lies below its start
		all = joinEpochs(epochs, u.Epochs)
	}
	aux, err := sidecar.Encode(sidecar.Contents{
		Segment: sidecar.Segment{
			TopicID: g.id, Partition: g.tp.Partition, Base: s.Base, Start: s.Start, End: max(s.End, u.Next), LeaderEpoch: s.Epoch, Size: s.Size,
			CRC: uint32(s.CRC), MinTimestamp: s.MinTimestamp, MaxTimestamp: s.MaxTimestamp, UploadedMs: s.UploadedMs,
		},
		OffsetIndex: u.OffsetIndex, TimeIndex: u.TimeIndex, TransactionIndex: u.TxnIndex, ProducerSnapshot: u.Producers, Epochs: all,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errRemake, err)
	}
	s.AuxSize, s.AuxCRC = int64(len(aux)), manifest.Checksum(crc32.Checksum(aux, castagnoli))
	return use(s, summed{io.NewSectionReader(u.File, 0, u.Size), &sums}, bytes.NewReader(aux))
}

// summed is a segment's file whose checksum was taken while it was read.
type summed struct {
	*io.SectionReader
	*object.Sums
}

// joinEpochs puts the epochs of a segment behind those up to its beginning.
func joinEpochs(before, of []log.EpochEntry) []log.EpochEntry {
	joined := append([]log.EpochEntry(nil), before...)
	for _, e := range of {
		if e.Epoch > joined[len(joined)-1].Epoch {
			joined = append(joined, e)
		}
	}
	return joined
}

// appendSegment appends the batches that a segment serves to a log, verbatim.
func appendSegment(ctx context.Context, now time.Time, store object.Store, key string, s manifest.Segment, l *log.Log) error {
	o, err := store.Get(ctx, key, object.Range{})
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
		if _, err := l.AppendAsFollower(now, pending); err != nil {
			return fmt.Errorf("%w: %w", errRemake, err)
		}
		pending = pending[:0]
		return nil
	}
	for left := s.Size; left > 0; {
		b, err := readBatch(in, left)
		if errors.Is(err, errBatch) {
			return fmt.Errorf("%w: %w", errRemake, err)
		} else if err != nil {
			return err
		}
		left -= int64(len(b))
		if b.BaseOffset() >= s.End {
			continue
		}
		if pending = append(pending, b...); len(pending) >= remakeBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if got := manifest.Checksum(sum.Sum32()); got != s.CRC {
		return fmt.Errorf("%w: the segment's checksum is %s, not %s", errRemake, got, s.CRC)
	}
	return flush()
}
