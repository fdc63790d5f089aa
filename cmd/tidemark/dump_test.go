package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// partitionFolder writes a segment of three batches at offset 10 with the files beside it, and returns the folder.
func partitionFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var segment, index, times []byte
	next := wire.Offset(10)
	for i, codec := range []record.Codec{record.None, record.Zstd, record.None} {
		w := record.Builder{Compression: record.Compression{Codec: codec}}
		if i == 2 {
			w.Producer = &record.Producer{ID: 7, Epoch: 1, Sequence: 4}
		}
		at := int64(1_700_000_000_000 + i)
		w.Append(at, []byte("key"), []byte("value"), record.Header{Key: "h", Value: []byte("x")})
		w.Append(at, nil, nil)
		batch, err := w.Build()
		if err != nil {
			t.Fatal(err)
		}
		batch.SetBaseOffset(next)
		batch.SetLeaderEpoch(3)
		if i > 0 {
			index = binary.BigEndian.AppendUint32(index, uint32(batch.LastOffset()-10))
			index = binary.BigEndian.AppendUint32(index, uint32(len(segment)))
			times = binary.BigEndian.AppendUint64(times, uint64(at))
			times = binary.BigEndian.AppendUint32(times, uint32(batch.LastOffset()-10))
		}
		segment = append(segment, batch...)
		next = batch.NextOffset()
	}
	for name, data := range map[string][]byte{
		"00000000000000000010.log":       segment,
		"00000000000000000010.index":     append(index, make([]byte, 80)...), // preallocated, as Kafka leaves it
		"00000000000000000010.timeindex": times,
		"leader-epoch-checkpoint":        []byte("0\n1\n3 10\n"),
		"unrelated":                      []byte("x"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestDumpOfAPartition(t *testing.T) {
	got := tidemark(t, nil, "", "log", "dump", partitionFolder(t), "--records")
	if got.status != 0 {
		t.Fatalf("status %d: %s%s", got.status, got.stdout, got.stderr)
	}
	for _, want := range []string{
		"offset index\nOFFSET  POSITION\n13      ", "time index\nTIMESTAMP      OFFSET\n1700000000001  13\n1700000000002  15\n",
		"offset 10-11  position 0  size ", "count 2  epoch 3  codec none  CreateTime 2023-11-14T22:13:20.000Z\n",
		"codec zstd", "producer 7 epoch 1 sequence 4\n", "    14  2023-11-14T22:13:20.002Z  key \"key\"  value \"value\"  headers h=\"x\"\n",
		"    15  2023-11-14T22:13:20.002Z  key null  value null\n", "batches 3  records 6  size ", "leader epochs\nEPOCH  START\n3      10\n",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("%q is missing in\n%s", want, got.stdout)
		}
	}
	if strings.Contains(got.stdout, "unrelated") {
		t.Error("a file of no format is printed")
	}
}

func TestDumpInJSONIsALineForEachBatchAndFile(t *testing.T) {
	got := tidemark(t, nil, "", "log", "dump", partitionFolder(t), "--json", "--records")
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	if got.status != 0 || len(lines) != 7 { // index, 3 batches and the end of the segment, time index, epochs
		t.Fatalf("status %d, %d lines:\n%s", got.status, len(lines), got.stdout)
	}
	var batch struct {
		BaseOffset int64 `json:"base_offset"`
		Records    []struct {
			Key *string `json:"key"`
		} `json:"records"`
	}
	if err := json.Unmarshal([]byte(lines[2]), &batch); err != nil || batch.BaseOffset != 12 || *batch.Records[0].Key != "key" || batch.Records[1].Key != nil {
		t.Errorf("second batch %+v, %v", batch, err)
	}
	var epochs struct {
		Content []map[string]int64 `json:"content"`
	}
	if err := json.Unmarshal([]byte(lines[6]), &epochs); err != nil || len(epochs.Content) != 1 || epochs.Content[0]["epoch"] != 3 || epochs.Content[0]["start"] != 10 {
		t.Errorf("epochs %+v, %v", epochs, err)
	}
}

func TestDumpFindsDamage(t *testing.T) {
	for _, c := range []struct {
		name, file string
		change     func([]byte) []byte
		want       string
	}{
		{"a flipped bit", "00000000000000000010.log", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, "stored checksum"},
		{"a torn end", "00000000000000000010.log", func(b []byte) []byte { return b[:len(b)-5] }, "but the file ends after"},
		{"a torn length", "00000000000000000010.log", func(b []byte) []byte { return append(b, 1, 2, 3) }, "the file ends inside a batch"},
		{"offsets that fall", "00000000000000000010.log", func(b []byte) []byte { return append(b, b...) }, "but the batch before ended with 15"},
		{"an index to nowhere", "00000000000000000010.index", func(b []byte) []byte { b[7]++; return b }, "no batch at position"},
		{"an index cut short", "00000000000000000010.index", func(b []byte) []byte { return b[:13] }, "index is damaged: size 13"},
		{"a time of no batch", "00000000000000000010.timeindex", func(b []byte) []byte { b[7]--; return b }, "has timestamp 1700000000000"},
		{"a checkpoint with a wrong count", "leader-epoch-checkpoint", func([]byte) []byte { return []byte("0\n2\n3 10\n") }, "checkpoint file is damaged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := partitionFolder(t)
			path := filepath.Join(dir, c.file)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, c.change(data), 0o644); err != nil {
				t.Fatal(err)
			}
			got := tidemark(t, nil, "", "log", "dump", path)
			if got.status != 1 || !strings.Contains(got.stdout, "DAMAGED: ") || !strings.Contains(got.stdout, c.want) {
				t.Errorf("status %d: %s", got.status, got.stdout)
			}
		})
	}
}

func TestDumpIsInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if got := tidemarkIn(ctx, nil, strings.NewReader(""), "log", "dump", partitionFolder(t)); got.status != 1 || strings.Contains(got.stdout, "batches 3") {
		t.Errorf("status %d: %s", got.status, got.stdout)
	}
}

func TestADumpToAFullDiskFails(t *testing.T) {
	args := []string{"log", "dump", partitionFolder(t)}
	if status := run(t.Context(), args, strings.NewReader(""), noSpace{}, io.Discard, func(string) string { return "" }); status != 1 {
		t.Errorf("status %d", status)
	}
}

func FuzzDumpSegment(f *testing.F) {
	w := record.Builder{}
	w.Append(1, []byte("k"), []byte("v"))
	batch, err := w.Build()
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(batch))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "00000000000000000000.log")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		d := dumper{out: &out, records: true}
		if err := d.file(t.Context(), path); err != nil {
			t.Errorf("a damaged file ended the dump: %v", err)
		}
	})
}
