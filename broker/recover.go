package broker

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/engine"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/tier/object/storeurl"
)

// Recover is Start for a cluster of which the object store has all that is left: where the log directories are new, it takes over what
// the bucket has and gives up what it has not (safety.md 30). Else it is Start.
func Recover(ctx context.Context, settings *config.Broker, logger *slog.Logger) (*Broker, error) {
	return start(ctx, settings, logger, true)
}

// Recovery is the report of the recovery with which this broker has started; false if there was none.
func (b *Broker) Recovery() (engine.RecoveryReport, bool) { return b.engine.Recovery() }

// recoveryCollector tells what the recovery with which this broker has started could not bring back.
type recoveryCollector struct{ engine *engine.Engine }

var (
	descIncarnation = prometheus.NewDesc("tidemark_cluster_incarnation", "How often the cluster was recovered from its object store.", nil, nil)
	descLostFirst   = prometheus.NewDesc("tidemark_recovery_lost_first_offset",
		"First offset that may be lost, of partitions that this start has recovered in part.", partitionLabels, nil)
	descLostNext = prometheus.NewDesc("tidemark_recovery_lost_next_offset",
		"First offset behind those that may be lost: new records begin there.", partitionLabels, nil)
)

// Describe implements prometheus.Collector.
func (c recoveryCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- descIncarnation
	ch <- descLostFirst
	ch <- descLostNext
}

// Collect implements prometheus.Collector.
func (c recoveryCollector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(descIncarnation, prometheus.GaugeValue, float64(c.engine.Image().ClusterIncarnation()))
	report, _ := c.engine.Recovery()
	for _, lost := range report.Lost {
		partition := strconv.Itoa(int(lost.Partition))
		ch <- prometheus.MustNewConstMetric(descLostFirst, prometheus.GaugeValue, float64(lost.First), lost.Topic, partition)
		ch <- prometheus.MustNewConstMetric(descLostNext, prometheus.GaugeValue, float64(lost.Next), lost.Topic, partition)
	}
}

// RecoveryOutlook says what Recover would bring back and give up, or what would keep it from that. It changes nothing.
func RecoveryOutlook(ctx context.Context, settings *config.Broker) (engine.RecoveryReport, error) {
	store, err := openStore(ctx, settings, newRegistry(), storeurl.Open)
	if err != nil {
		return engine.RecoveryReport{}, err
	}
	return engine.RecoveryOutlook(ctx, time.Now(), engine.Options{
		Config: settings, FS: vfs.OS{}, Store: store, Run: parallel(settings), Sleep: sleep,
	})
}
