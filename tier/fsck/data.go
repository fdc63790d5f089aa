package fsck

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/sidecar"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// readTries: what looks damaged is read once more, since a byte may have fallen over on the way.
const readTries = 2

// checkSidecar reads a sidecar. It is nil where that is not what the manifest says, which was reported.
func (p *partition) checkSidecar(ctx context.Context, s manifest.Segment, key string) (*sidecar.Sidecar, error) {
	var kind Kind
	var text string
	for range readTries {
		data, _, err := object.Read(ctx, p.Store, key, sidecar.BytesMax)
		if errors.Is(err, object.ErrNotExist) {
			return nil, nil // deleted since its size was looked at
		} else if err != nil {
			return nil, err
		}
		p.sum.ObjectsRead++
		p.sum.BytesRead += int64(len(data))
		if sum := manifest.Checksum(crc32.Checksum(data, castagnoli)); sum != s.AuxCRC {
			kind, text = KindChecksum, fmt.Sprintf("the sidecar's checksum is %s, the manifest says %s", sum, s.AuxCRC)
			continue
		}
		aux, err := sidecar.Decode(data)
		if err != nil {
			kind, text = KindIndex, err.Error()
			continue
		}
		if text = p.unlike(aux, s); text == "" {
			return aux.Clip(s.End), nil
		}
		kind = KindIndex
	}
	f := p.segmentFinding(s, kind, text)
	f.Key, f.Advice = key, adviceDamaged
	p.found(f)
	return nil, nil
}

// unlike tells in what a sidecar differs from the manifest's entry; empty where it does not.
func (p *partition) unlike(aux *sidecar.Sidecar, s manifest.Segment) string {
	d := aux.Segment()
	switch {
	case d.TopicID != p.id || d.Partition != p.tp.Partition || d.Base != s.Base || d.LeaderEpoch != s.Epoch:
		return fmt.Sprintf("the sidecar is that of segment %d of partition %d of topic %s, leader epoch %d", d.Base, d.Partition, d.TopicID, d.LeaderEpoch)
	case d.Size != s.Size || d.CRC != uint32(s.CRC):
		return fmt.Sprintf("the sidecar is that of a segment of %d bytes with checksum %08x, the manifest says %d and %s", d.Size, d.CRC, s.Size, s.CRC)
	case d.Start > s.Start || d.End < s.End || d.End > s.End && !s.Clipped:
		return fmt.Sprintf("the sidecar is made for [%d, %d), the manifest serves [%d, %d)", d.Start, d.End, s.Start, s.End)
	}
	known := aux.Clip(s.End).Epochs()
	epochs := make([]manifest.EpochStart, len(known))
	for i, e := range known {
		epochs[i] = manifest.EpochStart{Epoch: e.Epoch, Start: e.Start}
	}
	if lineage := manifest.Lineage(epochs, s.Start, s.End); !slices.Equal(lineage, s.Epochs) {
		return fmt.Sprintf("the sidecar's leader epochs are %v, the manifest says %v", lineage, s.Epochs)
	}
	return ""
}

// checkData reads a whole segment.
func (p *partition) checkData(ctx context.Context, s manifest.Segment, aux *sidecar.Sidecar) error {
	var kind Kind
	var text string
	var damaged wire.Offset
	for range readTries {
		w := &batchWalk{segment: s, aux: aux}
		sum, err := p.readData(ctx, s, w)
		if errors.Is(err, object.ErrNotExist) {
			return nil // deleted since its size was looked at
		} else if err != nil && !errors.Is(err, errBatch) {
			return err
		}
		switch {
		case sum != s.CRC:
			kind, damaged = KindChecksum, s.Start
			text = fmt.Sprintf("the segment's checksum is %s, the manifest says %s", sum, s.CRC)
			if err != nil {
				text = fmt.Sprintf("%s; %v", text, err)
			}
		case err != nil:
			kind, text, damaged = KindBatch, err.Error(), max(s.Start, w.next)
		default:
			p.sum.Batches += w.batches
			p.sum.Records += w.records
			return nil
		}
	}
	f := p.segmentFinding(s, kind, text)
	f.Advice = adviceDamaged
	if kind == KindBatch {
		f.Start = min(damaged, s.End)
		f.Advice = "the object is what its leader has uploaded: the damage is older than the upload; readers skip to the end of the range"
	}
	p.found(f)
	return nil
}

// readBuffer is how much of a segment is in memory at a time, but for a larger batch.
const readBuffer = 256 << 10

// readData gives the checksum of a segment, and what is wrong with its batches at level Verify.
func (p *partition) readData(ctx context.Context, s manifest.Segment, w *batchWalk) (manifest.Checksum, error) {
	o, err := p.Store.Get(ctx, p.m.Key(s.Name, manifest.LogObject), object.Range{})
	if err != nil {
		return 0, err
	}
	defer o.Body.Close()
	sum := crc32.New(castagnoli)
	from := &counted{r: o.Body}
	in := io.TeeReader(from, sum)
	var bad error
	if p.Level >= Verify {
		bad = w.run(bufio.NewReaderSize(in, readBuffer))
	}
	if bad == nil || errors.Is(bad, errBatch) {
		if _, err := io.Copy(io.Discard, in); err != nil { // the rest, also of what could not be understood
			bad = err
		}
	}
	p.sum.ObjectsRead++
	p.sum.BytesRead += from.n
	if bad == nil && from.n != s.Size {
		bad = fmt.Errorf("%w: %d bytes came, the manifest says %d", errBatch, from.n, s.Size)
	}
	return manifest.Checksum(sum.Sum32()), bad
}

// counted counts what is read.
type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

// errBatch: a batch is not sound, or not where it belongs.
var errBatch = errors.New("batch")

func badBatch(format string, args ...any) error {
	return fmt.Errorf("%w "+format, append([]any{errBatch}, args...)...)
}

// batchWalk verifies the batches of a segment.
type batchWalk struct {
	segment manifest.Segment
	aux     *sidecar.Sidecar // nil: not known
	next    wire.Offset      // all before it is sound
	starts  []int64          // where batches begin
	latest  int64
	batches int64
	records int64
}

func (w *batchWalk) run(in io.Reader) error {
	w.next, w.latest = w.segment.Base, record.NoTimestamp
	for at := int64(0); at < w.segment.Size; {
		b, err := readBatch(in, w.segment.Size-at)
		if err != nil {
			return err
		}
		if err := w.check(b, at); err != nil {
			return fmt.Errorf("%w, at byte %d", err, at)
		}
		at += int64(len(b))
	}
	switch {
	case w.next < w.segment.End:
		return badBatch("that is the last one ends at %d, the manifest serves up to %d", w.next, w.segment.End)
	case w.latest != w.segment.MaxTimestamp:
		return badBatch("with the largest timestamp has %d, the manifest says %d", w.latest, w.segment.MaxTimestamp)
	}
	return nil
}

func (w *batchWalk) check(b record.Batch, at int64) error {
	first, last := b.BaseOffset(), b.LastOffset()
	if err := b.Check(); err != nil {
		return badBatch("at offset %d: %w", first, err)
	}
	switch epochs := w.segment.Epochs; {
	case first < w.next || last < first:
		return badBatch("has offsets %d to %d, the one before ends at %d", first, last, w.next)
	case first >= w.segment.End && !w.segment.Clipped:
		return badBatch("begins at %d, behind the segment's end %d", first, w.segment.End)
	case last >= w.segment.Start && first < w.segment.End && b.LeaderEpoch() != epochAt(epochs, max(first, w.segment.Start)):
		return badBatch("at offset %d has leader epoch %d, the manifest says %d", first, b.LeaderEpoch(), epochAt(epochs, max(first, w.segment.Start)))
	}
	if err := w.countRecords(b); err != nil {
		return err
	}
	w.starts = append(w.starts, at)
	if w.aux != nil {
		if _, found := slices.BinarySearch(w.starts, w.aux.Position(first)); !found {
			return badBatch("at offset %d: the offset index points to byte %d, where none begins before it", first, w.aux.Position(first))
		}
	}
	w.next = last + 1
	w.latest = max(w.latest, b.MaxTimestamp())
	w.batches++
	return nil
}

// unfoldedMax bounds what a batch may unfold to.
const unfoldedMax = 1 << 30

// countRecords compares the records of a batch with its header.
func (w *batchWalk) countRecords(b record.Batch) error {
	count, next := int32(0), b.BaseOffset()
	for r, err := range record.Records(b, unfoldedMax) {
		if err != nil {
			return badBatch("at offset %d: %w", b.BaseOffset(), err)
		}
		if r.Offset < next || r.Offset > b.LastOffset() {
			return badBatch("at offset %d has a record with offset %d", b.BaseOffset(), r.Offset)
		}
		next = r.Offset + 1
		count++
	}
	if count != b.Count() {
		return badBatch("at offset %d says that it has %d records, and has %d", b.BaseOffset(), b.Count(), count)
	}
	w.records += int64(count)
	return nil
}

func epochAt(epochs []manifest.EpochStart, offset wire.Offset) wire.LeaderEpoch {
	epoch := wire.NoLeaderEpoch
	for _, e := range epochs {
		if e.Start <= offset {
			epoch = e.Epoch
		}
	}
	return epoch
}

// readBatch reads the next batch, of at most limit bytes.
func readBatch(in io.Reader, limit int64) (record.Batch, error) {
	head := make([]byte, record.HeaderSize)
	if limit < record.HeaderSize {
		return nil, badBatch("is cut short: %d bytes are left", limit)
	}
	if _, err := io.ReadFull(in, head); err != nil {
		return nil, cutShort(err)
	}
	size, err := record.SizeOf(head)
	if err != nil || size < record.HeaderSize || int64(size) > limit {
		return nil, badBatch("of %d bytes where %d are left (%v)", size, limit, err)
	}
	b := append(head, make([]byte, size-len(head))...)
	if _, err := io.ReadFull(in, b[record.HeaderSize:]); err != nil {
		return nil, cutShort(err)
	}
	return b, nil
}

// cutShort tells an object that ends too early from a store that does not answer.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return badBatch("is cut short")
	}
	return err
}
