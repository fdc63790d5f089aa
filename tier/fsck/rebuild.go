package fsck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/sidecar"
)

// RebuildOptions say of which partition a manifest is to be made anew.
type RebuildOptions struct {
	Store   object.Store
	Topic   string
	ID      wire.TopicID
	Index   int32
	Epoch   wire.LeaderEpoch // the highest that the metadata knows; NoLeaderEpoch where it doesn't
	Scratch Scratch          // for sidecars that are missing or damaged
	// LogStart is where the log begins; wire.NoOffset where only the objects and what is left of the old manifest tell.
	LogStart wire.Offset
}

// Rebuilding is a manifest made anew, before it is written.
type Rebuilding struct {
	Epoch    wire.LeaderEpoch   `json:"epoch"`            // under which it will be written: no lower one was seen
	Found    bool               `json:"found"`            // there is a chain already, whole or not
	Sound    bool               `json:"sound"`            // and it can be read to its end: there is no need for another one
	LogStart wire.Offset        `json:"logStart"`         // wire.NoOffset where there is nothing to make a manifest of
	Segments []manifest.Segment `json:"segments"`         // oldest first
	Remade   []manifest.Name    `json:"remade,omitempty"` // those whose sidecar is missing or damaged: they are copied, with a new one
	Lost     []manifest.Range   `json:"lost,omitempty"`   // offsets that no object serves
	Unused   []string           `json:"unused,omitempty"` // keys of segments that another one makes needless, or that are damaged themselves

	o     RebuildOptions
	group *group
	end   wire.Offset // where the manifest ends
}

// candidate is a segment that an object may serve.
type candidate struct {
	manifest.Segment
	whole  wire.Offset // where the object ends, of which a cut may have left less
	remake bool
}

// PlanRebuild works out from the objects' names, sidecars and batches, and from what is readable of the old manifest, what a partition's
// manifest has to say. It changes nothing.
func PlanRebuild(ctx context.Context, o RebuildOptions) (*Rebuilding, error) {
	ctx = object.WithCause(ctx, object.Cause{Kind: object.CauseTool, Topic: o.Topic})
	r := &Rebuilding{o: o, Epoch: max(o.Epoch, 0), group: newGroup(manifest.Prefix(o.Topic, o.ID, o.Index))}
	for info, err := range o.Store.List(ctx, r.group.prefix+"/", "") {
		if err != nil {
			return nil, fmt.Errorf("list the partition's objects: %w", err)
		}
		r.group.add(info.Key[len(r.group.prefix)+1:], info)
	}
	r.Found = r.group.chain > 0
	old, err := r.readOld(ctx)
	if err != nil {
		return nil, fmt.Errorf("read what is left of the manifest: %w", err)
	}
	var all []candidate
	for _, key := range r.group.order {
		name, kind, _ := manifest.ParseKey(key[len(r.group.prefix)+1:])
		r.Epoch = max(r.Epoch, name.Epoch)
		if kind != manifest.LogObject || old.gone[name] {
			continue
		}
		c, err := r.candidate(ctx, name, r.group.objects[key])
		if errors.Is(err, errBatch) {
			r.Unused = append(r.Unused, key)
			continue
		} else if err != nil {
			return nil, fmt.Errorf("look at %s: %w", key, err)
		}
		if end, cut := old.cut[name]; cut && end < c.End {
			c.End = end
		}
		all = append(all, *c)
	}
	r.choose(all, old)
	return r, nil
}

// oldManifest is what the readable entries of a damaged manifest say.
type oldManifest struct {
	logStart wire.Offset
	lost     wire.Offset                   // where the last range ends that is lost: no offset below may be used again
	gone     map[manifest.Name]bool        // dropped
	cut      map[manifest.Name]wire.Offset // clipped there
}

// readOld reads the old manifest as far as that is possible.
func (r *Rebuilding) readOld(ctx context.Context) (oldManifest, error) {
	old := oldManifest{
		logStart: wire.NoOffset, lost: wire.NoOffset, gone: map[manifest.Name]bool{}, cut: map[manifest.Name]wire.Offset{},
	}
	m, err := manifest.Open(ctx, r.o.Store, r.group.prefix, manifest.Options{})
	if err == nil && m.State().Position.Number > 0 {
		s := m.State()
		r.Sound, r.Epoch = true, max(r.Epoch, s.LeaderEpoch())
		old.know(s)
		for t, err := range m.All(ctx) {
			if err != nil { // a page is missing
				r.Sound = false
				break
			}
			old.served(t)
		}
		return old, nil
	}
	if err != nil && !errors.Is(err, chain.ErrHalt) {
		return old, err
	}
	left, err := manifest.Salvage(ctx, r.o.Store, r.group.prefix)
	if err != nil {
		return old, err
	}
	r.Epoch = max(r.Epoch, left.LeaderEpoch)
	if left.State != nil {
		old.know(left.State)
		for _, t := range left.State.Tail {
			old.served(t)
		}
	}
	for _, rec := range left.Records {
		old.note(rec)
	}
	return old, nil
}

func (old *oldManifest) know(s *manifest.State) {
	old.logStart = s.LogStart
	if n := len(s.Lost); n > 0 {
		old.lost = s.Lost[n-1].End
	}
	for _, d := range s.Dropped {
		old.gone[d.Name] = true
	}
}

func (old *oldManifest) served(s manifest.Segment) {
	if s.Clipped {
		old.cut[s.Name] = s.End
	}
}

func (old *oldManifest) note(r manifest.Record) {
	switch r := r.(type) {
	case *manifest.StartRecord:
		old.logStart = max(old.logStart, r.LogStart)
	case *manifest.DropRecord:
		for _, d := range r.Segments {
			old.gone[d.Name] = true
		}
	case *manifest.LostRecord:
		old.lost = r.End
	case *manifest.CutRecord:
		old.lost = min(old.lost, r.End)
		for _, d := range r.Segments {
			old.gone[d.Name] = true
		}
		if r.Clipped != nil {
			old.cut[r.Clipped.Name] = r.Clipped.End
		}
	}
}

// candidate describes a segment by its sidecar or, where that is no good, by its batches. errBatch says that it serves nothing.
func (r *Rebuilding) candidate(ctx context.Context, name manifest.Name, info object.Info) (*candidate, error) {
	data, _, err := object.Read(ctx, r.o.Store, r.group.prefix+"/"+name.Key(manifest.AuxObject), sidecar.BytesMax)
	if err != nil && !errors.Is(err, object.ErrNotExist) && !errors.Is(err, object.ErrTooLarge) {
		return nil, err
	}
	if err == nil {
		if aux, err := sidecar.Decode(data); err == nil {
			if c, ok := r.described(name, info, aux); ok {
				c.AuxSize, c.AuxCRC = int64(len(data)), manifest.Checksum(crc32.Checksum(data, castagnoli))
				return c, nil
			}
		}
	}
	return r.scanned(ctx, name, info)
}

// described is a segment as its sidecar tells.
func (r *Rebuilding) described(name manifest.Name, info object.Info, aux *sidecar.Sidecar) (*candidate, bool) {
	d := aux.Segment()
	if d.TopicID != r.o.ID || d.Partition != r.o.Index || d.Base != name.Base || d.LeaderEpoch != name.Epoch || d.Size != info.Size {
		return nil, false
	}
	epochs := make([]manifest.EpochStart, len(aux.Epochs()))
	for i, e := range aux.Epochs() {
		epochs[i] = manifest.EpochStart{Epoch: e.Epoch, Start: e.Start}
	}
	aborted, _ := aux.Aborted(0, math.MaxInt64)
	return &candidate{whole: d.End, Segment: manifest.Segment{
		Name: name, Start: d.Start, End: d.End, Size: d.Size, CRC: manifest.Checksum(d.CRC),
		MinTimestamp: d.MinTimestamp, MaxTimestamp: d.MaxTimestamp, Epochs: manifest.Lineage(epochs, d.Start, d.End),
		Aborted: len(aborted) > 0, UploadedMs: d.UploadedMs,
	}}, true
}

// scanned is a segment as its batches tell. It has to be sound to its last byte.
func (r *Rebuilding) scanned(ctx context.Context, name manifest.Name, info object.Info) (*candidate, error) {
	o, err := r.o.Store.Get(ctx, r.group.prefix+"/"+name.Key(manifest.LogObject), object.Range{})
	if err != nil {
		return nil, err
	}
	defer o.Body.Close()
	c := &candidate{remake: true, Segment: manifest.Segment{
		Name: name, Start: name.Base, End: name.Base, Size: info.Size, AuxSize: 1, UploadedMs: info.ModTime.UnixMilli(),
		MinTimestamp: record.NoTimestamp, MaxTimestamp: record.NoTimestamp,
	}}
	sum := crc32.New(castagnoli)
	in := io.TeeReader(o.Body, sum)
	for left := info.Size; left > 0; {
		b, err := readBatch(in, left)
		if err != nil {
			return nil, err
		}
		if err := b.Check(); err != nil || b.BaseOffset() < c.End {
			return nil, badBatch("at offset %d: %v", b.BaseOffset(), err)
		}
		left -= int64(len(b))
		c.note(b)
	}
	c.CRC = manifest.Checksum(sum.Sum32())
	if c.End == c.Start {
		return nil, badBatch("there is none")
	}
	c.whole = c.End
	return c, nil
}

// note takes a batch into the description.
func (c *candidate) note(b record.Batch) {
	if n := len(c.Epochs); n == 0 || b.LeaderEpoch() > c.Epochs[n-1].Epoch {
		c.Epochs = append(c.Epochs, manifest.EpochStart{Epoch: b.LeaderEpoch(), Start: max(c.End, c.Start)})
	}
	c.End = b.NextOffset()
	c.MaxTimestamp = max(c.MaxTimestamp, b.MaxTimestamp())
	if t := b.BaseTimestamp(); t >= 0 && (c.MinTimestamp < 0 || t < c.MinTimestamp) {
		c.MinTimestamp = t
	}
	if marker, ok, err := record.ReadEndTxnMarker(b); b.IsControl() && err == nil && ok && marker.Type == record.Abort {
		c.Aborted = true
	}
}

// choose lines segments up: each offset is served by the upload of the latest leader that has it, since that one knew what its
// predecessors had committed.
func (r *Rebuilding) choose(all []candidate, old oldManifest) {
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.Epoch, a.Epoch), cmp.Compare(b.End, a.End), cmp.Compare(a.Nonce, b.Nonce))
	})
	r.LogStart = max(r.o.LogStart, old.logStart)
	if r.LogStart < 0 {
		r.LogStart = old.lost // nothing is left below
		if len(all) > 0 {
			r.LogStart = slices.MinFunc(all, func(a, b candidate) int { return cmp.Compare(a.Start, b.Start) }).Start
		}
	}
	used := map[manifest.Name]bool{}
	r.end = r.LogStart
	for {
		at := r.end
		c, next := pick(all, at)
		if c == nil {
			if next == math.MaxInt64 {
				next = old.lost
			}
			if next <= at {
				break
			}
			r.Lost = append(r.Lost, manifest.Range{Start: at, End: next})
			r.end = next
			continue
		}
		used[c.Name] = true
		s := c.Segment
		s.Start, s.End, s.Clipped = max(s.Start, r.firstServed(at)), next, next < c.whole
		s.Epochs = manifest.Lineage(c.Epochs, s.Start, s.End)
		r.Segments = append(r.Segments, s)
		if c.remake {
			r.Remade = append(r.Remade, c.Name)
		}
		r.end = next
	}
	for _, c := range all {
		if !used[c.Name] {
			r.Unused = append(r.Unused, r.group.prefix+"/"+c.Key(manifest.LogObject))
		}
	}
	slices.Sort(r.Unused)
}

// firstServed is where a segment may begin that is to serve the offset at: the first one below the log start, too.
func (r *Rebuilding) firstServed(at wire.Offset) wire.Offset {
	if len(r.Segments) == 0 && len(r.Lost) == 0 {
		return 0
	}
	return at
}

// pick is the segment of the latest leader that has the offset, and up to where nobody later has anything. Without one, next is where
// there is something again.
func pick(all []candidate, at wire.Offset) (best *candidate, next wire.Offset) {
	next = math.MaxInt64
	for i := range all { // the latest leaders first
		switch c := &all[i]; {
		case c.Start <= at && at < c.End:
			return c, min(next, c.End)
		case c.Start > at:
			next = min(next, c.Start)
		}
	}
	return nil, next
}

// Commit writes the manifest, and before it the copies of segments that need a new sidecar.
func (r *Rebuilding) Commit(ctx context.Context, now time.Time, writer chain.Writer, nonce func() string) (*manifest.State, error) {
	ctx = object.WithCause(ctx, object.Cause{Kind: object.CauseTool, Topic: r.o.Topic})
	for i := range r.Segments {
		if slices.Contains(r.Remade, r.Segments[i].Name) {
			if err := r.copy(ctx, now, i, nonce()); err != nil {
				return nil, fmt.Errorf("copy segment %d: %w", r.Segments[i].Base, err)
			}
		}
	}
	return manifest.Rebuild(ctx, now, r.o.Store, r.group.prefix, manifest.Options{Writer: writer, Nonce: nonce}, r.Epoch,
		manifest.Rebuilt{LogStart: r.LogStart, End: r.end, Segments: r.Segments})
}

// copy puts what a segment serves under a new name, with a sidecar made from it: objects are never overwritten.
func (r *Rebuilding) copy(ctx context.Context, now time.Time, i int, nonce string) error {
	s := &r.Segments[i]
	from := s.Name
	var prior *sidecar.Sidecar
	if i > 0 && r.Segments[i-1].End == s.Base {
		data, _, err := object.Read(ctx, r.o.Store, r.group.prefix+"/"+r.Segments[i-1].Key(manifest.AuxObject), sidecar.BytesMax)
		if err != nil {
			return err
		}
		if prior, err = sidecar.Decode(data); err != nil {
			return err
		}
		prior = prior.Clip(r.Segments[i-1].End)
	}
	s.Name = manifest.Name{Base: from.Base, Epoch: r.Epoch, Nonce: nonce}
	s.UploadedMs = now.UnixMilli()
	return remake(ctx, now, r.o.Store, r.o.Scratch, r.group, from, *s, prior, func(made manifest.Segment, data, aux object.Body) error {
		*s = made
		if _, err := r.o.Store.Put(ctx, r.group.prefix+"/"+s.Key(manifest.LogObject), data, object.IfAbsent()); err != nil {
			return err
		}
		_, err := r.o.Store.Put(ctx, r.group.prefix+"/"+s.Key(manifest.AuxObject), aux, object.IfAbsent())
		return err
	})
}
