package bucket

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"
)

// bulkRig is a server and the connections to it.
type bulkRig struct {
	t      *testing.T
	server *httptest.Server
	*Connections
	conn   net.Conn // of the last request
	reused bool
}

func newBulkRig(t *testing.T, encrypted bool, handle http.HandlerFunc) *bulkRig {
	r := &bulkRig{t: t, server: httptest.NewUnstartedServer(handle)}
	ca := ""
	if encrypted {
		r.server.StartTLS()
		ca = filepath.Join(t.TempDir(), "ca.pem")
		block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw})
		if err := os.WriteFile(ca, block, 0o600); err != nil {
			t.Fatal(err)
		}
	} else {
		r.server.Start()
	}
	var err error
	if r.Connections, err = Connect(ca); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.transport.CloseIdleConnections()
		r.server.Close()
	})
	return r
}

func (r *bulkRig) ask(method, path string) *http.Response {
	r.t.Helper()
	ctx := httptrace.WithClientTrace(r.t.Context(), &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		r.conn, r.reused = got.Conn, got.Reused
	}})
	request, err := http.NewRequestWithContext(ctx, method, r.server.URL+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	answer, err := r.RoundTrip(request)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer
}

// lowWater is for how many bytes the kernel wakes who reads from the connection.
func (r *bulkRig) lowWater() (n int) {
	r.t.Helper()
	conn := r.conn
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		r.t.Fatal(err)
	}
	failed := raw.Control(func(fd uintptr) { n, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT) })
	if err := errors.Join(failed, err); err != nil {
		r.t.Fatal(err)
	}
	return n
}

// body is what a server has under /SIZE.
func body(size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(size), byte(size >> 8), byte(size >> 16)}).Read(b)
	return b
}

// inPieces sends a body in pieces of any size.
func inPieces(w http.ResponseWriter, r *http.Request) {
	size, _ := strconv.Atoi(r.URL.Path[1:])
	w.Header().Set("Content-Length", strconv.Itoa(size))
	if r.Method == http.MethodHead {
		return
	}
	random := rand.New(rand.NewPCG(1, uint64(size)))
	for b := body(size); len(b) > 0; {
		n := min(1+random.IntN(200<<10), len(b))
		_, _ = w.Write(b[:n])
		w.(http.Flusher).Flush()
		b = b[n:]
	}
}

func TestTheKernelGathersAllButTheEndOfALargeBody(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		t.Run(fmt.Sprint("encrypted ", encrypted), func(t *testing.T) {
			r := newBulkRig(t, encrypted, inPieces)
			answer := r.ask(http.MethodGet, "/"+strconv.Itoa(2<<20))
			gathered := 0
			for left := 2 << 20; left > 0; {
				n, err := answer.Body.Read(make([]byte, 100<<10))
				if err != nil && (err != io.EOF || n != left) {
					t.Fatal(n, left, err)
				}
				want := 1
				if left >= bufferedMax+bulkBytes {
					want = bulkBytes
					gathered++
				}
				if low := r.lowWater(); low != want {
					t.Errorf("with %d bytes to come the kernel waits for %d in place of %d", left, low, want)
				}
				left -= n
			}
			if gathered == 0 {
				t.Error("the kernel gathered nothing")
			}
			if err := answer.Body.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNothingIsGatheredOfAClosedBody(t *testing.T) {
	r := newBulkRig(t, false, inPieces)
	answer := r.ask(http.MethodGet, "/"+strconv.Itoa(2<<20))
	if _, err := answer.Body.Read(make([]byte, 1)); err != nil || r.lowWater() != bulkBytes {
		t.Fatal(r.lowWater(), err)
	}
	var low int
	b := answer.Body.(*bulkBody)
	b.ReadCloser = closing{b.ReadCloser, func() { low = r.lowWater() }}
	if err := b.Close(); err != nil || low != 1 {
		t.Errorf("closed while the kernel waits for %d bytes, %v", low, err)
	}
	if b.gather(true) {
		t.Error("a read that was under way has the kernel gather once more")
	}
}

// closing calls now before it closes.
type closing struct {
	io.ReadCloser
	now func()
}

func (c closing) Close() error {
	c.now()
	return c.ReadCloser.Close()
}

// A reader that waits for more than will ever come would hang, on this answer or on the connection's next one.
func TestBodiesOfAllSizesComeToTheirEnd(t *testing.T) {
	const least = bufferedMax + bulkBytes
	sizes := []int{0, 1, bufferedMax, bulkBytes, least - 1, least, least + 1, least + 100, least + bulkBytes, 1<<20 - 1, 1 << 20, 5<<20 + 12345}
	readers := map[string]func(io.Reader) io.Reader{
		"all at once":   func(r io.Reader) io.Reader { return r },
		"halves":        iotest.HalfReader,
		"by 1000 bytes": func(r io.Reader) io.Reader { return &limited{r, 1000} },
		"by blocks":     func(r io.Reader) io.Reader { return &limited{r, 256 << 10} },
	}
	for _, encrypted := range []bool{false, true} {
		r := newBulkRig(t, encrypted, inPieces)
		for name, reader := range readers {
			for _, size := range sizes {
				head := r.ask(http.MethodHead, "/"+strconv.Itoa(size))
				_, _ = io.Copy(io.Discard, head.Body)
				_ = head.Body.Close()
				answer := r.ask(http.MethodGet, "/"+strconv.Itoa(size))
				if !r.reused {
					t.Errorf("%s, %d bytes: the connection of the answer before is not used again", name, size)
				}
				got := make([]byte, size+1)
				n, err := io.ReadFull(reader(answer.Body), got)
				if err != io.ErrUnexpectedEOF && err != io.EOF || !bytes.Equal(got[:n], body(size)) {
					t.Errorf("%s, encrypted %v: %d of %d bytes, %v", name, encrypted, n, size, err)
				}
				if err := answer.Body.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// limited asks for n bytes at most.
type limited struct {
	io.Reader
	n int
}

func (l *limited) Read(p []byte) (int, error) { return l.Reader.Read(p[:min(len(p), l.n)]) }

// Whoever waits for bulk hears at once that nothing more comes.
func TestABodyThatBreaksOffIsAnError(t *testing.T) {
	r := newBulkRig(t, false, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(4<<20))
		_, _ = w.Write(body(1<<20 + 1000))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	answer := r.ask(http.MethodGet, "/")
	n, err := io.Copy(io.Discard, &limited{answer.Body, 256 << 10})
	if err == nil || n > 1<<20+1000 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := answer.Body.Close(); err != nil {
		t.Error(err)
	}
}
