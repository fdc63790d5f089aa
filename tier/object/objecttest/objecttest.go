// Package objecttest is the conformance test that every implementation of object.Store passes.
package objecttest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/storecheck"
)

// Run tries a store. It works under the keys "objecttest/...", which must be free, and leaves nothing there.
func Run(t *testing.T, s object.Store) {
	t.Helper()
	_ = storecheck.Full(t.Context(), s, "objecttest", Parallel, func(r storecheck.Result) {
		t.Run(r.Name, func(t *testing.T) {
			if r.Err != nil {
				t.Error(r.Err)
			}
		})
	})
	t.Run("leaves-nothing", func(t *testing.T) {
		for info, err := range s.List(t.Context(), "objecttest/", "") {
			t.Errorf("left behind: %s (%v)", info.Key, err)
		}
	})
	t.Run("lists-twice", func(t *testing.T) { listsTwice(t, s) })
	t.Run("cancelled", func(t *testing.T) { cancelled(t, s) })
	t.Run("invalid-keys", func(t *testing.T) { invalidKeys(t, s) })
}

// Parallel is a storecheck.Runner.
func Parallel(n int, task func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { task(i) })
	}
	wg.Wait()
}

// listsTwice: a list that is gone through again is the same.
func listsTwice(t *testing.T, s object.Store) {
	ctx := t.Context()
	keys := []string{"objecttest/twice/a", "objecttest/twice/b", "objecttest/twice/c"}
	for _, key := range keys {
		if _, err := s.Put(ctx, key, bytes.NewReader([]byte("x")), object.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	list := s.List(ctx, "objecttest/twice/", keys[0])
	for range 2 {
		var got []string
		for info, err := range list {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, info.Key)
		}
		if !slices.Equal(got, keys[1:]) {
			t.Errorf("behind %s lies %v", keys[0], got)
		}
	}
	for _, key := range keys {
		if err := s.Delete(ctx, key); err != nil {
			t.Error(err)
		}
	}
}

// cancelled: a call whose context is done does nothing and says that the store is unavailable.
func cancelled(t *testing.T, s object.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	const key = "objecttest/cancelled"
	_, getErr := s.Get(ctx, key, object.Range{})
	_, headErr := s.Head(ctx, key)
	_, putErr := s.Put(ctx, key, bytes.NewReader([]byte("x")), object.IfAbsent())
	var listErr error
	for _, err := range s.List(ctx, "objecttest/", "") {
		listErr = err
	}
	for op, err := range map[string]error{
		"get": getErr, "head": headErr, "put": putErr, "list": listErr, "delete": s.Delete(ctx, key),
	} {
		if !errors.Is(err, object.ErrUnavailable) {
			t.Errorf("%s with a cancelled context: %v", op, err)
		}
	}
	if _, err := s.Head(t.Context(), key); !errors.Is(err, object.ErrNotExist) {
		t.Errorf("after a cancelled put: %v", err)
	}
}

// invalidKeys: what ValidKey refuses never reaches the store, least of all as a path.
func invalidKeys(t *testing.T, s object.Store) {
	ctx := t.Context()
	for _, key := range []string{"", "/", "/a", "a/", "a//b", "../a", "a/../../b", "a/./b", ".", "a\x00b", `a\b`, "a b", "ä", "~tmp/x"} {
		_, getErr := s.Get(ctx, key, object.Range{})
		_, headErr := s.Head(ctx, key)
		_, putErr := s.Put(ctx, key, bytes.NewReader(nil), object.Condition{})
		for op, err := range map[string]error{"get": getErr, "head": headErr, "put": putErr, "delete": s.Delete(ctx, key)} {
			if !errors.Is(err, object.ErrKey) {
				t.Errorf("%s %q: %v", op, key, err)
			}
		}
	}
}
