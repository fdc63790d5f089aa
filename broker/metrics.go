package broker

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/engine"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// newRegistry is a registry with the process's own metrics.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewBuildInfoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return registry
}

// requestMetrics counts and times requests by API; the labels are the names of api.Table.
type requestMetrics struct {
	byKey [keySpace]keyMetrics
}

// keySpace is above every API key.
const keySpace = 128

// keyMetrics are nil for a key that is not served.
type keyMetrics struct {
	closed  prometheus.Counter
	seconds prometheus.Observer
}

func newRequestMetrics(registry prometheus.Registerer) *requestMetrics {
	closed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidemark_requests_closed_total", Help: "Requests by API that closed their connection without an answer.",
	}, []string{"api"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "tidemark_request_duration_seconds", Help: "From the arrival of a request until its answer is ready, waiting included.",
		Buckets: prometheus.ExponentialBuckets(50e-6, 4, 10),
	}, []string{"api"})
	registry.MustRegister(closed, seconds)
	m := &requestMetrics{}
	for _, entry := range api.Table() {
		m.byKey[entry.Key] = keyMetrics{closed: closed.WithLabelValues(entry.Name), seconds: seconds.WithLabelValues(entry.Name)}
	}
	return m
}

// answered takes note of a reply.
func (m *requestMetrics) answered(request *api.Request, reply *api.Reply) {
	if request.Key < 0 || request.Key >= keySpace || m.byKey[request.Key].seconds == nil {
		return
	}
	k := &m.byKey[request.Key]
	if reply.Outcome == api.Close {
		k.closed.Inc()
	}
	k.seconds.Observe(time.Since(request.Arrived).Seconds())
}

// partitionCollector reads the partitions when it is scraped: idle partitions cost nothing between scrapes.
type partitionCollector struct {
	engine *engine.Engine
}

var partitionLabels = []string{"topic", "partition"}

func partitionDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("tidemark_partition_"+name, help, partitionLabels, nil)
}

var (
	descLogStart      = partitionDesc("log_start_offset", "First offset that clients may read.")
	descLogEnd        = partitionDesc("log_end_offset", "Offset of the next record.")
	descHighWatermark = partitionDesc("high_watermark", "First offset that is not replicated to the in-sync replicas.")
	descSize          = partitionDesc("size_bytes", "Size of the local log.")
	descInSync        = partitionDesc("in_sync_replicas", "Replicas in the ISR, on the leader.")
	descUnder         = prometheus.NewDesc("tidemark_under_replicated_partitions", "Partitions led here that miss replicas in their ISR.", nil, nil)
	descUnderMin      = prometheus.NewDesc("tidemark_under_min_isr_partitions", "Partitions led here with fewer in-sync replicas than min.insync.replicas.", nil, nil)
	descOffline       = prometheus.NewDesc("tidemark_offline_partitions", "Partitions whose log directory failed.", nil, nil)
	descLeaders       = prometheus.NewDesc("tidemark_leader_partitions", "Partitions led by this broker.", nil, nil)
	descMetadata      = prometheus.NewDesc("tidemark_metadata_offset", "Offset of the last metadata record that this broker has applied.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c partitionCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descLogStart, descLogEnd, descHighWatermark, descSize, descInSync, descUnder, descUnderMin, descOffline, descLeaders, descMetadata,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c partitionCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	var under, underMin, offline, leaders float64
	for p := range c.engine.Replicas().Partitions() {
		labels := []string{p.Topic, strconv.Itoa(int(p.Partition))}
		offset := func(d *prometheus.Desc, o wire.Offset) { gauge(d, float64(o), labels...) }
		offset(descLogStart, p.LogStartOffset)
		offset(descLogEnd, p.LogEndOffset)
		offset(descHighWatermark, p.HighWatermark)
		gauge(descSize, float64(p.Size), labels...)
		if p.Leads {
			leaders++
			gauge(descInSync, float64(p.InSyncReplicas), labels...)
		}
		under += one(p.UnderReplicated())
		underMin += one(p.UnderMinISR)
		offline += one(p.Offline)
	}
	gauge(descUnder, under)
	gauge(descUnderMin, underMin)
	gauge(descOffline, offline)
	gauge(descLeaders, leaders)
	gauge(descMetadata, float64(c.engine.Image().Offset()))
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
