package network

import (
	"math"
	"net"
	"net/netip"
	"time"
)

// Limits bounds what clients can make a server hold. DefaultLimits has Kafka's values. A duration of zero or less, or
// QueuedBytesMax of zero or less, sets no limit, as Kafka's -1 does.
type Limits struct {
	RequestBytesMax int           // socket.request.max.bytes
	QueuedBytesMax  int64         // queued.max.request.bytes
	IdleMax         time.Duration // connections.max.idle.ms
	Connections     ConnectionLimits

	// SendBufferBytes is SO_SNDBUF (socket.send.buffer.bytes), -1 leaves it to the system. Megabytes that queue in the
	// socket cost more than twice the CPU per byte: they push the socket's bookkeeping out of the cache.
	SendBufferBytes int
	// ReceiveBufferBytes is SO_RCVBUF (socket.receive.buffer.bytes), -1 leaves it to the system.
	ReceiveBufferBytes int

	// FrameMax is how long the rest of a request may take once its first byte is here, on top of its size at 64 KiB a
	// second. Time in which the server does not read does not count.
	FrameMax time.Duration
	// WriteMax is how long a client may take for an answer, on top of its size at 64 KiB a second. Clients stop reading
	// while they process what they have, so it is no shorter than IdleMax.
	WriteMax time.Duration
	// HoldMax is how long a client may go without making room in the socket, which is a third of SendBufferBytes, while its answer lies in memory
	// of the cache of remote data: others wait for that.
	HoldMax time.Duration
	// PipelinedMax is how many requests of one connection may wait for their answers at once.
	PipelinedMax int
}

// ConnectionLimits bounds the number of connections.
type ConnectionLimits struct {
	Max       int                // max.connections: further ones wait
	MaxPerIP  int                // max.connections.per.ip: further ones are closed
	Overrides map[netip.Addr]int // max.connections.per.ip.overrides
}

const (
	unlimited           = 1<<31 - 1 // Kafka's default where it sets no limit
	defaultRequestMax   = 100 << 20
	defaultIdle         = 10 * time.Minute
	defaultSendBuffer   = 256 << 10 // measured: the cheapest per byte; Kafka's 100 KiB costs a fifth more
	defaultFrame        = 30 * time.Second
	defaultHold         = 30 * time.Second
	defaultPipelinedMax = 16
	slowestBytesPerSec  = 64 << 10
)

// DefaultLimits is what holds where no setting says otherwise.
func DefaultLimits() Limits {
	return Limits{
		RequestBytesMax:    defaultRequestMax,
		QueuedBytesMax:     -1,
		IdleMax:            defaultIdle,
		Connections:        ConnectionLimits{Max: unlimited, MaxPerIP: unlimited},
		SendBufferBytes:    defaultSendBuffer,
		ReceiveBufferBytes: -1,
		FrameMax:           defaultFrame,
		WriteMax:           defaultIdle,
		HoldMax:            defaultHold,
		PipelinedMax:       defaultPipelinedMax,
	}
}

// never is the duration that stands for no limit.
const never = 100 * 365 * 24 * time.Hour

// normal replaces what stands for no limit by values to count with.
func (l Limits) normal() Limits {
	for _, d := range []*time.Duration{&l.IdleMax, &l.FrameMax, &l.WriteMax, &l.HoldMax} {
		if *d <= 0 {
			*d = never
		}
	}
	if l.QueuedBytesMax <= 0 {
		l.QueuedBytesMax = math.MaxInt64
	}
	return l
}

// allowance is how long n bytes may take.
func allowance(base time.Duration, n int64) time.Duration {
	return base + time.Duration(n)*time.Second/slowestBytesPerSec
}

// apply sets the buffers of a socket. Errors are left alone: the connection works with the system's sizes.
func (l Limits) apply(nc net.Conn) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	if l.SendBufferBytes >= 0 {
		_ = tcp.SetWriteBuffer(l.SendBufferBytes)
	}
	if l.ReceiveBufferBytes >= 0 {
		_ = tcp.SetReadBuffer(l.ReceiveBufferBytes)
	}
}
