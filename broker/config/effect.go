package config

// HasEffect tells whether this version acts on the setting. The others are accepted, shown and warned of.
func (d *Definition) HasEffect() bool { return effective[d.Name] }

// effective names the settings that this version acts on, of brokers and those of topics that have no synonym among them.
var effective = newSet(
	"advertised.listeners", "auto.create.topics.enable", "broker.heartbeat.interval.ms", "broker.id", "broker.rack",
	"broker.session.timeout.ms", "connections.max.idle.ms", "controlled.shutdown.enable", "default.replication.factor",
	"delete.topic.enable", "initial.broker.registration.timeout.ms", "listener.security.protocol.map", "listeners",
	"max.connections", "max.connections.per.ip", "max.connections.per.ip.overrides", "max.request.partition.size.limit",
	"node.id", "num.partitions", "queued.max.request.bytes", "request.timeout.ms", "socket.receive.buffer.bytes",
	"socket.request.max.bytes", "socket.send.buffer.bytes",

	"log.cleanup.policy", "compression.gzip.level", "compression.lz4.level", "compression.type", "compression.zstd.level",
	"log.dir", "log.dirs", "log.flush.interval.messages", "log.flush.interval.ms", "log.flush.scheduler.interval.ms",
	"log.index.interval.bytes", "log.index.size.max.bytes", "log.message.timestamp.after.max.ms",
	"log.message.timestamp.before.max.ms", "log.message.timestamp.type",
	"log.retention.bytes", "log.retention.check.interval.ms", "log.retention.hours", "log.retention.minutes",
	"log.retention.ms", "log.roll.hours", "log.roll.jitter.hours", "log.roll.jitter.ms", "log.roll.ms", "log.segment.bytes",
	"log.segment.delete.delay.ms", "max.decompressed.message.bytes", "message.max.bytes", "min.insync.replicas",
	"num.recovery.threads.per.data.dir", "producer.id.expiration.ms",

	"fetch.max.bytes", "max.incremental.fetch.session.cache.slots", "replica.high.watermark.checkpoint.interval.ms",
	"replica.lag.time.max.ms",

	"group.initial.rebalance.delay.ms", "group.max.session.timeout.ms", "group.max.size", "group.min.session.timeout.ms",
	"offset.metadata.max.bytes", "offsets.commit.timeout.ms", "offsets.retention.check.interval.ms",
	"offsets.retention.minutes", "offsets.topic.num.partitions", "offsets.topic.replication.factor",
	"offsets.topic.segment.bytes",

	"admin.listener", "cluster.listener", "compressed.batch.validation", "lease.renew.ms", "lease.ttl.ms",
	"metadata.log.retention.ms", "store.url",

	"local.retention.bytes", "local.retention.ms", "log.local.retention.bytes", "log.local.retention.ms",
	"log.remote.copy.lag.bytes", "log.remote.copy.lag.ms", "remote.copy.lag.bytes", "remote.copy.lag.ms",
	"remote.fetch.max.wait.ms", "remote.list.offsets.request.timeout.ms", "remote.log.copy.disable",
	"remote.log.delete.on.disable", "remote.log.reader.max.pending.tasks", "remote.log.reader.threads",
	"remote.storage.enable", "tier.cache.bytes", "tier.cache.dir", "tier.chunk.bytes", "tier.delete.grace.ms", "tier.enable",
	"tier.fetch.bytes.per.second", "tier.max.unsealed.ms", "tier.price.gb.out", "tier.price.get", "tier.price.put", "tier.read.ahead.bytes",
	"tier.recovery.offset.gap", "tier.shutdown.upload.ms", "tier.upload.bytes.per.second", "tier.upload.parallel",
)

func newSet(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}
