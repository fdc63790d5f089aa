package network

import (
	"net"
	"time"
)

// transport moves bytes between one socket and its connection's buffers. Only the connection's goroutine calls it.
type transport interface {
	// read waits for bytes and puts them into in, which takes a buffer only once there are some. It ends with an error
	// that is os.ErrDeadlineExceeded when the read deadline passes.
	read(in *inbound) (int, error)
	// write sends all of out, or fails with the error of the socket or of a file. A client that is slower than limits.WriteMax or HoldMax
	// allow is os.ErrDeadlineExceeded.
	write(out *outbound, limits *Limits) error
}

// plainTransport serves any net.Conn.
type plainTransport struct {
	conn    net.Conn
	memory  *memory
	metrics *metrics
	head    [sizeBytes]byte // what an idle connection reads into
}

func (t *plainTransport) read(in *inbound) (int, error) {
	if in.buf != nil {
		space := in.space()
		n, err := t.conn.Read(space)
		in.received(n, len(space))
		return n, err
	}
	n, err := t.conn.Read(t.head[:])
	if n > 0 {
		space := in.space()
		in.received(copy(space, t.head[:n]), len(space))
	}
	return n, err
}

func (t *plainTransport) write(out *outbound, limits *Limits) error {
	due := time.Now().Add(allowance(limits.WriteMax, out.size))
	for first := true; out.size > 0; first = false {
		if first || out.resident {
			if err := t.conn.SetWriteDeadline(out.dueWithin(due, limits.HoldMax)); err != nil {
				return err
			}
		}
		if r := out.file(); r.File != nil {
			b := t.memory.try(copyBytes)
			n, err := readRange(r, b.b)
			if err == nil {
				n, err = t.conn.Write(b.b[:n])
			}
			t.memory.release(b)
			out.advance(int64(n))
			t.metrics.sentCopy.Add(float64(n))
			if err != nil {
				return err
			}
			continue
		}
		pieces, _ := out.gather(nil)
		buffers := net.Buffers(pieces)
		n, err := buffers.WriteTo(t.conn)
		out.advance(n)
		t.metrics.sentBytes.Add(float64(n))
		if err != nil {
			return err
		}
	}
	return nil
}
