package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/wire"
)

func handleInitProducerID(s *Server, c *call, request *kmsg.InitProducerIDRequest) {
	response := kmsg.NewPtrInitProducerIDResponse()
	response.ProducerID, response.ProducerEpoch = int64(wire.NoProducerID), -1
	refuse := func(code wire.Code) {
		response.ErrorCode = int16(code)
		c.answer(response)
	}
	switch {
	case request.TransactionalID != nil && *request.TransactionalID == "":
		refuse(wire.InvalidRequest)
		return
	case request.TransactionalID != nil:
		refuse(wire.UnsupportedVersion) // until transactions are served; no retriable code, or clients wait for it
		return
	case (request.ProducerID == -1) != (request.ProducerEpoch == -1):
		refuse(wire.InvalidRequest)
		return
	}
	s.producerIDs.Next(c.now, func(id wire.ProducerID, err error) {
		if err != nil {
			refuse(wire.CodeOf(err))
			return
		}
		response.ProducerID, response.ProducerEpoch = int64(id), 0
		c.answer(response)
	})
}
