package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/engine"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/network"
	"github.com/tidemark-io/tidemark/broker/readonly"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/cluster"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	store, at, listen, advertise string
	grace                        time.Duration
	readOnly                     bool
	set                          []string
}

// newServeCommand serves a bucket without its cluster.
func newServeCommand(a *app) *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve --read-only --store URL",
		Short: "Serve what lies in a bucket to consumers, while its cluster is down or elsewhere",
		Long: "Serve the topics of a bucket to consumers, while its cluster is down or elsewhere. It never writes to the bucket.\n\n" +
			"What is served is what was uploaded when it started, or with --at what was there at a past time: no further back than the " +
			"cluster's tier.delete.grace.ms, after which what retention has dropped is deleted, and than its metadata and manifests reach. " +
			"Groups are not served, since their commits would have to be written: consumers assign partitions themselves.",
		Example: "  tidemark serve --read-only --store 's3://bucket/prefix?region=eu-central-1'\n" +
			"  tidemark serve --read-only --store file:///var/lib/tidemark/store --at 2026-01-31T08:00:00Z",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !f.readOnly {
				return unusable{errors.New("say --read-only: `tidemark broker` and `tidemark dev` run brokers that write")}
			}
			tuneMemory()
			logger := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
			s, err := openServing(cmd.Context(), a.now(), f, logger)
			if err != nil {
				return err
			}
			s.greet(cmd.OutOrStdout())
			return s.run(cmd.Context())
		},
	}
	c.Flags().BoolVar(&f.readOnly, "read-only", false, "serve reads alone; there is no other way yet")
	c.Flags().StringVar(&f.store, "store", "", "URL of the object store (store.url)")
	c.Flags().StringVar(&f.at, "at", "", "serve what was there at this time: "+momentHelp)
	c.Flags().StringVar(&f.listen, "listen", "127.0.0.1:9092", "address for Kafka clients")
	c.Flags().StringVar(&f.advertise, "advertise", "", "address that clients are told, where it is another one")
	c.Flags().DurationVar(&f.grace, "grace", 7*24*time.Hour, "the cluster's tier.delete.grace.ms")
	c.Flags().StringArrayVar(&f.set, "set", nil, "a setting, key=value, as tier.cache.bytes; may be repeated")
	return c
}

// readOnlyServing is a server with its listener.
type readOnlyServing struct {
	server  *readonly.Server
	network *network.Server
	address string
	cluster string
	at      time.Time
	wake    chan struct{} // holds one
	reads   sync.WaitGroup
	logger  *slog.Logger
}

// greet says what is served, what is not, and what to type next.
func (s *readOnlyServing) greet(w io.Writer) {
	partitions, offsets := s.server.Partitions()
	fmt.Fprintf(w, "Serving cluster %s read-only on %s: %d partitions with %d offsets%s\n", s.cluster, s.address, partitions, offsets, s.asOf())
	for _, tp := range s.server.Damaged() {
		fmt.Fprintf(w, "NOT served, since its manifest is damaged (tidemark tier rebuild-manifest): %s/%d\n", tp.Topic, tp.Partition)
	}
	fmt.Fprintf(w, "\n  kcat -b %s -L\n\nCtrl-C stops it.\n", s.address)
}

func (s *readOnlyServing) asOf() string {
	if s.at.IsZero() {
		return ""
	}
	return ", as of " + s.at.UTC().Format(time.RFC3339)
}

func openServing(ctx context.Context, now time.Time, f serveFlags, logger *slog.Logger) (_ *readOnlyServing, err error) {
	s := &readOnlyServing{wake: make(chan struct{}, 1), logger: logger}
	if f.at != "" {
		milli, err := parseMoment(f.at, now)
		if err != nil {
			return nil, err
		}
		if s.at = time.UnixMilli(milli); s.at.After(now) {
			return nil, mistake("--at %s lies in the future", f.at)
		}
	}
	if f.grace < 0 {
		return nil, mistake("--grace %s is negative", f.grace)
	}
	settings, err := readonly.Settings(f.listen, f.set...)
	if err != nil {
		return nil, unusable{err}
	}
	store, err := openStore(ctx, f.store, 0)
	if err != nil {
		return nil, err
	}
	store = readonly.Reading(store)
	found, image, err := readCluster(ctx, store, s.at)
	if err != nil {
		return nil, unusable{err}
	}
	s.cluster = found.ID
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", f.listen)
	if err != nil {
		return nil, unusable{err}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, listener.Close())
		}
	}()
	if s.address = f.advertise; s.address == "" {
		s.address = listener.Addr().String()
	}
	host, port, err := splitAddress(s.address)
	if err != nil {
		return nil, unusable{err}
	}
	s.server, err = readonly.Open(ctx, now, readonly.Options{
		Store: store, ClusterID: found.ID, Image: image, At: s.at, Grace: f.grace, Config: settings,
		Today:     func(ctx context.Context) (*metadata.Image, error) { return engine.ReadImage(ctx, store) },
		Listeners: []metadata.Listener{{Name: "PLAINTEXT", Host: host, Port: port, Protocol: "PLAINTEXT"}},
		Random:    random32, NewUUID: random128, Go: s.reads.Go, Run: sideBySideFew, Now: time.Now, Sleep: pause,
		Wake: s.woken, Logger: logger,
	})
	if err != nil {
		return nil, unusable{err}
	}
	s.network = network.New(network.Options{
		Listeners: []network.Listener{{Name: "PLAINTEXT", Listener: listener}}, Handler: s.server.Handle, Flexible: api.FlexibleHeader,
		Limits: network.DefaultLimits(), Logger: logger, Registerer: prometheus.NewRegistry(),
	})
	return s, nil
}

// readCluster reads whose bucket it is, and its metadata.
func readCluster(ctx context.Context, store object.Store, at time.Time) (cluster.Cluster, *metadata.Image, error) {
	found, err := cluster.Load(ctx, store)
	if err != nil {
		return found, nil, err
	}
	if at.IsZero() {
		image, err := engine.ReadImage(ctx, store)
		return found, image, err
	}
	image, err := engine.ReadImageAt(ctx, store, at)
	switch {
	case errors.Is(err, chain.ErrTooOld):
		err = fmt.Errorf("%w (metadata.log.retention.ms): %w", readonly.ErrTooOld, err)
	case err == nil && image.Offset() < 0:
		err = fmt.Errorf("%w: the cluster was created later", readonly.ErrTooOld)
	}
	return found, image, err
}

// run serves until a signal ends it.
func (s *readOnlyServing) run(ctx context.Context) error {
	ctx, release := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer release()
	s.network.Start()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return s.close(context.WithoutCancel(ctx))
		case <-timer.C:
		case <-s.wake:
		}
		now := time.Now()
		s.server.Advance(now)
		next := time.Hour
		if at := s.server.NextWake(); !at.IsZero() {
			next = max(at.Sub(now), 0)
		}
		timer.Reset(next)
	}
}

// serveDrain is how long a stop waits for answers under way.
const serveDrain = 500 * time.Millisecond

func (s *readOnlyServing) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, serveDrain)
	defer cancel()
	err := s.network.Close(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // a parked fetch: its client goes elsewhere
	}
	err = errors.Join(err, s.server.Close())
	s.reads.Wait()
	return err
}

// woken lets the loop look again. It never blocks.
func (s *readOnlyServing) woken() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func splitAddress(address string) (string, uint16, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("address %s: %w", address, err)
	}
	return host, uint16(port), nil
}

// few is how many manifests are read at a time.
const few = 32

// sideBySideFew runs the tasks, few at a time.
func sideBySideFew(n int, task func(int)) {
	slots := make(chan struct{}, few)
	sideBySide(n, func(i int) {
		slots <- struct{}{}
		task(i)
		<-slots
	})
}

func random32() uint32 {
	var b [4]byte
	rand.Read(b[:])
	return binary.BigEndian.Uint32(b[:])
}

func random128() (b [16]byte) {
	rand.Read(b[:])
	return b
}

// pause waits, or gives up with ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
