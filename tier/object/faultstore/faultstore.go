// Package faultstore wraps an object store with the faults that real ones have: refused and throttled requests, answers
// lost after the commit, puts that land after their time-out, requests delivered twice, stale reads, conditions that are
// ignored.
//
// It is deterministic: which request suffers what is decided by a function of the caller's, a script or a seeded source,
// and a put that is late lands when the caller says so. It has no clock and starts no goroutine.
package faultstore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"sync"

	"github.com/tidemark-io/tidemark/tier/object"
)

// Op is a kind of request.
type Op string

// The requests of an object.Store.
const (
	Get    Op = "get"
	Head   Op = "head"
	Put    Op = "put"
	Delete Op = "delete"
	List   Op = "list"
)

// Call is a request before it reaches the store.
type Call struct {
	Seq  int // counts the requests of this store from 1 on
	Op   Op
	Key  string           // the prefix for List
	Cond object.Condition // for Put
}

// Fault is what goes wrong with a request. A fault that makes no sense for the kind of request acts as Refuse.
type Fault int8

// The faults.
const (
	None             Fault = iota
	Refuse                 // the request never arrives; the caller sees a time-out
	Throttle               // the store answers 503 and does nothing
	Conflict               // a put: the store answers 409 and does nothing; nothing is decided
	LoseAnswer             // a put or delete: carried out, then the answer is lost
	Late                   // a put: the caller sees a time-out; the request arrives when Release says so
	Twice                  // a put or delete: delivered twice, the second answer comes back
	FalseFailure           // a put: not carried out, and answered 412 though the condition held
	Stale                  // a get, head or list: as if the last put or delete had not happened
	IgnoreConditions       // a put: carried out whatever its condition says
	Corrupt                // a get: one byte is flipped
	last
)

// Store is a faulty view of another store; several views of one store are possible, each with faults of its own.
type Store struct {
	inner  object.Store
	decide func(Call) Fault

	mu     sync.Mutex // guards what follows; never held while inner or decide is called
	seq    int
	late   []latePut
	recent change
}

// change is the last put or delete through a view: what stale answers have not heard of.
type change struct {
	key    string
	before []byte // what key held; nil: nothing
}

type latePut struct {
	call Call
	body []byte
}

// New wraps inner. decide is asked before each request, with no lock held: it may use the store itself, which lets a test
// do something else between two requests of its subject. A nil decide makes no faults.
func New(inner object.Store, decide func(Call) Fault) *Store {
	if decide == nil {
		decide = func(Call) Fault { return None }
	}
	return &Store{inner: inner, decide: decide}
}

// Rates gives the probability of each fault.
type Rates map[Fault]float64

// Seeded decides by rng at the given rates.
func Seeded(rng *rand.Rand, rates Rates) func(Call) Fault {
	return func(Call) Fault {
		p := rng.Float64()
		for f := None + 1; f < last; f++ { // in a fixed order: a map's is not
			if p -= rates[f]; p < 0 {
				return f
			}
		}
		return None
	}
}

// Script gives the n-th request the n-th fault, and none after the last.
func Script(faults ...Fault) func(Call) Fault {
	return func(c Call) Fault {
		if c.Seq <= len(faults) {
			return faults[c.Seq-1]
		}
		return None
	}
}

func (s *Store) begin(op Op, key string, cond object.Condition) (Call, Fault) {
	s.mu.Lock()
	s.seq++
	c := Call{Seq: s.seq, Op: op, Key: key, Cond: cond}
	s.mu.Unlock()
	return c, s.decide(c)
}

// failed is the error of a request that does not reach the store, nil if it does.
func failed(c Call, f Fault) error {
	switch f {
	case None:
		return nil
	case Throttle:
		return fmt.Errorf("%s %s: %w: 503 SlowDown", c.Op, c.Key, object.ErrUnavailable)
	case Conflict:
		return fmt.Errorf("%s %s: %w: 409 ConditionalRequestConflict", c.Op, c.Key, object.ErrUnavailable)
	}
	return fmt.Errorf("%s %s: %w: timed out", c.Op, c.Key, object.ErrUnavailable)
}

// Get implements object.Store.
func (s *Store) Get(ctx context.Context, key string, r object.Range) (*object.Object, error) {
	call, fault := s.begin(Get, key, object.Condition{})
	if fault == Stale {
		if body, known := s.former(key); known {
			return staleObject(key, body, r)
		}
		fault = None
	}
	corrupt := fault == Corrupt
	if corrupt {
		fault = None
	}
	if err := failed(call, fault); err != nil {
		return nil, err
	}
	o, err := s.inner.Get(ctx, key, r)
	if err == nil && corrupt {
		o.Body = flipFirst(o.Body)
	}
	return o, err
}

func staleObject(key string, body []byte, r object.Range) (*object.Object, error) {
	if body == nil {
		return nil, fmt.Errorf("get %s: %w", key, object.ErrNotExist)
	}
	n, err := r.Clip(int64(len(body)))
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	info := object.Info{Key: key, Size: int64(len(body)), Token: "stale"}
	part := body[r.Offset : r.Offset+n]
	return &object.Object{Info: info, Body: io.NopCloser(bytes.NewReader(part))}, nil
}

// flipFirst damages the first byte of a body.
func flipFirst(body io.ReadCloser) io.ReadCloser {
	first := make([]byte, 1)
	n, _ := io.ReadFull(body, first)
	for i := range first[:n] {
		first[i] ^= 1
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(first[:n]), body), body}
}

// Head implements object.Store.
func (s *Store) Head(ctx context.Context, key string) (object.Info, error) {
	call, fault := s.begin(Head, key, object.Condition{})
	if fault == Stale {
		if body, known := s.former(key); known {
			if body == nil {
				return object.Info{}, fmt.Errorf("head %s: %w", key, object.ErrNotExist)
			}
			return object.Info{Key: key, Size: int64(len(body))}, nil
		}
		fault = None
	}
	if err := failed(call, fault); err != nil {
		return object.Info{}, err
	}
	return s.inner.Head(ctx, key)
}

// Put implements object.Store.
func (s *Store) Put(ctx context.Context, key string, body object.Body, cond object.Condition) (object.Token, error) {
	call, fault := s.begin(Put, key, cond)
	switch fault {
	case LoseAnswer:
		_, _ = s.put(ctx, key, body, cond) // whatever it says is what gets lost
		return "", failed(call, LoseAnswer)
	case Late:
		b, err := io.ReadAll(io.NewSectionReader(body, 0, body.Size()))
		if err != nil {
			return "", err
		}
		s.mu.Lock()
		s.late = append(s.late, latePut{call, b})
		s.mu.Unlock()
		return "", failed(call, Late)
	case Twice:
		if _, err := s.put(ctx, key, body, cond); err != nil {
			return "", err
		}
	case FalseFailure:
		return "", fmt.Errorf("put %s: %w", key, object.ErrPrecondition)
	case IgnoreConditions:
		cond = object.Condition{}
	default:
		if err := failed(call, fault); err != nil {
			return "", err
		}
	}
	return s.put(ctx, key, body, cond)
}

func (s *Store) put(ctx context.Context, key string, body object.Body, cond object.Condition) (object.Token, error) {
	before := s.current(ctx, key)
	token, err := s.inner.Put(ctx, key, body, cond)
	if err == nil {
		s.remember(key, before)
	}
	return token, err
}

// Late lists the puts that have not arrived yet, oldest first.
func (s *Store) Late() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := make([]Call, 0, len(s.late))
	for _, p := range s.late {
		calls = append(calls, p.call)
	}
	return calls
}

// Release lets the i-th put of Late arrive, and returns what the store would have answered.
func (s *Store) Release(ctx context.Context, i int) error {
	s.mu.Lock()
	p := s.late[i]
	s.late = append(s.late[:i:i], s.late[i+1:]...)
	s.mu.Unlock()
	_, err := s.put(ctx, p.call.Key, bytes.NewReader(p.body), p.call.Cond)
	return err
}

// Delete implements object.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	call, fault := s.begin(Delete, key, object.Condition{})
	switch fault {
	case LoseAnswer:
		_ = s.remove(ctx, key) // whatever it says is what gets lost
		return failed(call, LoseAnswer)
	case Twice:
		if err := s.remove(ctx, key); err != nil {
			return err
		}
	default:
		if err := failed(call, fault); err != nil {
			return err
		}
	}
	return s.remove(ctx, key)
}

func (s *Store) remove(ctx context.Context, key string) error {
	before := s.current(ctx, key)
	err := s.inner.Delete(ctx, key)
	if err == nil {
		s.remember(key, before)
	}
	return err
}

// List implements object.Store.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[object.Info, error] {
	return func(yield func(object.Info, error) bool) {
		call, fault := s.begin(List, prefix, object.Condition{})
		stale := fault == Stale
		if stale {
			fault = None
		}
		if err := failed(call, fault); err != nil {
			yield(object.Info{}, err)
			return
		}
		for info, err := range s.inner.List(ctx, prefix, after) {
			if before, known := s.former(info.Key); stale && known && before == nil {
				continue
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// staleBytesMax bounds what is kept for stale answers: a larger object counts as nothing.
const staleBytesMax = 1 << 20

// current is what key holds, nil for nothing.
func (s *Store) current(ctx context.Context, key string) []byte {
	b, _, err := object.Read(ctx, s.inner, key, staleBytesMax)
	if err != nil {
		return nil
	}
	return b
}

func (s *Store) remember(key string, before []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent = change{key, before}
}

// former is what key held before the last change, known only if that change was of this key.
func (s *Store) former(key string) (body []byte, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recent.before, key != "" && s.recent.key == key
}
