package bucket_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/s3test"
	"github.com/tidemark-io/tidemark/tier/object/storeurl"
)

// fileBody is the middle of a file, with its sums, which counts what is read of it by ReadAt.
type fileBody struct {
	file   *os.File
	offset int64
	*io.SectionReader
	object.Sums
	read atomic.Int64
}

// newFileBody makes a file of a pattern in which the body lies from offset on, with as much behind it, and returns the body's bytes.
func newFileBody(t *testing.T, size int, offset int64) (*fileBody, []byte) {
	t.Helper()
	whole := pattern(size + 2*int(offset))
	name := filepath.Join(t.TempDir(), "segment")
	if err := os.WriteFile(name, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	b := &fileBody{file: file, offset: offset, SectionReader: io.NewSectionReader(file, offset, int64(size))}
	content := whole[offset:][:size]
	_, _ = b.Write(content) // never fails
	return b, content
}

func (b *fileBody) ReadAt(p []byte, at int64) (int, error) {
	b.read.Add(int64(len(p)))
	return b.SectionReader.ReadAt(p, at)
}

func (b *fileBody) Write(p []byte) (int, error) { return b.Sums.Write(p) }

func (b *fileBody) File() (fd uintptr, offset int64, ok bool) { return b.file.Fd(), b.offset, true }

func storeOf(t *testing.T, server *s3test.Server, scheme string) object.Store {
	t.Helper()
	s, err := storeurl.Open(t.Context(), server.StoreURL(scheme, server.Bucket(t), "folder"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustHold(t *testing.T, s object.Store, key string, want []byte) {
	t.Helper()
	if got, _, err := object.Read(t.Context(), s, key, int64(len(want))); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s holds %d bytes that are not those of the file, %v", key, len(got), err)
	}
}

func TestABodyInAFileIsSentWithoutBeingRead(t *testing.T) {
	server := s3test.Start(t, s3test.MinIO)
	for _, scheme := range []string{"s3", "minio"} {
		t.Run(scheme, func(t *testing.T) {
			s := storeOf(t, server, scheme)
			body, content := newFileBody(t, 18<<20, 100_000)
			if _, err := s.Put(t.Context(), "whole", body, object.Condition{}); err != nil {
				t.Fatal(err)
			}
			mustHold(t, s, "whole", content)
			if _, err := object.PutInParts(t.Context(), sixteen{s.(object.Parted)}, "parts", body, object.Condition{}); err != nil {
				t.Fatal(err)
			}
			mustHold(t, s, "parts", content)
			if n := body.read.Load(); n > 0 {
				t.Errorf("%d bytes went through this process", n)
			}
		})
	}
}

func TestABodyInAFileIsEncryptedAsAnyOther(t *testing.T) {
	server := s3test.StartTLS(t, s3test.MinIO)
	for _, scheme := range []string{"s3", "minio"} {
		t.Run(scheme, func(t *testing.T) {
			s := storeOf(t, server, scheme)
			body, content := newFileBody(t, 1<<20, 1000)
			if _, err := s.Put(t.Context(), "whole", body, object.Condition{}); err != nil {
				t.Fatal(err)
			}
			mustHold(t, s, "whole", content)
		})
	}
}

func TestABodyInAFileThatIsRefusedIsPutAgain(t *testing.T) {
	r := newRig(t)
	r.each(t, func(t *testing.T, s object.Store) {
		body, content := newFileBody(t, 1<<20, 1000)
		if _, err := s.Put(t.Context(), "once", body, object.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(t.Context(), "once", body, object.IfAbsent()); err == nil {
			t.Error("put twice")
		}
		if _, err := s.Put(t.Context(), "again", body, object.Condition{}); err != nil {
			t.Fatal(err)
		}
		mustHold(t, s, "again", content)
	})
}
