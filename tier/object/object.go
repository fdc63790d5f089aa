// Package object is the object store as Tidemark sees it: keys, immutable bodies, and two conditions on a put.
//
// A Store promises read-after-write and list-after-write for whoever starts after the write has been answered, and that of
// several conditional puts that compete at most one is carried out. It promises nothing about an answer that did not
// arrive: the write may have been carried out, or may be carried out later. Settle is the one helper that turns such an
// outcome into a fact.
//
// Nothing else is relied on: no conditional delete or copy, no key that is also a folder of another key, and no order in
// time between two writes in flight. A store makes no retries of its own on conditional puts (a retry would report our own
// success as a failure), gives each request its own deadline, and starts no goroutine that outlives the call.
package object

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"
)

// Store is a bucket, or a folder of one. It is safe for use by several goroutines at once. Every method blocks until the
// store has answered, the store's own deadline for the request has passed, or ctx is done.
type Store interface {
	// Get opens the object, or the part of it that r names. The caller closes its Body.
	Get(ctx context.Context, key string, r Range) (*Object, error)

	// Head describes the object without its body. Token may be empty.
	Head(ctx context.Context, key string) (Info, error)

	// Put stores body under key if cond holds, durably, before it returns. With any error but ErrPrecondition,
	// ErrNotExist and ErrKey the put may have been carried out, and may still be.
	Put(ctx context.Context, key string, body Body, cond Condition) (Token, error)

	// Delete removes the object. A missing one is no error.
	Delete(ctx context.Context, key string) error

	// List yields what lies under prefix, a plain string prefix, with keys greater than after, in byte order of the keys.
	// An error ends the sequence. Token may be empty.
	List(ctx context.Context, prefix, after string) iter.Seq2[Info, error]
}

// The errors of a Store; others are possible and mean the same as ErrUnavailable. Compare with errors.Is.
var (
	// ErrNotExist: there is no object of that key. A put with IfMatch may answer so.
	ErrNotExist = errors.New("no such object")
	// ErrPrecondition: the condition of a put was false.
	ErrPrecondition = errors.New("precondition failed")
	// ErrRange: the range begins at or beyond the object's end.
	ErrRange = errors.New("range begins beyond the end of the object")
	// ErrUnavailable: no answer, or one that decides nothing (time-outs, 409, 429, 5xx). Trying later may help.
	ErrUnavailable = errors.New("object store is unavailable")
	// ErrDenied: the store refuses whoever asks: wrong or expired credentials, rights that are missing, a clock that is far off,
	// a bucket that does not exist. Somebody has to act; trying again does not help before.
	ErrDenied = errors.New("access denied")
	// ErrKey: the key is not one that every store can hold; see ValidKey.
	ErrKey = errors.New("invalid object key")
	// ErrTooLarge: Read found more bytes than its caller accepts.
	ErrTooLarge = errors.New("object is larger than expected")
)

// Token stands for one body of one key: the same bytes may bring the same token back, so a body that is swapped by IfMatch
// carries something that never repeats. It is opaque (an ETag, a generation, a hash).
type Token string

// Body is what a put stores. It can be read more than once and from several places; *bytes.Reader and *io.SectionReader
// are bodies.
type Body interface {
	io.ReaderAt
	Size() int64
}

// Info describes an object.
type Info struct {
	Key     string
	Size    int64
	ModTime time.Time // when it was put, by the store's clock; zero where that is not known
	Token   Token     // always set by a Get of the whole object, else maybe empty
}

// Object is an object that is being read.
type Object struct {
	Info
	Body io.ReadCloser // of the range that was asked for
}

// Range is a part of an object: Length bytes from Offset on, or fewer where the object ends before. Length 0 means to the
// end. The zero Range is the whole object.
type Range struct {
	Offset int64
	Length int64
}

// Whole tells whether r is the whole object, whatever its size.
func (r Range) Whole() bool { return r == Range{} }

// Clip is how many bytes r covers in an object of that size, or ErrRange.
func (r Range) Clip(size int64) (int64, error) {
	switch {
	case r.Whole():
		return size, nil
	case r.Offset < 0 || r.Length < 0 || r.Offset >= size:
		return 0, ErrRange
	case r.Length == 0 || r.Length > size-r.Offset:
		return size - r.Offset, nil
	}
	return r.Length, nil
}

// ConditionKind says what a put depends on.
type ConditionKind int8

// The conditions that all supported stores share.
const (
	Always ConditionKind = iota // the put is carried out in any case
	Absent                      // only if there is no object of that key (If-None-Match: *)
	Match                       // only if the object has that token (If-Match)
)

// Condition is what a put depends on. The zero value is Always.
type Condition struct {
	Kind  ConditionKind
	Token Token // for Match
}

// IfAbsent makes a put create-only.
func IfAbsent() Condition { return Condition{Kind: Absent} }

// IfMatch makes a put replace exactly the body that token stands for.
func IfMatch(token Token) Condition { return Condition{Kind: Match, Token: token} }

// PartBytesMax is the longest part of a key between slashes: servers that keep objects as files hold no longer name.
const PartBytesMax = 255

// maxKeyBytes is the longest key that S3 takes.
const maxKeyBytes = 1024

// ValidKey tells whether every store can hold the key as it is: 1 to 1024 bytes, parts of [A-Za-z0-9._-] between single
// slashes, none of them longer than PartBytesMax, "." or "..".
func ValidKey(key string) bool {
	if len(key) == 0 || len(key) > maxKeyBytes {
		return false
	}
	begin := 0
	for i := 0; i <= len(key); i++ {
		if i == len(key) || key[i] == '/' {
			if part := key[begin:i]; part == "" || part == "." || part == ".." || len(part) > PartBytesMax {
				return false
			}
			begin = i + 1
			continue
		}
		c := key[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
