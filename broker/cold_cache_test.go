package broker_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// With tier.cache.dir set, what comes from the bucket and has left memory is sent from the cache's file by sendfile, and got once.
func TestTheDiskLevelOfTheCacheIsSentBySendfile(t *testing.T) {
	if testing.Short() {
		t.Skip("moves 300 MB")
	}
	const records, recordBytes = 96, 1 << 20 // more than memory has for it, and less than the disk
	r := startBroker(t, "tier.cache.bytes=134217728", "tier.cache.dir="+filepath.Join(t.TempDir(), "cache"), "message.max.bytes=2097152")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	r.create("t", 1, "segment.bytes=16777216")
	c := r.client(kgo.DefaultProduceTopic("t"), kgo.ProducerBatchMaxBytes(2<<20), kgo.ProducerBatchCompression(kgo.NoCompression()))
	random := rand.NewChaCha8([32]byte{})
	written := sha256.New()
	for range records {
		value := make([]byte, recordBytes)
		_, _ = random.Read(value) // never fails
		written.Write(value)
		if err := c.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	r.wipe()

	metric := func(name string) (sum float64) {
		_, text := get(t, r.broker.AdminAddress(), "/metrics")
		for line := range strings.Lines(text) {
			if fields := strings.Fields(line); len(fields) == 2 && strings.HasPrefix(fields[0], name) {
				value, _ := strconv.ParseFloat(fields[1], 64)
				sum += value
			}
		}
		return sum
	}
	const bySendfile, got = `tidemark_network_sent_bytes_total{path="sendfile"}`, `tidemark_store_bytes_total{cause="fetch"`
	var sent, fetched [2]float64
	for pass := range 2 {
		c := r.client(kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		read := sha256.New()
		for n := 0; n < records; {
			fetches := c.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				t.Fatalf("pass %d after %d records: %v", pass, n, err)
			}
			fetches.EachRecord(func(r *kgo.Record) { read.Write(r.Value); n++ })
		}
		c.Close()
		if !bytes.Equal(read.Sum(nil), written.Sum(nil)) {
			t.Fatalf("pass %d has read other bytes", pass)
		}
		sent[pass], fetched[pass] = metric(bySendfile), metric(got)
	}
	if fetched[1] != fetched[0] {
		t.Errorf("%.0f bytes were got, and %.0f again", fetched[0], fetched[1]-fetched[0])
	}
	if least := 16.0 * recordBytes; sent[1]-sent[0] < least {
		t.Errorf("%.0f bytes left by sendfile, at least %.0f are not in memory", sent[1]-sent[0], least)
	}
}
