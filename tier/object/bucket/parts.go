package bucket

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
)

const (
	// wholeBytesMax is what goes in one request: half a second at 1 Gbit/s, and small enough to send again.
	wholeBytesMax = 64 << 20
	// partBytes is the size of a part: 64 parts in a segment of 1 GiB, and above the 5 MiB that S3 wants at least.
	partBytes = 16 << 20
	// partsMax is how many parts S3 takes.
	partsMax = 10_000
)

// PartBytes implements object.Parted.
func (s *Store) PartBytes(size int64) int64 {
	if size <= wholeBytesMax {
		return 0
	}
	return max(partBytes, (size+partsMax-1)/partsMax)
}

// BeginUpload implements object.Parted.
func (s *Store) BeginUpload(ctx context.Context, key string) (string, error) {
	if err := s.admit(ctx, key); err != nil {
		return "", s.failed("begin upload of", key, err)
	}
	upload, err := s.client.BeginUpload(ctx, s.folder+key)
	return upload, s.failed("begin upload of", key, err)
}

// PutPart implements object.Parted.
func (s *Store) PutPart(ctx context.Context, key, upload string, number int, body object.Body) (object.Part, error) {
	if err := s.admit(ctx, key); err != nil {
		return object.Part{}, s.failed("put part of", key, err)
	}
	payload, err := payloadOf(body)
	if err != nil {
		return object.Part{}, s.failed("put part of", key, err)
	}
	token, err := s.client.PutPart(withFile(ctx, body), s.folder+key, upload, number, payload)
	if err != nil {
		return object.Part{}, s.failed("put part of", key, err)
	}
	return object.Part{Number: number, Token: token, CRC32C: payload.CRC32C}, nil
}

// CompleteUpload implements object.Parted.
func (s *Store) CompleteUpload(ctx context.Context, key, upload string, parts []object.Part, cond object.Condition) (object.Token, error) {
	if err := s.admit(ctx, key); err != nil {
		return "", s.failed("complete upload of", key, err)
	}
	token, err := s.client.CompleteUpload(ctx, s.folder+key, upload, parts, cond)
	return token, s.failed("complete upload of", key, err)
}

// AbortUpload implements object.Parted.
func (s *Store) AbortUpload(ctx context.Context, key, upload string) error {
	if err := s.admit(ctx, key); err != nil {
		return s.failed("abort upload of", key, err)
	}
	err := s.client.AbortUpload(ctx, s.folder+key, upload)
	if errors.Is(s.failed("", key, err), errNoUpload) {
		return nil
	}
	return s.failed("abort upload of", key, err)
}

// SweepUploads implements object.UploadSweeper. MinIO tells of the uploads of a single key alone, and removes what is
// older than a day by itself; others have no list of uploads at all.
func (s *Store) SweepUploads(ctx context.Context, prefix string, before time.Time) (int, error) {
	n := 0
	for u, err := range s.client.Uploads(ctx, s.folder+prefix) {
		if err != nil {
			if status, _ := s.client.Status(err); status == http.StatusNotImplemented {
				return n, nil
			}
			return n, s.failed("list uploads under", prefix, err)
		}
		if !u.Begun.Before(before) {
			continue
		}
		if err := s.client.AbortUpload(ctx, u.Key, u.ID); err != nil && !errors.Is(s.failed("", u.Key, err), errNoUpload) {
			return n, s.failed("abort upload of", u.Key, err)
		}
		n++
	}
	return n, s.failed("list uploads under", prefix, ctx.Err())
}
