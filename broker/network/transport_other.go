//go:build !linux

package network

import "net"

// transports makes the transports of a server.
type transports struct {
	memory  *memory
	metrics *metrics
}

func newTransports(memory *memory, m *metrics) *transports { return &transports{memory, m} }

func (ts *transports) of(nc net.Conn) transport {
	return &plainTransport{conn: nc, memory: ts.memory, metrics: ts.metrics}
}

func (ts *transports) close() {}
