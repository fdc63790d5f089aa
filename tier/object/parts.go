package object

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Parted is a Store that takes a large body in several requests, each of which can be tried again by itself. Its Put does
// that where it has to; whoever wraps it does it by PutInParts over the wrapped requests.
type Parted interface {
	Store

	// PartBytes is the size of each part but the last of a body of that size, 0 if it goes in one request. A wrapper of a store
	// that is not Parted answers 0 for every size, and its other methods are not for use.
	PartBytes(size int64) int64

	// BeginUpload begins an upload, which ends with CompleteUpload or AbortUpload. Nothing is seen under key before it is
	// completed.
	BeginUpload(ctx context.Context, key string) (upload string, err error)

	// PutPart stores a part; numbers begin at 1. A number that is put again replaces what it held.
	PutPart(ctx context.Context, key, upload string, number int, body Body) (Part, error)

	// CompleteUpload stores the parts, in order, under key if cond holds. Its errors are those of Put.
	CompleteUpload(ctx context.Context, key, upload string, parts []Part, cond Condition) (Token, error)

	// AbortUpload gives an upload up. One that is not there, or not any more, is no error.
	AbortUpload(ctx context.Context, key, upload string) error
}

// Part is a stored part of an upload.
type Part struct {
	Number int
	Token  Token
	CRC32C uint32
}

// abortTime is what giving up an upload may take, whatever became of the context of the upload.
const abortTime = 10 * time.Second

// PutInParts is Put by the requests of an upload, one after the other. An upload that fails is given up; what a crash leaves
// behind is for SweepUploads.
func PutInParts(ctx context.Context, s Parted, key string, body Body, cond Condition) (token Token, err error) {
	partBytes := s.PartBytes(body.Size())
	if partBytes <= 0 {
		return "", fmt.Errorf("put %s in parts: a part has %d bytes", key, partBytes)
	}
	upload, err := s.BeginUpload(ctx, key)
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
			defer cancel()
			_ = s.AbortUpload(ctx, key, upload) // the upload's own error is the one to tell
		}
	}()
	var parts []Part
	for at := int64(0); at < body.Size(); at += partBytes {
		part, err := s.PutPart(ctx, key, upload, len(parts)+1, partOf(body, at, min(partBytes, body.Size()-at)))
		if err != nil {
			return "", err
		}
		parts = append(parts, part)
	}
	return s.CompleteUpload(ctx, key, upload, parts, cond)
}

// partOf is a part of a body as a body, which knows what the whole one does.
func partOf(body Body, offset, length int64) Body {
	return bodyPart{io.NewSectionReader(body, offset, length), body, offset}
}

type bodyPart struct {
	*io.SectionReader
	whole  Body
	offset int64
}

// CRC32C implements Summed.
func (p bodyPart) CRC32C(offset, length int64) (sum uint32, ok bool) {
	if whole, is := p.whole.(Summed); is {
		return whole.CRC32C(p.offset+offset, length)
	}
	return 0, false
}

// File implements Filed.
func (p bodyPart) File() (fd uintptr, offset int64, ok bool) {
	if whole, is := p.whole.(Filed); is {
		fd, offset, ok = whole.File()
	}
	return fd, offset + p.offset, ok
}
