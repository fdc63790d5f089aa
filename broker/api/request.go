package api

import (
	"net/netip"
	"time"

	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Session is what a connection remembers between its requests. Handlers of one connection never run beside each other,
// completions of parked requests may.
type Session struct {
	ID             string     // of the connection, for logs
	Listener       string     // the listener's name
	Client         netip.Addr // the peer's address
	ClientSoftware string     // name of the client library, from ApiVersions
	Principal      string     // "User:ANONYMOUS" without authentication

	// SeenCodecs is a bit a codec: a batch of it was validated in full on this connection (compressed.batch.validation=first).
	SeenCodecs uint8
}

// Request is one frame on its way through the broker. Body aliases the connection's read buffer: it is valid until the
// handler has returned, and until the completion ran when the handler asked to keep it.
type Request struct {
	wire.RequestHeader
	Session *Session
	Body    []byte
	Arrived time.Time

	// Complete delivers the reply of a request whose handler returned Parked. It is set by the network layer, is called
	// exactly once for each parked request, by any goroutine, with no lock of the broker held; it may run before the
	// handler's Parked has reached the network layer.
	Complete func(Reply)
}

// Outcome is what becomes of a request.
type Outcome int8

// The outcomes of a handler.
const (
	Respond Outcome = iota // Parts is the answer
	NoReply                // nothing is sent (Produce with acks=0)
	Parked                 // the reply comes through Request.Complete
	Close                  // the connection is closed without an answer
)

// Reply is what a handler returns.
type Reply struct {
	Outcome Outcome
	// Parts are sent in order, without copies: they are the whole frame with its size. Ranges are released by the network
	// layer, when they were sent or when the connection died.
	Parts []Part
	// Throttle is how long the connection is not read from after the answer was sent (KIP-219).
	Throttle time.Duration
	// PipelineOn says for Parked that later requests of the connection may be handled meanwhile (a produce that waits for
	// replicas); else the connection is read again only after the answer.
	PipelineOn bool
	// Reason says for Close what was wrong with the request. The network layer logs it, within a bound.
	Reason error
}

// Part is a piece of a frame: bytes or a range of a file.
type Part struct {
	Bytes []byte
	Range vfs.Range
}
