package config

// transactionTable holds the settings of transactions.
var transactionTable = []Definition{
	define("add.partitions.to.txn.retry.backoff.max.ms", Int, "100", atLeast(0), ReadOnly, "Longest time that AddPartitionsToTxn is tried again by the broker."),
	define("add.partitions.to.txn.retry.backoff.ms", Int, "20", atLeast(1), ReadOnly, "Wait of the broker before it tries AddPartitionsToTxn again."),
	define("transaction.abort.timed.out.transaction.cleanup.interval.ms", Int, "10000", atLeast(1), ReadOnly, "Time between two looks for transactions that timed out."),
	define("transaction.max.timeout.ms", Int, "900000", atLeast(1), ReadOnly, "Longest transaction time-out that a producer may ask for."),
	define("transaction.partition.verification.enable", Boolean, "true", anyValue, ClusterWide, "Whether a transactional batch is checked against the coordinator."),
	define("transaction.remove.expired.transaction.cleanup.interval.ms", Int, "3600000", atLeast(1), ReadOnly, "Time between two looks for expired transactional ids."),
	define("transaction.state.log.load.buffer.size", Int, "5242880", atLeast(1), ReadOnly, "Bytes read at a time while transaction state is loaded."),
	define("transaction.state.log.min.isr", Int, "2", atLeast(1), ReadOnly, "Minimum ISR of the transaction state topic."),
	define("transaction.state.log.num.partitions", Int, "50", atLeast(1), ReadOnly, "Partitions of the transaction state topic."),
	define("transaction.state.log.replication.factor", Short, "3", atLeast(1), ReadOnly, "Replication factor of the transaction state topic."),
	define("transaction.state.log.segment.bytes", Int, "104857600", atLeast(1), ReadOnly, "Segment size of the transaction state topic."),
	define("transaction.two.phase.commit.enable", Boolean, "false", anyValue, ReadOnly, "Whether producers may take part in two-phase commit."),
	define("transactional.id.expiration.ms", Int, "604800000", atLeast(1), ReadOnly, "Idle time after which a transactional id is forgotten."),
}
