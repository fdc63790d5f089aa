package manifest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
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
	"github.com/tidemark-io/tidemark/tier/object/filestore"
	"github.com/tidemark-io/tidemark/tier/sidecar"
)

// line is a record as read.py prints it.
type line struct {
	Partition int32        `json:"partition"`
	Offset    wire.Offset  `json:"offset"`
	Timestamp int64        `json:"timestamp"`
	Key       *string      `json:"key"`
	Value     *string      `json:"value"`
	Headers   [][2]*string `json:"headers"`
}

// writer is a leader of one partition, from the log to the bucket.
type writer struct {
	t         *testing.T
	store     object.Store
	log       *log.Log
	manifest  *manifest.Manifest
	partition int32
	epoch     wire.LeaderEpoch
	nonces    int
	now       time.Time
	want      []line // what a reader gets
}

var topicID = wire.TopicID{1, 2, 3, 0xff}

func newWriter(t *testing.T, store object.Store, partition int32) *writer {
	w := &writer{t: t, store: store, partition: partition, epoch: 2, now: time.UnixMilli(1_800_000_000_000)}
	var err error
	w.log, err = log.Open(w.now, log.Options{
		FS: vfs.NewMem(), Dir: "/orders", TopicPartition: wire.TopicPartition{Topic: "orders", Partition: partition}, TopicID: topicID,
		Config: config.Topic{
			CleanupDelete: true, FlushMessages: math.MaxInt64, FlushMs: math.MaxInt64, IndexIntervalBytes: 50, MaxDecompressedBytes: 1 << 20,
			RetentionBytes: -1, RetentionMs: -1, SegmentBytes: 1 << 20, SegmentIndexBytes: 1 << 12, SegmentMs: math.MaxInt64,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.open()
	return w
}

func (w *writer) open() {
	var err error
	w.manifest, err = manifest.Open(w.t.Context(), w.store, manifest.Prefix("orders", topicID, w.partition), manifest.Options{
		Writer: chain.Writer{Broker: 1, Incarnation: fmt.Sprint(w.epoch)}, PageSegments: 2,
		Nonce: func() string { w.nonces++; return fmt.Sprintf("%032x", w.nonces) },
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// append appends a batch of records; visible tells that readers get them.
func (w *writer) append(visible bool, b record.Builder, keys ...string) {
	w.t.Helper()
	first := w.log.EndOffset()
	for i, key := range keys {
		value := fmt.Sprintf("value %d of \"%s\" é", i, key)
		l := line{Partition: w.partition, Offset: first + wire.Offset(i), Timestamp: w.now.UnixMilli() + int64(i), Key: &key, Value: &value, Headers: [][2]*string{}}
		if b.TimestampType == record.LogAppendTime {
			b.AppendTime, l.Timestamp = w.now.UnixMilli()+9, w.now.UnixMilli()+9
		}
		switch {
		case key == "null":
			b.Append(w.now.UnixMilli()+int64(i), nil, nil)
			l.Key, l.Value = nil, nil
		case i%2 == 1:
			name := "header"
			b.Append(w.now.UnixMilli()+int64(i), []byte(key), []byte(value), record.Header{Key: name, Value: []byte(key)}, record.Header{Key: name})
			l.Headers = append(l.Headers, [2]*string{&name, &key}, [2]*string{&name, nil})
		default:
			b.Append(w.now.UnixMilli()+int64(i), []byte(key), []byte(value))
		}
		if visible {
			w.want = append(w.want, l)
		}
	}
	batch, err := b.Build()
	if err == nil {
		_, err = w.log.AppendAsLeader(w.now, batch, w.epoch, log.Client)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.now = w.now.Add(time.Second)
}

func (w *writer) marker(id wire.ProducerID, kind record.ControlType) {
	w.t.Helper()
	b := record.NewEndTxnMarker(id, 0, w.now.UnixMilli(), record.EndTxnMarker{Type: kind})
	if _, err := w.log.AppendAsLeader(w.now, b, w.epoch, log.Coordinator); err != nil {
		w.t.Fatal(err)
	}
}

func transaction(id wire.ProducerID) record.Builder {
	return record.Builder{Transactional: true, Producer: &record.Producer{ID: id}}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// upload seals what was appended and brings it into the bucket, as the tier's worker does.
func (w *writer) upload() {
	w.t.Helper()
	if err := w.log.Roll(w.now); err != nil {
		w.t.Fatal(err)
	}
	for _, info := range w.log.Segments() {
		start := w.manifest.State().End
		if info.Base == w.log.EndOffset() {
			continue
		}
		u, err := w.log.OpenUpload(info.Base)
		if err != nil {
			w.t.Fatal(err)
		}
		if u.Next <= start {
			u.Release()
			continue
		}
		data := make([]byte, u.Size)
		if _, err := u.File.ReadAt(data, 0); err != nil && !errors.Is(err, io.EOF) {
			w.t.Fatal(err)
		}
		w.nonces++
		s := manifest.Segment{
			Name: manifest.Name{Base: u.Base, Epoch: w.epoch, Nonce: fmt.Sprint("n", w.nonces)}, Start: start, End: u.Next, Size: u.Size,
			CRC: manifest.Checksum(crc32.Checksum(data, castagnoli)), MinTimestamp: u.MinTimestamp, MaxTimestamp: u.MaxTimestamp,
			Aborted: len(u.TxnIndex) > 0, UploadedMs: w.now.UnixMilli(),
		}
		var epochs []manifest.EpochStart
		for _, e := range u.Epochs {
			epochs = append(epochs, manifest.EpochStart{Epoch: e.Epoch, Start: e.Start})
		}
		s.Epochs = manifest.Lineage(epochs, s.Start, s.End)
		aux, err := sidecar.Encode(sidecar.Contents{
			Segment: sidecar.Segment{
				TopicID: topicID, Partition: w.partition, Base: s.Base, Start: s.Start, End: s.End, LeaderEpoch: s.Epoch, Size: s.Size, CRC: uint32(s.CRC),
				MinTimestamp: s.MinTimestamp, MaxTimestamp: s.MaxTimestamp, UploadedMs: s.UploadedMs,
			},
			OffsetIndex: u.OffsetIndex, TimeIndex: u.TimeIndex, TransactionIndex: u.TxnIndex, ProducerSnapshot: u.Producers, Epochs: u.Epochs,
		})
		if err != nil {
			w.t.Fatal(err)
		}
		u.Release()
		s.AuxSize, s.AuxCRC = int64(len(aux)), manifest.Checksum(crc32.Checksum(aux, castagnoli))
		for kind, body := range map[manifest.Kind][]byte{manifest.LogObject: data, manifest.AuxObject: aux} {
			if _, err := w.store.Put(w.t.Context(), w.manifest.Key(s.Name, kind), bytes.NewReader(body), object.IfAbsent()); err != nil {
				w.t.Fatal(err)
			}
		}
		w.commit(&manifest.AddRecord{Segment: s})
	}
	for w.manifest.PageDue() {
		r, err := w.manifest.MakePage(w.t.Context(), w.epoch)
		if err != nil {
			w.t.Fatal(err)
		}
		w.commit(r)
	}
}

func (w *writer) commit(records ...manifest.Record) {
	w.t.Helper()
	if outcome, err := w.manifest.Commit(w.t.Context(), w.now, w.epoch, records...); outcome != object.Done {
		w.t.Fatalf("commit is %v: %v", outcome, err)
	}
}

// startAt moves the log start and drops what it can.
func (w *writer) startAt(offset wire.Offset) {
	w.t.Helper()
	w.commit(&manifest.StartRecord{LogStart: offset})
	r, err := w.manifest.MakeDrop(w.t.Context(), w.now, 100)
	if err != nil {
		w.t.Fatal(err)
	}
	if r != nil {
		w.commit(r)
	}
	for len(w.want) > 0 && w.want[0].Offset < offset {
		w.want = w.want[1:]
	}
}

// cutAt is an unclean election: the new leader's log ends there.
func (w *writer) cutAt(offset wire.Offset) {
	w.t.Helper()
	if _, err := w.log.TruncateTo(w.now, offset); err != nil {
		w.t.Fatal(err)
	}
	w.epoch++
	w.open()
	r, err := w.manifest.MakeCut(w.t.Context(), w.now, w.log.EndOffset())
	if err != nil {
		w.t.Fatal(err)
	}
	w.commit(r)
	for len(w.want) > 0 && w.want[len(w.want)-1].Offset >= w.log.EndOffset() {
		w.want = w.want[:len(w.want)-1]
	}
}

// trim has the chain begin with a snapshot: entries before it are gone.
func (w *writer) trim(dir string) {
	w.t.Helper()
	soon := time.Now().Add(49 * time.Hour) // files have the time of this machine
	if moved, err := w.manifest.Trim(w.t.Context(), soon, 24*time.Hour); !moved || err != nil {
		w.t.Fatal(moved, err)
	}
	chain := filepath.Join(dir, filepath.FromSlash(w.manifest.Prefix()), "manifest")
	if _, err := os.Stat(filepath.Join(chain, fmt.Sprintf("%020d.json", 1))); !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatalf("the first entry: %v", err)
	}
}

// TestAPageOfPythonReadsTheBucket: docs/format says enough for somebody who does not have this code.
func TestAPageOfPythonReadsTheBucket(t *testing.T) {
	t.Run("from the first entry", func(t *testing.T) { pythonReads(t, false) })
	t.Run("trimmed", func(t *testing.T) { pythonReads(t, true) })
}

func pythonReads(t *testing.T, trimmed bool) {
	python := python(t)
	dir := t.TempDir()
	store, err := filestore.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	a, b := newWriter(t, store, 0), newWriter(t, store, 10)
	gzip := record.Builder{Compression: record.Compression{Codec: record.Gzip, Level: 6}}
	zstd := record.Builder{Compression: record.Compression{Codec: record.Zstd, Level: 3}}
	for round := range 6 {
		a.append(true, record.Builder{}, "plain", "with headers", "null")
		a.append(true, []record.Builder{gzip, zstd}[round%2], "packed", "packed too", fmt.Sprint("round ", round))
		a.append(false, transaction(wire.ProducerID(100+round)), "never", "to be seen")
		a.append(true, transaction(wire.ProducerID(200+round)), "committed")
		a.marker(wire.ProducerID(100+round), record.Abort)
		a.marker(wire.ProducerID(200+round), record.Commit)
		a.append(true, record.Builder{TimestampType: record.LogAppendTime}, "appended")
		a.upload()
		if trimmed && round < 4 {
			if err := a.manifest.Snapshot(t.Context(), a.now); err != nil {
				t.Fatal(err)
			}
		}
	}
	if trimmed {
		a.trim(dir)
	}
	a.startAt(15)
	a.cutAt(52)
	a.append(true, record.Builder{}, "another", "history")
	a.upload()
	b.append(false, transaction(7), "begins here")
	b.upload()
	b.marker(7, record.Abort) // in another segment
	b.append(true, record.Builder{}, "the end")
	b.upload()
	b.commit(&manifest.LostRecord{Start: b.log.EndOffset(), End: 1000})
	if s := a.manifest.State(); len(s.Pages) == 0 || s.Tail[0].End != 51 || !s.Tail[0].Clipped || len(s.Dropped) == 0 || s.Epochs[len(s.Epochs)-1].Epoch != 3 {
		t.Fatalf("the test has lost its point: %+v", s)
	}

	want := append(append([]line{}, a.want...), b.want...)
	compare(t, want, run(t, python, dir, "orders"))
	compare(t, want, run(t, python, dir, "orders."+topicID.String()))
	var later []line
	for _, l := range want {
		if l.Offset >= 29 {
			later = append(later, l)
		}
	}
	compare(t, later, run(t, python, dir, "orders", "29"))
}

// TestReadPyNamesWhatUnpacksZstd: a machine may have none of it.
func TestReadPyNamesWhatUnpacksZstd(t *testing.T) {
	bare := exec.CommandContext(t.Context(), python(t), "-B", "-S", "-c", // without site-packages
		"import sys; sys.path.insert(0, '../../docs/format'); import read; read.unzstd(bytes.fromhex('28b52ffd2000010000'))")
	bare.Env = []string{"PATH="}
	out, err := bare.CombinedOutput()
	if err == nil {
		t.Skip("this Python has zstd in its library")
	}
	if text := string(out); strings.Count(text, "\n") != 1 || !strings.Contains(text, "3.14") || !strings.Contains(text, "zstandard") {
		t.Errorf("%v: %s", err, text)
	}
}

// python is the interpreter itself: python3 may be a script that looks for it.
func python(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "python3", "-c", "import sys; print(sys.executable)").Output()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("there is no python3")
	} else if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func run(t *testing.T, python string, args ...string) (lines []line) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), python, append([]string{"-B", "../../docs/format/read.py"}, args...)...).Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("%v: %s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	for text := range strings.Lines(string(out)) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		lines = append(lines, l)
	}
	return lines
}

func compare(t *testing.T, want, got []line) {
	t.Helper()
	if len(want) != len(got) {
		t.Errorf("%d records, not %d", len(got), len(want))
	}
	for i := range min(len(want), len(got)) {
		if !reflect.DeepEqual(want[i], got[i]) {
			w, _ := json.Marshal(want[i])
			g, _ := json.Marshal(got[i])
			t.Fatalf("record %d is %s, not %s", i, g, w)
		}
	}
}
