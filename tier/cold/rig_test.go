package cold

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/cache"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
	"github.com/tidemark-io/tidemark/tier/sidecar"
)

var (
	testTopicID = wire.TopicID{1, 2, 3}
	testTime    = time.UnixMilli(1_800_000_000_000)
)

// bucket is a store, in memory most often, that counts gets, and lets a test interfere with them.
type bucket struct {
	object.Store
	mu    sync.Mutex
	gets  []string // of segments and sidecars
	onGet func(key string, r object.Range) error
	body  func(key string, r object.Range, body io.ReadCloser) io.ReadCloser
}

func (b *bucket) Get(ctx context.Context, key string, r object.Range) (*object.Object, error) {
	b.mu.Lock()
	if _, _, ok := manifest.ParseKey(key[bytes.LastIndexByte([]byte(key), '/')+1:]); ok {
		b.gets = append(b.gets, fmt.Sprintf("%s %d+%d", key, r.Offset, r.Length))
	}
	onGet, wrap := b.onGet, b.body
	b.mu.Unlock()
	if onGet != nil {
		if err := onGet(key, r); err != nil {
			return nil, err
		}
	}
	o, err := b.Store.Get(ctx, key, r)
	if err == nil && wrap != nil {
		o.Body = wrap(key, r, o.Body)
	}
	return o, err
}

func (b *bucket) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.gets)
}

// twin is a partition that lies in a log, whole, and in the bucket up to the manifest's end.
type twin struct {
	t       testing.TB
	bucket  *bucket
	log     *log.Log
	other   *log.Log // another replica, which has rolled elsewhere
	m       *manifest.Manifest
	p       Partition
	nonces  int
	epoch   wire.LeaderEpoch
	records []twinRecord
	rng     *rand.Rand
	txns    map[wire.ProducerID]int32 // open transactions, and the next sequence
}

// twinRecord is a record that was appended.
type twinRecord struct {
	offset wire.Offset
	time   int64
	epoch  wire.LeaderEpoch
}

func newLog(t testing.TB, dir string, indexInterval int) *log.Log {
	l, err := log.Open(testTime, log.Options{
		FS: vfs.NewMem(), Dir: dir, TopicPartition: wire.TopicPartition{Topic: "orders"}, TopicID: testTopicID,
		Config: config.Topic{
			CleanupDelete: true, FlushMessages: math.MaxInt64, FlushMs: math.MaxInt64, IndexIntervalBytes: indexInterval,
			MaxDecompressedBytes: 1 << 26, RetentionBytes: -1, RetentionMs: -1, SegmentBytes: 1 << 30, SegmentIndexBytes: 10 << 20,
			SegmentMs: 7 * 86_400_000,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newTwin(t testing.TB, seed uint64) *twin { return newTwinIn(t, memstore.New(nil), seed) }

func newTwinIn(t testing.TB, store object.Store, seed uint64) *twin {
	w := &twin{
		t: t, bucket: &bucket{Store: store}, log: newLog(t, "/data/orders-0", 200), other: newLog(t, "/other/orders-0", 300),
		rng: rand.New(rand.NewPCG(seed, 1)), txns: map[wire.ProducerID]int32{}, nonces: int(seed) * 1000,
	}
	w.open(3)
	return w
}

// open opens the manifest anew.
func (w *twin) open(pageSegments int) {
	prefix := manifest.Prefix("orders", testTopicID, 0)
	m, err := manifest.Open(w.t.Context(), w.bucket, prefix, manifest.Options{
		Writer: chain.Writer{Broker: 1, Incarnation: "one"}, Nonce: w.nonce, PageSegments: pageSegments,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.m = m
	w.p = Partition{TopicPartition: wire.TopicPartition{Topic: "orders"}, TopicID: testTopicID, Manifest: m}
}

func (w *twin) nonce() string { w.nonces++; return fmt.Sprintf("n%d", w.nonces) }

// append appends a batch to both replicas.
func (w *twin) append(b record.Batch) {
	w.t.Helper()
	if _, err := w.log.AppendAsLeader(testTime, b, w.epoch, log.Replication); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.other.AppendAsFollower(testTime, bytes.Clone(b)); err != nil {
		w.t.Fatal(err)
	}
	if !b.IsControl() {
		for x, err := range record.Records(b, 1<<26) {
			if err != nil {
				w.t.Fatal(err)
			}
			w.records = append(w.records, twinRecord{x.Offset, x.Timestamp, w.epoch})
		}
	} else {
		w.records = append(w.records, twinRecord{b.BaseOffset(), b.MaxTimestamp(), w.epoch})
	}
}

// data appends a batch of some records; producer 0 is none.
func (w *twin) data(producer wire.ProducerID, codec record.Codec, sizes ...int) {
	w.t.Helper()
	b := record.Builder{Compression: record.Compression{Codec: codec}}
	if producer > 0 {
		b.Transactional = true
		b.Producer = &record.Producer{ID: producer, Sequence: w.txns[producer]}
		w.txns[producer] += int32(len(sizes))
	}
	for _, n := range sizes {
		value := make([]byte, 0, n+8)
		for len(value) < n {
			value = binary.BigEndian.AppendUint64(value, w.rng.Uint64())
		}
		b.Append(w.time(), nil, value[:n])
	}
	batch, err := b.Build()
	if err != nil {
		w.t.Fatal(err)
	}
	w.append(batch)
}

// time wanders about.
func (w *twin) time() int64 {
	return testTime.UnixMilli() + int64(len(w.records)) + w.rng.Int64N(20)
}

func (w *twin) end(producer wire.ProducerID, how record.ControlType) {
	w.t.Helper()
	delete(w.txns, producer)
	w.append(record.NewEndTxnMarker(producer, 0, w.time(), record.EndTxnMarker{Type: how}))
}

// fill appends batches of all kinds and rolls both logs at different places.
func (w *twin) fill(batches int) {
	w.t.Helper()
	for range batches {
		producer := wire.ProducerID(10 + w.rng.IntN(3))
		_, open := w.txns[producer]
		switch n := w.rng.IntN(20); {
		case n == 0:
			w.epoch += wire.LeaderEpoch(w.rng.IntN(2) + 1)
		case n < 4 && open:
			w.end(producer, []record.ControlType{record.Abort, record.Commit}[w.rng.IntN(2)])
		case n < 9:
			w.data(producer, record.None, w.sizes()...)
		case n < 12:
			w.data(0, record.Codec(w.rng.IntN(5)), w.sizes()...)
		default:
			w.data(0, record.None, w.sizes()...)
		}
		for _, l := range []*log.Log{w.log, w.other} {
			if w.rng.IntN(12) == 0 {
				if err := l.Roll(testTime); err != nil {
					w.t.Fatal(err)
				}
			}
		}
	}
}

// roll seals the segments of both logs.
func (w *twin) roll() {
	w.t.Helper()
	for _, l := range []*log.Log{w.log, w.other} {
		if err := l.Roll(testTime); err != nil {
			w.t.Fatal(err)
		}
	}
}

// finish ends the open transactions and moves the high watermark to the end.
func (w *twin) finish() {
	for _, producer := range []wire.ProducerID{10, 11, 12} {
		if _, open := w.txns[producer]; open {
			w.end(producer, record.Abort)
		}
	}
	w.log.UpdateHighWatermark(w.log.EndOffset())
	w.other.UpdateHighWatermark(w.log.EndOffset())
}

func (w *twin) sizes() []int {
	sizes := make([]int, 1+w.rng.IntN(5))
	for i := range sizes {
		sizes[i] = w.rng.IntN(60)
	}
	return sizes
}

// upload puts the sealed segments behind the manifest's end into the bucket, from one replica or the other.
func (w *twin) upload() {
	w.t.Helper()
	for {
		l := []*log.Log{w.log, w.other}[w.rng.IntN(2)]
		end := w.m.State().End
		sealed, err := l.SealedSegments(end)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(sealed) == 0 {
			return
		}
		w.put(l, sealed[0].Base, end)
	}
}

// put uploads a segment for the offsets from start on.
func (w *twin) put(l *log.Log, base, start wire.Offset) manifest.Segment {
	w.t.Helper()
	u, err := l.OpenUpload(base)
	if err != nil {
		w.t.Fatal(err)
	}
	defer u.Release()
	data := make([]byte, u.Size)
	if _, err := u.File.ReadAt(data, 0); err != nil && !errors.Is(err, io.EOF) {
		w.t.Fatal(err)
	}
	var lineage []manifest.EpochStart
	for _, e := range u.Epochs {
		lineage = append(lineage, manifest.EpochStart{Epoch: e.Epoch, Start: e.Start})
	}
	s := manifest.Segment{
		Name: manifest.Name{Base: u.Base, Epoch: w.epoch, Nonce: w.nonce()}, Start: start, End: u.Next, Size: u.Size,
		CRC: manifest.Checksum(crc32.Checksum(data, castagnoli)), MinTimestamp: u.MinTimestamp, MaxTimestamp: u.MaxTimestamp,
		Epochs: manifest.Lineage(lineage, start, u.Next), Aborted: len(u.TxnIndex) > 0,
	}
	aux, err := sidecar.Encode(sidecar.Contents{
		Segment: sidecar.Segment{
			TopicID: testTopicID, Base: s.Base, Start: s.Start, End: s.End, LeaderEpoch: s.Epoch, Size: s.Size,
			MinTimestamp: s.MinTimestamp, MaxTimestamp: s.MaxTimestamp,
		},
		OffsetIndex: u.OffsetIndex, TimeIndex: u.TimeIndex, TransactionIndex: u.TxnIndex, ProducerSnapshot: u.Producers, Epochs: u.Epochs,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	s.AuxSize, s.AuxCRC = int64(len(aux)), manifest.Checksum(crc32.Checksum(aux, castagnoli))
	w.store(s, manifest.LogObject, data)
	w.store(s, manifest.AuxObject, aux)
	w.commit(&manifest.AddRecord{Segment: s})
	return s
}

func (w *twin) key(s manifest.Segment, kind manifest.Kind) string {
	return w.m.Prefix() + "/" + s.Key(kind)
}

func (w *twin) store(s manifest.Segment, kind manifest.Kind, data []byte) {
	w.t.Helper()
	if _, err := w.bucket.Put(w.t.Context(), w.key(s, kind), bytes.NewReader(data), object.Condition{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *twin) commit(records ...manifest.Record) {
	w.t.Helper()
	if outcome, err := w.m.Commit(w.t.Context(), testTime, w.epoch, records...); err != nil {
		w.t.Fatalf("commit: %v, %v", outcome, err)
	}
}

// segments are the live ones.
func (w *twin) segments() []manifest.Segment {
	var list []manifest.Segment
	for s, err := range w.m.All(w.t.Context()) {
		if err != nil {
			w.t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

// reader opens a Reader over the bucket: inline, with blocks of 64 bytes and gets of 1 KiB.
func (w *twin) reader(edit ...func(*Options)) *Reader {
	w.t.Helper()
	o := Options{
		Store: w.bucket, Go: func(f func()) { f() }, Now: func() time.Time { return testTime },
		Cache: cache.Options{MemoryBytes: 256 << 10, BlockBytes: 64, RangeBytes: 1 << 10, Plain: true},
		Config: func() Config {
			return Config{ReadAheadBytes: 4 << 10, BytesPerSecond: math.MaxInt64, MaxDecompressedBytes: 1 << 26}
		},
	}
	for _, e := range edit {
		e(&o)
	}
	r, err := Open(o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := r.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return r
}

func (w *twin) fetch(offset, upTo wire.Offset, maxBytes int) Fetch {
	return Fetch{Partition: w.p, Offset: offset, UpTo: upTo, MaxBytes: maxBytes}
}

// readOne reads this partition alone; the bytes are copied.
func (w *twin) readOne(r *Reader, q Request) (Result, []byte) {
	w.t.Helper()
	result := r.Read(w.t.Context(), testTime, &q)[0]
	return result, take(w.t, result)
}

// take copies the bytes of a result and releases them.
func take(t testing.TB, result Result) []byte {
	t.Helper()
	if result.Records.Length == 0 {
		return nil
	}
	b := make([]byte, result.Records.Length)
	if n, err := result.Records.File.ReadAt(b, result.Records.Offset); n != len(b) || err != nil && !errors.Is(err, io.EOF) {
		t.Fatalf("read records: %d of %d, %v", n, len(b), err)
	}
	result.Records.Release()
	return b
}
