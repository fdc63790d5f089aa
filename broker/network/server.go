package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Listener is where connections come from. A TCP listener gets the fast paths, any other (TLS, a pipe) is served by
// plain reads and writes.
type Listener struct {
	Name string // as in the setting listeners; becomes Session.Listener
	net.Listener
}

// Options is what a Server needs.
type Options struct {
	Listeners []Listener // owned by the server from New on
	// Handler answers one request. It runs on the connection's goroutine, so it must not block; a request that has to
	// wait is answered Parked.
	Handler func(now time.Time, r *api.Request) api.Reply
	// Answered is told of each reply once it is there, by any goroutine. It must not block. May be nil.
	Answered func(r *api.Request, reply *api.Reply)
	Flexible wire.FlexibleHeaders
	Limits   Limits
	Logger   *slog.Logger
	// Registerer takes the metrics. Several servers of one process need a label each (prometheus.WrapRegistererWith).
	Registerer prometheus.Registerer
}

// Server serves the connections of its listeners.
type Server struct {
	handler  func(now time.Time, r *api.Request) api.Reply
	answered func(r *api.Request, reply *api.Reply)
	flexible wire.FlexibleHeaders
	limits   Limits
	log      *slog.Logger
	metrics  *metrics

	memory     *memory
	transports *transports
	admission  *admission
	badInput   logGate
	acceptGate logGate

	listeners []Listener
	closing   chan struct{} // closed by Close
	wg        sync.WaitGroup

	mu     sync.Mutex // guards conns and closed; taken before a conn's lock
	conns  map[*conn]struct{}
	closed bool
}

// New makes a server that does not accept yet.
func New(o Options) *Server {
	limits := o.Limits.normal()
	s := &Server{
		handler:   o.Handler,
		answered:  o.Answered,
		flexible:  o.Flexible,
		limits:    limits,
		log:       o.Logger,
		memory:    newMemory(limits.QueuedBytesMax),
		admission: newAdmission(limits.Connections),
		listeners: o.Listeners,
		closing:   make(chan struct{}),
		conns:     map[*conn]struct{}{},
	}
	if s.answered == nil {
		s.answered = func(*api.Request, *api.Reply) {}
	}
	s.metrics = newMetrics(o.Registerer, s.admission.count, s.memory.inUse)
	s.transports = newTransports(s.memory, s.metrics)
	return s
}

// Start begins to accept on all listeners, and returns at once.
func (s *Server) Start() {
	for _, l := range s.listeners {
		s.wg.Go(func() { s.accept(l) })
	}
}

// SetConnectionLimits changes the limits; connections that are open stay open.
func (s *Server) SetConnectionLimits(limits ConnectionLimits) { s.admission.set(limits) }

// Close stops accepting and reading, waits until all requests that were taken up are answered, and closes the
// connections. When ctx ends first it closes them as they are, and says so. It returns once all goroutines have ended,
// which a handler that does not return can put off.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	s.mu.Unlock()
	var errs []error
	for _, l := range s.listeners {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, fmt.Errorf("close listener %s: %w", l.Name, err))
		}
	}
	s.each((*conn).stop)
	ended := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		s.each((*conn).kill)
		<-ended
		errs = append(errs, fmt.Errorf("close connections: %w", ctx.Err()))
	}
	s.transports.close()
	return errors.Join(errs...)
}

func (s *Server) each(do func(*conn)) {
	s.mu.Lock()
	conns := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	for _, c := range conns {
		do(c)
	}
}

// How long accepting pauses after an error, mostly one of too many open files.
const (
	acceptPauseMin = 5 * time.Millisecond
	acceptPauseMax = time.Second
)

func (s *Server) accept(l Listener) {
	pause := acceptPauseMin
	for number := 0; ; number++ {
		nc, err := l.Accept()
		if err == nil {
			pause = acceptPauseMin
			if !s.admit(l, nc, number) {
				_ = nc.Close() // nothing was sent
			}
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if ok, suppressed := s.acceptGate.pass(time.Now()); ok {
			s.log.Warn("accepting connections failed", "listener", l.Name, "err", err, "suppressed", suppressed)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			pause = min(2*pause, acceptPauseMax)
		case <-s.closing:
			timer.Stop()
			return
		}
	}
}

// admit starts a connection as soon as the limits let it. While there are too many in total it holds up the listener,
// as Kafka does.
func (s *Server) admit(l Listener, nc net.Conn, number int) bool {
	client := clientOf(nc)
	for {
		ok, wait := s.admission.enter(client)
		if ok {
			break
		}
		if wait == nil {
			s.metrics.refused.Inc()
			return false
		}
		select {
		case <-wait:
		case <-s.closing:
			return false
		}
	}
	c := newConn(s, nc, api.Session{
		ID:        fmt.Sprintf("%s-%s-%d", nc.LocalAddr(), nc.RemoteAddr(), number),
		Listener:  l.Name,
		Client:    client,
		Principal: "User:ANONYMOUS",
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.admission.leave(client)
		return false
	}
	s.conns[c] = struct{}{}
	s.metrics.accepted.Inc()
	s.wg.Go(func() { s.serve(c) })
	return true
}

func (s *Server) serve(c *conn) {
	s.limits.apply(c.net)
	reason, err := c.serve()
	s.metrics.closed.WithLabelValues(reason).Inc() // before the client can see the end
	c.end()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.admission.leave(c.session.Client)
	s.log.Debug("connection closed", "connection", c.session.ID, "reason", reason, "err", err)
}

// clientOf is the peer's address, the zero one where it has no IP.
func clientOf(nc net.Conn) netip.Addr {
	if tcp, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

func (s *Server) logBadInput(c *conn, err error) {
	if ok, suppressed := s.badInput.pass(time.Now()); ok {
		s.log.Warn("closing connection", "connection", c.session.ID, "listener", c.session.Listener,
			"err", err, "suppressed", suppressed)
	}
}
