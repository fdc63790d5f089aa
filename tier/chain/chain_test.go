package chain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
)

// ledger is a Fold that remembers every record.
type ledger struct{ records []string }

func (l *ledger) Restore(state []byte) error {
	l.records = nil
	return json.Unmarshal(state, &l.records)
}

func (l *ledger) Apply(e Entry) error {
	for _, r := range e.Records {
		var s string
		if err := json.Unmarshal(r, &s); err != nil {
			return err
		}
		l.records = append(l.records, s)
	}
	return nil
}

func (l *ledger) State() ([]byte, error) { return json.Marshal(l.records) }

func freshLedger() Fold { return &ledger{} }

// bench is a store with a clock, and writers on it.
type bench struct {
	t     *testing.T
	now   time.Time
	store object.Store
	nonce int
}

const prefix = "metadata"

func newBench(t *testing.T) *bench {
	b := &bench{t: t, now: time.UnixMilli(1_800_000_000_000)}
	b.store = memstore.New(func() time.Time { return b.now })
	return b
}

func (b *bench) options(broker int32) Options {
	return Options{
		Writer: Writer{Broker: broker, Incarnation: fmt.Sprintf("run-of-%d", broker)},
		Nonce: func() string {
			b.nonce++
			return "nonce-" + strconv.Itoa(b.nonce)
		},
	}
}

// open opens the chain through s, or through the faultless store if s is nil.
func (b *bench) open(s object.Store, broker int32) (*Chain, *ledger) {
	b.t.Helper()
	c, l, err := b.tryOpen(s, b.options(broker))
	if err != nil {
		b.t.Fatal(err)
	}
	return c, l
}

func (b *bench) tryOpen(s object.Store, opts Options) (*Chain, *ledger, error) {
	if s == nil {
		s = b.store
	}
	l := &ledger{}
	c, err := Open(b.t.Context(), s, prefix, opts, l)
	return c, l, err
}

func records(texts ...string) []json.RawMessage {
	rs := make([]json.RawMessage, len(texts))
	for i, s := range texts {
		rs[i] = json.RawMessage(strconv.Quote(s))
	}
	return rs
}

func (b *bench) append(c *Chain, epoch int64, texts ...string) (object.Outcome, error) {
	_, outcome, err := c.Append(b.t.Context(), b.now, epoch, records(texts...))
	return outcome, err
}

// commit is an append that has to be Done.
func (b *bench) commit(c *Chain, epoch int64, texts ...string) {
	b.t.Helper()
	if outcome, err := b.append(c, epoch, texts...); outcome != object.Done || err != nil {
		b.t.Fatalf("append is %v: %v", outcome, err)
	}
}

// snapshot takes a snapshot at the tail of a handle that is up to date.
func (b *bench) snapshot(c *Chain) {
	b.t.Helper()
	_, l := b.open(nil, 99)
	state, err := l.State()
	if err == nil {
		err = c.Snapshot(b.t.Context(), b.now, c.Tail(), state)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// grow commits n entries that hold their numbers, and takes a snapshot at every second.
func (b *bench) grow(c *Chain, n int) {
	b.t.Helper()
	for range n {
		next := c.Tail().Number + 1
		b.commit(c, 1, strconv.FormatInt(next, 10))
		if next%2 == 0 {
			b.snapshot(c)
		}
	}
}

func (b *bench) trim(c *Chain) int64 {
	b.t.Helper()
	boundary, err := c.Trim(b.t.Context(), b.now, MinRetention, freshLedger)
	if err != nil {
		b.t.Fatal(err)
	}
	return boundary
}

// put stores raw bytes, as no writer would.
func (b *bench) put(key string, body []byte) {
	b.t.Helper()
	if _, err := b.store.Put(b.t.Context(), key, bytes.NewReader(body), object.Condition{}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) get(key string) []byte {
	b.t.Helper()
	body, _, err := object.Read(b.t.Context(), b.store, key, 1<<30)
	if err != nil {
		b.t.Fatal(err)
	}
	return body
}

func (b *bench) remove(key string) {
	b.t.Helper()
	if err := b.store.Delete(b.t.Context(), key); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) keys() (keys []string) {
	for info := range b.store.List(b.t.Context(), prefix+"/", "") {
		keys = append(keys, info.Key[len(prefix)+1:])
	}
	return keys
}

func (b *bench) location() location { return location{b.store, prefix} }

// forge stores e as it is, well formed, in the place of its number.
func (b *bench) forge(e Entry) Entry {
	b.t.Helper()
	body, err := e.encode()
	if err != nil {
		b.t.Fatal(err)
	}
	b.put(b.location().entry(e.Number), body)
	return e
}

func TestAWriterCommitsAndAReaderFollows(t *testing.T) {
	b := newBench(t)
	w, _ := b.open(nil, 1)
	r, seen := b.open(nil, 2)
	for i := range 5 {
		b.commit(w, 1, "a"+strconv.Itoa(i), "b"+strconv.Itoa(i))
		u, err := r.Refresh(t.Context())
		if err != nil || u.More || u.State != nil {
			t.Fatalf("update %+v, %v", u, err)
		}
		if err := u.ApplyTo(seen); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(seen.records); got != "[a0 b0 a1 b1 a2 b2 a3 b3 a4 b4]" {
		t.Errorf("the reader has %v", got)
	}
	if r.Tail() != w.Tail() || r.Tail().Number != 5 || r.Tail().NextRecord != 10 {
		t.Errorf("tails %+v and %+v", r.Tail(), w.Tail())
	}
	_, late := b.open(nil, 3)
	if !slices.Equal(late.records, seen.records) {
		t.Errorf("who opens later has %v", late.records)
	}
}

func TestReadersGetLongChainsInPieces(t *testing.T) {
	b := newBench(t)
	w, _ := b.open(nil, 1)
	r, seen := b.open(nil, 2)
	const entries = 2*batchEntries + 10
	for i := range entries {
		b.commit(w, 1, strconv.Itoa(i))
	}
	pieces := 0
	for more := true; more; pieces++ {
		u, err := r.Refresh(t.Context())
		if err != nil || len(u.Entries) > batchEntries {
			t.Fatalf("%d entries, %v", len(u.Entries), err)
		}
		if outcome, err := b.append(r, 2, "too early"); u.More && (outcome != object.Lost || !errors.Is(err, ErrFenced)) {
			t.Fatalf("append of a handle that is not at the tail: %v, %v", outcome, err)
		}
		_ = u.ApplyTo(seen)
		more = u.More
	}
	if pieces != 3 || len(seen.records) != entries {
		t.Errorf("%d records in %d pieces", len(seen.records), pieces)
	}
}

// TestAppendOutcomes: what each fault of the store turns into. The requests of an append are put, get, (put, get, ...)
// list.
func TestAppendOutcomes(t *testing.T) {
	const (
		none, refuse, lose, late = faultstore.None, faultstore.Refuse, faultstore.LoseAnswer, faultstore.Late
		twice, falsely           = faultstore.Twice, faultstore.FalseFailure
	)
	for _, c := range []struct {
		name   string
		script []faultstore.Fault
		rival  bool
		want   object.Outcome
	}{
		{"clean", nil, false, object.Done},
		{"the number is taken", nil, true, object.Lost},
		{"FM-03 lost answer", []faultstore.Fault{lose}, false, object.Done},
		{"FM-03 lost answer, taken", []faultstore.Fault{lose}, true, object.Lost},
		{"FM-04 our own echo", []faultstore.Fault{twice}, false, object.Done},
		{"FM-04 409, then carried out", []faultstore.Fault{faultstore.Conflict}, false, object.Done},
		{"412 without reason", []faultstore.Fault{falsely}, false, object.Done},
		{"late at every try", []faultstore.Fault{late, none, late, none, late, none}, false, object.Unknown},
		{"store away", slices.Repeat([]faultstore.Fault{refuse}, 20), false, object.Unknown},
		{"no look at the boundary", []faultstore.Fault{none, none, refuse, refuse, refuse}, false, object.Unknown},
		{"a look at the boundary at the second try", []faultstore.Fault{none, none, refuse}, false, object.Done},
	} {
		b := newBench(t)
		w, _ := b.open(nil, 1)
		b.commit(w, 1, "first")
		if c.rival {
			rival, _ := b.open(nil, 2)
			b.commit(rival, 2, "rival's")
		}
		w.at.store = faultstore.New(b.store, faultstore.Script(c.script...))
		before := w.Tail()
		e, outcome, err := w.Append(t.Context(), b.now, 1, records("mine"))
		if outcome != c.want || (err == nil) != (outcome == object.Done) {
			t.Errorf("%s: %v, %v; want %v", c.name, outcome, err, c.want)
		}
		w.at.store = b.store
		_, again, _ := w.Append(t.Context(), b.now, 1, records("next"))
		if outcome == object.Done {
			if w.Tail().Number != 3 || e.Number != 2 || again != object.Done {
				t.Errorf("%s: entry %d, tail %d, then %v", c.name, e.Number, w.Tail().Number, again)
			}
			continue
		}
		if w.Tail() != before || again != object.Lost {
			t.Errorf("%s: a fenced handle appends: %v, tail %d", c.name, again, w.Tail().Number)
		}
		if _, err := w.Refresh(t.Context()); err != nil {
			t.Errorf("%s: refresh: %v", c.name, err)
		}
		if _, again, err := w.Append(t.Context(), b.now, 5, records("next")); again != object.Done {
			t.Errorf("%s: after refresh: %v, %v", c.name, again, err)
		}
	}
}

func TestALateAppendLandsOrNotButNeverTwice(t *testing.T) {
	for _, refreshFirst := range []bool{false, true} {
		b := newBench(t)
		s := faultstore.New(b.store, func(c faultstore.Call) faultstore.Fault {
			if c.Op == faultstore.Put {
				return faultstore.Late
			}
			return faultstore.None
		})
		w, _ := b.open(s, 1)
		if outcome, _ := b.append(w, 1, "late"); outcome != object.Unknown {
			t.Fatalf("outcome is %v", outcome)
		}
		rival, _ := b.open(nil, 2)
		if refreshFirst { // the rival is faster
			b.commit(rival, 2, "rival's")
		}
		for range s.Late() {
			_ = s.Release(t.Context(), 0)
		}
		want := "[late]"
		if refreshFirst {
			want = "[rival's]"
		}
		outcome, _ := b.append(rival, 2, "again")
		if refreshFirst == (outcome != object.Done) {
			t.Errorf("the rival's append is %v", outcome)
		}
		if refreshFirst {
			want = "[rival's again]"
		}
		if _, seen := b.open(nil, 3); fmt.Sprint(seen.records) != want {
			t.Errorf("the chain holds %v, not %s", seen.records, want)
		}
	}
}

func TestAppendRefusesBeforeItWrites(t *testing.T) {
	b := newBench(t)
	w, _ := b.open(nil, 1)
	b.commit(w, 3, "first")
	other, _ := b.open(nil, 2)
	huge := json.RawMessage(strconv.Quote(string(bytes.Repeat([]byte("x"), EntryBytesMax))))
	for _, c := range []struct {
		name    string
		handle  *Chain
		epoch   int64
		records []json.RawMessage
		want    error
	}{
		{"lower epoch", w, 2, nil, ErrFenced},
		{"no epoch", w, 0, nil, ErrFenced},
		{"another writer's epoch", other, 3, nil, ErrFenced},
		{"too large", w, 3, []json.RawMessage{huge}, ErrTooLarge},
		{"not JSON", w, 3, []json.RawMessage{json.RawMessage("{")}, nil},
	} {
		_, outcome, err := c.handle.Append(t.Context(), b.now, c.epoch, c.records)
		if outcome != object.Lost || err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v", c.name, outcome, err)
		}
	}
	if got := len(b.keys()); got != 1 {
		t.Errorf("%d objects", got)
	}
	b.commit(w, 3, "the handle is as it was")
	if outcome, err := b.append(other, 4, "not at the tail"); outcome != object.Lost || !errors.Is(err, ErrFenced) {
		t.Errorf("a number that is taken: %v, %v", outcome, err)
	}
}

func TestRefreshIsAllOrNothing(t *testing.T) {
	b := newBench(t)
	w, _ := b.open(nil, 1)
	fail := false
	s := faultstore.New(b.store, func(c faultstore.Call) faultstore.Fault {
		if fail && c.Op == faultstore.List {
			return faultstore.Throttle
		}
		return faultstore.None
	})
	r, _ := b.open(s, 2)
	b.commit(w, 1, "a")
	fail = true
	if _, err := r.Refresh(t.Context()); !errors.Is(err, object.ErrUnavailable) || r.Tail().Number != 0 {
		t.Errorf("%v, tail %d", err, r.Tail().Number)
	}
	fail = false
	if u, err := r.Refresh(t.Context()); err != nil || len(u.Entries) != 1 || r.Tail().Number != 1 {
		t.Errorf("%d entries, %v", len(u.Entries), err)
	}
}

func TestReadShowsAChainFromAnyNumber(t *testing.T) {
	b := newBench(t)
	w, _ := b.open(nil, 1)
	for i := 1; i <= 8; i++ {
		b.commit(w, 1, strconv.Itoa(i))
		if i <= 6 && i%2 == 0 {
			b.snapshot(w)
		}
	}
	numbers := func(first int64) string {
		var got []int64
		for e, err := range Read(t.Context(), b.store, prefix, first) {
			if err != nil {
				return err.Error()
			}
			got = append(got, e.Number)
		}
		return fmt.Sprint(got)
	}
	for first, want := range map[int64]string{0: "[1 2 3 4 5 6 7 8]", 1: "[1 2 3 4 5 6 7 8]", 7: "[7 8]", 9: "[]"} {
		if got := numbers(first); got != want {
			t.Errorf("from %d: %s, not %s", first, got, want)
		}
	}
	b.now = b.now.Add(48 * time.Hour)
	if boundary := b.trim(w); boundary != 2 {
		t.Fatalf("boundary %d", boundary)
	}
	for first, want := range map[int64]string{0: "[3 4 5 6 7 8]", 2: "[3 4 5 6 7 8]", 3: "[3 4 5 6 7 8]", 4: "[4 5 6 7 8]"} {
		if got := numbers(first); got != want {
			t.Errorf("trimmed, from %d: %s, not %s", first, got, want)
		}
	}
	for e := range Read(t.Context(), b.store, prefix, 0) {
		if e.Number == 4 {
			break // a reader may stop
		}
	}
}

func TestCallsEndWithTheirContext(t *testing.T) {
	b := newBench(t)
	w, _ := b.open(nil, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, outcome, err := w.Append(ctx, b.now, 1, nil); outcome != object.Unknown || !errors.Is(err, object.ErrUnavailable) {
		t.Errorf("append: %v, %v", outcome, err)
	}
	if _, err := w.Refresh(ctx); !errors.Is(err, object.ErrUnavailable) {
		t.Errorf("refresh: %v", err)
	}
	if _, err := Open(ctx, b.store, prefix, b.options(1), freshLedger()); !errors.Is(err, object.ErrUnavailable) {
		t.Errorf("open: %v", err)
	}
}
