// Package tiertest fills buckets for tests: with segments that a real log has written, their sidecars, and the manifests that
// name them, step by step as a leader does it. It takes time and names from nobody.
package tiertest

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/sidecar"
)

// Start is the time at which everything here begins.
var Start = time.UnixMilli(1_800_000_000_000)

// TopicConfig is a topic without limits.
func TopicConfig() config.Topic {
	return config.Topic{
		CleanupDelete: true, FileDeleteDelayMs: 60_000, FlushMessages: math.MaxInt64, FlushMs: math.MaxInt64,
		IndexIntervalBytes: 256, MaxDecompressedBytes: 1 << 26, RetentionBytes: -1, RetentionMs: -1,
		SegmentBytes: 1 << 30, SegmentIndexBytes: 64 << 10, SegmentMs: 7 * 86_400_000,
	}
}

// Partition is a partition's leader, as far as the bucket is concerned.
type Partition struct {
	TP       wire.TopicPartition
	ID       wire.TopicID
	Epoch    wire.LeaderEpoch
	Now      time.Time // moves a second with each record
	Log      *log.Log
	Manifest *manifest.Manifest

	t      testing.TB
	store  object.Store
	nonces int
}

// New is the leader, with epoch 0, of an empty partition.
func New(t testing.TB, store object.Store, topic string, id wire.TopicID, index int32) *Partition {
	t.Helper()
	p := &Partition{t: t, store: store, TP: wire.TopicPartition{Topic: topic, Partition: index}, ID: id, Now: Start}
	l, err := log.Open(p.Now, log.Options{
		FS: vfs.NewMem(), Dir: "/log", TopicPartition: p.TP, TopicID: id, Config: TopicConfig(), LogStart: wire.NoOffset,
	})
	if err != nil {
		t.Fatal(err)
	}
	p.Log = l
	p.open()
	return p
}

func (p *Partition) open() {
	p.t.Helper()
	m, err := manifest.Open(p.t.Context(), p.store, p.Prefix(), manifest.Options{
		Writer: chain.Writer{Broker: 1, Incarnation: fmt.Sprint("epoch-", p.Epoch)},
		Nonce:  p.nonce, PageSegments: 4,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.Manifest = m
}

// Prefix is that of the partition's objects.
func (p *Partition) Prefix() string { return manifest.Prefix(p.TP.Topic, p.ID, p.TP.Partition) }

func (p *Partition) nonce() string {
	p.nonces++
	return fmt.Sprintf("e%dn%d", p.Epoch, p.nonces)
}

// Lead begins the next leader epoch, by another writer.
func (p *Partition) Lead() {
	p.t.Helper()
	p.Epoch++
	p.open()
}

// Append appends batches of three records each: key-N and value-N, with N the record's offset.
func (p *Partition) Append(batches int) {
	p.t.Helper()
	for range batches {
		var w record.Builder
		first := int64(p.Log.EndOffset())
		for i := range int64(3) {
			p.Now = p.Now.Add(time.Second)
			w.Append(p.Now.UnixMilli(), fmt.Appendf(nil, "key-%d", first+i), fmt.Appendf(nil, "value-%d", first+i),
				record.Header{Key: "n", Value: fmt.Append(nil, first+i)})
		}
		b, err := w.Build()
		if err == nil {
			_, err = p.Log.AppendAsLeader(p.Now, b, p.Epoch, log.Client)
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
	p.Log.UpdateHighWatermark(p.Log.EndOffset())
}

// Put seals what is there and uploads the sealed segment that begins at the end of the manifest, without an entry.
func (p *Partition) Put() manifest.Segment {
	p.t.Helper()
	if err := p.Log.Roll(p.Now); err != nil {
		p.t.Fatal(err)
	}
	u, err := p.Log.OpenUpload(p.Manifest.State().End)
	if err != nil {
		p.t.Fatal(err)
	}
	defer u.Release()
	data, err := io.ReadAll(io.NewSectionReader(u.File, 0, u.Size))
	if err != nil {
		p.t.Fatal(err)
	}
	var epochs []manifest.EpochStart
	for _, e := range u.Epochs {
		epochs = append(epochs, manifest.EpochStart{Epoch: e.Epoch, Start: e.Start})
	}
	s := manifest.Segment{
		Name: manifest.Name{Base: u.Base, Epoch: p.Epoch, Nonce: p.nonce()}, Start: u.Base, End: u.Next, Size: u.Size, CRC: sum(data),
		MinTimestamp: u.MinTimestamp, MaxTimestamp: u.MaxTimestamp, Epochs: manifest.Lineage(epochs, u.Base, u.Next),
		Aborted: len(u.TxnIndex) > 0, UploadedMs: p.Now.UnixMilli(),
	}
	aux, err := sidecar.Encode(sidecar.Contents{
		Segment: sidecar.Segment{
			TopicID: p.ID, Partition: p.TP.Partition, Base: s.Base, Start: s.Start, End: s.End, LeaderEpoch: s.Epoch, Size: s.Size,
			CRC: uint32(s.CRC), MinTimestamp: s.MinTimestamp, MaxTimestamp: s.MaxTimestamp, UploadedMs: s.UploadedMs,
		},
		OffsetIndex: u.OffsetIndex, TimeIndex: u.TimeIndex, TransactionIndex: u.TxnIndex, ProducerSnapshot: u.Producers, Epochs: u.Epochs,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	s.AuxSize, s.AuxCRC = int64(len(aux)), sum(aux)
	p.put(p.Manifest.Key(s.Name, manifest.LogObject), data)
	p.put(p.Manifest.Key(s.Name, manifest.AuxObject), aux)
	return s
}

func sum(data []byte) manifest.Checksum {
	return manifest.Checksum(crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
}

func (p *Partition) put(key string, body []byte) {
	p.t.Helper()
	if _, err := p.store.Put(p.t.Context(), key, bytes.NewReader(body), object.IfAbsent()); err != nil {
		p.t.Fatal(err)
	}
}

// Commit appends an entry to the manifest.
func (p *Partition) Commit(records ...manifest.Record) {
	p.t.Helper()
	if outcome, err := p.Manifest.Commit(p.t.Context(), p.Now, p.Epoch, records...); outcome != object.Done {
		p.t.Fatal(outcome, err)
	}
}

// Upload puts segments of that many batches each into the bucket.
func (p *Partition) Upload(segments, batches int) {
	p.t.Helper()
	for range segments {
		p.Append(batches)
		p.Commit(&manifest.AddRecord{Segment: p.Put()})
	}
}

// Page moves the oldest segments of the tail into a page.
func (p *Partition) Page() {
	p.t.Helper()
	r, err := p.Manifest.MakePage(p.t.Context(), p.Epoch)
	if err != nil {
		p.t.Fatal(err)
	}
	p.Commit(r)
}

// Drop moves the log start and drops what lies below.
func (p *Partition) Drop(logStart wire.Offset) {
	p.t.Helper()
	p.Commit(&manifest.StartRecord{LogStart: logStart})
	r, err := p.Manifest.MakeDrop(p.t.Context(), p.Now, math.MaxInt)
	if err != nil {
		p.t.Fatal(err)
	}
	if r != nil {
		p.Commit(r)
	}
}

// Redescribe replaces a sidecar so that it is that of another segment of the same size, as if that had been uploaded. It
// returns the checksums and the size for the manifest.
func Redescribe(t testing.TB, store object.Store, key string, data []byte) (crc, auxCRC manifest.Checksum, auxSize int64) {
	t.Helper()
	old, _, err := object.Read(t.Context(), store, key, sidecar.BytesMax)
	if err != nil {
		t.Fatal(err)
	}
	aux, err := sidecar.Decode(old)
	if err != nil {
		t.Fatal(err)
	}
	described := aux.Segment()
	described.CRC = uint32(sum(data))
	producers, _ := aux.ProducerSnapshot()
	body, err := sidecar.Encode(sidecar.Contents{Segment: described, ProducerSnapshot: producers, Epochs: aux.Epochs()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(t.Context(), key, bytes.NewReader(body), object.Condition{}); err != nil {
		t.Fatal(err)
	}
	return sum(data), sum(body), int64(len(body))
}
