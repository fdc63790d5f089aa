//go:build !linux

package network

import "net"

func newTransport(nc net.Conn, memory *memory, m *metrics) transport {
	return &plainTransport{conn: nc, memory: memory, metrics: m}
}
