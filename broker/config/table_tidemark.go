package config

// tidemarkTable holds the broker settings that Kafka does not have.
var tidemarkTable = []Definition{
	own(define("store.url", String, Null, nonEmpty, ReadOnly, "The object store: s3://, minio://, file:// or mem://.")),
	own(define("cluster.listener", String, "0.0.0.0:9093", nonEmpty, ReadOnly, "Address for traffic between brokers. Nothing listens there yet.")),
	own(define("admin.listener", String, "127.0.0.1:9644", nonEmpty, ReadOnly, "HTTP address of metrics, health and profiles.")),
	own(define("gossip.listener", String, "0.0.0.0:7946", nonEmpty, ReadOnly, "Address of the gossip between brokers.")),
	own(define("gossip.advertised.address", String, Null, nonEmpty, ReadOnly, "Gossip address that other brokers are told.")),
	own(define("gossip.seeds", List, "", anyMembers, ReadOnly, "Gossip addresses of other brokers; read from the object store when empty.")),
	own(define("gossip.key", Password, Null, anyValue, ReadOnly, "Key that encrypts the gossip.")),
	own(define("lease.ttl.ms", Long, "6000", atLeast(3000), ReadOnly, "Time after its last renewal at which the controller's lease ends.")),
	own(define("lease.renew.ms", Long, "1000", atLeast(100), ReadOnly, "Time between two renewals of the controller's lease.")),
	own(define("metadata.log.retention.ms", Long, "604800000", atLeast(86400000), ReadOnly, "How long metadata entries behind a snapshot are kept.")),
	own(define("metadata.key", Password, Null, anyValue, ReadOnly, "Key that seals secrets and signs the metadata in the object store.")),
	own(define("compressed.batch.validation", String, "first", validationModes, ClusterWide,
		"How much of a compressed batch is checked: full, header, or full for the first of each connection and codec.")),
	own(define("tier.enable", Boolean, "true", anyValue, ReadOnly, "Whether topics are tiered unless they say otherwise.")),
	own(define("tier.chunk.bytes", Int, "8388608", between(65536, 67108864), ReadOnly, "Size of one read from the object store.")),
	own(define("tier.cache.bytes", Long, "268435456", atLeast(0), ReadOnly, "Size of the cache of remote data; in memory it is at least a little more than twice message.max.bytes.")),
	own(define("tier.cache.dir", String, Null, nonEmpty, ReadOnly, "Directory of the cache of remote data; memory when unset.")),
	own(define("tier.read.ahead.bytes", Long, "33554432", atLeast(0), ReadOnly, "Most bytes read ahead of a sequential remote reader.")),
	own(define("tier.upload.parallel", Int, "4", between(1, 64), ReadOnly, "Segments uploaded at a time.")),
	own(define("tier.upload.bytes.per.second", Long, maxLong, atLeast(1), ClusterWide, "Bytes a second of uploads.")),
	own(define("tier.fetch.bytes.per.second", Long, maxLong, atLeast(1), ClusterWide, "Bytes a second of remote reads.")),
	own(define("tier.max.unsealed.ms", Long, "300000", atLeast(1000), ClusterWide, "Age at which a segment is sealed so that its data reaches the object store.")),
	own(define("tier.recovery.offset.gap", Long, "10000000", atLeast(0), ReadOnly, "Offsets skipped by a leader that starts from the tier.")),
	own(define("tier.shutdown.upload.ms", Long, "30000", atLeast(0), ReadOnly, "How long a clean stop waits for its last uploads.")),
	own(define("tier.price.put", Double, "5.0E-6", atLeast(0), ReadOnly, "Dollars for a put or a list, in the cost metrics.")),
	own(define("tier.price.get", Double, "4.0E-7", atLeast(0), ReadOnly, "Dollars for a get or a head, in the cost metrics.")),
	own(define("tier.price.gb.out", Double, "0.0", atLeast(0), ReadOnly, "Dollars for 10^9 bytes that are read, in the cost metrics.")),
	own(define("tier.delete.grace.ms", Long, "604800000", atLeast(0), ReadOnly, "How long a dropped remote object stays.")),
}

// tidemarkTopicTable holds the topic settings that Kafka does not have. They are described only where a topic sets them, so
// that a topic looks to Kafka's tools as it does in Kafka.
var tidemarkTopicTable = []Definition{
	own(override("compressed.batch.validation", String, "first", validationModes, "compressed.batch.validation",
		"How much of a compressed batch is checked: full, header, or full for the first of each connection and codec.")),
}

var validationModes = oneOf("first", "full", "header")

// clientMetricsTable holds the settings of one client metrics subscription (KIP-714).
var clientMetricsTable = []Definition{
	override("interval.ms", Int, "300000", anyValue, "", "Time between two pushes of a client."),
	override("match", List, "", anyMembers, "", "Which clients are asked, as key=pattern."),
	override("metrics", List, "", anyMembers, "", "Prefixes of the metrics that are asked for; * for all."),
}
