package log

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

const testDir = "/data/orders-0"

var (
	testPartition = wire.TopicPartition{Topic: "orders", Partition: 0}
	testTime      = time.UnixMilli(1_800_000_000_000)
)

// testConfig is a topic without limits, so that each test sets the one it is about.
func testConfig() config.Topic {
	return config.Topic{
		CleanupDelete: true, FileDeleteDelayMs: 60_000, FlushMessages: math.MaxInt64, FlushMs: math.MaxInt64,
		IndexIntervalBytes: 4096, MaxDecompressedBytes: 1 << 26, RetentionBytes: -1, RetentionMs: -1,
		SegmentBytes: 1 << 30, SegmentIndexBytes: 64 << 10, SegmentMs: 7 * 86_400_000,
	}
}

func options(fsys vfs.FS, cfg config.Topic) Options {
	return Options{FS: fsys, Dir: testDir, TopicPartition: testPartition, TopicID: wire.TopicID{1, 2, 3}, Config: cfg}
}

func mustOpen(t testing.TB, o Options) *Log {
	t.Helper()
	l, err := Open(testTime, o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return l
}

// batch builds a batch of count records with rising timestamps from ts on.
func batch(count int, ts int64, valueSize int, edit ...func(*record.Builder)) record.Batch {
	var w record.Builder
	for _, e := range edit {
		e(&w)
	}
	for i := range count {
		value := bytes.Repeat([]byte{byte('a' + i%26)}, valueSize)
		w.Append(ts+int64(i), fmt.Appendf(nil, "key-%d", i), value)
	}
	b, err := w.Build()
	if err != nil {
		panic(err)
	}
	return b
}

func from(id wire.ProducerID, epoch wire.ProducerEpoch, sequence int32) func(*record.Builder) {
	return func(w *record.Builder) { w.Producer = &record.Producer{ID: id, Epoch: epoch, Sequence: sequence} }
}

func transactional(w *record.Builder) { w.Transactional = true }

func appendBatch(t testing.TB, l *Log, b []byte) AppendInfo {
	t.Helper()
	info, err := l.AppendAsLeader(testTime, b, 1, Client)
	if err != nil {
		t.Fatalf("AppendAsLeader: %v", err)
	}
	return info
}

// appendBatches appends batches of one record, all of one size.
func appendBatches(t testing.TB, l *Log, n int) {
	t.Helper()
	for i := range n {
		appendBatch(t, l, batch(1, int64(i), 200))
	}
}

// appendSegments appends batches of some records, and seals a segment behind each.
func appendSegments(t testing.TB, l *Log, n, records int) {
	t.Helper()
	for range n {
		appendBatch(t, l, batch(records, 1, 10))
		if err := l.Roll(testTime); err != nil {
			t.Fatal(err)
		}
	}
}

// contents are all batches of a log that are here, from its local start to its end.
func contents(t failer, l *Log) []byte {
	t.Helper()
	var all []byte
	for at := l.LocalStartOffset(); at < l.EndOffset(); {
		b, err := l.ReadBatches(at, l.EndOffset(), make([]byte, 0, 64<<10))
		if err != nil {
			t.Fatalf("ReadBatches(%d): %v", at, err)
		}
		if len(b) == 0 {
			break // a gap up to the end
		}
		all = append(all, b...)
		at = lastOf(b).NextOffset()
	}
	return all
}

func batches(data []byte) []record.Batch {
	var list []record.Batch
	for len(data) > 0 {
		b, rest, err := record.Next(data)
		if err != nil {
			panic(err)
		}
		list, data = append(list, b), rest
	}
	return list
}

func lastOf(data []byte) record.Batch {
	all := batches(data)
	return all[len(all)-1]
}

// checkLookups compares every look-up with a scan of the log.
func checkLookups(t failer, l *Log) {
	t.Helper()
	all := batches(contents(t, l))
	for _, b := range all {
		for _, from := range []wire.Offset{b.BaseOffset(), b.LastOffset()} {
			r, err := l.Read(ReadRequest{From: max(from, l.LocalStartOffset()), UpTo: l.EndOffset(), MaxBytes: 1, MinOneBatch: true})
			if err != nil {
				t.Fatalf("Read(%d): %v", from, err)
			}
			got := make([]byte, r.Range.Length)
			if _, err := r.Range.File.ReadAt(got, r.Range.Offset); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			r.Range.Release()
			if !bytes.Equal(got, b) {
				t.Fatalf("Read(%d) begins at %d with %d bytes, want batch %d with %d", from, r.First, len(got), b.BaseOffset(), len(b))
			}
		}
	}
	rising := risingTimes(all, l.StartOffset())
	for _, b := range all {
		for _, ts := range []int64{b.MaxTimestamp() - 1, b.MaxTimestamp(), b.MaxTimestamp() + 1} {
			want := scanTime(rising, ts)
			got, err := l.OffsetForTimestamp(ts, l.EndOffset())
			if err != nil || got != want {
				t.Fatalf("OffsetForTimestamp(%d) = %+v, %v; a scan finds %+v", ts, got, err, want)
			}
		}
	}
}

// risingTimes are the records from start on that are later than all before them.
func risingTimes(all []record.Batch, start wire.Offset) (rising []TimestampOffset) {
	for _, b := range all {
		for r, err := range record.Records(b, 1<<26) {
			if err != nil {
				panic(err)
			}
			if n := len(rising); r.Offset >= start && (n == 0 || r.Timestamp > rising[n-1].Timestamp) {
				rising = append(rising, TimestampOffset{Timestamp: r.Timestamp, Offset: r.Offset, LeaderEpoch: b.LeaderEpoch()})
			}
		}
	}
	return rising
}

// scanTime is what a look-up by time must find.
func scanTime(rising []TimestampOffset, ts int64) TimestampOffset {
	i, _ := slices.BinarySearchFunc(rising, ts, func(r TimestampOffset, ts int64) int { return cmp.Compare(r.Timestamp, ts) })
	if i == len(rising) {
		return NoTimestampOffset
	}
	return rising[i]
}

func readAll(t testing.TB, fsys vfs.FS, name string) []byte {
	t.Helper()
	b, err := readFile(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeAll(t testing.TB, fsys vfs.FS, name string, data []byte) {
	t.Helper()
	if err := replaceFile(fsys, name, data); err != nil {
		t.Fatal(err)
	}
}

func segmentFile(base wire.Offset, suffix string) string {
	return path.Join(testDir, fileName(base, suffix))
}

func listFiles(t testing.TB, fsys vfs.FS, dir string) []string {
	t.Helper()
	names, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(n string) bool { return n == partitionFile })
}

func newMemWith(t testing.TB, name string, data []byte) *vfs.Mem {
	t.Helper()
	mem := vfs.NewMem()
	if err := mem.MkdirAll(path.Dir(name)); err != nil {
		t.Fatal(err)
	}
	writeAll(t, mem, name, data)
	return mem
}

// failer is what testing.TB and rapid.T have in common.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}
