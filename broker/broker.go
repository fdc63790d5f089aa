package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/engine"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/network"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/tier/object/storeurl"
)

// Broker is a running broker.
type Broker struct {
	logger    *slog.Logger
	engine    *engine.Engine
	loop      *loop
	network   *network.Server
	yielder   *network.Yielder
	admin     *admin
	addresses []string

	downloads sync.WaitGroup
	settings  atomic.Pointer[config.Broker] // with the dynamic ones
	ready     atomic.Pointer[engine.Engine] // set once there is one to ask
	stopLoop  context.CancelFunc
	stopped   chan struct{} // the loop has ended
}

// Start starts a broker and returns when it serves clients. ctx bounds the start alone. The admin listener tells from the
// beginning how far the broker is.
func Start(ctx context.Context, settings *config.Broker, logger *slog.Logger) (*Broker, error) {
	return start(ctx, settings, logger, false)
}

func start(ctx context.Context, settings *config.Broker, logger *slog.Logger, fromBucket bool) (_ *Broker, err error) {
	b := &Broker{logger: logger, loop: newLoop(), stopped: make(chan struct{})}
	b.settings.Store(settings)
	var undo []func()
	defer func() {
		if err != nil {
			for _, f := range slices.Backward(undo) {
				f()
			}
		}
	}()
	ended, end := context.WithCancel(ctx) // for undoing: nothing waits
	end()

	registry := newRegistry()
	store, err := openStore(ctx, settings, registry, storeurl.Create)
	if err != nil {
		return nil, err
	}
	listeners, advertised, err := listen(ctx, settings)
	if err != nil {
		return nil, err
	}
	for _, l := range advertised {
		b.addresses = append(b.addresses, net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port))))
	}
	b.network = network.New(network.Options{
		Listeners: listeners, Handler: b.handle, Answered: newRequestMetrics(registry).answered, Flexible: api.FlexibleHeader,
		Limits: limits(settings), Logger: logger.With("component", "network"), Registerer: registry,
	})
	undo = append(undo, func() { _ = b.network.Close(ended) })
	b.yielder = network.NewYielder()
	undo = append(undo, b.yielder.Close)
	b.admin, err = newAdmin(ctx, settings.AdminListener.Address(), registry, logger.With("component", "admin"), b.serving, tierSource{b})
	if err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = b.admin.close(ended) })

	b.engine, err = engine.Open(ctx, time.Now(), engine.Options{
		Config: settings, FS: vfs.OS{}, Store: store, Advertised: advertised,
		Incarnation: incarnation(), BootID: bootID(), Rand: seededRand(),
		Run: b.parallel, Logger: logger, Wake: b.loop.Wake, Reconfigured: b.reconfigure, Recover: fromBucket,
		Go: b.downloads.Go, Clock: time.Now, Sleep: sleep, Yield: b.yielder.Yield,
	})
	if err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = b.engine.Close(time.Now()) })
	b.startLoop(ctx)
	undo = append(undo, b.endLoop)
	b.ready.Store(b.engine)
	registry.MustRegister(partitionCollector{b.engine}, tierCollector{b.engine}, cacheCollector{b.engine}, recoveryCollector{b.engine})
	if err := b.waitServing(ctx, settings); err != nil {
		return nil, err
	}
	b.network.Start()
	return b, nil
}

// handle passes requests on. The network serves nobody before there is an engine.
func (b *Broker) handle(now time.Time, request *api.Request) api.Reply {
	return b.engine.Handle(now, request)
}

// serving tells whether clients can be answered.
func (b *Broker) serving() bool {
	e := b.ready.Load()
	return e != nil && e.Serving()
}

// parallel goes by the settings of the moment: those that were altered are known before the logs are opened.
func (b *Broker) parallel(n int, work func(i int)) { parallel(b.settings.Load())(n, work) }

// reconfigure takes over the dynamic settings that are the shell's.
func (b *Broker) reconfigure(settings *config.Broker) {
	b.settings.Store(settings)
	b.network.SetConnectionLimits(connectionLimits(settings))
}

func (b *Broker) startLoop(ctx context.Context) {
	b.loop.engine = b.engine
	ctx, b.stopLoop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(b.stopped)
		b.loop.run(ctx)
	}()
}

func (b *Broker) endLoop() {
	b.stopLoop()
	<-b.stopped
}

// waitServing waits until the broker is registered and unfenced.
func (b *Broker) waitServing(ctx context.Context, settings *config.Broker) error {
	timeout := time.Duration(settings.InitialRegistrationTimeoutMs) * time.Millisecond
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errRegistration)
	defer cancel()
	select {
	case <-b.engine.Served():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for registration: %w", context.Cause(ctx))
	case <-b.engine.Failed():
		return b.engine.Failure()
	case <-b.stopped:
		return errors.New("the engine stopped while it started")
	}
}

var errRegistration = errors.New("no controller has registered this broker within initial.broker.registration.timeout.ms")

// drainMax is how long a stop waits for answers that are under way. What is parked for longer, a fetch of a consumer with nothing
// to read or a member that waits for its group, would only hold it up: its client goes on elsewhere.
const drainMax = 500 * time.Millisecond

// Close stops the broker in order: clients first, then leaderships, logs, the lease. What ctx cuts short is left as a crash would
// leave it.
func (b *Broker) Close(ctx context.Context) error {
	draining, drained := context.WithTimeout(ctx, drainMax)
	defer drained()
	errNetwork := b.network.Close(draining)
	if errors.Is(errNetwork, context.DeadlineExceeded) && ctx.Err() == nil {
		errNetwork = nil
	}
	b.engine.Stop()
	b.loop.Wake()
	select {
	case <-b.engine.Stopped():
	case <-ctx.Done():
		b.logger.Warn("the stop was cut short")
	}
	b.endLoop()
	errEngine := b.engine.Close(time.Now())
	b.downloads.Wait()
	b.yielder.Close()
	errAdmin := b.admin.close(ctx)
	if errEngine != nil {
		return errEngine
	}
	if errNetwork != nil {
		return errNetwork
	}
	return errAdmin
}

// listen opens the listeners, and says where clients reach them: where the settings leave the port to the system, on the one
// that it chose.
func listen(ctx context.Context, settings *config.Broker) ([]network.Listener, []metadata.Listener, error) {
	var lc net.ListenConfig
	var open []network.Listener
	var advertised []metadata.Listener
	for i, l := range settings.Listeners {
		listener, err := lc.Listen(ctx, "tcp", l.Address())
		if err != nil {
			for _, o := range open {
				o.Close()
			}
			return nil, nil, fmt.Errorf("listen on %s: %w", l, err)
		}
		open = append(open, network.Listener{Name: l.Name, Listener: listener})
		to := settings.AdvertisedListeners[i]
		if to.Port == 0 {
			to.Port = listener.Addr().(*net.TCPAddr).Port
		}
		advertised = append(advertised, metadata.Listener{Name: l.Name, Host: to.Host, Port: uint16(to.Port), Protocol: l.Protocol})
	}
	return open, advertised, nil
}

func limits(settings *config.Broker) network.Limits {
	l := network.DefaultLimits()
	l.RequestBytesMax = settings.SocketRequestMaxBytes
	l.QueuedBytesMax = settings.QueuedMaxRequestBytes
	l.IdleMax = time.Duration(settings.ConnectionsMaxIdleMs) * time.Millisecond
	l.WriteMax = l.IdleMax
	l.Connections = connectionLimits(settings)
	// Kafka's defaults for socket buffers are a guess of 2011: unless somebody asks for sizes, the server's own are measured.
	if _, origin := settings.Value("socket.send.buffer.bytes"); origin != config.OriginDefault {
		l.SendBufferBytes = settings.SocketSendBufferBytes
	}
	if _, origin := settings.Value("socket.receive.buffer.bytes"); origin != config.OriginDefault {
		l.ReceiveBufferBytes = settings.SocketReceiveBufferBytes
	}
	return l
}

func connectionLimits(settings *config.Broker) network.ConnectionLimits {
	return network.ConnectionLimits{
		Max: settings.MaxConnections, MaxPerIP: settings.MaxConnectionsPerIP, Overrides: perIP(settings.MaxConnectionsPerIPOverrides),
	}
}

// perIP reads the addresses of max.connections.per.ip.overrides; host names among them are resolved by nobody here and left out.
func perIP(overrides map[string]int) map[netip.Addr]int {
	limits := make(map[netip.Addr]int, len(overrides))
	for host, limit := range overrides {
		if addr, err := netip.ParseAddr(host); err == nil {
			limits[addr] = limit
		}
	}
	return limits
}

// sleep waits, unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// incarnation is new with every start.
func incarnation() string { return rand.Text() }

// bootID is the kernel's, empty where it is not to be had.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// seededRand is a generator that nobody can guess.
func seededRand() *mathrand.Rand {
	var seed [32]byte
	rand.Read(seed[:])
	return mathrand.New(mathrand.NewChaCha8(seed))
}

// parallel is an executor of as many goroutines as the log directories may have for their recovery.
func parallel(settings *config.Broker) func(n int, work func(i int)) {
	threads := max(settings.RecoveryThreadsPerDataDir, 1) * len(settings.LogDirs)
	return func(n int, work func(i int)) {
		var group errgroup.Group
		group.SetLimit(threads)
		for i := range n {
			group.Go(func() error {
				work(i)
				return nil
			})
		}
		group.Wait() //nolint:errcheck // work reports its errors itself
	}
}

// Failed is closed when the broker can't go on: it answers nobody any more, and is to be closed. Failure says why.
func (b *Broker) Failed() <-chan struct{} { return b.engine.Failed() }

// Failure is why Failed is closed, or nil.
func (b *Broker) Failure() error { return b.engine.Failure() }

// Addresses are where clients are served, a listener each.
func (b *Broker) Addresses() []string { return b.addresses }

// AdminAddress is where the admin listener serves HTTP.
func (b *Broker) AdminAddress() string { return b.admin.listener.Addr().String() }

// ClusterID is the cluster's id.
func (b *Broker) ClusterID() string { return b.engine.ClusterID() }
