package object_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
)

func TestValidKey(t *testing.T) {
	for key, want := range map[string]bool{
		"a": true, "a/b": true, "cluster.json": true, ".hidden/x": true, "...": true, "a-b_c.d/E9": true,
		strings.Repeat("k", 255): true, strings.Repeat("k", 256): false, "a/" + strings.Repeat("k", 256) + "/b": false,
		strings.Repeat("k/", 511) + "kk": true, strings.Repeat("k/", 512) + "k": false,
		"": false, "/": false, "/a": false, "a/": false, "a//b": false, ".": false, "..": false, "a/..": false,
		"../a": false, "a/./b": false, "a b": false, "a\\b": false, "a\x00": false, "a~": false, "é": false,
	} {
		if object.ValidKey(key) != want {
			t.Errorf("ValidKey(%q) is %v", key, !want)
		}
	}
}

func FuzzValidKeyNeverLeavesItsFolder(f *testing.F) {
	f.Add("a/../b")
	f.Fuzz(func(t *testing.T, key string) {
		if !object.ValidKey(key) {
			return
		}
		for part := range strings.SplitSeq(key, "/") {
			if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "\x00\\~") {
				t.Errorf("%q is valid with part %q", key, part)
			}
		}
	})
}

const key = "k"

// TestSettle: what each way of failing turns into, for a create and for a swap of "base".
func TestSettle(t *testing.T) {
	const (
		none, refuse, lose, late = faultstore.None, faultstore.Refuse, faultstore.LoseAnswer, faultstore.Late
		twice, falsely           = faultstore.Twice, faultstore.FalseFailure
		conflict, stale          = faultstore.Conflict, faultstore.Stale
	)
	for _, c := range []struct {
		name   string
		script []faultstore.Fault // put, get, put, get, ...
		rival  bool               // somebody else has written before
		want   object.Outcome
	}{
		{"clean", nil, false, object.Done},
		{"FM-02 somebody else was first", nil, true, object.Lost},
		{"FM-03 the answer is lost after the commit", []faultstore.Fault{lose}, false, object.Done},
		{"FM-03 the answer is lost after a failure", []faultstore.Fault{lose}, true, object.Lost},
		{"FM-04 delivered twice, answered 412", []faultstore.Fault{twice}, false, object.Done},
		{"FM-04 answered 409, then carried out", []faultstore.Fault{conflict}, false, object.Done},
		{"answered 412 though nothing stood against it", []faultstore.Fault{falsely}, false, object.Done},
		{"refused once", []faultstore.Fault{refuse}, false, object.Done},
		{"late once: the second try wins", []faultstore.Fault{late}, false, object.Done},
		{"late and a rival", []faultstore.Fault{late}, true, object.Lost},
		{"late at every try", []faultstore.Fault{late, none, late, none, late, none}, false, object.Unknown},
		{"no read back after a 2xx", []faultstore.Fault{none, refuse, refuse, refuse, refuse, refuse}, false, object.Unknown},
		{"the first read back fails", []faultstore.Fault{none, refuse}, false, object.Done},
		{"the read back is stale", []faultstore.Fault{none, stale, refuse}, false, object.Done},
		{"store away", []faultstore.Fault{refuse, refuse, refuse, refuse, refuse, refuse}, false, object.Unknown},
	} {
		for _, kind := range []object.ConditionKind{object.Absent, object.Match} {
			inner := memstore.New(nil)
			ctx := t.Context()
			cond := object.IfAbsent()
			if kind == object.Match {
				base, err := inner.Put(ctx, key, strings.NewReader("base"), object.IfAbsent())
				if err != nil {
					t.Fatal(err)
				}
				cond = object.IfMatch(base)
			}
			if c.rival {
				if _, err := inner.Put(ctx, key, strings.NewReader("rival"), cond); err != nil {
					t.Fatal(err)
				}
			}
			s := faultstore.New(inner, faultstore.Script(c.script...))
			if stale := c.script; kind == object.Match && len(stale) > 1 && stale[1] == faultstore.Stale {
				continue // a stale body has another token: a swap can't tell it from a rival's; see the lease
			}
			got, err := object.Settle(ctx, s, key, []byte("mine"), cond, 1<<10)
			if got.Outcome != c.want || (err != nil) != (c.want == object.Unknown) {
				t.Errorf("%s, condition %d: %v, error %v; want %v", c.name, kind, got.Outcome, err, c.want)
			}
			switch body := string(got.Body); {
			case got.Outcome == object.Done && body != "mine", got.Outcome == object.Lost && body != "rival":
				t.Errorf("%s, condition %d: %v with body %q", c.name, kind, got.Outcome, body)
			}
		}
	}
}

func TestSettleIfMatchOnAMissingKeyIsLost(t *testing.T) {
	s := memstore.New(nil)
	got, err := object.Settle(t.Context(), s, key, []byte("mine"), object.IfMatch("t"), 1<<10)
	if got.Outcome != object.Lost || err != nil {
		t.Errorf("%v, %v", got.Outcome, err)
	}
}

// TestSettleDoesNotTrustA2xx: a store that ignores the condition answers 2xx to both; the second one reads its own body
// and the first, which reads late, finds that it lost (safety rule 2).
func TestSettleDoesNotTrustA2xx(t *testing.T) {
	inner := memstore.New(nil)
	rival := faultstore.New(inner, func(faultstore.Call) faultstore.Fault { return faultstore.IgnoreConditions })
	s := faultstore.New(inner, func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.Get {
			if _, err := rival.Put(t.Context(), key, strings.NewReader("rival"), object.IfAbsent()); err != nil {
				t.Error(err)
			}
		}
		return faultstore.None
	})
	got, _ := object.Settle(t.Context(), s, key, []byte("mine"), object.IfAbsent(), 1<<10)
	if got.Outcome != object.Lost {
		t.Errorf("a 2xx that another body contradicts is %v", got.Outcome)
	}
}

func TestSettleIsBounded(t *testing.T) {
	calls := 0
	s := faultstore.New(memstore.New(nil), func(faultstore.Call) faultstore.Fault {
		calls++
		return faultstore.Throttle
	})
	_, err := object.Settle(t.Context(), s, key, []byte("mine"), object.IfAbsent(), 1<<10)
	if !errors.Is(err, object.ErrUnavailable) || calls > 6 {
		t.Errorf("BO-097: %d calls to a store that throttles, error %v", calls, err)
	}
}

func TestReadRefusesWhatIsTooLarge(t *testing.T) {
	s := memstore.New(nil)
	if _, err := s.Put(t.Context(), key, strings.NewReader("12345"), object.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := object.Read(t.Context(), s, key, 4); !errors.Is(err, object.ErrTooLarge) {
		t.Errorf("limit 4: %v", err)
	}
	if b, _, err := object.Read(t.Context(), s, key, 5); err != nil || string(b) != "12345" {
		t.Errorf("limit 5: %q, %v", b, err)
	}
}
