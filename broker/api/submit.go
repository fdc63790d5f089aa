package api

import (
	"time"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// requestTimeout bounds what the broker asks of the controller on its own account.
func (s *Server) requestTimeout() time.Duration {
	return time.Duration(s.Config().RequestTimeoutMs) * time.Millisecond
}

// submit asks the controller for a change on behalf of a client, whose own timeout bounds it. done gets the answer, of
// the type that belongs to the change, or the code to put into every row.
func submit[A metadata.Answer](s *Server, c *call, change metadata.Change, timeoutMillis int32, done func(answer A, code wire.Code)) {
	timeout := min(max(time.Duration(timeoutMillis)*time.Millisecond, 0), s.requestTimeout())
	s.controller.Submit(c.now, change, c.now.Add(timeout), func(answer metadata.Answer, err error) {
		if err != nil {
			var none A
			done(none, wire.CodeOf(err))
			return
		}
		done(answer.(A), wire.None)
	})
}

// message is a result's text in the protocol's form.
func message(r metadata.Result) *string { return nullable(r.Message) }
