package network

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tidemark-io/tidemark/broker/vfs"
)

// transports makes the transports of a server.
type transports struct {
	memory  *memory
	metrics *metrics
	turns   *turns
}

// newTransports leaves a processor to those who send nothing from the cache.
func newTransports(memory *memory, m *metrics) *transports {
	return &transports{memory: memory, metrics: m, turns: newTurns(max(runtime.GOMAXPROCS(0)-1, 1))}
}

func (ts *transports) of(nc net.Conn) transport {
	if tcp, ok := nc.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			t := &tcpTransport{conn: tcp, raw: raw, memory: ts.memory, turns: ts.turns, metrics: ts.metrics}
			t.readReady, t.writeReady = t.readSome, t.writeSome
			return t
		}
	}
	return &plainTransport{conn: nc, memory: ts.memory, metrics: ts.metrics}
}

// close is for when the transports are not used any more.
func (ts *transports) close() { ts.turns.close() }

// tcpTransport makes its own system calls on the socket and uses the runtime's poller to wait only: so a read takes a
// buffer when bytes are there and not before, and files leave by sendfile at explicit offsets, with no position shared
// between readers.
type tcpTransport struct {
	conn    *net.TCPConn
	raw     syscall.RawConn
	memory  *memory
	turns   *turns
	metrics *metrics

	readReady, writeReady func(fd uintptr) bool // readSome and writeSome, made once

	// What the call in progress works on and comes to.
	in     *inbound
	out    *outbound
	limits *Limits
	due    time.Time // when all must be out; zero before the socket was full for the first time
	turn   *look     // nil while it has none
	used   int64     // bytes of the turn
	n      int
	err    error
}

func (t *tcpTransport) read(in *inbound) (int, error) {
	t.in, t.n, t.err = in, 0, nil
	err := t.raw.Read(t.readReady)
	if err == nil {
		err = t.err
	}
	return t.n, err
}

// readSome reads once. It must try before it waits: the poller forgets what it had seen when a wait begins.
func (t *tcpTransport) readSome(fd uintptr) bool {
	space := t.in.space()
	for {
		n, err := unix.Read(int(fd), space)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			t.in.discard()
			return false
		case err != nil:
			t.err = os.NewSyscallError("read", err)
		case n == 0:
			t.err = io.EOF
		default:
			t.in.received(n, len(space))
			t.n = n
		}
		return true
	}
}

func (t *tcpTransport) write(out *outbound, limits *Limits) error {
	t.out, t.limits, t.err = out, limits, nil
	err := t.raw.Write(t.writeReady)
	if !t.due.IsZero() {
		t.due = time.Time{}
		_ = t.conn.SetWriteDeadline(time.Time{}) // fails only on a closed connection, as the next call will
	}
	if err == nil {
		err = t.err
	}
	return err
}

// writeSome writes until all is out or the socket takes no more.
func (t *tcpTransport) writeSome(fd uintptr) bool {
	defer t.endTurn()
	for t.out.size > 0 {
		var err error
		r := t.out.file()
		if source, ok := r.File.(vfs.Scattered); ok {
			if piece := source.Piece(r.Offset, r.Length); piece.File != nil {
				r = piece
			}
		}
		if r.File == nil {
			err = t.sendBytes(int(fd))
		} else if source, ok := r.File.Fd(); ok {
			t.endTurn() // the disk may take its time
			err = t.sendFile(int(fd), int(source), r)
		} else if source, ok := r.File.(vfs.Resident); ok {
			err = t.sendResident(int(fd), source, r)
		} else {
			err = t.sendCopy(int(fd), r)
		}
		switch {
		case err == nil, errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			t.startTimer()
			return false
		default:
			t.err = err
			return true
		}
	}
	return true
}

// startTimer sets the deadline when the socket is full for the first time: most writes never get there. For what lies in memory of the
// cache it is moved on each time, since then the client has taken something.
func (t *tcpTransport) startTimer() {
	first := t.due.IsZero()
	if first {
		t.due = time.Now().Add(allowance(t.limits.WriteMax, t.out.size))
	}
	if first || t.out.resident {
		_ = t.conn.SetWriteDeadline(t.out.dueWithin(t.due, t.limits.HoldMax)) // as above
	}
}

func (t *tcpTransport) sendBytes(fd int) error {
	var few [8][]byte
	pieces, more := t.out.gather(few[:0])
	flags := unix.MSG_NOSIGNAL
	if more {
		flags |= unix.MSG_MORE
	}
	var n int
	var err error
	if len(pieces) == 1 {
		n, err = unix.SendmsgN(fd, pieces[0], nil, nil, flags)
	} else {
		n, err = unix.SendmsgBuffers(fd, pieces, nil, nil, flags)
	}
	if err != nil {
		return err
	}
	t.out.advance(int64(n))
	t.metrics.sentBytes.Add(float64(n))
	return nil
}

func (t *tcpTransport) sendFile(fd, source int, r vfs.Range) error {
	offset := r.Offset
	n, err := unix.Sendfile(fd, source, &offset, int(r.Length))
	if err != nil {
		return err
	}
	if n == 0 {
		return fmt.Errorf("send %w: %w", errFile, io.ErrUnexpectedEOF)
	}
	t.out.advance(int64(n))
	t.metrics.sentFile.Add(float64(n))
	return nil
}

// sendCopy reads a piece anew when the socket took only part of it: files without a descriptor are in memory.
func (t *tcpTransport) sendCopy(fd int, r vfs.Range) error {
	b := t.memory.try(copyBytes)
	defer t.memory.release(b)
	n, err := readRange(r, b.b)
	if err != nil {
		return err
	}
	return t.sendPiece(fd, b.b[:n])
}

// residentBytes is the piece in which memory of the cache is sent: larger ones only fill the socket before its reader begins.
const residentBytes = 64 << 10

func (t *tcpTransport) sendResident(fd int, source vfs.Resident, r vfs.Range) error {
	most := min(r.Length, residentBytes)
	t.takeTurn(most)
	b := source.Bytes(r.Offset, most)
	if len(b) == 0 {
		return fmt.Errorf("send %w: %w", errFile, io.ErrUnexpectedEOF)
	}
	return t.sendPiece(fd, b)
}

// takeTurn waits until n bytes may be sent from memory.
func (t *tcpTransport) takeTurn(n int64) {
	switch {
	case t.turn == nil:
		t.turn, t.used = t.turns.begin(), 0
	case t.used+n > turnBytes:
		t.turn, t.used = t.turns.next(t.turn), 0
	}
	t.used += n
}

func (t *tcpTransport) endTurn() {
	if t.turn != nil {
		t.turns.end(t.turn)
		t.turn = nil
	}
}

func (t *tcpTransport) sendPiece(fd int, b []byte) error {
	flags := unix.MSG_NOSIGNAL
	if int64(len(b)) < t.out.size {
		flags |= unix.MSG_MORE
	}
	n, err := unix.SendmsgN(fd, b, nil, nil, flags)
	if err != nil {
		return err
	}
	t.out.advance(int64(n))
	t.metrics.sentCopy.Add(float64(n))
	return nil
}
