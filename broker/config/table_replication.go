package config

// replicationTable holds the settings of replication, fetching and the purgatories.
var replicationTable = []Definition{
	define("delete.records.purgatory.purge.interval.requests", Int, "1", anyValue, ReadOnly, "Finished requests after which the purgatory of DeleteRecords is swept."),
	define("fetch.max.bytes", Int, "57671680", atLeast(1024), ReadOnly, "Most bytes of records in the answer to one fetch."),
	define("fetch.purgatory.purge.interval.requests", Int, "1000", anyValue, ReadOnly, "Finished requests after which the purgatory of Fetch is swept."),
	dynamicOnly("follower.replication.throttled.rate", Long, maxLong, atLeast(0), "Bytes a second that this broker fetches for throttled replicas."),
	dynamicOnly("leader.replication.throttled.rate", Long, maxLong, atLeast(0), "Bytes a second that this broker sends to throttled replicas."),
	define("max.incremental.fetch.session.cache.slots", Int, "1000", atLeast(0), ReadOnly, "Fetch sessions that the broker keeps."),
	define("num.replica.alter.log.dirs.threads", Int, Null, anyValue, ReadOnly, "Threads that move partitions between log directories."),
	define("num.replica.fetchers", Int, "1", atLeast(1), ClusterWide, "Fetchers for each source broker."),
	define("producer.purgatory.purge.interval.requests", Int, "1000", anyValue, ReadOnly, "Finished requests after which the purgatory of Produce is swept."),
	dynamicOnly("replica.alter.log.dirs.io.max.bytes.per.second", Long, maxLong, atLeast(0), "Bytes a second that moves between log directories may use."),
	define("replica.fetch.backoff.ms", Int, "1000", atLeast(0), ReadOnly, "Rest of a follower after a failed fetch."),
	define("replica.fetch.max.bytes", Int, "1048576", atLeast(0), ReadOnly, "Bytes of one partition that a follower asks for."),
	define("replica.fetch.min.bytes", Int, "1", anyValue, ReadOnly, "Bytes that a follower's fetch waits for."),
	define("replica.fetch.response.max.bytes", Int, "10485760", atLeast(0), ReadOnly, "Bytes of the whole answer that a follower asks for."),
	define("replica.fetch.wait.max.ms", Int, "500", anyValue, ReadOnly, "How long a follower's fetch waits for records."),
	define("replica.high.watermark.checkpoint.interval.ms", Long, "5000", anyValue, ReadOnly, "Time between two writes of the high watermarks."),
	define("replica.lag.time.max.ms", Long, "30000", anyValue, ReadOnly, "How long a follower may lag before it leaves the ISR."),
	define("replica.selector.class", String, Null, anyValue, ReadOnly, "Java class that picks the replica a consumer reads from."),
	define("replica.socket.receive.buffer.bytes", Int, "65536", anyValue, ReadOnly, "Receive buffer of a follower's connections."),
	define("replica.socket.timeout.ms", Int, "30000", anyValue, ReadOnly, "Time-out of a follower's requests."),
	define("replication.quota.window.num", Int, "11", atLeast(1), ReadOnly, "Samples behind a replication quota."),
	define("replication.quota.window.size.seconds", Int, "1", atLeast(1), ReadOnly, "Length of one sample behind a replication quota."),
}
