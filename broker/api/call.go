package api

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// call is one request while it is being answered.
type call struct {
	*Request
	now   time.Time
	entry *Entry

	state atomic.Int32
	reply Reply // written before state leaves handling, read after
	// pipelineOn is set by handlers whose parked request need not hold up the connection.
	pipelineOn bool
}

// The states of a call. The handler's goroutine and the completer race for the step out of handling: whoever comes second
// delivers.
const (
	handling int32 = iota
	answered
	parked
)

// finish delivers a reply: to the handler's goroutine while it still runs, else through Complete.
func (c *call) finish(reply Reply) {
	c.reply = reply
	if !c.state.CompareAndSwap(handling, answered) {
		c.Complete(reply)
	}
}

// result is what the handler's goroutine returns.
func (c *call) result() Reply {
	if c.state.CompareAndSwap(handling, parked) {
		return Reply{Outcome: Parked, PipelineOn: c.pipelineOn}
	}
	return c.reply
}

// answer sends a response.
func (c *call) answer(response kmsg.Response) {
	response.SetVersion(c.Version)
	frame := c.startFrame(response.IsFlexible(), 256)
	frame = response.AppendTo(frame)
	wire.FinishFrame(frame, 0)
	c.finish(Reply{Outcome: Respond, Parts: []Part{{Bytes: frame}}})
}

// startFrame is an empty frame with its response header. ApiVersions answers have no tag buffer in any version.
func (c *call) startFrame(flexible bool, capacity int) []byte {
	return wire.AppendResponseHeader(make([]byte, 0, capacity), c.CorrelationID, flexible && c.Key != keyApiVersions)
}

// noReply ends a request that gets no answer.
func (c *call) noReply() { c.finish(Reply{Outcome: NoReply}) }

// close ends the connection without an answer.
func (c *call) close(reason error) {
	c.finish(Reply{Outcome: Close, Reason: fmt.Errorf("%s version %d: %w", c.entry.Name, c.Version, reason)})
}

// clientID is the client's name for itself, empty when it sent null.
func (c *call) clientID() string {
	if c.ClientID == nil {
		return ""
	}
	return *c.ClientID
}
