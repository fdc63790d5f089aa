package bucket

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"syscall"

	"github.com/tidemark-io/tidemark/tier/object"
)

// net/http has the kernel send a body that has a descriptor (sendfile), without its bytes passing through here, but a client of S3
// wraps every body. So a body's file goes beside the client, with the context of the request, and takes the body's place behind it.

type filedKey struct{}

// withFile puts a body's file beside the client, if it has one.
func withFile(ctx context.Context, body object.Body) context.Context {
	if f, ok := body.(object.Filed); ok {
		return context.WithValue(ctx, filedKey{}, f)
	}
	return ctx
}

// fromFile is the request with its body as the file that came beside the client, or as it is: a body that is encrypted on its way
// has to pass through here anyway, and one of another length is not the file's.
func fromFile(r *http.Request) *http.Request {
	f, ok := r.Context().Value(filedKey{}).(object.Filed)
	if !ok || r.Body == nil || r.ContentLength != f.Size() || r.URL.Scheme != "http" {
		return r
	}
	body, ok := openBody(f)
	if !ok {
		return r
	}
	_ = r.Body.Close() // it reads from what the caller owns
	from := *r
	from.Body, from.GetBody = body, nil
	return &from
}

// fileBody is a part of a file, of which it has a position of its own, and which it holds open: a transport may go on reading when
// it has answered.
type fileBody struct {
	file *os.File
	end  int64
}

func openBody(f object.Filed) (body *fileBody, ok bool) {
	fd, offset, ok := f.File()
	if !ok {
		return nil, false
	}
	file, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, false // another system
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		_ = file.Close() // nothing was written
		return nil, false
	}
	return &fileBody{file: file, end: offset + f.Size()}, true
}

// Read implements io.Reader. Whoever sends from the descriptor moves the position, too.
func (b *fileBody) Read(p []byte) (int, error) {
	at, err := b.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	if at >= b.end {
		return 0, io.EOF
	}
	return b.file.Read(p[:min(int64(len(p)), b.end-at)])
}

// SyscallConn is what the kernel sends from.
func (b *fileBody) SyscallConn() (syscall.RawConn, error) { return b.file.SyscallConn() }

// Close implements io.Closer.
func (b *fileBody) Close() error { return b.file.Close() }
