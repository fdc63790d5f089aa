package faultstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
	"github.com/tidemark-io/tidemark/tier/object/objecttest"
)

func TestWithoutFaultsTheStoreConforms(t *testing.T) {
	objecttest.Run(t, faultstore.New(memstore.New(nil), nil))
}

// TestPutFaults: for each fault, what the caller hears of a create, and whether it was carried out.
func TestPutFaults(t *testing.T) {
	for _, c := range []struct {
		fault  faultstore.Fault
		err    error
		stored bool
	}{
		{faultstore.None, nil, true},
		{faultstore.Refuse, object.ErrUnavailable, false},
		{faultstore.Throttle, object.ErrUnavailable, false},
		{faultstore.Conflict, object.ErrUnavailable, false},
		{faultstore.LoseAnswer, object.ErrUnavailable, true},
		{faultstore.Late, object.ErrUnavailable, false},
		{faultstore.Twice, object.ErrPrecondition, true},
		{faultstore.FalseFailure, object.ErrPrecondition, false},
	} {
		inner := memstore.New(nil)
		s := faultstore.New(inner, faultstore.Script(c.fault))
		_, err := s.Put(t.Context(), "k", strings.NewReader("x"), object.IfAbsent())
		if !errors.Is(err, c.err) {
			t.Errorf("fault %d: error %v, want %v", c.fault, err, c.err)
		}
		if _, err := inner.Head(t.Context(), "k"); (err == nil) != c.stored {
			t.Errorf("fault %d: head says %v", c.fault, err)
		}
	}
}

func TestALatePutArrivesWhenReleased(t *testing.T) {
	ctx := t.Context()
	inner := memstore.New(nil)
	s := faultstore.New(inner, faultstore.Script(faultstore.Late, faultstore.Late))
	put := func(body string) error {
		_, err := s.Put(ctx, "k", strings.NewReader(body), object.IfAbsent())
		return err
	}
	if err := errors.Join(put("first"), put("second")); !errors.Is(err, object.ErrUnavailable) {
		t.Fatal(err)
	}
	if late := s.Late(); len(late) != 2 || late[0].Seq != 1 || late[0].Key != "k" {
		t.Fatalf("late puts are %v", late)
	}
	if err := s.Release(ctx, 1); err != nil {
		t.Errorf("the one that arrives first: %v", err)
	}
	if err := s.Release(ctx, 0); !errors.Is(err, object.ErrPrecondition) {
		t.Errorf("its condition is judged on arrival: %v", err)
	}
	if b, _, _ := object.Read(ctx, inner, "k", 10); string(b) != "second" || len(s.Late()) != 0 {
		t.Errorf("holds %q, still late: %v", b, s.Late())
	}
}

func TestStaleAnswersHaveNotHeardOfTheLastChange(t *testing.T) {
	ctx := t.Context()
	stale := false
	s := faultstore.New(memstore.New(nil), func(faultstore.Call) faultstore.Fault {
		if stale {
			return faultstore.Stale
		}
		return faultstore.None
	})
	put := func(key, body string) {
		t.Helper()
		stale = false
		if _, err := s.Put(ctx, key, strings.NewReader(body), object.Condition{}); err != nil {
			t.Fatal(err)
		}
		stale = true
	}
	list := func() (keys []string) {
		for info := range s.List(ctx, "", "") {
			keys = append(keys, info.Key)
		}
		return keys
	}
	put("a", "1")
	put("b", "1")
	if _, _, err := object.Read(ctx, s, "b", 10); !errors.Is(err, object.ErrNotExist) {
		t.Errorf("a new key: %v", err)
	}
	if got := fmt.Sprint(list()); got != "[a]" {
		t.Errorf("list is %v", got)
	}
	put("b", "2")
	if b, _, err := object.Read(ctx, s, "b", 10); string(b) != "1" || err != nil {
		t.Errorf("a changed key: %q, %v", b, err)
	}
	if got := fmt.Sprint(list()); got != "[a b]" {
		t.Errorf("list is %v", got)
	}
}

func TestCorruptFlipsAByte(t *testing.T) {
	ctx := t.Context()
	s := faultstore.New(memstore.New(nil), faultstore.Script(faultstore.None, faultstore.Corrupt))
	if _, err := s.Put(ctx, "k", strings.NewReader("body"), object.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	if b, _, err := object.Read(ctx, s, "k", 10); string(b) != "cody" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}

func TestTheSameSeedMakesTheSameFaults(t *testing.T) {
	rates := faultstore.Rates{faultstore.Refuse: 0.2, faultstore.LoseAnswer: 0.2, faultstore.Late: 0.1, faultstore.Twice: 0.1}
	trace := func(seed uint64) string {
		var b strings.Builder
		s := faultstore.New(memstore.New(nil), faultstore.Seeded(rand.New(rand.NewPCG(seed, 0)), rates))
		for i := range 200 {
			_, err := s.Put(t.Context(), fmt.Sprintf("k%d", i%20), strings.NewReader("x"), object.IfAbsent())
			fmt.Fprintln(&b, err)
		}
		return b.String()
	}
	if first, again := trace(1), trace(1); first != again {
		t.Error("one seed, two traces")
	}
	if trace(1) == trace(2) {
		t.Error("two seeds, one trace")
	}
	if !strings.Contains(trace(1), "timed out") || !strings.Contains(trace(1), "<nil>") {
		t.Error("all requests suffer the same")
	}
}
