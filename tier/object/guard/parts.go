package guard

import (
	"context"

	"github.com/tidemark-io/tidemark/tier/object"
)

// PartBytes implements object.Parted; it is 0 if the inner store is none.
func (s *Store) PartBytes(size int64) int64 {
	if s.parted == nil {
		return 0
	}
	return s.parted.PartBytes(size)
}

// BeginUpload implements object.Parted.
func (s *Store) BeginUpload(ctx context.Context, key string) (string, error) {
	var upload string
	err := s.repeat(ctx, BeginUpload, func(n int) error {
		c := s.begin(ctx, BeginUpload, 0, n)
		var err error
		upload, err = s.parted.BeginUpload(c.ctx, key)
		return c.end(err)
	})
	return upload, err
}

// PutPart implements object.Parted.
func (s *Store) PutPart(ctx context.Context, key, upload string, number int, body object.Body) (object.Part, error) {
	var part object.Part
	err := s.repeat(ctx, PutPart, func(n int) error {
		c := s.begin(ctx, PutPart, body.Size(), n)
		var err error
		part, err = s.parted.PutPart(c.ctx, key, upload, number, body)
		return c.sent(body.Size(), err)
	})
	return part, err
}

// CompleteUpload implements object.Parted. Where it is tried again after a lost answer, a store that does not know the upload
// any more makes it fail, though it was carried out: an error of it is as undecided as one of any other put. A server may join files for it:
// it gets a second more for each part.
func (s *Store) CompleteUpload(ctx context.Context, key, upload string, parts []object.Part, cond object.Condition) (object.Token, error) {
	var token object.Token
	err := s.write(ctx, CompleteUpload, cond, func(n int) error {
		c := s.begin(ctx, CompleteUpload, int64(len(parts))*s.o.Slowest, n)
		var err error
		token, err = s.parted.CompleteUpload(c.ctx, key, upload, parts, cond)
		return c.end(err)
	})
	return token, err
}

// AbortUpload implements object.Parted. It is tried once: what it leaves is swept.
func (s *Store) AbortUpload(ctx context.Context, key, upload string) error {
	c := s.begin(ctx, AbortUpload, 0, 1)
	return c.end(s.parted.AbortUpload(c.ctx, key, upload))
}
