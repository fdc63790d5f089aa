package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tidemark-io/tidemark/tier/reasons"
)

// admin serves /metrics, /healthz, /readyz, /tier/explain and pprof over HTTP.
type admin struct {
	server   *http.Server
	listener net.Listener
	logger   *slog.Logger
	done     chan struct{}
}

// newAdmin listens; serve answers. ready tells whether clients are served, tier how the partitions are that are led here.
func newAdmin(
	ctx context.Context, address string, registry *prometheus.Registry, logger *slog.Logger, ready func() bool, tier reasons.Source,
) (*admin, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for admin.listener: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "starting or stopping", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.HandleFunc("GET "+reasons.Path, reasons.Handler(tier, time.Now))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	a := &admin{
		server:   &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second},
		listener: listener, logger: logger, done: make(chan struct{}),
	}
	go a.serve()
	return a, nil
}

func (a *admin) serve() {
	defer close(a.done)
	if err := a.server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
		a.logger.Error("admin listener ended", "err", err)
	}
}

// close ends the listener and waits, as long as ctx lets it, for answers under way.
func (a *admin) close(ctx context.Context) error {
	err := a.server.Shutdown(ctx)
	<-a.done
	return err
}
