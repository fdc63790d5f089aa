package config

// groupResourceTable holds the settings of one group.
var groupResourceTable = []Definition{
	override("consumer.assignment.interval.ms", Int, "1000", atLeast(0), "group.consumer.assignment.interval.ms", "Shortest time between two assignments of the consumer group."),
	override("consumer.heartbeat.interval.ms", Int, "5000", atLeast(1), "group.consumer.heartbeat.interval.ms", "Heartbeat interval of the consumer group."),
	override("consumer.session.timeout.ms", Int, "45000", atLeast(1), "group.consumer.session.timeout.ms", "Time without heartbeats after which a member leaves the consumer group."),
	override("errors.deadletterqueue.copy.record.enable", Boolean, "false", anyValue, "", "Whether the dead-letter record of the share group copies key and value."),
	override("errors.deadletterqueue.topic.name", String, "", anyValue, "", "Dead-letter topic of the share group; none when empty."),
	override("share.assignment.interval.ms", Int, "1000", atLeast(0), "group.share.assignment.interval.ms", "Shortest time between two assignments of the share group."),
	override("share.auto.offset.reset", String, "latest", autoOffsetReset, "", "Where a new share group starts to read."),
	override("share.delivery.count.limit", Int, "5", atLeast(2), "group.share.delivery.count.limit", "Deliveries after which a record is given up."),
	override("share.heartbeat.interval.ms", Int, "5000", atLeast(1), "group.share.heartbeat.interval.ms", "Heartbeat interval of the share group."),
	override("share.isolation.level", String, "read_uncommitted", oneOf("read_committed", "read_uncommitted"), "", "Whether the share group sees records of open and aborted transactions."),
	override("share.partition.max.record.locks", Int, "2000", atLeast(100), "group.share.partition.max.record.locks", "Records of one partition that may be held locked."),
	override("share.record.lock.duration.ms", Int, "30000", atLeast(1000), "group.share.record.lock.duration.ms", "How long a member holds a record."),
	override("share.renew.acknowledge.enable", Boolean, "true", anyValue, "", "Whether members may renew a record lock."),
	override("share.session.timeout.ms", Int, "45000", atLeast(1), "group.share.session.timeout.ms", "Time without heartbeats after which a member leaves the share group."),
	override("streams.assignment.interval.ms", Int, "1000", atLeast(0), "group.streams.assignment.interval.ms", "Shortest time between two assignments of the streams group."),
	override("streams.assignor.name", String, Null, anyValue, "group.streams.assignors", "Assignor of the streams group."),
	override("streams.heartbeat.interval.ms", Int, "5000", atLeast(1), "group.streams.heartbeat.interval.ms", "Heartbeat interval of the streams group."),
	override("streams.initial.rebalance.delay.ms", Int, "3000", atLeast(0), "group.streams.initial.rebalance.delay.ms", "How long the first rebalance of the empty streams group waits for more members."),
	override("streams.num.standby.replicas", Int, "0", atLeast(0), "group.streams.num.standby.replicas", "Standby replicas of each task."),
	override("streams.rack.aware.assignment.tags", List, "", anyMembers, "group.streams.rack.aware.assignment.tags", "Client tags over which standby replicas are spread."),
	override("streams.session.timeout.ms", Int, "45000", atLeast(1), "group.streams.session.timeout.ms", "Time without heartbeats after which a member leaves the streams group."),
}
