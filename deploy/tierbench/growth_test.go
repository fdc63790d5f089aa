package tierbench

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"hash/crc32"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
	"github.com/tidemark-io/tidemark/tier/sidecar"
	"github.com/tidemark-io/tidemark/tier/tiertest"
)

const (
	probes        = 32                // segments that are looked at, and have objects
	offsetsEach   = 4                 // in a segment
	firstMs       = 1_700_000_000_000 // of the first segment
	eachMs        = 60_000            // from a segment to the next one
	perEntry      = 1_000             // segments
	retentionStep = 2                 // segments that a round of retention drops
)

// BenchmarkGrowth is what a partition costs with so many segments in the bucket: a start, a read and a look-up by time somewhere in the
// past, an upload and a round of retention. The manifest is made up; the segments that are looked at are not.
func BenchmarkGrowth(b *testing.B) {
	server := store(b)
	for _, n := range []int{10, 1_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := start(b, server)
			const topic = "grown"
			r.create(topic, 1, "segment.bytes=1048576", "local.retention.bytes=1", "retention.ms=-1", "retention.bytes=-1")
			g := &growth{broker: r, topic: topic, id: r.topicID(topic), count: n}
			if err := r.Stop(); err != nil {
				b.Fatal(err)
			}
			g.make()
			if err := os.RemoveAll(filepath.Join(r.Data, "logs")); err != nil { // the log starts from the bucket
				b.Fatal(err)
			}
			r.launch()
			eventually(b, "the partition serves", func() bool {
				end, code := r.tryOffset(topic, 0, latest)
				return code == 0 && end == g.end()
			})
			r.restart()
			now, _ := r.resident()
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(ms(r.Ready), "start-ms")
			b.ReportMetric(float64(r.cpu().Milliseconds()), "start-CPU-ms")
			b.ReportMetric(float64(now)/1e6, "RSS-MB")
			g.lookUps(b)
			g.rounds(b)
			now, _ = r.resident()
			b.ReportMetric(float64(now)/1e6, "RSS-after-MB")
		})
	}
}

func (r *broker) topicID(topic string) (id wire.TopicID) {
	r.asAdmin(func(ctx context.Context, admin *kadm.Client) error {
		topics, err := admin.ListTopics(ctx, topic)
		id = wire.TopicID(topics[topic].ID)
		return err
	})
	return id
}

// growth is a partition with a manifest of count segments.
type growth struct {
	*broker
	topic  string
	id     wire.TopicID
	count  int
	probed []int // segments with objects
}

func (g *growth) end() int64 { return int64(g.count) * offsetsEach }

// make writes the manifest, and the objects of the segments that are looked at.
func (g *growth) make() {
	ctx := g.b.Context()
	prefix := manifest.Prefix(g.topic, g.id, 0)
	open := func(w chain.Writer) *manifest.Manifest {
		m, err := manifest.Open(ctx, g.store, prefix, manifest.Options{Writer: w, Nonce: rand.Text})
		if err != nil {
			g.b.Fatal(err)
		}
		return m
	}
	m := open(chain.Writer{Broker: 1, Incarnation: "growth"})
	epoch := wire.LeaderEpoch(0)
	if at := m.State().Position; at.Number > 0 { // what the broker has written, which does not run now
		m, epoch = open(at.Writer), m.State().LeaderEpoch()
	}
	commit := func(records ...manifest.Record) {
		if outcome, err := m.Commit(ctx, time.Now(), epoch, records...); outcome != object.Done {
			g.b.Fatal(outcome, err)
		}
	}
	wanted := map[int]bool{g.count - 1: true}
	rng := mathrand.New(mathrand.NewPCG(1, uint64(g.count)))
	for range probes {
		i := rng.IntN(g.count)
		wanted[i] = true
		g.probed = append(g.probed, i)
	}
	producers := g.noProducers()
	var records []manifest.Record
	for i := range g.count {
		records = append(records, &manifest.AddRecord{Segment: g.segment(m, i, epoch, producers, wanted[i])})
		if len(records) == perEntry || i == g.count-1 {
			commit(records...)
			records = nil
		}
		for m.PageDue() {
			page, err := m.MakePage(ctx, epoch)
			if err != nil {
				g.b.Fatal(err)
			}
			commit(page)
		}
	}
	commit(&manifest.CloseRecord{End: wire.Offset(g.end())})
	if err := m.Snapshot(ctx, time.Now()); err != nil {
		g.b.Fatal(err)
	}
}

// noProducers is a producer snapshot of nobody.
func (g *growth) noProducers() []byte {
	p := tiertest.New(g.b, memstore.New(nil), g.topic, g.id, 0)
	p.Append(1)
	if err := p.Log.Roll(p.Now); err != nil {
		g.b.Fatal(err)
	}
	u, err := p.Log.OpenUpload(0)
	if err != nil {
		g.b.Fatal(err)
	}
	defer u.Release()
	return u.Producers
}

// segment describes the i-th segment, and puts its objects where it is wanted.
func (g *growth) segment(m *manifest.Manifest, i int, epoch wire.LeaderEpoch, producers []byte, wanted bool) manifest.Segment {
	w := record.Builder{BaseOffset: wire.Offset(i * offsetsEach)}
	begin := int64(firstMs + i*eachMs)
	for k := range int64(offsetsEach) {
		w.Append(begin+k, nil, make([]byte, 1000))
	}
	data, err := w.Build()
	if err != nil {
		g.b.Fatal(err)
	}
	data.SetLeaderEpoch(epoch)
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	s := manifest.Segment{
		Name:  manifest.Name{Base: w.BaseOffset, Epoch: epoch, Nonce: rand.Text()},
		Start: w.BaseOffset, End: data.NextOffset(), Size: int64(len(data)), CRC: manifest.Checksum(crc32.Checksum(data, castagnoli)),
		MinTimestamp: begin, MaxTimestamp: begin + offsetsEach - 1, UploadedMs: begin + eachMs,
		Epochs: []manifest.EpochStart{{Epoch: epoch, Start: w.BaseOffset}},
	}
	aux, err := sidecar.Encode(sidecar.Contents{
		Segment: sidecar.Segment{
			TopicID: g.id, Base: s.Base, Start: s.Start, End: s.End, LeaderEpoch: s.Epoch, Size: s.Size, CRC: uint32(s.CRC),
			MinTimestamp: s.MinTimestamp, MaxTimestamp: s.MaxTimestamp, UploadedMs: s.UploadedMs,
		},
		ProducerSnapshot: producers,
	})
	if err != nil {
		g.b.Fatal(err)
	}
	s.AuxSize, s.AuxCRC = int64(len(aux)), manifest.Checksum(crc32.Checksum(aux, castagnoli))
	if wanted {
		for kind, body := range map[manifest.Kind][]byte{manifest.LogObject: data, manifest.AuxObject: aux} {
			if _, err := g.store.Put(g.b.Context(), m.Key(s.Name, kind), bytes.NewReader(body), object.IfAbsent()); err != nil {
				g.b.Fatal(err)
			}
		}
	}
	return s
}

// lookUps reads and looks up by time at the segments that are there.
func (g *growth) lookUps(b *testing.B) {
	var fetches, times, raw latencies
	c := g.dial()
	defer c.close()
	objects := g.objects(g.topic)
	for n, i := range g.probed {
		at := []cursor{{topic: g.topic, offset: int64(i*offsetsEach + 1), end: g.end()}}
		begun := time.Now()
		if got, err := c.fetch(at); err != nil || got == 0 {
			b.Fatal(got, err)
		}
		fetches.add(time.Since(begun))
		begun = time.Now()
		if got := g.offset(g.topic, 0, int64(firstMs+i*eachMs+1)); got != int64(i*offsetsEach+1) {
			b.Fatalf("offset %d at the time of %d", got, i*offsetsEach+1)
		}
		times.add(time.Since(begun))
		o := objects[n%len(objects)]
		begun = time.Now()
		if err := g.plain.get(b, o.Key, 0, make([]byte, o.Size)); err != nil {
			b.Fatal(err)
		}
		raw.add(time.Since(begun))
	}
	b.ReportMetric(ms(raw.quantile(0.5)), "raw-get-p50-ms")
	b.ReportMetric(ms(fetches.quantile(0.5)), "fetch-p50-ms")
	b.ReportMetric(ms(fetches.quantile(1)), "fetch-max-ms")
	b.ReportMetric(ms(times.quantile(0.5)), "by-time-p50-ms")
	b.ReportMetric(ms(times.quantile(1)), "by-time-max-ms")
}

// rounds has a segment uploaded, and the oldest ones dropped, some times each.
func (g *growth) rounds(b *testing.B) {
	var uploads latencies
	begun := g.cpu()
	for range *rounds {
		tiered := g.offset(g.topic, 0, latestTiered)
		g.fill(g.topic, 1, 1<<20)
		sealed := time.Now()
		eventually(b, "a segment is in the bucket", func() bool { return g.offset(g.topic, 0, latestTiered) > tiered })
		uploads.add(time.Since(sealed))
	}
	upload := g.cpu() - begun
	b.ReportMetric(ms(uploads.quantile(0.5)), "upload-ms")
	b.ReportMetric(float64(upload.Milliseconds())/float64(*rounds), "upload-CPU-ms")
	begun = g.cpu()
	altered := time.Now()
	kept := time.UnixMilli(firstMs + retentionStep*eachMs) // the oldest that stay
	g.alter(g.topic, "retention.ms", fmt.Sprint(time.Since(kept).Milliseconds()))
	eventually(b, "the oldest segments are dropped", func() bool { return g.offset(g.topic, 0, earliest) >= retentionStep*offsetsEach })
	b.ReportMetric(ms(time.Since(altered)), "retention-ms")
	b.ReportMetric(float64((g.cpu() - begun).Milliseconds()), "retention-CPU-ms")
}
