package broker

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/broker/engine"
	"github.com/tidemark-io/tidemark/tier/reasons"
)

// tierCollector reads how far the tier is when it is scraped.
type tierCollector struct {
	engine *engine.Engine
}

func tierDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("tidemark_tier_"+name, help, labels, nil)
}

var (
	descTieredEnd      = tierDesc("end_offset", "First offset that is not in the bucket.", partitionLabels...)
	descRemoteSegments = tierDesc("remote_segments", "Segments in the bucket.", partitionLabels...)
	descRemoteBytes    = tierDesc("remote_bytes", "Bytes of the segments in the bucket.", partitionLabels...)
	descBehindBytes    = tierDesc("lag_bytes", "Bytes that are on disk and not in the bucket.", partitionLabels...)
	descBehindSegments = tierDesc("lag_segments", "Sealed segments that are not in the bucket.", partitionLabels...)
	descDamaged        = tierDesc("damaged_segments",
		"Sealed segments that can't be uploaded, and hold back what is behind them until retention has passed them.", partitionLabels...)
	descBehindAge = tierDesc("oldest_unuploaded_age_seconds",
		"Age of the topic's oldest record that is not in the bucket: what would be lost with all disks.", "topic")
	descLost        = tierDesc("lost_offsets", "Offsets that the manifest records as lost.", partitionLabels...)
	descTierFailing = tierDesc("failing_partitions", "Partitions whose last try to upload, commit or delete has failed.")
	descTierHeld    = tierDesc("held_partitions", "Partitions that wait for their manifest before they serve.")
)

var (
	descCacheHits = tierDesc("cache_hits_total",
		"Blocks of remote data that were there, or on their way, when they were asked for.", "level")
	descCacheMisses  = tierDesc("cache_misses_total", "Blocks of remote data that had to be got from the store.")
	descCacheRefused = tierDesc("cache_refused_total",
		"Reads of remote data that found no room beside what is on its way to clients: the cache is too small for them.")
	descCacheDamaged = tierDesc("cache_damaged_total", "Blocks of remote data that were not what they should be, and were got again.")
	descCacheBytes   = tierDesc("cache_bytes", "Memory of the cache of remote data.")
	descCacheInUse   = tierDesc("cache_in_use_bytes", "Memory of the cache that is being filled, or is on its way to clients.")
	descStoreDown    = tierDesc("reads_failing", "1 while the store does not answer reads, so that they fail at once.")
)

// cacheCollector reads what the cache of remote data has done when it is scraped.
type cacheCollector struct {
	engine *engine.Engine
}

// Describe implements prometheus.Collector.
func (c cacheCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c cacheCollector) Collect(ch chan<- prometheus.Metric) {
	metric := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	s := c.engine.ColdReads()
	metric(descCacheHits, prometheus.CounterValue, float64(s.Cache.Hits), "memory")
	metric(descCacheHits, prometheus.CounterValue, float64(s.Cache.DiskHits), "disk")
	metric(descCacheMisses, prometheus.CounterValue, float64(s.Cache.Misses))
	metric(descCacheRefused, prometheus.CounterValue, float64(s.Cache.Refused))
	metric(descCacheDamaged, prometheus.CounterValue, float64(s.Cache.Damaged))
	metric(descCacheBytes, prometheus.GaugeValue, float64(s.Cache.Bytes))
	metric(descCacheInUse, prometheus.GaugeValue, float64(s.Cache.InUseBytes))
	metric(descStoreDown, prometheus.GaugeValue, one(s.Down))
}

// Describe implements prometheus.Collector.
func (c tierCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descTieredEnd, descRemoteSegments, descRemoteBytes, descBehindBytes, descBehindSegments, descDamaged, descBehindAge, descLost,
		descTierFailing, descTierHeld,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c tierCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	var failing, held float64
	ages := map[string]time.Duration{}
	for _, s := range c.engine.Tier().Stats(time.Now()) {
		labels := []string{s.TopicPartition.Topic, strconv.Itoa(int(s.TopicPartition.Partition))}
		if s.Open {
			gauge(descTieredEnd, float64(s.TieredEnd), labels...)
			gauge(descRemoteSegments, float64(s.RemoteSegments), labels...)
			gauge(descRemoteBytes, float64(s.RemoteBytes), labels...)
			gauge(descLost, float64(s.Lost), labels...)
		}
		gauge(descBehindBytes, float64(s.BehindBytes), labels...)
		gauge(descBehindSegments, float64(s.BehindSegments), labels...)
		gauge(descDamaged, float64(s.Damaged), labels...)
		ages[labels[0]] = max(ages[labels[0]], s.BehindAge)
		failing += one(s.Err != nil)
		held += one(s.Held)
	}
	for topic, age := range ages {
		gauge(descBehindAge, age.Seconds(), topic)
	}
	gauge(descTierFailing, failing)
	gauge(descTierHeld, held)
}

// tierSource explains the partitions that a broker leads, once it is there.
type tierSource struct{ broker *Broker }

var errStarting = errors.New("the broker starts")

// Explain implements reasons.Source.
func (s tierSource) Explain(ctx context.Context, now time.Time, topic string) ([]reasons.Partition, error) {
	e := s.broker.ready.Load()
	if e == nil {
		return nil, errStarting
	}
	return e.Tier().Explain(ctx, now, topic)
}
