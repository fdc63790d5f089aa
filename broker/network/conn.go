package network

import (
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Why a connection ended: values of the label reason.
const (
	endClient    = "client"    // closed or reset by the client
	endIdle      = "idle"      // nothing came for too long
	endSlow      = "slow"      // half a frame, or an answer not taken, for too long
	endMalformed = "malformed" // not a Kafka request
	endRequest   = "request"   // the handler said so
	endFile      = "file"      // a file could not be read for an answer
	endShutdown  = "shutdown"
)

// longAgo is a deadline that wakes a reader at once.
var longAgo = time.Unix(1, 0)

// conn is one connection. All fields but those under mu belong to its goroutine; queue is changed by it alone, under mu.
type conn struct {
	server    *Server
	net       net.Conn
	transport transport
	session   api.Session

	in    inbound
	out   outbound
	spare *request // used anew for requests that are answered at once

	last       string        // set once the last request is in line that is handled: why the connection ends behind it
	ended      bool          // that request's turn has come
	throttle   time.Duration // of an answer in out
	mutedUntil time.Time     // when reading goes on after a throttled answer
	hungry     bool          // waits for memory
	lastActive time.Time
	frameDue   time.Time // when the frame that has begun must be whole; zero: not worked out
	frameSize  int       // for which frameDue was worked out

	wake    chan struct{} // holds one: look again
	closing atomic.Bool   // end once all that is in line is answered
	killed  atomic.Bool   // end now

	mu       sync.Mutex // guards all below; taken after Server.mu, a leaf otherwise
	queue    []*request // handled, their answers not in out yet, in order
	reading  bool       // the goroutine waits for the socket
	deadline time.Time  // the read deadline in force; zero: none, or one that was used to wake
	dead     bool
}

// request is a request in line for its answer.
type request struct {
	api.Request
	conn      *conn
	pipelined bool // the requests behind it may be handled

	// Guarded by conn.mu.
	buffer *buffer // held for Body while parked
	done   bool
	reply  api.Reply
}

func newConn(s *Server, nc net.Conn, session api.Session) *conn {
	return &conn{
		server:     s,
		net:        nc,
		transport:  s.transports.of(nc),
		session:    session,
		in:         inbound{memory: s.memory, max: s.limits.RequestBytesMax, expect: smallestBuffer},
		lastActive: time.Now(),
		wake:       make(chan struct{}, 1),
	}
}

// serve runs the connection to its end and says why it ended. Each turn of the loop does one thing: hand out answers,
// handle a frame, or wait for what comes next.
func (c *conn) serve() (reason string, err error) {
	for !c.killed.Load() {
		c.collect()
		if c.advance() && !c.out.full() {
			continue // small answers leave together
		}
		if c.out.size > 0 || c.throttle > 0 {
			if reason, err = c.flush(); reason != "" {
				return reason, err
			}
			continue // more may be here, or ready, by now
		}
		switch {
		case c.ended, len(c.queue) == 0 && c.last != "":
			return c.last, nil
		case len(c.queue) == 0 && c.closing.Load():
			return endShutdown, nil
		case !c.mayHandle() || !c.reserve():
			c.wait()
		default:
			if reason, err = c.read(); reason != "" {
				return reason, err
			}
		}
	}
	return endShutdown, nil
}

// mayHandle tells whether the next request may be taken up now.
func (c *conn) mayHandle() bool {
	n := len(c.queue)
	return c.last == "" && !c.closing.Load() && c.throttle == 0 && c.mutedUntil.IsZero() &&
		n < c.server.limits.PipelinedMax && (n == 0 || c.queue[n-1].pipelined)
}

// advance handles the next request if it is here and may be taken up. It is false if the connection has to wait first.
func (c *conn) advance() bool {
	if !c.mayHandle() {
		return false
	}
	frame, err := c.in.next()
	switch {
	case err != nil:
		c.refuse(err)
	case frame != nil:
		c.handle(frame)
	}
	return frame != nil
}

// handle takes up one request.
func (c *conn) handle(frame []byte) {
	header, body, err := wire.ParseRequestHeader(frame, c.server.flexible)
	if err != nil {
		c.refuse(err)
		return
	}
	now := time.Now()
	c.lastActive, c.frameDue = now, time.Time{}
	r := c.spare
	if r == nil {
		r = &request{conn: c, pipelined: true}
		r.Complete = r.complete
	}
	c.spare = nil
	r.RequestHeader, r.Session, r.Body, r.Arrived = header, &c.session, body, now
	reply := c.server.handler(now, &r.Request)
	if reply.Outcome != api.Parked {
		c.server.answered(&r.Request, &reply)
	}
	switch {
	case reply.Outcome == api.Parked:
		r.pipelined = reply.PipelineOn
		c.park(r)
	case len(c.queue) > 0:
		r.Body, r.done, r.reply = nil, true, reply
		c.mu.Lock()
		c.queue = append(c.queue, r)
		c.mu.Unlock()
		if reply.Outcome == api.Close {
			c.last = endRequest
		}
	default:
		r.Body = nil
		c.spare = r
		c.emit(reply)
	}
	c.in.discard()
}

// park puts a request in line whose reply comes later, or has come while its handler ran.
func (c *conn) park(r *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, r)
	if !r.done {
		r.buffer = c.in.share()
	}
}

// complete is api.Request.Complete. It leaves the reply with the connection and wakes its goroutine if it is its turn.
// The memory of the request is free from here on, even if the goroutine is held up by a client that does not read.
func (r *request) complete(reply api.Reply) {
	c := r.conn
	c.server.answered(&r.Request, &reply)
	c.mu.Lock()
	unwanted := r.done || c.dead
	buffer := r.buffer
	r.done, r.buffer = true, nil
	if !unwanted {
		r.reply = reply
		if len(c.queue) > 0 && c.queue[0] == r {
			c.notifyLocked()
		}
	}
	c.mu.Unlock()
	if buffer != nil {
		c.server.memory.release(buffer)
	}
	if unwanted {
		releaseAll(reply.Parts)
	}
}

// collect hands out the replies that are ready at the head of the line.
func (c *conn) collect() {
	for len(c.queue) > 0 && !c.ended {
		r := c.pop()
		if r == nil {
			return
		}
		c.lastActive = time.Now()
		c.emit(r.reply)
	}
}

func (c *conn) pop() *request {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.queue[0]
	if !r.done {
		return nil
	}
	c.queue = slices.Delete(c.queue, 0, 1)
	return r
}

// emit puts a reply into out, the earlier ones being there.
func (c *conn) emit(reply api.Reply) {
	c.throttle = max(c.throttle, reply.Throttle)
	switch reply.Outcome {
	case api.Respond:
		c.out.add(reply.Parts)
		return
	case api.NoReply:
	case api.Close, api.Parked:
		c.ended, c.last = true, endRequest
		if reply.Reason != nil {
			c.server.logBadInput(c, reply.Reason)
		}
	}
	releaseAll(reply.Parts)
}

// flush sends what is in out, and begins the silence that a throttled answer asks for.
func (c *conn) flush() (reason string, err error) {
	if c.hungry { // others must not stand behind one whose client may not read
		c.hungry = false
		c.server.memory.leave(c)
	}
	if err = c.transport.write(&c.out, &c.server.limits); err != nil {
		return c.endOf(err), err
	}
	if c.throttle > 0 {
		c.mutedUntil = time.Now().Add(c.throttle)
		c.throttle = 0
	}
	return "", nil
}

// reserve makes sure that there is memory for what has begun to arrive. If not, the connection is notified in its turn.
func (c *conn) reserve() bool {
	c.hungry = !c.in.reserve(c)
	return !c.hungry
}

// wait sleeps until it is notified or a silence is over.
func (c *conn) wait() {
	c.frameDue = time.Time{} // the client can't go on while nobody reads
	if c.mutedUntil.IsZero() {
		<-c.wake
		return
	}
	silence := time.NewTimer(time.Until(c.mutedUntil))
	defer silence.Stop()
	select {
	case <-c.wake:
	case <-silence.C:
		c.mutedUntil = time.Time{}
	}
}

// read waits for bytes, or until it is notified.
func (c *conn) read() (reason string, err error) {
	if !c.startReading() {
		return "", nil
	}
	n, err := c.transport.read(&c.in)
	c.mu.Lock()
	c.reading = false
	c.mu.Unlock()
	c.server.metrics.received.Add(float64(n))
	if err == nil {
		return "", nil
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return c.endOf(err), err
	}
	return c.overdue(), nil
}

// startReading arms the deadline, unless somebody has notified. An armed deadline may be earlier than need be: when it
// passes, overdue looks again. So a busy connection sets it once in many requests.
func (c *conn) startReading() bool {
	begun := c.in.pending() > 0
	if begun {
		size, _ := c.in.size() // next has refused a bad one
		switch {
		case c.frameDue.IsZero():
			c.frameDue = time.Now().Add(allowance(c.server.limits.FrameMax, int64(size)))
		case size != c.frameSize: // not all of the size itself had come
			c.frameDue = c.frameDue.Add(allowance(0, int64(size-c.frameSize)))
		}
		c.frameSize = size
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.wake:
		return false
	default:
	}
	due := c.deadline
	if due.IsZero() {
		since := c.lastActive
		if begun || len(c.queue) > 0 {
			since = time.Now() // not idle
		}
		due = since.Add(c.server.limits.IdleMax)
	}
	if begun && c.frameDue.Before(due) {
		due = c.frameDue
	}
	if due != c.deadline {
		c.deadline = due
		_ = c.net.SetReadDeadline(due) // fails only on a closed connection, as the read will
	}
	c.reading = true
	return true
}

// overdue is called when a read deadline has passed, and tells why the connection ends, if it does.
func (c *conn) overdue() (reason string) {
	c.mu.Lock()
	c.deadline = time.Time{}
	c.mu.Unlock()
	now := time.Now()
	switch {
	case c.in.pending() > 0:
		if !now.Before(c.frameDue) {
			return endSlow
		}
	case len(c.queue) == 0 && now.Sub(c.lastActive) >= c.server.limits.IdleMax:
		return endIdle
	}
	return ""
}

// notify makes the goroutine look again, whatever it waits for.
func (c *conn) notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notifyLocked()
}

func (c *conn) notifyLocked() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
	if c.reading && !c.deadline.IsZero() {
		c.deadline = time.Time{}
		_ = c.net.SetReadDeadline(longAgo) // fails only on a closed connection, which needs no waking
	}
}

// stop ends the connection once all that is in line is answered.
func (c *conn) stop() {
	c.closing.Store(true)
	c.notify()
}

// kill ends the connection now.
func (c *conn) kill() {
	c.killed.Store(true)
	_ = c.net.Close() // wakes a blocked read or write
	c.notify()
}

// refuse ends the connection behind what is in line, because of what came.
func (c *conn) refuse(err error) {
	c.last = endMalformed
	c.server.logBadInput(c, err)
}

// endOf tells why an error of the socket or of a file ends the connection.
func (c *conn) endOf(err error) string {
	switch {
	case c.killed.Load():
		return endShutdown
	case errors.Is(err, os.ErrDeadlineExceeded):
		return endSlow
	case errors.Is(err, errFile):
		return endFile
	}
	return endClient
}

// end gives back all that the connection holds. Requests that are still parked keep their buffers until they complete.
func (c *conn) end() {
	_ = c.net.Close() // nothing is lost: what was to be sent was sent, or failed
	c.mu.Lock()
	c.dead = true
	var done []*request
	for _, r := range c.queue {
		if r.done {
			done = append(done, r)
		}
	}
	c.queue = nil
	c.mu.Unlock()
	for _, r := range done {
		releaseAll(r.reply.Parts)
	}
	c.out.drop()
	c.in.drop()
	c.server.memory.leave(c)
}
