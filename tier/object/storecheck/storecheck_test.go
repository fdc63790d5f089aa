package storecheck_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
	"github.com/tidemark-io/tidemark/tier/object/objecttest"
	"github.com/tidemark-io/tidemark/tier/object/storecheck"
)

// ignoring is a store that accepts conditions of one kind and carries the put out all the same.
func ignoring(kind object.ConditionKind) object.Store {
	return faultstore.New(memstore.New(nil), func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.Put && c.Cond.Kind == kind {
			return faultstore.IgnoreConditions
		}
		return faultstore.None
	})
}

// createsOnMatch is MinIO before August 2025: If-Match on a missing key creates it.
type createsOnMatch struct{ object.Store }

func (s createsOnMatch) Put(ctx context.Context, key string, body object.Body, cond object.Condition) (object.Token, error) {
	token, err := s.Store.Put(ctx, key, body, cond)
	if errors.Is(err, object.ErrNotExist) {
		return s.Store.Put(ctx, key, body, object.Condition{})
	}
	return token, err
}

func TestBO096StoresThatBreakConditionsFail(t *testing.T) {
	for name, s := range map[string]object.Store{
		"create-only is ignored":           ignoring(object.Absent),
		"If-Match is ignored":              ignoring(object.Match),
		"If-Match creates what is missing": createsOnMatch{memstore.New(nil)},
	} {
		if err := storecheck.Quick(t.Context(), s, "store-check/1", objecttest.Parallel); !errors.Is(err, storecheck.ErrFailed) {
			t.Errorf("%s: quick says %v", name, err)
		}
		if err := storecheck.Full(t.Context(), s, "store-check/2", objecttest.Parallel, nil); !errors.Is(err, storecheck.ErrFailed) {
			t.Errorf("%s: full says %v", name, err)
		}
	}
}

// TestBO097AnAnswerThatDecidesNothingIsNoVerdict: one such answer, to whichever request, does not end a start.
func TestBO097AnAnswerThatDecidesNothingIsNoVerdict(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"refused": faultstore.Refuse, "throttled": faultstore.Throttle, "409": faultstore.Conflict, "answer lost": faultstore.LoseAnswer,
	} {
		for at := 1; ; at++ {
			hit := false
			s := faultstore.New(memstore.New(nil), func(c faultstore.Call) faultstore.Fault {
				if c.Seq == at {
					hit = true
					return fault
				}
				return faultstore.None
			})
			err := storecheck.Quick(t.Context(), s, "store-check/1", nil)
			if !hit {
				break
			}
			if err != nil {
				t.Errorf("%s at request %d: %v", name, at, err)
			}
		}
	}
}

// TestARaceWhoseWinnersAnswerIsLostIsNoVerdict: nobody knows that it won.
func TestARaceWhoseWinnersAnswerIsLostIsNoVerdict(t *testing.T) {
	lost := make(map[string]bool) // by key
	s := faultstore.New(memstore.New(nil), func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.Put && strings.Contains(c.Key, "create-race/0/") && !lost[c.Key] {
			lost[c.Key] = true
			return faultstore.LoseAnswer
		}
		return faultstore.None
	})
	lastFirst := func(n int, task func(i int)) { // so that the first racer is not the one without an answer
		for i := range n {
			task(n - 1 - i)
		}
	}
	if err := storecheck.Full(t.Context(), s, "store-check/1", lastFirst, nil); err != nil || len(lost) == 0 {
		t.Errorf("%v, %d answers lost", err, len(lost))
	}
}

// TestAStoreThatIsAwayHasNotFailed: nor is it asked for ever.
func TestAStoreThatIsAwayHasNotFailed(t *testing.T) {
	puts := 0
	s := faultstore.New(memstore.New(nil), func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.Put {
			puts++
		}
		return faultstore.Throttle
	})
	err := storecheck.Quick(t.Context(), s, "store-check/1", nil)
	if !errors.Is(err, object.ErrUnavailable) || errors.Is(err, storecheck.ErrFailed) {
		t.Error(err)
	}
	if puts > 9 { // three checks, three times each
		t.Errorf("%d puts", puts)
	}
}

func TestAGoodStorePassesAndNothingStays(t *testing.T) {
	s := memstore.New(nil)
	var names []string
	report := func(r storecheck.Result) { names = append(names, r.Name) }
	err := errors.Join(
		storecheck.Quick(t.Context(), s, "store-check/1", nil),
		storecheck.Quick(t.Context(), s, "store-check/3", objecttest.Parallel),
		storecheck.Full(t.Context(), s, "store-check/2", objecttest.Parallel, report),
	)
	if err != nil {
		t.Error(err)
	}
	if got := strings.Join(names[:3], " "); got != "create-twice wrong-token missing-key" {
		t.Errorf("reported %s", got)
	}
	for info := range s.List(t.Context(), "", "") {
		t.Errorf("left behind: %s", info.Key)
	}
}

// forgetful loses what a wrapper says it should, to see that the other checks can fail at all.
type forgetful struct {
	object.Store
	breaks string
}

func (s forgetful) Get(ctx context.Context, key string, r object.Range) (*object.Object, error) {
	if s.breaks == "ranges" && r.Length > 0 {
		r.Length++
	}
	return s.Store.Get(ctx, key, r)
}

func (s forgetful) Put(ctx context.Context, key string, body object.Body, cond object.Condition) (object.Token, error) {
	if s.breaks == "large" && body.Size() > 8<<20 {
		body = bytes.NewReader(make([]byte, body.Size()))
	}
	return s.Store.Put(ctx, key, body, cond)
}

func (s forgetful) Delete(ctx context.Context, key string) error {
	if s.breaks == "delete" && strings.HasSuffix(key, "delete/0/k") {
		return nil
	}
	return s.Store.Delete(ctx, key)
}

func TestEachBrokenPromiseHasItsCheck(t *testing.T) {
	for _, broken := range []string{"ranges", "large", "delete"} {
		s := forgetful{memstore.New(nil), broken}
		var failed []string
		err := storecheck.Full(t.Context(), s, "c", objecttest.Parallel, func(r storecheck.Result) {
			if r.Err != nil {
				failed = append(failed, r.Name)
			}
		})
		if got := strings.Join(failed, " "); got != broken || !errors.Is(err, storecheck.ErrFailed) {
			t.Errorf("a store with broken %s fails %q", broken, got)
		}
	}
}
