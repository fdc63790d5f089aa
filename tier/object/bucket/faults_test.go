package bucket_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/guard"
	"github.com/tidemark-io/tidemark/tier/object/objecttest"
	"github.com/tidemark-io/tidemark/tier/object/s3proxy"
	"github.com/tidemark-io/tidemark/tier/object/s3test"
	"github.com/tidemark-io/tidemark/tier/object/storecheck"
	"github.com/tidemark-io/tidemark/tier/object/storeurl"
)

// rig is a MinIO with a proxy in front of it, and a store over both by each client.
type rig struct {
	server *s3test.Server
	proxy  *s3proxy.Proxy
	bucket string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{server: s3test.Start(t, s3test.MinIO)}
	r.proxy = s3proxy.Start(t, r.server.URL)
	r.bucket = r.server.Bucket(t)
	return r
}

// each runs a test with each client, in a folder of its own.
func (r *rig) each(t *testing.T, test func(t *testing.T, s object.Store)) {
	t.Helper()
	for _, scheme := range []string{"s3", "minio"} {
		t.Run(scheme, func(t *testing.T) {
			t.Cleanup(func() { r.proxy.Set(nil) })
			test(t, r.open(t, scheme))
		})
	}
}

func (r *rig) open(t *testing.T, scheme string) object.Store {
	t.Helper()
	s, err := storeurl.Open(t.Context(), s3test.URL(r.proxy.URL, "", scheme, r.bucket, scheme))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fail makes the same fault of every request of a method.
func fail(method string, f s3proxy.Fault) func(s3proxy.Request) s3proxy.Fault {
	return func(r s3proxy.Request) s3proxy.Fault {
		if r.Method == method {
			return f
		}
		return s3proxy.Fault{}
	}
}

// script makes the n-th request of a method suffer the n-th fault.
func script(method string, faults ...s3proxy.Fault) func(s3proxy.Request) s3proxy.Fault {
	var n atomic.Int64
	return func(r s3proxy.Request) s3proxy.Fault {
		if r.Method != method {
			return s3proxy.Fault{}
		}
		if i := int(n.Add(1)); i <= len(faults) {
			return faults[i-1]
		}
		return s3proxy.Fault{}
	}
}

func settle(t *testing.T, s object.Store, key, body string, cond object.Condition) (object.Settled, error) {
	t.Helper()
	return object.Settle(t.Context(), s, key, []byte(body), cond, 1<<10)
}

// TestBO096FM05AStoreThatIgnoresConditionsIsRefused: the server is a good one, and the proxy hides the conditions from it.
func TestBO096FM05AStoreThatIgnoresConditionsIsRefused(t *testing.T) {
	r := newRig(t)
	r.each(t, func(t *testing.T, s object.Store) {
		if err := storecheck.Quick(t.Context(), s, "check/good", objecttest.Parallel); err != nil {
			t.Fatalf("a good store: %v", err)
		}
		r.proxy.Set(fail(http.MethodPut, s3proxy.Fault{Strip: true}))
		if err := storecheck.Quick(t.Context(), s, "check/bad", objecttest.Parallel); !errors.Is(err, storecheck.ErrFailed) {
			t.Errorf("conditions are stripped: %v", err)
		}
	})
}

// TestFM03AnAnswerThatIsLostAfterTheCommit: read back, the put turns out to be ours; and it was sent once, not again by the SDK.
func TestFM03AnAnswerThatIsLostAfterTheCommit(t *testing.T) {
	r := newRig(t)
	r.each(t, func(t *testing.T, s object.Store) {
		var puts atomic.Int64
		r.proxy.Set(func(q s3proxy.Request) s3proxy.Fault {
			if q.Method != http.MethodPut {
				return s3proxy.Fault{}
			}
			puts.Add(1)
			return s3proxy.Fault{Lose: true}
		})
		if _, err := s.Put(t.Context(), "once", strings.NewReader("x"), object.IfAbsent()); !errors.Is(err, object.ErrUnavailable) || puts.Load() != 1 {
			t.Errorf("a lost answer is %v, after %d puts", err, puts.Load())
		}
		created, err := settle(t, s, "k", "mine", object.IfAbsent())
		if created.Outcome != object.Done || err != nil {
			t.Errorf("create: %v, %v", created.Outcome, err)
		}
		swapped, err := settle(t, s, "k", "mine again", object.IfMatch(created.Token))
		if swapped.Outcome != object.Done || err != nil {
			t.Errorf("swap: %v, %v", swapped.Outcome, err)
		}
		late, err := settle(t, s, "k", "too late", object.IfMatch(created.Token))
		if late.Outcome != object.Lost || string(late.Body) != "mine again" || err != nil {
			t.Errorf("a swap of what is gone: %v of %q, %v", late.Outcome, late.Body, err)
		}
	})
}

// TestFM04TheSameRequestTwiceAndConflicts: a 412 that is the echo of our own put, and a 409 that decides nothing.
func TestFM04TheSameRequestTwiceAndConflicts(t *testing.T) {
	r := newRig(t)
	conflict, failed := s3proxy.Fault{Refuse: http.StatusConflict}, s3proxy.Fault{Refuse: http.StatusPreconditionFailed}
	r.each(t, func(t *testing.T, s object.Store) {
		r.proxy.Set(fail(http.MethodPut, s3proxy.Fault{Twice: true}))
		if _, err := s.Put(t.Context(), "echo", strings.NewReader("x"), object.IfAbsent()); !errors.Is(err, object.ErrPrecondition) {
			t.Errorf("delivered twice: %v", err)
		}
		for i, faults := range [][]s3proxy.Fault{
			{{Twice: true}}, {conflict}, {conflict, failed}, {conflict, {Twice: true}}, {failed, conflict}, {{Lose: true}, failed},
		} {
			r.proxy.Set(script(http.MethodPut, faults...))
			key := fmt.Sprintf("k%d", i)
			if got, err := settle(t, s, key, "mine", object.IfAbsent()); got.Outcome != object.Done || err != nil {
				t.Errorf("faults %d: %v, %v", i, got.Outcome, err)
			}
		}
	})
}

// TestEachAnswerHasItsMeaning: what a status means to a put and to a get.
func TestEachAnswerHasItsMeaning(t *testing.T) {
	r := newRig(t)
	r.each(t, func(t *testing.T, s object.Store) {
		for status, want := range map[int]error{
			http.StatusPreconditionFailed: object.ErrPrecondition,
			http.StatusConflict:           object.ErrUnavailable, http.StatusTooManyRequests: object.ErrUnavailable,
			http.StatusInternalServerError: object.ErrUnavailable, http.StatusServiceUnavailable: object.ErrUnavailable,
			http.StatusForbidden: object.ErrDenied,
			http.StatusNotFound:  object.ErrDenied, // of the bucket: it must not look empty
		} {
			r.proxy.Set(func(s3proxy.Request) s3proxy.Fault { return s3proxy.Fault{Refuse: status} })
			before := r.proxy.Requests()
			_, putErr := s.Put(t.Context(), "k", strings.NewReader("x"), object.IfAbsent())
			_, getErr := s.Get(t.Context(), "k", object.Range{})
			if !errors.Is(putErr, want) || !errors.Is(getErr, want) {
				t.Errorf("%d: put %v; get %v", status, putErr, getErr)
			}
			if n := r.proxy.Requests() - before; n != 2 {
				t.Errorf("%d: %d requests for a put and a get", status, n)
			}
		}
		for name, f := range map[string]s3proxy.Fault{"reset": {Reset: true}, "lost": {Lose: true}} {
			r.proxy.Set(func(s3proxy.Request) s3proxy.Fault { return f })
			if _, err := s.Head(t.Context(), "k"); !errors.Is(err, object.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestAServerThatHangsMeetsTheDeadline: before the answer, and in the middle of a body.
func TestAServerThatHangsMeetsTheDeadline(t *testing.T) {
	r := newRig(t)
	r.each(t, func(t *testing.T, s object.Store) {
		g := guard.New(s, guard.Options{Deadline: 200 * time.Millisecond, Tries: 1})
		if _, err := g.Put(t.Context(), "k", strings.NewReader("0123456789"), object.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		for name, f := range map[string]s3proxy.Fault{"hangs": {Hang: true}, "stalls": {Stall: true}, "is slow": {Delay: time.Hour}} {
			r.proxy.Set(func(s3proxy.Request) s3proxy.Fault { return f })
			_, _, err := object.Read(t.Context(), g, "k", 100)
			if !errors.Is(err, object.ErrUnavailable) || !strings.Contains(err.Error(), "no answer within") {
				t.Errorf("a get that %s: %v", name, err)
			}
			if _, err := g.Put(t.Context(), "p", strings.NewReader("x"), object.IfAbsent()); !errors.Is(err, object.ErrUnavailable) {
				t.Errorf("a put that %s: %v", name, err)
			}
		}
		r.proxy.Set(fail(http.MethodGet, s3proxy.Fault{CutBack: 4}))
		if b, _, err := object.Read(t.Context(), g, "k", 100); !errors.Is(err, object.ErrUnavailable) {
			t.Errorf("a body that is cut: %q, %v", b, err)
		}
	})
}

// TestBO097Throttling: with 503 for a third of the calls everything gets through, parts of uploads by themselves; with 503 for
// all of them the calls a second are bounded, and afterwards all goes on.
func TestBO097Throttling(t *testing.T) {
	r := newRig(t)
	r.each(t, func(t *testing.T, s object.Store) {
		const rate, burst = 100, 20
		g := guard.New(s, guard.Options{BackOff: 20 * time.Millisecond, Rate: rate, Burst: burst, Tries: 10})
		throttled := s3proxy.Fault{Refuse: http.StatusServiceUnavailable}
		r.proxy.Set(func(s3proxy.Request) s3proxy.Fault {
			if rand.IntN(10) < 3 {
				return throttled
			}
			return s3proxy.Fault{}
		})
		body := pattern(80 << 20)
		if _, err := g.Put(t.Context(), "segment", bytes.NewReader(body), object.Condition{}); err != nil {
			t.Fatalf("an upload with 30 %% of 503: %v", err)
		}
		got, _, err := object.Read(t.Context(), g, "segment", 1<<30)
		if err != nil || !bytes.Equal(got, body) {
			t.Fatalf("%d bytes read, %v", len(got), err)
		}

		r.proxy.Set(func(s3proxy.Request) s3proxy.Fault { return throttled })
		const outage = time.Second
		before, begin := r.proxy.Requests(), time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), outage)
		defer cancel()
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				for ctx.Err() == nil {
					if _, err := g.Head(ctx, "segment"); !errors.Is(err, object.ErrUnavailable) {
						t.Errorf("while it is throttled: %v", err)
					}
					time.Sleep(time.Millisecond) // callers without any pause would take the CPU from the rest
				}
			})
		}
		callers.Wait()
		sent := r.proxy.Requests() - before
		if most := 50 + burst + rate*time.Since(begin).Seconds(); float64(sent) > most {
			t.Errorf("%d requests of 50 callers in %s", sent, time.Since(begin))
		}
		r.proxy.Set(nil)
		if _, err := g.Head(t.Context(), "segment"); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// TestFM39AnUploadThatIsCut: nothing is seen under the key, and nothing is left behind, wherever the upload ends.
func TestFM39AnUploadThatIsCut(t *testing.T) {
	r := newRig(t)
	is := func(q s3proxy.Request, method, parameter string) bool {
		return q.Method == method && (parameter == "" || q.Query.Has(parameter))
	}
	whole, large := pattern(1<<20), pattern(66<<20)
	r.each(t, func(t *testing.T, s object.Store) {
		folder := strings.TrimPrefix(t.Name(), "TestFM39AnUploadThatIsCut/")
		for i, c := range []struct {
			name   string
			body   []byte
			decide func(q s3proxy.Request) s3proxy.Fault
		}{
			{"a put", whole, func(q s3proxy.Request) s3proxy.Fault {
				if is(q, http.MethodPut, "") {
					return s3proxy.Fault{CutBody: 300_000}
				}
				return s3proxy.Fault{}
			}},
			{"a part", large, func(q s3proxy.Request) s3proxy.Fault {
				if q.Query.Get("partNumber") == "3" {
					return s3proxy.Fault{CutBody: 3_000_000}
				}
				return s3proxy.Fault{}
			}},
			{"the completion", large, func(q s3proxy.Request) s3proxy.Fault {
				if is(q, http.MethodPost, "uploadId") {
					return s3proxy.Fault{Reset: true}
				}
				return s3proxy.Fault{}
			}},
		} {
			r.proxy.Set(c.decide)
			key := fmt.Sprintf("cut-%d", i)
			if _, err := s.Put(t.Context(), key, bytes.NewReader(c.body), object.IfAbsent()); !errors.Is(err, object.ErrUnavailable) {
				t.Errorf("%s is cut: %v", c.name, err)
			}
			r.proxy.Set(nil)
			if _, err := s.Head(t.Context(), key); !errors.Is(err, object.ErrNotExist) {
				t.Errorf("%s is cut, and there is an object: %v", c.name, err)
			}
			if left := r.server.Uploads(t, r.bucket, folder+"/"+key); len(left) != 0 {
				t.Errorf("%s is cut, and there are uploads left: %v", c.name, left)
			}
		}

		// The answer to the completion is lost: the object may be there, and then it is whole.
		r.proxy.Set(func(q s3proxy.Request) s3proxy.Fault { return s3proxy.Fault{Lose: is(q, http.MethodPost, "uploadId")} })
		if _, err := s.Put(t.Context(), "lost", bytes.NewReader(large), object.IfAbsent()); !errors.Is(err, object.ErrUnavailable) {
			t.Errorf("the completion's answer is lost: %v", err)
		}
		r.proxy.Set(nil)
		if got, _, err := object.Read(t.Context(), s, "lost", 1<<30); err != nil || !bytes.Equal(got, large) {
			t.Errorf("after a lost completion: %d bytes, %v", len(got), err)
		}
	})
}

// TestFM39WhatACrashLeavesIsSwept: an upload whose process is killed stays in the bucket, where no list shows it. MinIO tells of the
// uploads of one key alone, so that is what is swept there.
func TestFM39WhatACrashLeavesIsSwept(t *testing.T) {
	for kind, prefix := range map[s3test.Kind]string{s3test.MinIO: "dir/crashed", s3test.Versity: "dir/"} {
		server := s3test.Start(t, kind)
		bucket := server.Bucket(t)
		for _, scheme := range []string{"s3", "minio"} {
			s, err := storeurl.Open(t.Context(), server.StoreURL(scheme, bucket, scheme))
			if err != nil {
				t.Fatal(err)
			}
			g := guard.New(s, guard.Options{})
			upload, err := g.BeginUpload(t.Context(), "dir/crashed")
			if err == nil {
				_, err = g.PutPart(t.Context(), "dir/crashed", upload, 1, strings.NewReader("part"))
			}
			if err != nil {
				t.Fatal(err)
			}
			if left := server.Uploads(t, bucket, scheme+"/dir/crashed"); len(left) != 1 {
				t.Fatalf("%s by %s: uploads %v", kind, scheme, left)
			}
			if n, err := object.SweepUploads(t.Context(), g, prefix, time.Now().Add(-time.Hour)); n != 0 || err != nil {
				t.Errorf("%s by %s, what began just now: %d swept, %v", kind, scheme, n, err)
			}
			if n, err := object.SweepUploads(t.Context(), g, prefix, time.Now().Add(time.Hour)); n != 1 || err != nil {
				t.Errorf("%s by %s: %d swept, %v", kind, scheme, n, err)
			}
			if left := server.Uploads(t, bucket, scheme+"/dir/crashed"); len(left) != 0 {
				t.Errorf("%s by %s: uploads %v are left", kind, scheme, left)
			}
		}
	}
}

// TestTheStoresClockIsKnown: safety rule 23 compares it with ours.
func TestTheStoresClockIsKnown(t *testing.T) {
	r := newRig(t)
	r.each(t, func(t *testing.T, s object.Store) {
		g := guard.New(s, guard.Options{})
		if _, ok := object.SkewOf(g, time.Now()); ok {
			t.Error("known before the first answer")
		}
		if _, err := g.Head(t.Context(), "none"); !errors.Is(err, object.ErrNotExist) {
			t.Fatal(err)
		}
		skew, ok := object.SkewOf(g, time.Now())
		if !ok || skew.Ahead.Abs() > 5*time.Second || time.Since(skew.At) > time.Minute {
			t.Errorf("%+v, %v", skew, ok)
		}
	})
}

// pattern is a body whose parts all differ.
func pattern(n int) []byte {
	b := make([]byte, n)
	_, _ = io.ReadFull(rand.NewChaCha8([32]byte{1}), b)
	return b
}
