package log

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// model is what a log is in the end: batches in a row, a start, and an end; of a tiered one also a local start.
type model struct {
	l      *Log
	mem    *vfs.Mem
	now    time.Time
	all    []record.Batch // also those below the start that share a segment with it
	start  wire.Offset
	local  wire.Offset // the start, or behind it
	end    wire.Offset
	tiered bool
}

// TestModel drives a log and a slice of batches side by side.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := testConfig()
		cfg.SegmentBytes = rapid.IntRange(600, 4000).Draw(t, "segment.bytes")
		cfg.IndexIntervalBytes = rapid.IntRange(0, 700).Draw(t, "index.interval.bytes")
		tiered := rapid.Bool().Draw(t, "tiered")
		if tiered {
			tieredConfig()(&cfg)
		}
		mem := vfs.NewMem()
		l, err := Open(testTime, options(mem, cfg))
		if err != nil {
			t.Fatal(err)
		}
		m := &model{l: l, mem: mem, now: testTime, tiered: tiered}
		t.Repeat(map[string]func(*rapid.T){
			"append":   m.append,
			"follow":   m.follow,
			"truncate": m.truncate,
			"delete":   m.delete,
			"retain":   m.retain,
			"restart":  m.restart,
			"flush":    m.flush,
			"":         m.check,
		})
	})
}

func (m *model) append(t *rapid.T) {
	var some []byte
	for range rapid.IntRange(1, 3).Draw(t, "batches") {
		some = append(some, batch(rapid.IntRange(1, 3).Draw(t, "records"), rapid.Int64Range(0, 500).Draw(t, "time"), rapid.IntRange(0, 30).Draw(t, "size"))...)
	}
	info, err := m.l.AppendAsLeader(m.now, some, 1, Client)
	if err != nil {
		t.Fatal(err)
	}
	if info.First != m.end {
		t.Fatalf("appended at %d, want %d", info.First, m.end)
	}
	m.all = append(m.all, batches(some)...)
	m.end = info.Last + 1
}

// follow appends with a gap in front, as from a compacted leader.
func (m *model) follow(t *rapid.T) {
	b := batch(1, rapid.Int64Range(0, 500).Draw(t, "time"), 10)
	b.SetBaseOffset(m.end + wire.Offset(rapid.IntRange(0, 20).Draw(t, "gap")))
	b.SetLeaderEpoch(1)
	if _, err := m.l.AppendAsFollower(m.now, bytes.Clone(b)); err != nil {
		t.Fatal(err)
	}
	m.all = append(m.all, b)
	m.end = b.NextOffset()
}

func (m *model) truncate(t *rapid.T) {
	low := m.start
	to := wire.Offset(rapid.Int64Range(int64(low), int64(m.end)).Draw(t, "to"))
	if _, err := m.l.TruncateTo(m.now, to); err != nil {
		t.Fatal(err)
	}
	if to == m.end {
		return
	}
	m.end = to
	for n := len(m.all); n > 0 && m.all[n-1].NextOffset() > to; n-- {
		m.end = min(to, m.all[n-1].BaseOffset())
		m.all = m.all[:n-1]
	}
	m.start, m.local = min(m.start, m.end), min(m.local, m.end)
}

func (m *model) delete(t *rapid.T) {
	m.l.UpdateHighWatermark(m.end)
	to := wire.Offset(rapid.Int64Range(int64(m.start), int64(m.end)).Draw(t, "start"))
	if err := m.l.AdvanceStart(to); err != nil {
		t.Fatal(err)
	}
	m.start, m.local = to, max(m.local, to)
}

func (m *model) retain(t *rapid.T) {
	m.l.UpdateHighWatermark(m.end)
	cfg := m.l.Config()
	cfg.RetentionBytes = rapid.Int64Range(-1, 3000).Draw(t, "retention.bytes")
	m.l.UpdateConfig(cfg)
	if m.tiered {
		m.retainTiered(t)
		return
	}
	if _, err := m.l.Retain(m.now); err != nil {
		t.Fatal(err)
	}
	if start := m.l.StartOffset(); start < m.start {
		t.Fatalf("the start went from %d to %d", m.start, start)
	} else if size := m.l.Size(); cfg.RetentionBytes >= 0 && size-m.l.Segments()[0].Size >= max(cfg.RetentionBytes, 1) {
		t.Fatalf("%d bytes are left of %d", size, cfg.RetentionBytes)
	} else {
		m.start, m.local = start, start
	}
}

// retainTiered lets go of segments that are in the object store, or below the log start, and of no other.
func (m *model) retainTiered(t *rapid.T) {
	cfg := m.l.Config()
	cfg.LocalRetentionBytes = rapid.Int64Range(-2, 3000).Draw(t, "local.retention.bytes")
	m.l.UpdateConfig(cfg)
	end := wire.Offset(rapid.Int64Range(-1, int64(m.end)).Draw(t, "tiered end"))
	m.l.SetTiered(end)
	before := m.l.Segments()
	if _, err := m.l.Retain(m.now); err != nil {
		t.Fatal(err)
	}
	after := m.l.Segments()
	base := after[0].Base
	if base > max(end, m.start, before[0].Base) {
		t.Fatalf("local start %d, log start %d, tiered end %d", base, m.start, end)
	}
	limit := cfg.LocalRetentionBytes
	if limit == asTotal {
		limit = cfg.RetentionBytes
	}
	if size := m.l.Size(); limit >= 0 && len(after) > 1 && after[0].Next <= end && size-after[0].Size >= limit {
		t.Fatalf("%d bytes are left of %d, up to %d", size, limit, end)
	}
	m.local = max(m.start, base)
}

func (m *model) restart(t *rapid.T) {
	o := options(m.mem, m.l.Config())
	o.Stop = StopProcessCrash
	if rapid.Bool().Draw(t, "clean") {
		if err := m.l.Close(m.now); err != nil {
			t.Fatal(err)
		}
		o.Stop = StopClean
	}
	o.RecoveryPoint, o.LogStart = m.l.RecoveryPoint(), m.l.StartOffset()
	m.mem = m.mem.ProcessCrashClone()
	o.FS = m.mem
	l, err := Open(m.now, o)
	if err != nil {
		t.Fatal(err)
	}
	m.l = l
	if l.TieredEndOffset() != wire.NoOffset {
		t.Fatalf("tiered end %d", l.TieredEndOffset())
	}
	// An end in a gap, as truncation may leave it, is nowhere on disk.
	least := m.local
	if n := len(m.all); n > 0 {
		least = max(least, m.all[n-1].NextOffset())
	}
	if end := l.EndOffset(); end < least || end > m.end {
		t.Fatalf("log ends at %d, not in [%d, %d]", end, least, m.end)
	}
	m.end = l.EndOffset()
}

func (m *model) flush(t *rapid.T) {
	if err := m.l.Flush(); err != nil || m.l.RecoveryPoint() != m.end {
		t.Fatalf("recovery point %d of %d, %v", m.l.RecoveryPoint(), m.end, err)
	}
}

func (m *model) check(t *rapid.T) {
	if m.l.StartOffset() != m.start || m.l.EndOffset() != m.end {
		t.Fatalf("log is [%d, %d), want [%d, %d)", m.l.StartOffset(), m.l.EndOffset(), m.start, m.end)
	}
	if m.l.LocalStartOffset() != m.local {
		t.Fatalf("local start %d, want %d", m.l.LocalStartOffset(), m.local)
	}
	if _, err := m.l.Read(ReadRequest{From: m.start, UpTo: m.end, MaxBytes: 1}); (m.start < m.local) != errors.Is(err, ErrNotLocal) {
		t.Fatalf("read at the log start %d, local start %d: %v", m.start, m.local, err)
	}
	m.all = slices.DeleteFunc(m.all, func(b record.Batch) bool { return b.LastOffset() < m.local })
	var got []byte
	for at := m.local; at < m.end; {
		b, err := m.l.ReadBatches(at, m.end, make([]byte, 0, 500))
		if err != nil {
			t.Fatal(err)
		}
		if len(b) == 0 {
			break // a gap up to the end
		}
		got = append(got, b...)
		at = lastOf(b).NextOffset()
	}
	want := slices.Concat(toBytes(m.all)...)
	if !bytes.Equal(got, want) {
		t.Fatalf("%d bytes read, want %d", len(got), len(want))
	}
	if len(m.all) > 0 {
		checkLookups(t, m.l)
	}
}

func toBytes(all []record.Batch) [][]byte {
	list := make([][]byte, len(all))
	for i, b := range all {
		list[i] = b
	}
	return list
}
