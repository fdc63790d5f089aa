// Package bucket is an object.Store in a bucket that speaks S3, whatever client carries its requests. What the clients of S3
// have in common is a Client: single requests, each sent once. What they would each do in their own way is here: keys under a
// prefix, what an answer means, large bodies in parts, checksums, connections, and the store's clock.
//
// It makes no retries, and no deadlines but those of a connection: see package guard for both.
//
// A body is sent with its CRC32C, which the store checks, and without a signed hash of its own: SHA-256 costs several times
// what sending does. The sum takes a pass over each part before it is sent, from the page cache, so that no
// part has to be held in memory.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
)

// Client sends single requests to one bucket, each at most once. Keys are whole, with the prefix. Errors are the client's own:
// Status reads them.
type Client interface {
	Get(ctx context.Context, key string, r object.Range) (*object.Object, error)
	Head(ctx context.Context, key string) (object.Info, error)
	Put(ctx context.Context, key string, body Payload, cond object.Condition) (object.Token, error)
	Delete(ctx context.Context, key string) error
	List(ctx context.Context, prefix, after string) iter.Seq2[object.Info, error]

	BeginUpload(ctx context.Context, key string) (upload string, err error)
	PutPart(ctx context.Context, key, upload string, number int, body Payload) (object.Token, error)
	CompleteUpload(ctx context.Context, key, upload string, parts []object.Part, cond object.Condition) (object.Token, error)
	AbortUpload(ctx context.Context, key, upload string) error
	Uploads(ctx context.Context, prefix string) iter.Seq2[Upload, error]

	// Status is the HTTP status of the answer that an error stands for, 0 if there was none, with S3's own code if it has one.
	Status(err error) (status int, code string)
}

// Payload is what one request sends.
type Payload struct {
	io.ReadSeeker
	Size   int64
	CRC32C uint32
}

// Upload is one that nobody has completed.
type Upload struct {
	Key, ID string
	Begun   time.Time
}

// Store is a folder of a bucket.
type Store struct {
	client Client
	conns  *Connections
	folder string // ends with a slash, or is empty
}

// New returns the store at a location. The client's requests go over conns.
func New(client Client, conns *Connections, l Location) (*Store, error) {
	if !bucketName.MatchString(l.Bucket) {
		return nil, fmt.Errorf("%q is no name of a bucket: it has 3 to 63 lower case letters, digits, dots and hyphens", l.Bucket)
	}
	s := &Store{client: client, conns: conns}
	if l.Prefix != "" {
		if !object.ValidKey(l.Prefix) {
			return nil, fmt.Errorf("folder %q of the bucket: %w", l.Prefix, object.ErrKey)
		}
		s.folder = l.Prefix + "/"
	}
	return s, nil
}

// bucketName is what S3 takes. Its dots have further rules that its own answer tells of.
var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// admit is the check that every call begins with.
func (s *Store) admit(ctx context.Context, key string) error {
	if !object.ValidKey(key) || !object.ValidKey(s.folder+key) {
		return object.ErrKey
	}
	return ctx.Err()
}

// Get implements object.Store.
func (s *Store) Get(ctx context.Context, key string, r object.Range) (*object.Object, error) {
	if err := s.admit(ctx, key); err != nil {
		return nil, s.failed("get", key, err)
	}
	if r.Offset < 0 || r.Length < 0 {
		return nil, s.failed("get", key, object.ErrRange)
	}
	o, err := s.client.Get(ctx, s.folder+key, r)
	if err != nil {
		return nil, s.failed("get", key, err)
	}
	o.Key = key
	return o, nil
}

// Head implements object.Store. S3 answers it without a body, so a bucket that does not exist looks like a missing object.
func (s *Store) Head(ctx context.Context, key string) (object.Info, error) {
	if err := s.admit(ctx, key); err != nil {
		return object.Info{}, s.failed("head", key, err)
	}
	info, err := s.client.Head(ctx, s.folder+key)
	if err != nil {
		return object.Info{}, s.failed("head", key, err)
	}
	info.Key = key
	return info, nil
}

// Put implements object.Store.
func (s *Store) Put(ctx context.Context, key string, body object.Body, cond object.Condition) (object.Token, error) {
	if err := s.admit(ctx, key); err != nil {
		return "", s.failed("put", key, err)
	}
	if s.PartBytes(body.Size()) > 0 {
		return object.PutInParts(ctx, s, key, body, cond)
	}
	payload, err := payloadOf(body)
	if err != nil {
		return "", s.failed("put", key, err)
	}
	token, err := s.client.Put(withFile(ctx, body), s.folder+key, payload, cond)
	return token, s.failed("put", key, err)
}

// Delete implements object.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	err := s.admit(ctx, key)
	if err == nil {
		err = s.client.Delete(ctx, s.folder+key)
	}
	if err = s.failed("delete", key, err); errors.Is(err, object.ErrNotExist) {
		return nil
	}
	return err
}

// ErrNoNext: the end of such a list would never come.
var ErrNoNext = errors.New("a page that is not the last does not say where the next one begins")

// errOrder: without an order nobody can tell where a list goes on.
var errOrder = errors.New("the store lists keys out of order")

// List implements object.Store. Keys that are no object's of Tidemark are left out.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[object.Info, error] {
	if after != "" {
		after = s.folder + after
	}
	return func(yield func(object.Info, error) bool) {
		last := ""
		for info, err := range s.client.List(ctx, s.folder+prefix, after) {
			if err == nil && info.Key <= last {
				err = fmt.Errorf("%w: %s after %s", errOrder, info.Key, last)
			}
			if err != nil {
				yield(object.Info{}, s.failed("list", prefix, err))
				return
			}
			last = info.Key
			key, ours := strings.CutPrefix(info.Key, s.folder)
			if !ours || !object.ValidKey(key) || info.Key <= after {
				continue
			}
			info.Key = key
			if !yield(info, nil) {
				return
			}
		}
		// A client may take a context that is done for the end of the list.
		if err := ctx.Err(); err != nil {
			yield(object.Info{}, s.failed("list", prefix, err))
		}
	}
}

// Skew implements object.Dated.
func (s *Store) Skew() (object.Skew, bool) { return s.conns.skew() }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumBytes is how much of a body is read at once for its checksum: enough for few calls, little enough for the CPU's cache.
const sumBytes = 64 << 10

var sumBuffers = sync.Pool{New: func() any { return new([sumBytes]byte) }}

// payloadOf makes a body ready to be sent.
func payloadOf(body object.Body) (Payload, error) {
	p := Payload{ReadSeeker: io.NewSectionReader(body, 0, body.Size()), Size: body.Size()}
	if summed, ok := body.(object.Summed); ok {
		if p.CRC32C, ok = summed.CRC32C(0, p.Size); ok {
			return p, nil
		}
	}
	buffer := sumBuffers.Get().(*[sumBytes]byte)
	defer sumBuffers.Put(buffer)
	for at := int64(0); at < p.Size; {
		b := buffer[:min(sumBytes, p.Size-at)]
		if n, err := body.ReadAt(b, at); n < len(b) {
			return Payload{}, fmt.Errorf("%w: %w", errBody, err)
		}
		p.CRC32C = crc32.Update(p.CRC32C, castagnoli, b)
		at += int64(len(b))
	}
	return p, nil
}
