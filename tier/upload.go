package tier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/plan"
	"github.com/tidemark-io/tidemark/tier/sidecar"
)

// copy uploads a sealed segment and commits it: data, sidecar, entry. What a crash leaves between is an orphan under a name
// that nobody uses again. A task that is out of date by now costs another look.
func (p *partition) copy(ctx context.Context, now time.Time, t plan.Task) outcome {
	if p.m.State().End != t.Offset || t.End <= p.Log.StartOffset() {
		return outcome{again: true}
	}
	segment := p.pending
	if segment == nil || segment.Base != t.Segment || segment.Start != t.Offset || segment.End != t.End {
		var err error
		segment, err = p.put(p.cause(ctx, object.CauseUpload), now, t)
		if errors.Is(err, log.ErrOffsetOutOfRange) {
			return outcome{wake: now} // retention was faster
		}
		if err != nil {
			return outcome{err: fmt.Errorf("upload segment %d: %w", t.Segment, err)}
		}
	}
	p.pending = nil
	err := p.commit(ctx, now, pointUpload, &manifest.AddRecord{Segment: *segment})
	if err != nil && !p.m.State().Has(segment.Name) {
		// Its entry may come late, so its objects stay: the next try commits them again, or they are the next leader's to sweep.
		p.pending = segment
		return outcome{err: fmt.Errorf("commit segment %d: %w", t.Segment, err)}
	}
	p.tell()
	return outcome{again: true}
}

// put stores the objects of a segment. The log has verified it and made it durable (safety rule 20).
func (p *partition) put(ctx context.Context, now time.Time, t plan.Task) (*manifest.Segment, error) {
	data := &segmentBody{p: p}
	u, err := p.Log.OpenUpload(t.Segment, data)
	if err != nil {
		return nil, err
	}
	defer u.Release()
	if u.Next != t.End {
		return nil, fmt.Errorf("%w: the segment ends at %d, not %d", log.ErrOffsetOutOfRange, u.Next, t.End)
	}
	data.file, data.SectionReader = u.File, io.NewSectionReader(u.File, 0, u.Size)
	s := &manifest.Segment{
		Name:  manifest.Name{Base: u.Base, Epoch: p.Epoch, Nonce: p.o.Nonce()},
		Start: t.Offset, End: t.End, Size: u.Size, CRC: manifest.Checksum(data.Whole()),
		MinTimestamp: u.MinTimestamp, MaxTimestamp: u.MaxTimestamp, Epochs: manifest.Lineage(lineageOf(u.Epochs), t.Offset, t.End),
		Aborted: len(u.TxnIndex) > 0, UploadedMs: now.UnixMilli(),
	}
	aux, err := sidecar.Encode(sidecar.Contents{
		Segment: sidecar.Segment{
			TopicID: p.TopicID, Partition: p.Partition, Base: s.Base, Start: s.Start, End: s.End, LeaderEpoch: s.Epoch, Size: s.Size,
			CRC: data.Whole(), MinTimestamp: s.MinTimestamp, MaxTimestamp: s.MaxTimestamp, UploadedMs: s.UploadedMs,
		},
		OffsetIndex: u.OffsetIndex, TimeIndex: u.TimeIndex, TransactionIndex: u.TxnIndex, ProducerSnapshot: u.Producers, Epochs: u.Epochs,
	})
	if err != nil {
		return nil, err
	}
	s.AuxSize, s.AuxCRC = int64(len(aux)), manifest.Checksum(crc32.Checksum(aux, castagnoli))
	if err := p.putObjects(ctx, s, data, bytes.NewReader(aux)); err != nil {
		p.unfinished = true
		p.giveUp(s.Name)
		return nil, err
	}
	return s, nil
}

func (p *partition) putObjects(ctx context.Context, s *manifest.Segment, data, aux object.Body) error {
	p.at(pointPutData)
	if err := p.putObject(ctx, p.key(s.Name, manifest.LogObject), data); err != nil {
		return err
	}
	p.at(pointPutAux)
	return p.putObject(ctx, p.key(s.Name, manifest.AuxObject), aux)
}

// putObject stores an object and sees that it is whole: what a proxy on the way has cut must not be named. A put whose answer got lost has
// succeeded if it is, since nobody else uses its key: a server that takes long to join the parts must not get them again and again.
func (p *partition) putObject(ctx context.Context, key string, body object.Body) error {
	_, failed := p.o.Store.Put(ctx, key, body, object.Condition{})
	info, err := p.o.Store.Head(ctx, key)
	switch {
	case err == nil && info.Size == body.Size():
		return nil
	case failed != nil:
		return failed
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: %s has %d bytes, not %d", errObject, key, info.Size, body.Size())
}

// givenUpMax bounds the attempts of one leadership that are cleaned up by itself; the next leader's sweep finds the others.
const givenUpMax = 64

// giveUp notes an attempt whose objects may be there.
func (p *partition) giveUp(n manifest.Name) {
	if len(p.givenUp) < givenUpMax {
		p.givenUp = append(p.givenUp, n)
	}
}

// segmentBody is a segment's file on its way: sent from where it lies, its checksum taken while it was verified.
type segmentBody struct {
	p    *partition
	file vfs.File
	*io.SectionReader
	object.Sums
}

// Write takes the bytes of the segment from the pass that verifies it, each piece of which is a sign of life.
func (b *segmentBody) Write(piece []byte) (int, error) {
	b.p.steps.Add(1)
	return b.Sums.Write(piece)
}

// ReadAt implements object.Body; so is each of these.
func (b *segmentBody) ReadAt(buf []byte, at int64) (int, error) {
	b.p.steps.Add(1)
	return b.SectionReader.ReadAt(buf, at)
}

// File implements object.Filed. Whoever asks for it begins a request, which is a sign of life, too.
func (b *segmentBody) File() (fd uintptr, offset int64, ok bool) {
	b.p.steps.Add(1)
	fd, ok = b.file.Fd()
	return fd, 0, ok
}
