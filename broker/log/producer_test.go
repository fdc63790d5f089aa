package log

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// produce is one append of a producer and what must come of it.
type produce struct {
	sequence int32
	count    int
	epoch    wire.ProducerEpoch
	want     wire.Code
	first    wire.Offset // where the answer says it is, unless refused
	repeat   bool        // it is recognised as a duplicate
	txn      bool
}

func TestProducerSequences(t *testing.T) {
	for name, steps := range map[string][]produce{
		"in order": {{sequence: 0, count: 3, first: 0}, {sequence: 3, count: 1, first: 3}},
		"a gap, then the right one": {
			{sequence: 0, count: 1}, {sequence: 2, count: 1, want: wire.OutOfOrderSequenceNumber}, {sequence: 1, count: 1, first: 1},
		},
		"BO-032 no state: any sequence": {{sequence: 7, count: 2, first: 0}, {sequence: 9, count: 1, first: 2}},
		"BO-035 a repeated batch gets its old offset": {
			{sequence: 0, count: 2},
			{sequence: 2, count: 2, first: 2},
			{sequence: 0, count: 2, first: 0, repeat: true},
			{sequence: 2, count: 2, first: 2, repeat: true},
			{sequence: 4, count: 1, first: 4},
		},
		"only five batches are remembered": {
			{sequence: 0, count: 1, first: 0},
			{sequence: 1, count: 1, first: 1},
			{sequence: 2, count: 1, first: 2},
			{sequence: 3, count: 1, first: 3},
			{sequence: 4, count: 1, first: 4},
			{sequence: 5, count: 1, first: 5},
			{sequence: 1, count: 1, first: 1, repeat: true},
			{sequence: 0, count: 1, want: wire.OutOfOrderSequenceNumber},
		},
		"same first sequence, another length: no duplicate": {
			{sequence: 0, count: 2}, {sequence: 0, count: 3, want: wire.OutOfOrderSequenceNumber},
		},
		"the sequence wraps to 0": {
			{sequence: math.MaxInt32 - 1, count: 2, first: 0}, {sequence: 0, count: 1, first: 2}, {sequence: math.MaxInt32 - 1, count: 2, first: 0, repeat: true},
		},
		"the sequence wraps inside a batch": {
			{sequence: math.MaxInt32 - 1, count: 5, first: 0},
			{sequence: 3, count: 1, first: 5},
			{sequence: math.MaxInt32 - 1, count: 5, first: 0, repeat: true},
			{sequence: 5, count: 1, want: wire.OutOfOrderSequenceNumber},
		},
		"a new epoch begins at 0": {
			{sequence: 0, count: 1},
			{sequence: 1, count: 1, epoch: 1, want: wire.OutOfOrderSequenceNumber},
			{sequence: 0, count: 1, epoch: 1, first: 1},
			{sequence: 1, count: 1, epoch: 0, want: wire.InvalidProducerEpoch},
			{sequence: 1, count: 1, epoch: 1, first: 2},
		},
		"an old epoch is no duplicate": {
			{sequence: 0, count: 1}, {sequence: 0, count: 1, epoch: 1, first: 1}, {sequence: 0, count: 1, epoch: 0, want: wire.InvalidProducerEpoch},
		},
		"plain batch in an open transaction": {
			{sequence: 0, count: 1, txn: true}, {sequence: 1, count: 1, want: wire.InvalidTxnState}, {sequence: 1, count: 1, txn: true, first: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			l := mustOpen(t, options(mem, testConfig()))
			for i, s := range steps {
				b := batch(s.count, int64(i), 10, from(5, s.epoch, s.sequence), func(w *record.Builder) { w.Transactional = s.txn })
				end := l.EndOffset()
				info, err := l.AppendAsLeader(testTime, b, 1, Client)
				if wire.CodeOf(err) != s.want {
					t.Fatalf("step %d: %v, want %v", i, err, s.want)
				}
				if err == nil && (info.First != s.first || info.Last != s.first+wire.Offset(s.count)-1 || info.Duplicate != s.repeat) {
					t.Fatalf("step %d: %+v, want %+v", i, info, s)
				}
				if moved := l.EndOffset() != end; moved != (err == nil && !s.repeat) {
					t.Fatalf("step %d: the log grew: %v", i, moved)
				}
			}
		})
	}
}

func TestSeveralProducerBatchesAtOnceAreRefused(t *testing.T) {
	l := mustOpen(t, options(vfs.NewMem(), testConfig()))
	two := append(bytes.Clone(batch(1, 1, 1, from(5, 0, 0))), batch(1, 1, 1, from(5, 0, 1))...)
	if _, err := l.AppendAsLeader(testTime, two, 1, Client); wire.CodeOf(err) != wire.InvalidRecord {
		t.Errorf("client: %v", err)
	}
	if _, err := l.AppendAsLeader(testTime, two, 1, Coordinator); err != nil {
		t.Errorf("coordinator: %v", err)
	}
}

func TestProducersSurviveEveryKindOfStop(t *testing.T) { // BO-033, FM-73
	for _, stop := range []Stop{StopClean, StopProcessCrash, StopPowerLoss} {
		mem := vfs.NewMem()
		l := mustOpen(t, options(mem, smallSegments()))
		for i := range int32(11) {
			appendBatch(t, l, batch(1, 1, 200, from(5, 0, i)))
		}
		if stop == StopClean {
			if err := l.Close(testTime); err != nil {
				t.Fatal(err)
			}
		} else if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		l = mustOpen(t, crashed(mem.ProcessCrashClone(), smallSegments(), stop, 8))
		if info := appendBatch(t, l, batch(1, 1, 200, from(5, 0, 10))); !info.Duplicate || info.First != 10 {
			t.Errorf("stop %d: last batch again: %+v", stop, info)
		}
		if info := appendBatch(t, l, batch(1, 1, 200, from(5, 0, 11))); info.First != 11 {
			t.Errorf("stop %d: next batch: %+v", stop, info)
		}
	}
}

func TestProducersOutliveTheirData(t *testing.T) {
	mem := vfs.NewMem()
	cfg := smallSegments()
	l := mustOpen(t, options(mem, cfg))
	appendBatch(t, l, batch(1, 1, 200, from(5, 0, 3)))
	for range 11 {
		appendBatch(t, l, batch(1, 1, 200))
	}
	l.UpdateHighWatermark(12)
	cfg.RetentionBytes = 1
	l.UpdateConfig(cfg)
	if n, err := l.Retain(testTime); n == 0 || err != nil {
		t.Fatalf("retained: %d gone, %v", n, err)
	}
	for _, stop := range []Stop{StopProcessCrash, StopPowerLoss} {
		l := mustOpen(t, crashed(mem.ProcessCrashClone(), cfg, stop, l.RecoveryPoint()))
		if p := l.Producers(); len(p) != 1 || p[0].LastSequence != 3 {
			t.Errorf("stop %d: %+v", stop, p)
		}
	}
}

func TestDamagedSnapshotIsReplaced(t *testing.T) { // FM-73
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, smallSegments()))
	for i := range int32(10) {
		appendBatch(t, l, batch(1, 1, 200, from(5, 0, i)))
	}
	if err := l.Close(testTime); err != nil {
		t.Fatal(err)
	}
	want := l.Producers()
	if len(want) != 1 || want[0].LastSequence != 9 {
		t.Fatalf("producers %+v", want)
	}
	for _, drop := range [][]wire.Offset{{10}, {10, 8}, {10, 8, 4}} {
		for _, data := range [][]byte{nil, {}, []byte("nonsense that is long enough")} {
			clone := mem.ProcessCrashClone()
			for _, at := range drop {
				if name := segmentFile(at, snapshotSuffix); data == nil {
					if err := clone.Remove(name); err != nil {
						t.Fatal(err)
					}
				} else {
					writeAll(t, clone, name, data)
				}
			}
			if got := mustOpen(t, crashed(clone, smallSegments(), StopClean, 10)).Producers(); !slices.Equal(got, want) {
				t.Errorf("without %v: %+v, want %+v", drop, got, want)
			}
		}
	}
}

func TestSilentProducersExpire(t *testing.T) {
	l := mustOpen(t, options(vfs.NewMem(), testConfig()))
	appendBatch(t, l, batch(1, 1, 10, from(5, 0, 0))) // the record is of 1970, the producer is not
	appendBatch(t, l, batch(1, 1, 10, from(6, 0, 0), transactional))
	l.ExpireProducers(testTime.Add(999*time.Millisecond), 1000)
	if len(l.Producers()) != 2 {
		t.Errorf("too early: %+v", l.Producers())
	}
	l.ExpireProducers(testTime.Add(time.Second), 1000)
	if p := l.Producers(); len(p) != 1 || p[0].ID != 6 {
		t.Errorf("an open transaction does not expire: %+v", p)
	}
	if info := appendBatch(t, l, batch(1, 1, 10, from(5, 0, 7))); info.First != 2 { // BO-032
		t.Errorf("%+v", info)
	}
}

func TestProducerSnapshotRoundTrip(t *testing.T) {
	var s producerState
	for i := range wire.ProducerID(4) {
		b := batch(3, 77, 1, from(i, wire.ProducerEpoch(i), int32(i)), func(w *record.Builder) { w.Transactional = i%2 == 0 })
		b.SetBaseOffset(wire.Offset(10 * i))
		s.follow(b, 5)
	}
	b := record.NewEndTxnMarker(2, 3, 99, record.EndTxnMarker{Type: record.Abort, CoordinatorEpoch: 6}) // raises the epoch
	b.SetBaseOffset(50)
	s.follow(b, 5)
	entries, err := DecodeProducerSnapshot(s.encode())
	if err != nil {
		t.Fatal(err)
	}
	restored := restoreProducers(entries, 0, 5)
	if !slices.Equal(restored.list(), s.list()) || !slices.Equal(restored.open, s.open) {
		t.Errorf("restored %+v, want %+v", restored.list(), s.list())
	}
	if e := restored.entries[2]; e.epoch != 3 || e.kept != 0 || e.coordinatorEpoch != 6 || e.txnStart != wire.NoOffset {
		t.Errorf("after the marker: %+v", e)
	}
	if e := restored.entries[1]; e.batches[0].first() != 10 || e.batches[0].firstSequence() != 1 {
		t.Errorf("batch %+v", e.batches[0])
	}
}

// TestProducerSnapshotGolden reads what Kafka's kafka-dump-log takes for a snapshot of one producer.
func TestProducerSnapshotGolden(t *testing.T) {
	var s producerState
	b := batch(3, 1000, 1, from(7, 2, 40))
	b.SetBaseOffset(100)
	s.follow(b, 0)
	want := []byte{
		0, 1, 0x5b, 0x5b, 0xc9, 0x30, 0, 0, 0, 1, // version, CRC-32C, count
		0, 0, 0, 0, 0, 0, 0, 7, 0, 2, 0, 0, 0, 42, // id, epoch, last sequence
		0, 0, 0, 0, 0, 0, 0, 102, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0x03, 0xea, // last offset, delta, timestamp
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // coordinator epoch, transaction start
	}
	if got := s.encode(); !bytes.Equal(got, want) {
		t.Errorf("%x\nwant %x", got, want)
	}
}

func TestTransactions(t *testing.T) {
	mem := vfs.NewMem()
	cfg := smallSegments()
	l := mustOpen(t, options(mem, cfg))
	marker := func(id wire.ProducerID, kind record.ControlType) {
		t.Helper()
		m := record.NewEndTxnMarker(id, 0, 1, record.EndTxnMarker{Type: kind, CoordinatorEpoch: 2})
		if _, err := l.AppendAsLeader(testTime, m, 1, Coordinator); err != nil {
			t.Fatal(err)
		}
	}
	stable := func(want wire.Offset) {
		t.Helper()
		if got := l.LastStableOffset(); got != want {
			t.Errorf("last stable offset %d, want %d", got, want)
		}
	}
	txn := func(id wire.ProducerID, sequence int32) {
		t.Helper()
		appendBatch(t, l, batch(1, 1, 200, from(id, 0, sequence), transactional))
	}
	appendBatch(t, l, batch(1, 1, 200)) // 0
	txn(1, 0)                           // 1
	txn(2, 0)                           // 2
	l.UpdateHighWatermark(3)
	stable(1)
	txn(1, 1) // 3
	marker(1, record.Abort)
	l.UpdateHighWatermark(4)
	stable(1) // the marker at 4 is not replicated yet
	l.UpdateHighWatermark(5)
	stable(2)
	txn(2, 1)                // 5
	marker(2, record.Commit) // 6
	txn(3, 0)                // 7
	txn(3, 1)                // 8
	marker(3, record.Abort)  // 9
	l.UpdateHighWatermark(10)
	stable(10)
	zombie := record.NewEndTxnMarker(3, 0, 1, record.EndTxnMarker{Type: record.Commit, CoordinatorEpoch: 1})
	if _, err := l.AppendAsLeader(testTime, zombie, 1, Coordinator); wire.CodeOf(err) != wire.TransactionCoordinatorFenced {
		t.Errorf("marker of an old coordinator: %v", err)
	}
	txn(4, 0) // 10
	l.UpdateHighWatermark(11)
	stable(10)

	first := AbortedTransaction{ProducerID: 1, First: 1, Last: 4, LastStableOffset: 2}
	second := AbortedTransaction{ProducerID: 3, First: 7, Last: 9, LastStableOffset: 10}
	check := func(what string, l *Log) {
		t.Helper()
		for _, c := range []struct {
			from, to wire.Offset
			want     []AbortedTransaction
		}{
			{0, 11, []AbortedTransaction{first, second}},
			{0, 1, nil},
			{0, 2, []AbortedTransaction{first}},
			{4, 5, []AbortedTransaction{first}},
			{5, 7, nil},
			{5, 8, []AbortedTransaction{second}},
			{9, 10, []AbortedTransaction{second}},
			{10, 11, nil},
		} {
			got, err := l.AbortedTransactions(c.from, c.to)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%s: aborted in [%d, %d): %+v, %v; want %+v", what, c.from, c.to, got, err, c.want)
			}
		}
		l.UpdateHighWatermark(11)
		if got := l.LastStableOffset(); got != 10 {
			t.Errorf("%s: last stable offset %d", what, got)
		}
	}
	check("live", l)
	if len(l.Segments()) < 3 {
		t.Fatalf("segments %+v", l.Segments())
	}
	for _, point := range []wire.Offset{0, 3, 6, 9} {
		check("after a crash", mustOpen(t, crashed(mem.ProcessCrashClone(), cfg, StopProcessCrash, point)))
	}
	if err := l.Close(testTime); err != nil {
		t.Fatal(err)
	}
	check("after a clean stop", mustOpen(t, crashed(mem.ProcessCrashClone(), cfg, StopClean, 0)))
	for _, name := range listFiles(t, mem, testDir) {
		if _, suffix, _ := splitFileName(name); suffix == txnSuffix {
			writeAll(t, mem, testDir+"/"+name, []byte("damaged"))
		}
	}
	check("with damaged indexes", mustOpen(t, crashed(mem.ProcessCrashClone(), cfg, StopClean, 0)))
	check("with damaged indexes after a crash", mustOpen(t, crashed(mem.ProcessCrashClone(), cfg, StopProcessCrash, 9)))
}

// After a start all producers count as heard of at that moment.
func TestRoomIsMadeForAQuarterOfTheProducers(t *testing.T) {
	s := producerState{entries: map[wire.ProducerID]*producerEntry{}}
	for id := range wire.ProducerID(1000) {
		e := newProducerEntry()
		e.seen = 1
		if id < 100 {
			e.seen = 2
		}
		s.entries[id] = e
	}
	s.entries[100].txnStart = 7
	s.makeRoom()
	if n := len(s.entries); n < 750 || n > 751 {
		t.Fatalf("%d producers are left of 1000", n)
	}
	for id := range wire.ProducerID(101) {
		if s.entries[id] == nil {
			t.Errorf("producer %d, which wrote later or has a transaction, is forgotten", id)
		}
	}
}

// The transaction index of a topic that is deleted while somebody fetches is missing, and nothing is wrong with the disk.
func TestAbortedTransactionsOfATopicThatIsDeletedMeanwhile(t *testing.T) {
	mem := vfs.NewMem()
	l := uploadable(t, mem)
	if err := l.Close(testTime); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, crashed(mem, l.Config(), StopClean, l.EndOffset()))
	if err := l.moveAway(testDir + "-delete"); err != nil {
		t.Fatal(err)
	}
	if list, err := l.AbortedTransactions(0, l.EndOffset()); !errors.Is(err, ErrStorage) || l.Err() != nil {
		t.Errorf("%+v, %v; the directory: %v", list, err, l.Err())
	}
}

// A transaction that has ended, and whose end is replicated, holds up nobody after the log was read again.
func TestAReplayedTransactionThatHasEndedIsStable(t *testing.T) {
	mem := vfs.NewMem()
	l := mustOpen(t, options(mem, testConfig()))
	appendBatch(t, l, batch(1, 1, 10, from(1, 0, 0), transactional))
	if _, err := l.AppendAsLeader(testTime, record.NewEndTxnMarker(1, 0, 1, record.EndTxnMarker{Type: record.Commit}), 1, Coordinator); err != nil {
		t.Fatal(err)
	}
	appendBatch(t, l, batch(1, 1, 10))
	l.UpdateHighWatermark(2)
	o := crashed(mem.ProcessCrashClone(), testConfig(), StopProcessCrash, 0)
	o.HighWatermark = 2
	if again := mustOpen(t, o); again.LastStableOffset() != 2 {
		t.Errorf("after a crash: last stable offset %d", again.LastStableOffset())
	}
	if _, err := l.TruncateTo(testTime, 2); err != nil || l.LastStableOffset() != 2 {
		t.Errorf("after a cut: last stable offset %d, %v", l.LastStableOffset(), err)
	}
}
