// Package memstore is an object store in memory, for tests and the simulator: no I/O, no goroutine, and the same calls
// always give the same answers.
package memstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
)

// Store keeps objects in memory. As with S3, the same bytes have the same token.
type Store struct {
	now func() time.Time

	mu      sync.Mutex // guards what follows; held for map and slice work only
	objects map[string]stored
	keys    []string // of objects, sorted
}

type stored struct {
	body []byte // never changed after it was stored
	info object.Info
}

// New returns an empty store. now gives the modification times; without it they are zero.
func New(now func() time.Time) *Store {
	if now == nil {
		now = func() time.Time { return time.Time{} }
	}
	return &Store{now: now, objects: map[string]stored{}}
}

// Get implements object.Store.
func (s *Store) Get(ctx context.Context, key string, r object.Range) (*object.Object, error) {
	o, err := s.find(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	n, err := r.Clip(o.info.Size)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	body := o.body[r.Offset : r.Offset+n]
	return &object.Object{Info: o.info, Body: io.NopCloser(bytes.NewReader(body))}, nil
}

// Head implements object.Store.
func (s *Store) Head(ctx context.Context, key string) (object.Info, error) {
	o, err := s.find(ctx, key)
	if err != nil {
		return object.Info{}, fmt.Errorf("head %s: %w", key, err)
	}
	return o.info, nil
}

func (s *Store) find(ctx context.Context, key string) (stored, error) {
	if err := admit(ctx, key); err != nil {
		return stored{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[key]
	if !ok {
		return stored{}, object.ErrNotExist
	}
	return o, nil
}

// admit is the check that every call begins with.
func admit(ctx context.Context, key string) error {
	if !object.ValidKey(key) {
		return object.ErrKey
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", object.ErrUnavailable, err)
	}
	return nil
}

// Put implements object.Store.
func (s *Store) Put(ctx context.Context, key string, body object.Body, cond object.Condition) (object.Token, error) {
	if err := admit(ctx, key); err != nil {
		return "", fmt.Errorf("put %s: %w", key, err)
	}
	b := make([]byte, body.Size())
	if _, err := io.ReadFull(io.NewSectionReader(body, 0, body.Size()), b); err != nil {
		return "", fmt.Errorf("put %s: read body: %w", key, err)
	}
	sum := sha256.Sum256(b)
	token := object.Token(hex.EncodeToString(sum[:]))
	info := object.Info{Key: key, Size: int64(len(b)), ModTime: s.now(), Token: token}

	s.mu.Lock()
	defer s.mu.Unlock()
	old, exists := s.objects[key]
	switch {
	case cond.Kind == object.Absent && exists, cond.Kind == object.Match && exists && old.info.Token != cond.Token:
		return "", fmt.Errorf("put %s: %w", key, object.ErrPrecondition)
	case cond.Kind == object.Match && !exists:
		return "", fmt.Errorf("put %s: %w", key, object.ErrNotExist)
	}
	if !exists {
		i, _ := slices.BinarySearch(s.keys, key)
		s.keys = slices.Insert(s.keys, i, key)
	}
	s.objects[key] = stored{body: b, info: info}
	return token, nil
}

// Delete implements object.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := admit(ctx, key); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := slices.BinarySearch(s.keys, key); ok {
		s.keys = slices.Delete(s.keys, i, i+1)
		delete(s.objects, key)
	}
	return nil
}

// pageKeys is how much of a list is consistent in itself, as in S3.
const pageKeys = 1000

// List implements object.Store.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[object.Info, error] {
	return func(yield func(object.Info, error) bool) {
		after := after
		for {
			if err := ctx.Err(); err != nil {
				yield(object.Info{}, fmt.Errorf("list %s: %w: %w", prefix, object.ErrUnavailable, err))
				return
			}
			page := s.page(prefix, after)
			for _, info := range page {
				if !yield(info, nil) {
					return
				}
			}
			if len(page) < pageKeys {
				return
			}
			after = page[len(page)-1].Key
		}
	}
}

// page copies what comes first under prefix and behind after.
func (s *Store) page(prefix, after string) []object.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, _ := slices.BinarySearch(s.keys, max(prefix, after))
	if i < len(s.keys) && s.keys[i] == after {
		i++
	}
	var page []object.Info
	for _, key := range s.keys[i:] {
		if len(page) == pageKeys || !strings.HasPrefix(key, prefix) {
			break
		}
		page = append(page, s.objects[key].info)
	}
	return page
}
