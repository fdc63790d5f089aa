package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-io/tidemark/broker/record"
)

// written is a topic with one partition that was filled, and the values of its records by offset.
type written struct {
	*broker
	topic  string
	values []string
}

// fill starts a broker and produces records of a kilobyte, a batch each. The broker runs.
func fill(t *testing.T, topic string, records int, settings ...string) *written {
	t.Helper()
	w := &written{broker: newBroker(t, settings...), topic: topic}
	w.start()
	w.create(topic, 1, "segment.bytes=1048576")
	w.append(records)
	return w
}

// append produces more.
func (w *written) append(records int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := w.client(kgo.DefaultProduceTopic(w.topic), kgo.ProducerBatchMaxBytes(1400), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer c.Close()
	for range records {
		value := fmt.Sprintf("record %d/", len(w.values))
		w.values = append(w.values, value)
		c.Produce(ctx, kgo.SliceRecord(append([]byte(value), make([]byte, 1000)...)), func(_ *kgo.Record, err error) {
			if err != nil {
				w.t.Errorf("%s: %v", value, err)
			}
		})
	}
	if err := c.Flush(ctx); err != nil {
		w.t.Fatal(err)
	}
}

// segments are the paths of the log's segments.
func (w *written) segments() []string {
	w.t.Helper()
	list, err := filepath.Glob(filepath.Join(w.logs(), w.topic+"-0", "*.log"))
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

// wants fails the test unless the records from first to below end are what was written.
func (w *written) wants(c *kgo.Client, first, end int) {
	w.t.Helper()
	for at := int64(first); at < int64(end); {
		batches, err := fetchAt(c, w.topic, 0, at)
		if err != nil || len(batches) == 0 {
			w.t.Fatalf("offset %d: %d bytes, %v", at, len(batches), err)
		}
		for len(batches) > 0 {
			b, rest, err := record.Next(batches)
			if err != nil {
				break
			}
			if err := b.Check(); err != nil {
				w.t.Fatalf("offset %d: %v", b.BaseOffset(), err)
			}
			for r, err := range record.Records(b, 1<<20) {
				if err != nil {
					w.t.Fatal(err)
				}
				if got := string(r.Value[:bytes.IndexByte(r.Value, '/')+1]); r.Offset < 0 || int(r.Offset) < end && got != w.values[r.Offset] {
					w.t.Fatalf("offset %d: %q", r.Offset, got)
				}
			}
			at, batches = int64(b.NextOffset()), rest
		}
	}
}

// batchAt finds where in a segment's bytes the batch of an offset begins, and its length.
func batchAt(t *testing.T, segment []byte, offset int64) (at, length int) {
	t.Helper()
	for rest := segment; len(rest) > 0; {
		b, after, err := record.Next(rest)
		if err != nil {
			t.Fatal(err)
		}
		if int64(b.LastOffset()) >= offset {
			return len(segment) - len(rest), len(b)
		}
		rest = after
	}
	t.Fatalf("no batch with offset %d", offset)
	return 0, 0
}

// FM-24: what a crash or a disk leaves of the last batch is cut at the batch before it, never further; what comes then takes its offsets.
func TestTornTailIsCutAtTheLastGoodBatch(t *testing.T) {
	t.Parallel()
	w := fill(t, "torn", 10)
	c := w.client()
	for _, damage := range []struct {
		name string
		tail func(b []byte) []byte
	}{
		{"one byte is missing", func(b []byte) []byte { return b[:len(b)-1] }},
		{"only the length is there", func(b []byte) []byte { return b[:12] }},
		{"a bit of the records is flipped", func(b []byte) []byte { b[80] ^= 1; return b }},
		{"a bit of the checksum is flipped", func(b []byte) []byte { b[17] ^= 0x80; return b }},
		{"a bit of the length is flipped", func(b []byte) []byte { b[9] ^= 1; return b }},
		{"it is zeros", func(b []byte) []byte { return make([]byte, len(b)) }},
	} {
		w.Kill()
		name := w.segments()[0]
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		at, _ := batchAt(t, data, int64(len(w.values)-1))
		if err := os.WriteFile(name, append(data[:at:at], damage.tail(data[at:])...), 0o600); err != nil {
			t.Fatal(err)
		}
		w.start()
		w.values = w.values[:len(w.values)-1]
		w.wants(c, 0, len(w.values))
		if info, err := os.Stat(name); err != nil || info.Size() != int64(at) {
			t.Errorf("%s: %d bytes, want %d: %v", damage.name, info.Size(), at, err)
		}
		w.append(1)
		w.wants(c, 0, len(w.values))
	}
}

// FM-25, FM-26: damage inside a sealed segment is never cut. Recovery finds it, and so do `log dump` and the scrub; that range, and
// no other, answers KAFKA_STORAGE_ERROR from then on, over restarts.
func TestDamageInASealedSegment(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		finder func(w *written, c *kgo.Client, offset int64)
	}{
		{"recovery", func(w *written, _ *kgo.Client, _ int64) {
			// Everything is verified where nobody knows what was flushed.
			if err := os.Remove(filepath.Join(w.logs(), "recovery-point-offset-checkpoint")); err != nil {
				w.t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(w.logs(), ".kafka_cleanshutdown")); err != nil {
				w.t.Fatal(err)
			}
			w.start()
		}},
		{"the scrub", func(w *written, c *kgo.Client, offset int64) {
			w.start()
			if _, err := fetchAt(c, w.topic, 0, offset); err != nil {
				w.t.Errorf("a clean start has verified it: %v", err)
			}
			eventually(w.t, "the scrub finds the damage", func() bool {
				_, err := fetchAt(c, w.topic, 0, offset)
				return errors.Is(err, kerr.KafkaStorageError)
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := fill(t, "sealed", 3000)
			w.stop()
			segments := w.segments()
			if len(segments) < 3 {
				t.Fatalf("%d segments", len(segments))
			}
			data, err := os.ReadFile(segments[0])
			if err != nil {
				t.Fatal(err)
			}
			const offset = 500
			at, length := batchAt(t, data, offset)
			first := int(record.Batch(data[at : at+length]).BaseOffset())
			next := int(record.Batch(data[at : at+length]).NextOffset())
			damaged := bytes.Clone(data)
			damaged[at+length-1] ^= 1
			if err := os.WriteFile(segments[0], damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			if found, text := w.dump(segments[0]); !found {
				t.Errorf("log dump finds nothing:\n%.500s", text)
			}
			client := w.client()
			c.finder(w, client, offset)
			for range 2 {
				w.wants(client, 0, first)
				w.wants(client, next, len(w.values))
				for o := first; o < next; o++ {
					if _, err := fetchAt(client, w.topic, 0, int64(o)); !errors.Is(err, kerr.KafkaStorageError) {
						t.Errorf("offset %d: %v", o, err)
					}
				}
				if now, err := os.ReadFile(segments[0]); err != nil || !bytes.Equal(now, damaged) {
					t.Errorf("the segment has %d bytes, had %d: %v", len(now), len(damaged), err)
				}
				w.append(1)
				w.stop()
				w.start()
			}
			if now := w.segments(); !slices.Equal(now[:len(segments)], segments) {
				t.Errorf("segments %v", now)
			}
		})
	}
}

// A clean stop leaves its marker, a start takes it away; nothing is recovered, and nothing is different.
func TestCleanStop(t *testing.T) {
	t.Parallel()
	w := fill(t, "clean", 2500)
	c := w.client()
	marker := filepath.Join(w.logs(), ".kafka_cleanshutdown")
	for range 3 {
		began := time.Now()
		w.stop()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the stop took %v", took)
		}
		if _, err := os.Stat(marker); err != nil {
			t.Error(err)
		}
		if found, text := w.dump(w.logs()); found {
			t.Errorf("damage after a clean stop:\n%s", marked(text))
		}
		before := tree(t, filepath.Join(w.logs(), "clean-0"))
		w.start()
		if _, err := os.Stat(marker); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the marker is still there: %v", err)
		}
		w.wants(c, 0, len(w.values))
		if after := tree(t, filepath.Join(w.logs(), "clean-0")); !slices.Equal(before, after) {
			t.Errorf("a start after a clean stop changed files:\n%v\n%v", before, after)
		}
	}
}

// tree lists the files of a folder with sizes and times.
func tree(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprint(e.Name(), " ", info.Size(), " ", info.ModTime().UnixNano()))
	}
	return list
}
