package replica

import (
	"log/slog"
	"time"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Options are what a Manager is made of.
type Options struct {
	Self   wire.BrokerID
	Logs   *log.Manager
	Config *config.Broker
	Logger *slog.Logger
	// Wake is told, with no locks held, when NextWake has become earlier. May be nil.
	Wake func(at time.Time)
	// HighWatermark is told, with no locks held, when the high watermark of a partition of an internal topic has moved. Calls
	// for one partition may overtake each other: the highest counts. May be nil.
	HighWatermark func(now time.Time, tp wire.TopicPartition, offset wire.Offset)
}

// Manager owns the partitions of one broker. Close comes from the log.Manager's owner.
type Manager struct{}

// New makes a Manager without partitions. Logs that are on disk wait in o.Logs until Apply names them.
func New(o Options) *Manager { panic("soon") }

// SetConfig changes the broker's settings: defaults of topics, limits. It comes before the Apply of the image that brought
// the change.
func (m *Manager) SetConfig(now time.Time, c *config.Broker) { panic("soon") }

// Apply takes over a newer image, of which delta says what changed: it creates logs, becomes leader or follower, takes new
// topic configs, and gives up and deletes the logs of topics whose deletion is in the image (under the topic id that was
// deleted, and no other). It touches the disk. Calls must not overlap and follow the order of the images. Partitions whose
// log can't be opened answer KAFKA_STORAGE_ERROR; that is logged and is no error of Apply.
func (m *Manager) Apply(now time.Time, image *metadata.Image, delta metadata.Delta) { panic("soon") }

// ISRDecided brings what the controller said to proposals of Advance. Proposals without an answer are made again by a
// later Advance when the answer is nil.
func (m *Manager) ISRDecided(now time.Time, asked *metadata.AlterPartition, answer *metadata.AlterPartitionAnswer) {
	panic("soon")
}

// Advance ends requests whose time is over and looks for replicas that fell behind. It returns ISR changes to ask the
// controller for, or nil. It never blocks.
func (m *Manager) Advance(now time.Time) *metadata.AlterPartition { panic("soon") }

// NextWake is when Advance will have something to do, or the zero time.
func (m *Manager) NextWake() time.Time { panic("soon") }
