package network

import (
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/vfs"
)

// What BenchmarkFetch moves: enough that the CPU time has a grain of a per cent.
const (
	fetchAnswer  = 1 << 20
	fetchAnswers = 256 // on each connection
	fetchConns   = 4
	fetchFile    = 512 << 20 // pages of a smaller one would stay in the processor's cache
)

// BenchmarkFetch compares the CPU time that answers out of a file cost the server with the least that they can cost: the same bytes,
// sent in the same run by nothing but sendfile. A process of its own reads, so that the CPU time of this one is the sender's.
// x-floor is the ratio.
func BenchmarkFetch(b *testing.B) {
	f := sparse(b)
	floor := 0.0
	b.Run("floor", func(b *testing.B) {
		fd, _ := f.Fd()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		ok(b, err)
		defer l.Close()
		var senders sync.WaitGroup
		defer senders.Wait()
		defer l.Close()
		senders.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				senders.Go(func() { sendOnly(b, c.(*net.TCPConn), int(fd)) })
			}
		})
		floor = senderCost(b, l.Addr().String(), []byte{0}, fetchAnswer)
	})
	b.Run("server", func(b *testing.B) {
		var offsets sync.Map
		r := start(b, func(_ time.Time, r *api.Request) api.Reply {
			last, _ := offsets.LoadOrStore(r.Session, new(int64))
			offset := last.(*int64)
			*offset = (*offset + fetchAnswer) % fetchFile
			return respond(r, "", api.Part{Range: vfs.Range{File: f, Offset: *offset, Length: fetchAnswer}})
		})
		head := len(respond(&api.Request{}, "").Parts[0].Bytes)
		cost := senderCost(b, r.address, frame(keyEcho, 1, ""), head+fetchAnswer)
		if floor > 0 {
			b.ReportMetric(cost/floor, "x-floor")
		}
	})
}

// sparse is a file of zeros in the page cache.
func sparse(b *testing.B) vfs.File {
	f, err := vfs.OS{}.Create(filepath.Join(b.TempDir(), "00000000000000000000.log"))
	ok(b, err)
	b.Cleanup(func() { _ = f.Close() })
	ok(b, f.Truncate(fetchFile))
	_, err = io.Copy(io.Discard, io.NewSectionReader(f, 0, fetchFile))
	ok(b, err)
	return f
}

// sendOnly answers each byte that comes with a piece of the file. It waits for the socket as the server does: a sendfile that blocks
// wakes for every few pages, and costs four times as much.
func sendOnly(b *testing.B, c *net.TCPConn, source int) {
	defer c.Close()
	_ = c.SetWriteBuffer(defaultSendBuffer)
	raw, err := c.SyscallConn()
	ok(b, err)
	var request [1]byte
	for offset := int64(0); ; offset %= fetchFile {
		if n, err := c.Read(request[:]); n == 0 || err != nil {
			return
		}
		end := offset + fetchAnswer
		if err := raw.Write(func(fd uintptr) bool {
			for offset < end {
				if _, err := unix.Sendfile(int(fd), source, &offset, int(end-offset)); err != nil {
					return err != unix.EAGAIN
				}
			}
			return true
		}); err != nil || offset < end {
			return
		}
	}
}

// senderCost has another process fetch, and gives the CPU seconds that this one spends on a gigabyte.
func senderCost(b *testing.B, address string, request []byte, answer int) float64 {
	const sent = fetchConns * fetchAnswers * fetchAnswer
	b.SetBytes(sent)
	begun, rounds := cpuSeconds(b), 0
	for b.Loop() {
		c := exec.Command(os.Args[0], "-test.run=^TestDrain$") //nolint:gosec // it is this program
		c.Env = append(os.Environ(), "DRAIN_ADDRESS="+address, "DRAIN_REQUEST="+hex.EncodeToString(request), fmt.Sprint("DRAIN_ANSWER=", answer))
		if out, err := c.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		rounds++
	}
	cost := (cpuSeconds(b) - begun) / (float64(rounds) * sent / 1e9)
	b.ReportMetric(cost, "CPU-s/GB")
	return cost
}

// cpuSeconds is the CPU time of this process so far.
func cpuSeconds(b *testing.B) float64 {
	var u unix.Rusage
	ok(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// TestDrain is the process that reads for BenchmarkFetch. The kernel drops what it gets, unread.
func TestDrain(t *testing.T) {
	address := os.Getenv("DRAIN_ADDRESS")
	if address == "" {
		t.Skip("for BenchmarkFetch alone")
	}
	request, err := hex.DecodeString(os.Getenv("DRAIN_REQUEST"))
	ok(t, err)
	answer, err := strconv.Atoi(os.Getenv("DRAIN_ANSWER"))
	ok(t, err)
	var conns sync.WaitGroup
	for range fetchConns {
		conns.Go(func() {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for range fetchAnswers {
				if err := fetchOnce(c.(*net.TCPConn), request, answer); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	conns.Wait()
}

// fetchOnce sends a request and takes its answer.
func fetchOnce(c *net.TCPConn, request []byte, answer int) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	for answer > 0 {
		var n int
		var failed error
		if err := raw.Read(func(fd uintptr) bool {
			// With MSG_TRUNC the buffer is not written to, whatever its size.
			n, _, _, _, failed = unix.RecvmsgBuffers(int(fd), [][]byte{drained[:min(answer, len(drained))]}, nil, unix.MSG_TRUNC)
			return failed != unix.EAGAIN
		}); err != nil {
			return err
		}
		if failed != nil {
			return failed
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		answer -= n
	}
	return nil
}

// drained is where nothing is put.
var drained [fetchAnswer]byte
