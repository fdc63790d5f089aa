package network

import "github.com/prometheus/client_golang/prometheus"

// metrics is what a server counts. How data left, and why connections ended, are labels with few values.
type metrics struct {
	accepted  prometheus.Counter
	refused   prometheus.Counter
	closed    *prometheus.CounterVec
	received  prometheus.Counter
	sentBytes prometheus.Counter
	sentFile  prometheus.Counter
	sentCopy  prometheus.Counter
}

func newMetrics(r prometheus.Registerer, connections, requestBytes func() int64) *metrics {
	name := func(s string) string { return prometheus.BuildFQName("tidemark", "network", s) }
	counter := func(what, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name(what), Help: help})
		r.MustRegister(c)
		return c
	}
	gauge := func(what, help string, value func() int64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name(what), Help: help}, func() float64 { return float64(value()) }))
	}
	vector := func(what, help, label string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name(what), Help: help}, []string{label})
		r.MustRegister(v)
		return v
	}
	gauge("connections", "Open connections.", connections)
	gauge("request_buffer_bytes", "Memory of requests that are being read or are not answered yet.", requestBytes)
	sent := vector("sent_bytes_total", "Bytes of answers sent: from memory (bytes), from files by the kernel (sendfile), from files by way of memory (copy).", "path")
	return &metrics{
		accepted:  counter("connections_accepted_total", "Connections that were accepted and served."),
		refused:   counter("connections_refused_total", "Connections closed at once: too many from one address."),
		closed:    vector("connections_closed_total", "Connections that ended, by why.", "reason"),
		received:  counter("received_bytes_total", "Bytes of requests received."),
		sentBytes: sent.WithLabelValues("bytes"),
		sentFile:  sent.WithLabelValues("sendfile"),
		sentCopy:  sent.WithLabelValues("copy"),
	}
}
