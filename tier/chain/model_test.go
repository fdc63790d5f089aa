package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/tier/chain/chaintest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
)

// truth notes the first body that each number was ever given: that is the history. What is put there after it was deleted
// is none.
type truth struct {
	object.Store
	at      location
	entries []Entry
	bad     error
}

func (s *truth) Put(ctx context.Context, key string, body object.Body, cond object.Condition) (object.Token, error) {
	token, err := s.Store.Put(ctx, key, body, cond)
	kind, n := s.at.parse(key)
	if err != nil || kind != entryKey || n <= int64(len(s.entries)) {
		return token, err
	}
	raw, _, readErr := object.Read(ctx, s.Store, key, EntryBytesMax)
	e, decodeErr := decodeEntry(raw, n)
	s.bad = errors.Join(s.bad, readErr, decodeErr)
	p := Position{}
	if len(s.entries) > 0 {
		p = s.entries[len(s.entries)-1].Position()
	}
	if err := p.check(e); err != nil || n != p.Number+1 {
		s.bad = errors.Join(s.bad, fmt.Errorf("entry %d does not follow: %w", n, err))
	}
	s.entries = append(s.entries, e)
	return token, nil
}

func (s *truth) records(until int64) []string {
	l := &ledger{}
	for _, e := range s.entries {
		if e.FirstRecord < until {
			_ = l.Apply(e)
		}
	}
	return l.records
}

// world is a few writers of one chain.
type world struct {
	*chaintest.Crowd
	truth  *truth
	epochs int64 // what the lease would hand out
	nonces int

	acked map[int64]string // number → first record of who was told Done
	last  int64            // the highest of these numbers
	lost  map[string]bool  // first records of those who were told Lost
}

type writer struct {
	*chaintest.Member
	id      int32
	run     int
	chain   *Chain
	fold    *ledger
	epoch   int64
	seen    Position // on its disk
	appends int
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{Crowd: chaintest.New(t, rand.New(rand.NewPCG(seed, 1))), acked: map[int64]string{}, lost: map[string]bool{}}
	mem := memstore.New(w.Clock)
	w.truth = &truth{Store: mem, at: location{mem, prefix}}
	for id := range int32(4) {
		wr := &writer{id: id}
		wr.Member = w.Join(w.truth, func() { w.act(wr) })
	}
	return w
}

func (w *world) act(wr *writer) {
	switch n := w.Rand.IntN(100); {
	case wr.chain == nil:
		w.open(wr)
	case n < 50:
		w.append(wr)
	case n < 66:
		w.refresh(wr)
	case n < 78:
		w.snapshot(wr)
	case n < 85:
		w.trim(wr)
	case n < 90:
		w.Land(wr.Member)
	case n < 94:
		w.Wait()
	case n < 97:
		w.Sleep(wr.Member)
	default:
		wr.chain, wr.epoch, wr.run = nil, 0, wr.run+1 // killed
	}
}

func (w *world) open(wr *writer) {
	fold, least := &ledger{}, w.last
	c, err := Open(w.T.Context(), wr.Store, prefix, Options{
		Writer: Writer{wr.id, fmt.Sprint("run ", wr.run)},
		Nonce:  func() string { w.nonces++; return fmt.Sprint("n", w.nonces) },
		Seen:   wr.seen,
	}, fold)
	w.mustNotHalt("open", wr, err)
	if err != nil {
		return
	}
	wr.chain, wr.fold = c, fold
	w.compare("open", wr)
	w.notBefore("open", wr, least)
}

func (w *world) append(wr *writer) {
	if wr.chain.fenced { // as a real writer does
		w.refresh(wr)
	}
	if wr.chain.mayAppend(wr.epoch) != nil {
		switch w.Rand.IntN(10) {
		case 0: // it tries all the same
		case 1: // or gets an epoch that somebody else has too: the lease may fail, the chain must not
			wr.epoch = w.epochs
		case 2:
			w.epochs++
			wr.epoch = w.epochs
		default:
			return
		}
	}
	wr.appends++
	before := w.last
	text := fmt.Sprintf("%d/%d", wr.id, wr.appends)
	texts := []string{text, text + " b", text + " c"}[:1+w.Rand.IntN(3)]
	e, outcome, err := wr.chain.Append(w.T.Context(), w.Now, wr.epoch, records(texts...))
	w.mustNotHalt("append", wr, err)
	w.Saw["append "+outcome.String()]++
	switch outcome {
	case object.Done:
		if other, ok := w.acked[e.Number]; ok {
			w.T.Errorf("entry %d is won by %s and by %s", e.Number, other, text)
		}
		if e.Number <= before {
			w.T.Errorf("entry %d is won after entry %d was", e.Number, before)
		}
		w.acked[e.Number], w.last = text, max(w.last, e.Number)
		_ = wr.fold.Apply(e)
		w.compare("append", wr)
	case object.Lost:
		w.lost[text] = true
	case object.Unknown:
		if errors.Is(err, ErrFenced) {
			w.Saw["created behind the boundary"]++
		}
	}
}

func (w *world) refresh(wr *writer) {
	least := w.last
	u, err := wr.chain.Refresh(w.T.Context())
	w.mustNotHalt("refresh", wr, err)
	if err != nil {
		return
	}
	if u.State != nil {
		w.Saw["reload"]++
	}
	if err := u.ApplyTo(wr.fold); err != nil {
		w.T.Error(err)
	}
	w.compare("refresh", wr)
	if !u.More {
		w.notBefore("refresh", wr, least)
	}
}

// notBefore: who looks after somebody was told Done sees it. With compare and finish that makes appends and reads linearizable:
// one order of all, which agrees with the time in which they came.
func (w *world) notBefore(after string, wr *writer, least int64) {
	if at := wr.chain.Tail().Number; at < least {
		w.T.Errorf("%s of writer %d ends at entry %d, and entry %d was done before it began", after, wr.id, at, least)
	}
}

// compare: what a handle has read is a beginning of the one history.
func (w *world) compare(after string, wr *writer) {
	wr.seen = wr.chain.Tail()
	if want := w.truth.records(wr.seen.NextRecord); !slices.Equal(wr.fold.records, want) {
		w.T.Errorf("after %s, writer %d at %d has %v, the history is %v", after, wr.id, wr.seen.Number, wr.fold.records, want)
	}
}

func (w *world) snapshot(wr *writer) {
	if state, err := wr.fold.State(); err == nil && wr.chain.Tail().Number > 0 {
		_ = wr.chain.Snapshot(w.T.Context(), w.Now, wr.chain.Tail(), state)
	}
}

func (w *world) trim(wr *writer) {
	boundary, err := wr.chain.Trim(w.T.Context(), w.Now, MinRetention, freshLedger)
	w.mustNotHalt("trim", wr, err)
	if boundary > 0 {
		w.Saw["boundary"]++
	}
}

func (w *world) mustNotHalt(doing string, wr *writer, err error) {
	if errors.Is(err, ErrHalt) {
		w.T.Errorf("%s of writer %d: %v", doing, wr.id, err)
	}
}

// finish checks the whole history against what the writers were told.
func (w *world) finish() {
	w.LandAll()
	if w.truth.bad != nil {
		w.T.Error(w.truth.bad)
	}
	first := func(n int64) string {
		var s string
		if n <= int64(len(w.truth.entries)) && len(w.truth.entries[n-1].Records) > 0 {
			_ = json.Unmarshal(w.truth.entries[n-1].Records[0], &s)
		}
		return s
	}
	for n, text := range w.acked {
		if first(n) != text {
			w.T.Errorf("acknowledged entry %d %s is %q in the history", n, text, first(n))
		}
	}
	for n := range w.truth.entries {
		if text := first(int64(n) + 1); w.lost[text] {
			w.T.Errorf("entry %d is %s, whose writer was told that it lost", n+1, text)
		}
	}
	fold := &ledger{}
	if _, err := Open(w.T.Context(), w.truth.Store, prefix, Options{}, fold); err != nil {
		w.T.Error(err)
	}
	if want := w.truth.records(1 << 62); !slices.Equal(fold.records, want) {
		w.T.Errorf("a reader in the end has %v, the history is %v", fold.records, want)
	}
}

// TestOneHistory: whatever the store does to its writers, a chain has one history, every Done is in it, and appends and reads are
// linearizable.
func TestOneHistory(t *testing.T) {
	seeds, steps := uint64(100), 400
	if testing.Short() {
		seeds = 25
	}
	chaintest.Seeds(t, seeds, steps, func(seed uint64) (*chaintest.Crowd, func()) {
		w := newWorld(t, seed)
		return w.Crowd, w.finish
	}, "append done", "append lost", "append unknown", "created behind the boundary", "reload", "boundary", "late put lands")
}

// TestOneSeedOneHistory: nothing in a chain depends on anything but its arguments and its store.
func TestOneSeedOneHistory(t *testing.T) {
	run := func(seed uint64) []Entry {
		w := newWorld(t, seed)
		for range 200 {
			w.Step()
		}
		return w.truth.entries
	}
	a, b := run(7), run(7)
	if len(a) == 0 || len(a) != len(b) || a[len(a)-1].hash != b[len(b)-1].hash {
		t.Errorf("two runs of one seed end after %d and %d entries", len(a), len(b))
	}
}
