package sim

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// conn is a client's connection: requests arrive in order, answers come back in order, until it breaks.
type conn struct {
	n       *node
	session *api.Session
	strays  bool // what was sent before the connection broke may arrive after
	closed  bool
	last    int32       // correlation id
	sent    []*exchange // whose answers the client has not got, oldest first
	arrival time.Time   // of the newest request; none arrives earlier
	receipt time.Time   // of the newest answer
}

// exchange is a request with its answer.
type exchange struct {
	id       int32
	request  kmsg.Request
	body     []byte
	response kmsg.Response
	done     func(kmsg.Response) // nil: the connection broke, or there is no answer to wait for
	arrived  bool
	answered bool
	reply    api.Reply
	leaving  bool // the answer is on its way
}

// connect opens a connection, or gives nil while the broker does not take any.
func (n *node) connect(name string) *conn {
	if n.state != serving {
		return nil
	}
	x := &conn{n: n, session: &api.Session{
		ID: name, Listener: "PLAINTEXT", Client: netip.AddrFrom4([4]byte{10, 0, 0, 1}), Principal: "User:ANONYMOUS",
	}}
	n.conns = append(n.conns, x)
	return x
}

// latency is how long something is on its way.
func (x *conn) latency() time.Duration { return x.n.between(20*time.Microsecond, 5*time.Millisecond) }

// send sends a request. done is called once with its answer, or with nil.
func (x *conn) send(request kmsg.Request, done func(kmsg.Response)) {
	x.last++
	e := &exchange{id: x.last, request: request, body: request.AppendTo(nil), response: request.ResponseKind(), done: done}
	e.response.SetVersion(request.GetVersion())
	x.sent = append(x.sent, e)
	x.arrival = latest(x.arrival, x.n.c.clock.now.Add(x.latency()))
	x.n.c.clock.at(x.arrival, func() {
		if !x.closed {
			x.arrive(e)
		}
	})
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// arrive hands a request to the broker.
func (x *conn) arrive(e *exchange) {
	e.arrived = true
	reply := x.n.handle(&api.Request{
		RequestHeader: wire.RequestHeader{Key: wire.APIKey(e.request.Key()), Version: e.request.GetVersion(), CorrelationID: e.id},
		Session:       x.session, Body: e.body, Arrived: x.n.c.clock.now,
		Complete: func(reply api.Reply) { x.answer(e, reply) },
	})
	if x.closed { // the broker crashed over it
		return
	}
	if reply.Outcome != api.Parked {
		for i := range e.body {
			e.body[i] = 0xdb // the broker has no right to it any more
		}
		x.answer(e, reply)
	}
}

// answer takes the broker's reply.
func (x *conn) answer(e *exchange, reply api.Reply) {
	if e.answered {
		x.n.c.fail("request %d of %s is answered twice", e.id, x.session.ID)
	}
	e.answered, e.reply = true, reply
	if x.closed {
		x.release(reply)
		return
	}
	x.flush()
}

// flush sends the answers that are due, in the order of the requests.
func (x *conn) flush() {
	for _, e := range x.sent {
		if e.leaving {
			continue
		}
		if !e.answered {
			return
		}
		e.leaving = true
		x.receipt = latest(x.receipt, x.n.c.clock.now.Add(x.latency()))
		x.n.c.clock.at(x.receipt, func() {
			if !x.closed {
				x.receive(e)
			}
		})
	}
}

// receive delivers the first of the answers that are out. Ranges of files are read only now: nobody knows what the broker did
// with the files meanwhile.
func (x *conn) receive(e *exchange) {
	switch e.reply.Outcome {
	case api.Close:
		x.cut(false)
		return
	case api.NoReply:
		x.sent = x.sent[1:]
		e.done(nil)
		return
	case api.Parked, api.Respond:
	}
	var frame []byte
	var err error
	x.n.guard(func() {
		frame, err = assemble(e.reply)
		release(e.reply)
	})
	if x.closed { // the broker crashed over it
		return
	}
	if err != nil {
		x.n.c.fail("answer of %s can't be read: %v", x.session.ID, err)
		return
	}
	x.sent = x.sent[1:]
	if err := e.decode(frame); err != nil {
		x.n.c.fail("answer to %s, %s v%d: %v", x.session.ID, kmsg.NameForKey(e.request.Key()), e.request.GetVersion(), err)
		return
	}
	e.done(e.response)
}

// assemble puts a frame together as the network would.
func assemble(reply api.Reply) ([]byte, error) {
	var frame []byte
	for _, p := range reply.Parts {
		frame = append(frame, p.Bytes...)
		if p.Range.Length == 0 {
			continue
		}
		b := make([]byte, p.Range.Length)
		if n, err := p.Range.File.ReadAt(b, p.Range.Offset); n < len(b) {
			return nil, fmt.Errorf("range of %d bytes at %d ends after %d: %w", p.Range.Length, p.Range.Offset, n, err)
		}
		frame = append(frame, b...)
	}
	return frame, nil
}

// release gives up an answer that nobody is going to read.
func (x *conn) release(reply api.Reply) {
	if x.n.engine != nil {
		x.n.guard(func() { release(reply) })
	}
}

func release(reply api.Reply) {
	for _, p := range reply.Parts {
		if p.Range.Release != nil {
			p.Range.Release()
		}
	}
}

// decode reads the answer out of its frame.
func (e *exchange) decode(frame []byte) error {
	if len(frame) < 4 || int(binary.BigEndian.Uint32(frame)) != len(frame)-4 {
		return fmt.Errorf("frame of %d bytes does not have the size that it states: %w", len(frame), io.ErrUnexpectedEOF)
	}
	tags := e.response.IsFlexible() && e.request.Key() != apiVersionsKey
	id, body, err := wire.ParseResponseHeader(frame[4:], tags)
	if err != nil {
		return err
	}
	if id != e.id {
		return fmt.Errorf("correlation id %d, not %d", id, e.id)
	}
	return e.response.ReadFrom(body)
}

// apiVersionsKey is the one whose answers have no tags in their header.
const apiVersionsKey = 18

// lateLimit is how long after the end of its connection a request may arrive: the broker reads to the end of what it was sent.
const lateLimit = 3 * time.Second

// straggle lets a request arrive though its connection is broken and its sender has given it up.
func (x *conn) straggle(e *exchange) {
	x.arrival = latest(x.arrival, x.n.c.clock.now.Add(x.n.between(time.Millisecond, lateLimit)))
	x.n.later(x.arrival.Sub(x.n.c.clock.now), func() {
		if x.n.state != serving {
			return // a stop begins when all connections have ended
		}
		x.n.c.trace.add(x.session.ID, "> %s v%d arrives late", kmsg.NameForKey(e.request.Key()), e.request.GetVersion())
		x.n.c.stats.Stragglers++
		reply := x.n.engine.Handle(x.n.c.clock.now, &api.Request{
			RequestHeader: wire.RequestHeader{Key: wire.APIKey(e.request.Key()), Version: e.request.GetVersion(), CorrelationID: e.id},
			Session:       x.session, Body: e.body, Arrived: x.n.c.clock.now, Complete: release,
		})
		release(reply)
	})
}

// cut breaks the connection. With some, a random number of the answers that are on their way arrives before.
func (x *conn) cut(some bool) {
	if x.closed {
		return
	}
	x.closed = true
	for i, other := range x.n.conns {
		if other == x {
			x.n.conns = append(x.n.conns[:i:i], x.n.conns[i+1:]...)
			break
		}
	}
	sent := x.sent
	x.sent = nil
	arriving := 0
	if some {
		arriving = x.n.random.IntN(len(sent) + 1)
	}
	for i, e := range sent {
		if !e.arrived && x.strays && x.n.state == serving && x.n.random.IntN(2) == 0 {
			x.straggle(e)
		}
		if i < arriving && e.leaving && e.reply.Outcome == api.Respond && len(e.reply.Parts) == 1 && e.decode(e.reply.Parts[0].Bytes) == nil {
			e.done(e.response)
			continue
		}
		arriving = 0
		if e.answered {
			x.release(e.reply)
		}
		e.done(nil)
	}
}
