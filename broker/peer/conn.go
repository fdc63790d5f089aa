package peer

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// ErrClosed is why a request got no answer: the connection was closed, by this side or by a failure.
var ErrClosed = errors.New("connection to the broker is closed")

// Options of a connection.
type Options struct {
	ClientID string
	// ResponseBytesMax bounds an answer; a larger one ends the connection before anything is allocated.
	ResponseBytesMax int
	// InFlightMax bounds the requests without an answer; further ones wait.
	InFlightMax int
	// Timeout bounds the time from a request's start to its answer. An answer that is late ends the connection: what comes after
	// it is late, too.
	Timeout time.Duration
}

// Conn is a connection to one broker. It may be used by several goroutines at once.
type Conn struct {
	options Options
	conn    net.Conn
	slots   chan struct{} // one for each request in flight
	done    chan struct{} // closed by fail

	mu      sync.Mutex // guards what follows, and the order of writes; held over a write
	next    int32      // correlation id
	waiting chan *exchange
	err     error

	reader sync.WaitGroup
}

// exchange is a request that waits for its answer.
type exchange struct {
	correlationID int32
	tagBuffer     bool
	deadline      time.Time
	answer        chan []byte // holds one
}

// Dial connects to the broker at address, a host and a port.
func Dial(ctx context.Context, address string, o Options) (*Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connect to broker: %w", err)
	}
	c := &Conn{
		options: o, conn: conn,
		slots: make(chan struct{}, o.InFlightMax), done: make(chan struct{}), waiting: make(chan *exchange, o.InFlightMax),
	}
	c.reader.Go(c.read)
	return c, nil
}

// Request names what is sent: an API key, a version, and whether headers of that version have tag buffers.
type Request struct {
	Key      wire.APIKey
	Version  int16
	Flexible bool
	Body     []byte
}

// Do sends a request and returns the body of its answer, which is the caller's. When ctx ends first, the answer is awaited no
// more, but the connection stays.
func (c *Conn) Do(ctx context.Context, r Request) ([]byte, error) {
	select {
	case c.slots <- struct{}{}:
	case <-c.done:
		return nil, c.failure()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	e, err := c.send(r)
	if err != nil {
		return nil, err
	}
	select {
	case body := <-e.answer:
		return body, nil
	case <-c.done:
		select {
		case body := <-e.answer: // it came before the end
			return body, nil
		default:
			return nil, c.failure()
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *Conn) send(r Request) (*exchange, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	e := &exchange{
		correlationID: c.next, tagBuffer: r.Flexible, deadline: time.Now().Add(c.options.Timeout), answer: make(chan []byte, 1),
	}
	c.next++
	header := wire.RequestHeader{Key: r.Key, Version: r.Version, CorrelationID: e.correlationID, ClientID: &c.options.ClientID}
	frame := wire.AppendRequestHeader(make([]byte, 0, 64+len(c.options.ClientID)), header, r.Flexible)
	wire.FinishFrame(frame, len(r.Body))
	c.waiting <- e // has room: a slot is held for each
	buffers := net.Buffers{frame, r.Body}
	if err := c.conn.SetWriteDeadline(e.deadline); err != nil {
		return nil, c.failLocked(err)
	}
	if _, err := buffers.WriteTo(c.conn); err != nil {
		return nil, c.failLocked(err)
	}
	return e, nil
}

// read hands answers to those that wait, in the order of their requests.
func (c *Conn) read() {
	in := bufio.NewReader(c.conn)
	for {
		var e *exchange
		select {
		case e = <-c.waiting:
		case <-c.done:
			return
		}
		body, err := c.readAnswer(in, e)
		if err != nil {
			c.fail(err)
			return
		}
		e.answer <- body
		<-c.slots
	}
}

func (c *Conn) readAnswer(in *bufio.Reader, e *exchange) ([]byte, error) {
	if err := c.conn.SetReadDeadline(e.deadline); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(in, size[:]); err != nil {
		return nil, err
	}
	n := int32(binary.BigEndian.Uint32(size[:]))
	if n < 0 || int(n) > c.options.ResponseBytesMax {
		return nil, fmt.Errorf("answer of %d bytes, at most %d are expected", n, c.options.ResponseBytesMax)
	}
	frame := make([]byte, n)
	if _, err := io.ReadFull(in, frame); err != nil {
		return nil, err
	}
	id, body, err := wire.ParseResponseHeader(frame, e.tagBuffer)
	if err == nil && id != e.correlationID {
		err = fmt.Errorf("answer to request %d in place of %d", id, e.correlationID)
	}
	return body, err
}

func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.failLocked(err)
}

// failLocked ends the connection, for the first reason that is given, and returns what requests get.
func (c *Conn) failLocked(err error) error {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %w", ErrClosed, err)
		close(c.done)
		c.conn.Close()
	}
	return c.err
}

func (c *Conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Done is closed when the connection is over.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close ends the connection and waits for its goroutine. Requests that wait get ErrClosed.
func (c *Conn) Close() {
	c.fail(net.ErrClosed)
	c.reader.Wait()
}
