package cache

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tidemark-io/tidemark/broker/vfs"
)

// A socket refers to pages of the file until its client has them, long after the block was let go.
func TestWhatWasSentStaysWhatItWasWhileItsPlaceIsUsedAgain(t *testing.T) {
	const size, places = 128 << 10, 2
	r := newRig(t, func(o *Options) {
		plain(o)
		o.BlockBytes, o.RangeBytes, o.MemoryBytes = size, size, blocksMin*size
		o.FS, o.Dir, o.DiskBytes = vfs.OS{}, t.TempDir(), places*size
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	raw, err := server.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}

	// It is the last of more than memory has room for that is written to the disk, and then leaves memory by what only passes.
	sent := r.bucket.put("sent", size)
	r.read(sent, 0, size)
	for i := range 2 * blocksMin {
		passing := r.bucket.put(fmt.Sprint("passing", i), size)
		r.cache.disk.mu.Lock()
		r.cache.disk.failed = true // for a while
		r.cache.disk.mu.Unlock()
		r.read(passing, 0, size)
	}
	r.cache.disk.mu.Lock()
	r.cache.disk.failed = false
	r.cache.disk.mu.Unlock()
	p := r.pin(sent, 0, size)
	piece := p.File().(vfs.Scattered).Piece(0, size)
	if piece.File == nil {
		t.Fatal("it is not on the disk alone")
	}
	fd, _ := piece.File.Fd()
	n := 0
	if err := raw.Write(func(socket uintptr) bool {
		at := piece.Offset
		n, err = unix.Sendfile(int(socket), int(fd), &at, int(piece.Length))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if err != nil || n == 0 {
		t.Fatal(n, err)
	}
	p.Release()
	for i := range 2 * places {
		r.read(r.bucket.put(fmt.Sprint("next", i), size), 0, size)
	}
	got := make([]byte, n)
	if _, err := io.ReadFull(client, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, content("sent", size)[:n]) {
		t.Error("the client got what came into its place")
	}
}
