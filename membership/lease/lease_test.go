package lease

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
	storeguard "github.com/tidemark-io/tidemark/tier/object/guard"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
)

// fresh is a candidate that has found no lease, and the write by which it tries to get it.
func fresh(t *testing.T) (*Lease, Action) {
	t.Helper()
	nonce := 0
	l, err := New(Config{
		ClusterID: "cluster", Broker: 1, Incarnation: "a", TTL: 6 * time.Second, Renew: time.Second,
		Nonce:  func() string { nonce++; return strconv.Itoa(nonce) },
		Jitter: func(time.Duration) time.Duration { return 0 },
	})
	if err != nil {
		t.Fatal(err)
	}
	if a := l.Step(at(0), ChainTail{0}); a.Op != OpRead {
		t.Fatalf("begins with %+v", a)
	}
	a := l.Step(at(0), ReadDone{})
	if a.Op != OpWrite || a.Condition.Kind != object.Absent {
		t.Fatalf("goes on with %+v", a)
	}
	return l, a
}

// TestSafety12TheMarginsOfTime: the holder counts from before it sent its renewal, an observer from after it saw the lease.
func TestSafety12TheMarginsOfTime(t *testing.T) {
	for _, c := range []struct{ ttl, held, free time.Duration }{
		{6 * time.Second, 5 * time.Second, 7300 * time.Millisecond},
		{10 * time.Second, 9 * time.Second, 11500 * time.Millisecond},
		{60 * time.Second, 54 * time.Second, 64 * time.Second},
	} {
		begin := func() *Lease {
			l, err := New(Config{
				ClusterID: "cluster", Broker: 1, Incarnation: "a", Founder: true, TTL: c.ttl, Renew: time.Second,
				Nonce: func() string { return "n" }, Jitter: func(time.Duration) time.Duration { return 0 },
			})
			if err != nil {
				t.Fatal(err)
			}
			l.Step(at(0), ChainTail{0})
			return l
		}
		holder := begin()
		sent := holder.Step(at(0), ReadDone{})
		holder.Step(at(0).Add(c.ttl/2), WriteDone{Outcome: object.Done, Record: &sent.Record, Token: "t"})
		if got := holder.ValidUntil().Sub(at(0)); got != c.held {
			t.Errorf("ttl %v: held for %v, want %v", c.ttl, got, c.held)
		}
		other := sent.Record
		other.Holder, other.Incarnation = 2, "b"
		observer := begin()
		observer.Step(at(0), ReadDone{Record: &other, Token: "t"})
		if free, ok := observer.candidateAt(); !ok || free.Sub(at(0)) != c.free {
			t.Errorf("ttl %v: another waits until %v, want %v", c.ttl, free.Sub(at(0)), c.free)
		}
	}
}

// TestALeaseThatNobodyElseWaitsForIsTakenAtOnce: candidates spread their tries, but for those that have no rivals.
func TestALeaseThatNobodyElseWaitsForIsTakenAtOnce(t *testing.T) {
	lease := func(state State, incarnation string) ReadDone {
		return ReadDone{Token: "t", Record: &Record{
			Version: formatVersion, ClusterID: "cluster", Epoch: 3, State: state, Holder: 1, Incarnation: incarnation,
			Seq: 9, Nonce: "n", TTLMs: 6000, RenewMs: 1000,
		}}
	}
	for _, c := range []struct {
		name    string
		founder bool
		found   ReadDone
		atOnce  bool
	}{
		{"the first of a cluster, by its founder", true, ReadDone{}, true},
		{"the first of a cluster, by another", false, ReadDone{}, false},
		{"held by the former incarnation", false, lease(Held, "former"), true},
		{"released by the former incarnation", false, lease(Released, "former"), true},
		{"released by another", true, lease(Released, "other"), false},
	} {
		l, err := New(Config{
			ClusterID: "cluster", Broker: 1, Incarnation: "a", Former: "former", Founder: c.founder,
			TTL: 6 * time.Second, Renew: time.Second,
			Nonce:  func() string { return "new" },
			Jitter: func(below time.Duration) time.Duration { return below - 1 },
		})
		if err != nil {
			t.Fatal(err)
		}
		l.Step(at(0), ChainTail{3})
		if a := l.Step(at(0), c.found); (a.Op == OpWrite) != c.atOnce {
			t.Errorf("%s: %+v", c.name, a)
		}
		if a := l.Step(at(600), Tick{}); !c.atOnce && a.Op != OpWrite {
			t.Errorf("%s, later: %+v", c.name, a)
		}
	}
}

func carriedOut(a Action, token string) WriteDone {
	return WriteDone{Outcome: object.Done, Record: &a.Record, Token: object.Token(token)}
}

// TestResignedWhileARequestIsOnItsWay: the role ends at once, and what the request brings is given up.
func TestResignedWhileARequestIsOnItsWay(t *testing.T) {
	for _, renewing := range []bool{false, true} {
		l, a := fresh(t)
		if renewing {
			l.Step(at(100), carriedOut(a, "t1"))
			if a = l.Step(at(1000), Tick{}); a.Op != OpWrite || a.Record.State != Held {
				t.Fatalf("renews by %+v", a)
			}
		}
		if b := l.Step(at(1100), Resign{time.Hour}); b.Op != OpNone {
			t.Errorf("renewing %v: two requests at once: %+v", renewing, b)
		}
		if epoch, ok := l.Holds(at(1100)); ok {
			t.Errorf("renewing %v: resigned, and holds epoch %d", renewing, epoch)
		}
		b := l.Step(at(1200), carriedOut(a, "t2"))
		if b.Op != OpWrite || b.Record.State != Released || b.Condition != object.IfMatch("t2") {
			t.Errorf("renewing %v: then %+v", renewing, b)
		}
		if epoch, ok := l.Holds(at(1200)); ok {
			t.Errorf("renewing %v: resigned, and holds epoch %d", renewing, epoch)
		}
	}
}

// TestAnAnswerThatComesTooLateCountsForNothing: the holder has fallen meanwhile and looks first.
func TestAnAnswerThatComesTooLateCountsForNothing(t *testing.T) {
	l, a := fresh(t)
	l.Step(at(100), carriedOut(a, "t1"))
	a = l.Step(at(1000), Tick{})
	if b := l.Step(at(5000), Tick{}); b.Op != OpNone {
		t.Errorf("while the renewal is on its way: %+v", b)
	}
	if b := l.Step(at(5100), carriedOut(a, "t2")); b.Op != OpRead {
		t.Errorf("after the late answer: %+v", b)
	}
	if epoch, ok := l.Holds(at(5100)); ok {
		t.Errorf("holds epoch %d", epoch)
	}
}

// hangingStore leaves the next put without an answer.
type hangingStore struct {
	object.Store
	hang bool
}

func (s *hangingStore) Put(ctx context.Context, key string, body object.Body, cond object.Condition) (object.Token, error) {
	if s.hang {
		s.hang = false
		<-ctx.Done()
		return "", object.ErrUnavailable
	}
	return s.Store.Put(ctx, key, body, cond)
}

// TestOneConnectionThatHangsDoesNotCostTheLease: the renewal is sent again before it lapses.
func TestOneConnectionThatHangsDoesNotCostTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &hangingStore{Store: memstore.New(nil)}
		g := storeguard.New(s, storeguard.Options{})
		ctx := object.WithCause(t.Context(), object.Cause{Kind: object.CauseLease})
		l, a := fresh(t)
		l.Step(at(0), Do(ctx, g, a))
		until := l.ValidUntil()
		a = l.Step(at(1000), Tick{})
		sent := time.Now()
		s.hang = true
		done := Do(ctx, g, a)
		if l.Step(at(1000).Add(time.Since(sent)), done); !l.ValidUntil().After(until) {
			t.Errorf("renewed after %v, valid until %v", time.Since(sent), l.ValidUntil())
		}
	})
}

// TestFM08EachLapseDoublesThePause: a store whose answers come after the ttl.
func TestFM08EachLapseDoublesThePause(t *testing.T) {
	l, a := fresh(t)
	now := at(0)
	var pauses []int
	for range 8 {
		now = now.Add(7 * time.Second)
		if b := l.Step(now, carriedOut(a, a.Record.Nonce)); b.Op != OpRead {
			t.Fatalf("after a lapse: %+v", b)
		}
		lapsed := now
		a = l.Step(now, ReadDone{Record: &a.Record, Token: object.Token(a.Record.Nonce)})
		for a.Op != OpWrite {
			wake, ok := l.NextWake()
			if !ok {
				t.Fatal("waits for ever")
			}
			now = wake
			if a = l.Step(now, Tick{}); a.Op == OpRead {
				current, _ := l.Current()
				a = l.Step(now, ReadDone{Record: &current, Token: object.Token(current.Nonce)})
			}
		}
		pauses = append(pauses, int(now.Sub(lapsed)/time.Second))
	}
	if got := fmt.Sprint(pauses); got != "[1 2 4 8 16 32 60 60]" {
		t.Errorf("pauses in seconds: %s", got)
	}
}
