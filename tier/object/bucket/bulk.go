package bucket

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"syscall"
)

// Who reads a large answer as fast as it comes over a wire is woken for every few packets. So the kernel is asked to gather before it wakes
// the reader (SO_RCVLOWAT), as long as that much is sure to come.

const (
	// bulkBytes is what the kernel gathers: a block of the cache. Its receive buffer grows for it.
	bulkBytes = 256 << 10
	// bufferedMax is more than may lie between the socket and the reader of a body: readBufferBytes, or with TLS a record there, one that is
	// unpacked, and up to four, 68 KiB, that are not.
	bufferedMax = 128 << 10
)

// onConn has the connection that a request goes by put into conn.
func onConn(r *http.Request, conn *net.Conn) *http.Request {
	return r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) { *conn = got.Conn },
	}))
}

// bulkBody is the body of a large answer.
type bulkBody struct {
	io.ReadCloser
	conn syscall.RawConn
	left int64 // bytes that were not read

	mu        sync.Mutex // Close may be called while somebody reads
	closed    bool
	gathering bool
}

// inBulk is an answer's body of so many bytes, which come by conn.
func inBulk(body io.ReadCloser, conn net.Conn, size int64) io.ReadCloser {
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok || size < bufferedMax+bulkBytes {
		return body
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return body
	}
	return &bulkBody{ReadCloser: body, conn: raw, left: size}
}

// Read never comes to the end while the kernel gathers: behind it the connection is the next request's.
func (b *bulkBody) Read(p []byte) (int, error) {
	sure := b.left - bufferedMax
	if b.gather(sure >= bulkBytes) {
		p = p[:min(sure, int64(len(p)))]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	return n, err
}

// Close implements io.Closer.
func (b *bulkBody) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.gather(false)
	return b.ReadCloser.Close()
}

// gather says whether the kernel gathers now, which it never does of a closed body.
func (b *bulkBody) gather(on bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	on = on && !b.closed
	if on == b.gathering {
		return on
	}
	b.gathering = on
	low := 1
	if on {
		low = bulkBytes
	}
	setLowWater(b.conn, low)
	return on
}
