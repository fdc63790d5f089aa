package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/guard"
)

// openStore opens the store of the settings by storeurl.Open or Create, guarded, with each of its requests in the metrics.
func openStore(ctx context.Context, settings *config.Broker, registry prometheus.Registerer,
	open func(ctx context.Context, url string) (object.Store, error),
) (object.Store, error) {
	inner, err := open(ctx, settings.StoreURL)
	if err != nil {
		return nil, fmt.Errorf("open store.url %q: %w", settings.StoreURL, err)
	}
	holds := time.Duration(settings.LeaseTTLMs-config.LeaseGuardMs(settings.LeaseTTLMs)) * time.Millisecond
	return guard.New(inner, guard.Options{
		Observe: newStoreMetrics(registry, pricesOf(settings)).observe, LeaseDeadline: holds * 2 / 5,
	}), nil
}

// prices are what a store charges, in dollars.
type prices struct {
	write float64 // a put or a list
	read  float64 // a get or a head
	out   float64 // a byte that is read
}

// pricesOf are those of the settings. The defaults are what S3 charges in its cheapest regions, where reading costs nothing within the region.
func pricesOf(settings *config.Broker) prices {
	return prices{write: settings.TierPricePut, read: settings.TierPriceGet, out: settings.TierPriceGBOut / 1e9}
}

// of is what a request costs. Deletes are free.
func (p prices) of(o *guard.Observation) float64 {
	switch o.Op {
	case guard.Get, guard.Head:
		cost := float64(o.Requests) * p.read
		if o.Op == guard.Get {
			cost += float64(o.Bytes) * p.out
		}
		return cost
	case guard.Delete, guard.AbortUpload:
		return 0
	default:
		return float64(o.Requests) * p.write
	}
}

// storeMetrics counts the requests to the object store.
type storeMetrics struct {
	prices   prices
	requests *prometheus.CounterVec
	failures *prometheus.CounterVec
	bytes    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	dollars  *prometheus.CounterVec

	mu     sync.Mutex
	topics map[string]bool // those with metrics of their own, storeTopicsMax of them
}

// storeTopicsMax bounds the topics with metrics of their own; those that come later share a row.
const storeTopicsMax = 1000

func newStoreMetrics(registry prometheus.Registerer, p prices) *storeMetrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tidemark_store_" + name, Help: help}, labels)
		registry.MustRegister(c)
		return c
	}
	m := &storeMetrics{
		prices: p, topics: map[string]bool{},
		requests: counter("requests_total", "Requests to the object store, by what they are for.", "cause", "op", "topic"),
		failures: counter("request_failures_total", "Requests to the object store that brought no answer, or an error.", "cause", "op"),
		bytes:    counter("bytes_total", "Bytes of bodies that were read or put.", "cause", "op", "topic"),
		dollars: counter("cost_dollars_total",
			"What the requests cost by the prices of tier.price; rate(...[1d]) * 86400 are dollars a day.", "cause", "topic"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tidemark_store_request_duration_seconds", Help: "From a request until the end of its body.",
			Buckets: prometheus.ExponentialBuckets(0.001, 3, 11),
		}, []string{"cause", "op"}),
	}
	registry.MustRegister(m.seconds)
	return m
}

// observe takes note of a request.
func (m *storeMetrics) observe(o guard.Observation) {
	cause, op, topic := o.Cause.Kind.String(), string(o.Op), m.topic(o.Cause.Topic)
	m.requests.WithLabelValues(cause, op, topic).Add(float64(o.Requests))
	m.bytes.WithLabelValues(cause, op, topic).Add(float64(o.Bytes))
	m.dollars.WithLabelValues(cause, topic).Add(m.prices.of(&o))
	m.seconds.WithLabelValues(cause, op).Observe(o.Duration.Seconds())
	if o.Err != nil && !answered(o.Err) {
		m.failures.WithLabelValues(cause, op).Inc()
	}
}

// answered tells whether an error is a store's answer to a question: that there is no such object, or that a condition is false.
func answered(err error) bool {
	return errors.Is(err, object.ErrNotExist) || errors.Is(err, object.ErrPrecondition)
}

// topic is a topic's label.
func (m *storeMetrics) topic(name string) string {
	if name == "" {
		return ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.topics[name] {
		if len(m.topics) >= storeTopicsMax {
			return "other"
		}
		m.topics[name] = true
	}
	return name
}
