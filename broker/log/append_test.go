package log

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func TestAppendAssignsOffsetsAndEpoch(t *testing.T) {
	l := mustOpen(t, options(vfs.NewMem(), testConfig()))
	two := append(bytes.Clone(batch(3, 100, 10)), batch(2, 50, 10)...)
	info, err := l.AppendAsLeader(testTime, two, 7, Client)
	if err != nil {
		t.Fatal(err)
	}
	if info.First != 0 || info.Last != 4 || info.MaxTimestamp != 102 || info.LogAppendTime != -1 || info.Bytes != len(two) {
		t.Errorf("info %+v", info)
	}
	all := batches(contents(t, l))
	if len(all) != 2 || all[1].BaseOffset() != 3 || all[1].LeaderEpoch() != 7 || all[1].Check() != nil {
		t.Errorf("batches %v", all)
	}
	if l.EndOffset() != 5 || l.LatestEpoch() != 7 {
		t.Errorf("end %d, epoch %d", l.EndOffset(), l.LatestEpoch())
	}
}

func TestAppendTimeIsTold(t *testing.T) {
	l := mustOpen(t, options(vfs.NewMem(), testConfig()))
	b := batch(2, 100, 10)
	b.SetMaxTimestamp(record.LogAppendTime, 999)
	if info := appendBatch(t, l, b); info.LogAppendTime != 999 || info.MaxTimestamp != 999 {
		t.Errorf("info %+v", info)
	}
}

func TestRoll(t *testing.T) {
	size := len(batch(1, 0, 1000))
	cfg := testConfig()
	cfg.SegmentBytes = 3*size + size/2
	l := mustOpen(t, options(vfs.NewMem(), cfg))
	for range 7 {
		appendBatch(t, l, batch(1, 0, 1000))
	}
	if got := l.Segments(); len(got) != 3 || got[1].Base != 3 || got[2].Base != 6 || !got[0].Sealed || got[2].Sealed || got[2].Next != 7 {
		t.Errorf("by bytes: %+v", got)
	}
	if _, err := l.AppendAsLeader(testTime, batch(1, 0, 4*size), 1, Client); wire.CodeOf(err) != wire.RecordListTooLarge {
		t.Errorf("a batch larger than a segment: %v", err)
	}

	cfg = testConfig()
	cfg.SegmentMs = 1000
	l = mustOpen(t, options(vfs.NewMem(), cfg))
	for _, ts := range []int64{5000, 6000, 6001, 7001, 7002} {
		appendBatch(t, l, batch(1, ts, 10))
	}
	if got := l.Segments(); len(got) != 3 || got[1].Base != 2 || got[2].Base != 4 {
		t.Errorf("by the first batch's timestamp: %+v", got)
	}

	cfg = testConfig()
	cfg.IndexIntervalBytes, cfg.SegmentIndexBytes = 0, 5*offsetEntrySize
	l = mustOpen(t, options(vfs.NewMem(), cfg))
	for i := range 10 {
		appendBatch(t, l, batch(1, int64(i), 10))
	}
	if got := l.Segments(); len(got) < 3 {
		t.Errorf("by a full index: %+v", got)
	}
	checkLookups(t, l)
}

func TestRollWhenRelativeOffsetsEnd(t *testing.T) { // FM-35
	l := mustOpen(t, options(vfs.NewMem(), testConfig()))
	far := batch(2, 1, 10)
	for i, base := range []wire.Offset{5, 1 << 20, 5 + math.MaxInt32 - 1, 5 + math.MaxInt32 + 1, 1 << 50} {
		far.SetBaseOffset(base)
		if _, err := l.AppendAsFollower(testTime, far); err != nil {
			t.Fatalf("append %d at %d: %v", i, base, err)
		}
	}
	if l.EndOffset() != 1<<50+2 {
		t.Errorf("end %d", l.EndOffset())
	}
	checkLookups(t, l)
	l.UpdateHighWatermark(l.EndOffset())
	if err := l.Close(testTime); err != nil {
		t.Fatal(err)
	}
}

func TestFollowerAppendsVerbatim(t *testing.T) {
	l := mustOpen(t, options(vfs.NewMem(), testConfig()))
	b := batch(3, 10, 20)
	b.SetBaseOffset(40)
	b.SetLeaderEpoch(9)
	want := bytes.Clone(b)
	if _, err := l.AppendAsFollower(testTime, b); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(contents(t, l), want) || l.EndOffset() != 43 || l.LatestEpoch() != 9 {
		t.Errorf("end %d, epoch %d", l.EndOffset(), l.LatestEpoch())
	}
	if _, err := l.AppendAsFollower(testTime, b); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("behind the end: %v", err)
	}
	bad := batch(1, 10, 20)
	bad.SetBaseOffset(43)
	bad[len(bad)-1] ^= 1
	if _, err := l.AppendAsFollower(testTime, bad); wire.CodeOf(err) != wire.CorruptMessage { // FM-21
		t.Errorf("wrong checksum: %v", err)
	}
	if l.EndOffset() != 43 {
		t.Errorf("end %d after refused appends", l.EndOffset())
	}
}

func TestFullDiskRefusesAndRecovers(t *testing.T) { // BO-082, FM-29
	mem := vfs.NewMem()
	fault := vfs.NewFault(mem)
	cfg := testConfig()
	cfg.IndexIntervalBytes = 0
	l := mustOpen(t, options(fault, cfg))
	appendBatch(t, l, batch(1, 1, 100))
	for _, landed := range []int{0, 1, 61, 100} {
		fault.SetRules(vfs.Rule{Op: vfs.OpWrite, Path: "*.log", Err: vfs.ErrNoSpace, Landed: landed})
		_, err := l.AppendAsLeader(testTime, batch(1, 1, 100), 1, Client)
		if !errors.Is(err, ErrStorage) || !wire.CodeOf(err).Retriable() {
			t.Fatalf("full disk: %v", err)
		}
		fault.SetRules()
		if info, err := mem.Stat(segmentFile(0, logSuffix)); err != nil || info.Size != l.Size() {
			t.Fatalf("partial write of %d bytes is left: %d, %v", landed, info.Size, err)
		}
		appendBatch(t, l, batch(1, 1, 100))
	}
	fault.SetRules(vfs.Rule{Op: vfs.OpCreate, Err: vfs.ErrNoSpace})
	if err := l.Roll(testTime); !errors.Is(err, ErrStorage) {
		t.Errorf("roll on a full disk: %v", err)
	}
	appendBatch(t, l, batch(1, 1, 100)) // room for this one, and none for index files
	for range 3 * tailEntries {
		appendBatch(t, l, batch(1, 1, 100))
	}
	checkLookups(t, l)
	fault.SetRules()
	if err := l.Roll(testTime); err != nil {
		t.Fatal(err)
	}
	if err := l.FlushDue(testTime); err != nil {
		t.Fatal(err)
	}
	checkLookups(t, l)
}

func TestOtherErrorsTakeTheDirectoryOffline(t *testing.T) { // FM-28
	broken := errors.New("input/output error")
	for name, rule := range map[string]vfs.Rule{
		"write": {Op: vfs.OpWrite, Path: "*.log", Err: broken, Times: 1},
		"sync":  {Op: vfs.OpSync, Path: "*.log", Err: broken, Times: 1},
	} {
		fault := vfs.NewFault(vfs.NewMem())
		cfg := testConfig()
		cfg.FlushMessages = 1
		l := mustOpen(t, options(fault, cfg))
		appendBatch(t, l, batch(1, 1, 100))
		fault.SetRules(rule)
		for range 2 { // once failed, it stays so: a failed sync is never tried again
			if _, err := l.AppendAsLeader(testTime, batch(1, 1, 100), 1, Client); !errors.Is(err, ErrStorage) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := l.Read(ReadRequest{UpTo: 1, MaxBytes: 1}); !errors.Is(err, ErrStorage) {
			t.Errorf("%s: read %v", name, err)
		}
		if err := l.Close(testTime); !errors.Is(err, ErrStorage) {
			t.Errorf("%s: close %v", name, err)
		}
	}
}
