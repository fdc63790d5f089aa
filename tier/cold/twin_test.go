package cold

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
)

// local is what the log answers to a fetch, in whole batches.
func (w *twin) local(from, upTo wire.Offset, maxBytes int, first bool) []byte {
	w.t.Helper()
	got, err := w.log.Read(log.ReadRequest{From: from, UpTo: upTo, MaxBytes: maxBytes, MinOneBatch: first})
	if err != nil {
		w.t.Fatal(err)
	}
	if got.Range.Length == 0 {
		return nil
	}
	defer got.Range.Release()
	b := make([]byte, got.Range.Length)
	if n, err := got.Range.File.ReadAt(b, got.Range.Offset); n != len(b) || err != nil && !errors.Is(err, io.EOF) {
		w.t.Fatal(err)
	}
	whole := 0
	for rest := b; len(rest) > 0; {
		batch, after, err := record.Next(rest)
		if err != nil {
			break
		}
		whole += len(batch)
		rest = after
	}
	return b[:whole]
}

// grown is a twin with many small segments.
func grown(t testing.TB, seed uint64) *twin {
	w := newTwin(t, seed)
	w.fill(150)
	w.finish()
	w.upload()
	for w.m.PageDue() {
		page, err := w.m.MakePage(t.Context(), w.epoch)
		if err != nil {
			t.Fatal(err)
		}
		w.commit(page)
	}
	w.bucket.gets = nil
	return w
}

// FM-50: over segment edges and clipped beginnings, by bytes, the same as the log.
func TestAFetchGivesWhatTheLogGives(t *testing.T) {
	for seed := range uint64(2) {
		w := grown(t, seed)
		r := w.reader()
		end := w.m.State().End
		if len(w.m.State().Pages) == 0 || len(w.segments()) < 5 {
			t.Fatalf("%d segments in %d pages are too few", len(w.segments()), len(w.m.State().Pages))
		}
		for from := range end {
			for _, maxBytes := range []int{1, 100 + w.rng.IntN(100), 700, 100_000} {
				upTo := min(from+1+wire.Offset(w.rng.IntN(80)), end)
				for _, first := range []bool{true, false} {
					result, got := w.readOne(r, Request{
						MaxBytes: maxBytes, MinOneBatch: first, Partitions: []Fetch{w.fetch(from, upTo, maxBytes)},
					})
					want := w.local(from, upTo, maxBytes, first)
					// Segments end elsewhere here and there: what both have must be equal, and something must come.
					n := min(len(got), len(want))
					if result.Code != wire.None || !bytes.Equal(got[:n], want[:n]) || (len(got) == 0) != (len(want) == 0) {
						t.Fatalf("seed %d: [%d, %d) of %d bytes, first %v: code %d, %d bytes, want %d", seed, from, upTo, maxBytes, first, result.Code, len(got), len(want))
					}
					if len(got) > maxBytes && !(first && oneBatch(got)) {
						t.Fatalf("%d bytes for a limit of %d", len(got), maxBytes)
					}
				}
			}
		}
		if s := r.Stats(); s.Cache.InUseBytes != 0 {
			t.Errorf("something is still in use: %+v", s)
		}
	}
}

func oneBatch(b []byte) bool {
	n, err := record.SizeOf(b)
	return err == nil && n == len(b)
}

// A consumer that reads on from where it was gets every byte once, however much it takes at a time.
func TestReadingOnGivesTheLogByteForByte(t *testing.T) {
	for seed := range uint64(4) {
		w := grown(t, seed)
		end := w.m.State().End
		for _, maxBytes := range []int{1, 300, 1000, 5000, 1 << 20} {
			r := w.reader()
			var got []byte
			for from := wire.Offset(0); from < end; {
				result, b := w.readOne(r, Request{MaxBytes: maxBytes, MinOneBatch: true, Partitions: []Fetch{w.fetch(from, end, maxBytes)}})
				if result.Code != wire.None || len(b) == 0 || result.Next <= from {
					t.Fatalf("seed %d at %d: code %d, %d bytes, next %d", seed, from, result.Code, len(b), result.Next)
				}
				got, from = append(got, b...), result.Next
			}
			var want []byte
			for from := wire.Offset(0); from < end; {
				b := w.local(from, end, 1<<20, true)
				want = append(want, b...)
				for rest := b; len(rest) > 0; {
					batch, after, err := record.Next(rest)
					if err != nil {
						t.Fatal(err)
					}
					from, rest = batch.NextOffset(), after
				}
			}
			if !bytes.Equal(got, want) {
				t.Errorf("seed %d by %d: %d bytes, want %d", seed, maxBytes, len(got), len(want))
			}
		}
	}
}

// visible are the records that a read_committed consumer sees, as the Java client works it out.
func visible(t testing.TB, b []byte, from wire.Offset, aborted []log.AbortedTransaction) []wire.Offset {
	t.Helper()
	var seen []wire.Offset
	pending := slices.Clone(aborted)
	slices.SortStableFunc(pending, func(a, b log.AbortedTransaction) int { return int(a.First - b.First) })
	bad := map[wire.ProducerID]bool{}
	for len(b) > 0 {
		batch, rest, err := record.Next(b)
		if err != nil {
			t.Fatal(err)
		}
		for len(pending) > 0 && pending[0].First <= batch.LastOffset() {
			bad[pending[0].ProducerID] = true
			pending = pending[1:]
		}
		switch {
		case batch.IsControl():
			delete(bad, batch.ProducerID())
		case batch.IsTransactional() && bad[batch.ProducerID()]:
		default:
			for x, err := range record.Records(batch, 1<<26) {
				if err != nil {
					t.Fatal(err)
				}
				if x.Offset >= from {
					seen = append(seen, x.Offset)
				}
			}
		}
		b = rest
	}
	return seen
}

// FM-51: transactions that lie over the ends of segments, and over the end of the tier.
func TestReadCommittedSeesWhatItSeesInTheLog(t *testing.T) {
	hidden := 0
	for seed := range uint64(4) {
		w := grown(t, 100+seed)
		r := w.reader()
		end := w.m.State().End
		localAborted := func(from, to wire.Offset) ([]log.AbortedTransaction, error) {
			all, err := w.log.AbortedTransactions(from, to)
			return slices.DeleteFunc(all, func(a log.AbortedTransaction) bool { return a.Last < end }), err
		}
		for from := range end {
			for _, maxBytes := range []int{1, 400, 100_000} {
				f := w.fetch(from, end, maxBytes)
				f.LocalAborted = localAborted
				result, got := w.readOne(r, Request{MaxBytes: maxBytes, MinOneBatch: true, Committed: true, Partitions: []Fetch{f}})
				all, err := w.log.AbortedTransactions(from, result.Next)
				if err != nil || result.Code != wire.None {
					t.Fatal(result.Code, err)
				}
				seen, want := visible(t, got, from, result.Aborted), visible(t, got, from, all)
				if !slices.Equal(seen, want) {
					t.Fatalf("seed %d: [%d, %d): sees %v, want %v; aborted %v, want %v", seed, from, result.Next, seen, want, result.Aborted, all)
				}
				hidden += len(visible(t, got, from, nil)) - len(want)
			}
		}
	}
	if hidden == 0 {
		t.Error("no record was hidden: the test shows nothing")
	}
}

// BO-085: no storm of index downloads where nothing was aborted.
func TestReadCommittedAsksFewSidecarsWhereNothingWasAborted(t *testing.T) {
	for _, tt := range []struct {
		producer wire.ProducerID
		sidecars int64
	}{{0, 0}, {10, 5}} { // one of 16 says whether a transaction that reaches beyond what is read is over
		w := newTwin(t, 1)
		for range 32 {
			w.data(tt.producer, record.None, 100, 100)
			w.data(tt.producer, record.None, 100, 100)
			if tt.producer > 0 {
				w.end(tt.producer, record.Commit)
			}
			w.roll()
		}
		w.finish()
		w.upload()
		r := w.reader()
		end := w.m.State().End
		for from := wire.Offset(0); from < end; {
			result, b := w.readOne(r, Request{MaxBytes: 300, MinOneBatch: true, Committed: true, Partitions: []Fetch{w.fetch(from, end, 300)}})
			if len(b) == 0 || len(result.Aborted) > 0 {
				t.Fatalf("at %d: %d bytes, aborted %v", from, len(b), result.Aborted)
			}
			from = result.Next
		}
		if s := r.Stats(); s.Sidecars > tt.sidecars {
			t.Errorf("producer %d: %d sidecars were got", tt.producer, s.Sidecars)
		}
	}
}

// BO-091: every timestamp and its neighbours, at every seam.
func TestOffsetForTimeIsTheFirstRecordOfThatTime(t *testing.T) {
	for seed := range uint64(2) {
		w := grown(t, 200+seed)
		r := w.reader()
		end := w.m.State().End
		for _, at := range [][2]wire.Offset{{0, end}, {end / 3, end - 3}, {end / 2, end/2 + 5}} {
			from, upTo := at[0], at[1]
			for _, x := range w.records {
				for ts := x.time - 1; ts <= x.time+1; ts++ {
					want := log.NoTimestampOffset
					for _, y := range w.records {
						if y.time >= ts && y.offset >= from {
							if y.offset < upTo {
								want = log.TimestampOffset{Timestamp: y.time, Offset: y.offset, LeaderEpoch: y.epoch}
							}
							break
						}
					}
					if got, err := r.OffsetForTime(t.Context(), w.p, ts, from, upTo); got != want || err != nil {
						t.Fatalf("seed %d: time %d in [%d, %d): %+v, want %+v, %v", seed, ts, from, upTo, got, want, err)
					}
				}
			}
		}
	}
}

func TestMaxTimestampIsTheFirstRecordWithTheLargest(t *testing.T) {
	for seed := range uint64(4) {
		w := grown(t, 300+seed)
		r := w.reader()
		end := w.m.State().End
		for range 300 {
			from := wire.Offset(w.rng.IntN(int(end)))
			upTo := from + wire.Offset(w.rng.IntN(int(end-from)+1))
			want := log.NoTimestampOffset
			for _, y := range w.records {
				if y.offset >= from && y.offset < upTo && y.time > want.Timestamp {
					want = log.TimestampOffset{Timestamp: y.time, Offset: y.offset, LeaderEpoch: y.epoch}
				}
			}
			if got, err := r.MaxTimestamp(t.Context(), w.p, from, upTo); got != want || err != nil {
				t.Fatalf("seed %d: [%d, %d): %+v, want %+v, %v", seed, from, upTo, got, want, err)
			}
		}
	}
}

func TestEpochEndIsThatOfTheLog(t *testing.T) {
	w := grown(t, 5)
	r := w.reader()
	end := w.m.State().End
	epochs := w.m.State().Epochs
	for epoch := wire.LeaderEpoch(-1); epoch <= epochs[len(epochs)-1].Epoch; epoch++ {
		e, at := r.EpochEnd(w.p, epoch)
		wantE, wantAt := w.log.EndOffsetForEpoch(epoch)
		if wantAt > end {
			wantAt = end
		}
		if e != wantE || at != wantAt {
			t.Errorf("epoch %d: %d ends at %d, want %d at %d", epoch, e, at, wantE, wantAt)
		}
	}
}

// After an unclean election the manifest ends inside an object; nothing behind that is served, of records, times or transactions.
func TestNothingIsServedBehindACut(t *testing.T) {
	for seed := range uint64(3) {
		w := grown(t, 400+seed)
		segments := w.segments()
		cut := segments[len(segments)/2]
		at := cut.Start + (cut.End-cut.Start)/2
		got, err := w.log.Read(log.ReadRequest{From: at, UpTo: w.log.EndOffset(), MaxBytes: 100, MinOneBatch: true})
		if err != nil {
			t.Fatal(err)
		}
		got.Range.Release()
		if at = got.First; at == cut.Start {
			continue // not inside
		}
		w.epoch++
		for w.m.State().End > at {
			c, err := w.m.MakeCut(t.Context(), testTime, at)
			if err != nil {
				t.Fatal(err)
			}
			w.commit(c)
		}
		r := w.reader()
		var read wire.Offset
		for from := wire.Offset(0); from < at; from = read {
			result, b := w.readOne(r, Request{MaxBytes: 1 << 20, MinOneBatch: true, Committed: true, Partitions: []Fetch{w.fetch(from, 1<<40, 1<<20)}})
			if read = result.Next; len(b) == 0 || read > at {
				t.Fatalf("seed %d: [%d, %d) of %d with %d bytes", seed, from, read, at, len(b))
			}
			for _, a := range result.Aborted {
				if a.Last >= at {
					t.Errorf("aborted %+v is cut off", a)
				}
			}
		}
		largest := log.NoTimestampOffset
		for _, y := range w.records {
			if y.offset < at && y.time > largest.Timestamp {
				largest = log.TimestampOffset{Timestamp: y.time, Offset: y.offset, LeaderEpoch: y.epoch}
			}
		}
		if got, err := r.MaxTimestamp(t.Context(), w.p, 0, 1<<40); got != largest || err != nil {
			t.Errorf("largest is %+v, want %+v, %v", got, largest, err)
		}
		if got, err := r.OffsetForTime(t.Context(), w.p, largest.Timestamp+1, 0, 1<<40); got != log.NoTimestampOffset || err != nil {
			t.Errorf("later than the largest: %+v, %v", got, err)
		}
	}
}

// Safety rules 19 and 23: reads in a lost range go on at its end; below the log start there is nothing.
func TestLogStartAndLostRanges(t *testing.T) {
	w := newTwin(t, 9)
	w.data(0, record.None, 50, 50, 50)
	w.roll()
	w.put(w.log, 0, 0)
	w.commit(&manifest.LostRecord{Start: 3, End: 20})
	w.commit(&manifest.StartRecord{LogStart: 1})
	r := w.reader()
	for offset, want := range map[wire.Offset]wire.Code{0: wire.OffsetOutOfRange, 1: wire.None, 2: wire.None, 5: wire.None, 30: wire.None} {
		result, b := w.readOne(r, Request{MaxBytes: 1000, MinOneBatch: true, Partitions: []Fetch{w.fetch(offset, 40, 1000)}})
		if result.Code != want || (len(b) > 0) != (offset == 1 || offset == 2) {
			t.Errorf("offset %d: code %d, %d bytes", offset, result.Code, len(b))
		}
	}
}
