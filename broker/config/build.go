package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// build makes the typed form of the layers. Static settings were normalized by Parse; what does not pass together is an error.
func build(static map[string]setting, cluster, broker map[string]string) (*Broker, error) {
	b := &Broker{static: static, cluster: cluster, broker: broker, values: make(map[string]string)}
	r := reader{b: b}
	for _, overrides := range []map[string]string{cluster, broker} {
		for _, name := range sortedKeys(overrides) {
			if d, known := brokerDefinition(name); known {
				if _, err := d.Normalize(overrides[name]); err != nil {
					r.errs = append(r.errs, err)
				}
			}
		}
	}
	for _, d := range Definitions(ResourceBroker) {
		b.values[d.Name], _ = b.Value(d.Name)
	}
	r.identity()
	r.listeners()
	r.topics()
	r.tier()
	r.network()
	r.replication()
	r.logs()
	r.groups()
	r.control()
	return b, errors.Join(r.errs...)
}

// reader fills the typed fields and gathers what is wrong.
type reader struct {
	b    *Broker
	errs []error
}

func (r *reader) fail(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf(format, args...))
}

// text is the effective value, "" where there is none.
func (r *reader) text(name string) string {
	value, ok := r.b.values[name]
	if !ok {
		panic("config: " + name + " is not defined")
	}
	if value == Null {
		return ""
	}
	return value
}

// long is the effective number; a setting without value or default is 0.
func (r *reader) long(name string) int64 {
	n, _ := strconv.ParseInt(r.text(name), 10, 64)
	return n
}

func (r *reader) int(name string) int   { return int(r.long(name)) }
func (r *reader) bool(name string) bool { return r.text(name) == "true" }

func (r *reader) double(name string) float64 {
	f, _ := parseJavaDouble(r.text(name))
	return f
}

func (r *reader) identity() {
	r.b.NodeID = wire.BrokerID(r.long("node.id"))
	r.b.Rack = r.text("broker.rack")
	r.b.LogDirs = SplitList(r.text("log.dirs"))
	if len(r.b.LogDirs) == 0 {
		if _, origin := r.b.Value("log.dir"); origin == OriginDefault {
			// Kafka falls back to a folder in /tmp, where the system sweeps data away.
			r.fail("log.dirs is not set: name the directories that hold the data")
		}
		r.b.LogDirs = SplitList(r.text("log.dir"))
	}
	r.b.StoreURL = r.text("store.url")
}

func (r *reader) listeners() {
	protocols, err := parsePairs("listener.security.protocol.map", r.text("listener.security.protocol.map"))
	if err != nil {
		r.errs = append(r.errs, err)
	}
	r.b.Listeners = r.listenerList("listeners", protocols)
	ports := make(map[int]string)
	for _, l := range r.b.Listeners {
		if other, taken := ports[l.Port]; taken && l.Port != 0 {
			r.fail("listeners: %s and %s have one port", other, l.Name)
		}
		ports[l.Port] = l.Name
	}
	r.b.AdvertisedListeners = r.advertised(r.listenerList("advertised.listeners", protocols))
	r.b.ClusterListener = r.address("cluster.listener", "CLUSTER")
	r.b.AdminListener = r.address("admin.listener", "ADMIN")
}

func (r *reader) listenerList(name string, protocols map[string]string) []Listener {
	var list []Listener
	for _, text := range SplitList(r.text(name)) {
		l, err := parseListener(name, text, protocols)
		if err != nil {
			r.errs = append(r.errs, err)
			continue
		}
		if slices.ContainsFunc(list, func(other Listener) bool { return other.Name == l.Name }) {
			r.fail("%s: each listener must have a name of its own, %s is there twice", name, l.Name)
		}
		list = append(list, l)
	}
	return list
}

// advertised puts given into the order of the listeners; without any, the listeners themselves are told to clients.
func (r *reader) advertised(given []Listener) []Listener {
	if len(given) == 0 {
		given = r.b.Listeners
	}
	var list []Listener
	for _, l := range r.b.Listeners {
		i := slices.IndexFunc(given, func(a Listener) bool { return a.Name == l.Name })
		if i < 0 {
			r.fail("advertised.listeners: %s is missing", l.Name)
			continue
		}
		if host := given[i].Host; host == "0.0.0.0" || host == "::" {
			r.fail("advertised.listeners: clients cannot connect to %s; name an address that they can reach", host)
		}
		list = append(list, given[i])
	}
	for _, a := range given {
		if !slices.ContainsFunc(r.b.Listeners, func(l Listener) bool { return l.Name == a.Name }) {
			r.fail("advertised.listeners: %s is not in listeners", a.Name)
		}
	}
	return list
}

func (r *reader) address(setting, name string) Listener {
	host, port, err := parseAddress(setting, r.text(setting))
	if err != nil {
		r.errs = append(r.errs, err)
	}
	return Listener{Name: name, Protocol: "PLAINTEXT", Host: host, Port: port}
}

func (r *reader) topics() {
	r.b.AutoCreateTopics = r.bool("auto.create.topics.enable")
	r.b.DeleteTopicEnable = r.bool("delete.topic.enable")
	r.b.NumPartitions = r.int("num.partitions")
	r.b.DefaultReplicationFactor = r.int("default.replication.factor")
	r.b.MaxRequestPartitions = r.int("max.request.partition.size.limit")
}

func (r *reader) tier() {
	r.b.TierEnable = r.bool("tier.enable")
	r.b.TierChunkBytes = r.int("tier.chunk.bytes")
	r.b.TierCacheBytes = r.long("tier.cache.bytes")
	r.b.TierCacheDir = r.text("tier.cache.dir")
	r.b.TierReadAheadBytes = r.long("tier.read.ahead.bytes")
	r.b.TierUploadParallel = r.int("tier.upload.parallel")
	r.b.TierUploadBytesPerSecond = r.long("tier.upload.bytes.per.second")
	r.b.TierFetchBytesPerSecond = r.long("tier.fetch.bytes.per.second")
	r.b.TierMaxUnsealedMs = r.long("tier.max.unsealed.ms")
	r.b.TierRecoveryOffsetGap = r.long("tier.recovery.offset.gap")
	r.b.TierShutdownUploadMs = r.long("tier.shutdown.upload.ms")
	r.b.TierDeleteGraceMs = r.long("tier.delete.grace.ms")
	r.b.TierPricePut = r.double("tier.price.put")
	r.b.TierPriceGet = r.double("tier.price.get")
	r.b.TierPriceGBOut = r.double("tier.price.gb.out")
	r.b.MaxDecompressedBytes = r.int("max.decompressed.message.bytes")
	r.b.RemoteFetchMaxWaitMs = r.int("remote.fetch.max.wait.ms")
	r.b.RemoteListOffsetsTimeoutMs = r.int("remote.list.offsets.request.timeout.ms")
	r.b.RemoteReaderThreads = r.int("remote.log.reader.threads")
	r.b.RemoteReaderMaxPending = r.int("remote.log.reader.max.pending.tasks")
}

func (r *reader) network() {
	r.b.SocketSendBufferBytes = r.int("socket.send.buffer.bytes")
	r.b.SocketReceiveBufferBytes = r.int("socket.receive.buffer.bytes")
	r.b.SocketRequestMaxBytes = r.int("socket.request.max.bytes")
	r.b.QueuedMaxRequestBytes = r.long("queued.max.request.bytes")
	r.b.MaxConnections = r.int("max.connections")
	r.b.MaxConnectionsPerIP = r.int("max.connections.per.ip")
	r.b.MaxConnectionsPerIPOverrides = r.counts("max.connections.per.ip.overrides")
	if r.b.MaxConnectionsPerIP == 0 && len(r.b.MaxConnectionsPerIPOverrides) == 0 {
		r.fail("max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.")
	}
	r.b.ConnectionsMaxIdleMs = r.long("connections.max.idle.ms")
	r.b.RequestTimeoutMs = r.int("request.timeout.ms")
	if total := r.b.QueuedMaxRequestBytes; total > 0 && total < int64(r.b.SocketRequestMaxBytes) {
		r.fail("queued.max.request.bytes must be larger than socket.request.max.bytes, or not set")
	}
}

// counts reads host:number pairs.
func (r *reader) counts(name string) map[string]int {
	pairs, err := parsePairs(name, r.text(name))
	if err != nil {
		r.errs = append(r.errs, err)
	}
	counts := make(map[string]int, len(pairs))
	for _, host := range sortedKeys(pairs) {
		n, err := strconv.Atoi(pairs[host])
		if err != nil || n < 0 || n > math.MaxInt32 {
			r.fail("%s: %q of %s is not a count", name, pairs[host], host)
		}
		counts[host] = n
	}
	return counts
}

func (r *reader) replication() {
	r.b.FetchMaxBytes = r.int("fetch.max.bytes")
	r.b.FetchSessionCacheSlots = r.int("max.incremental.fetch.session.cache.slots")
	r.b.HighWatermarkCheckpointMs = r.long("replica.high.watermark.checkpoint.interval.ms")
	r.b.ReplicaLagTimeMaxMs = r.long("replica.lag.time.max.ms")
	if r.long("replica.fetch.wait.max.ms") > r.b.ReplicaLagTimeMaxMs {
		r.fail("replica.fetch.wait.max.ms must not exceed replica.lag.time.max.ms, or followers flap in and out of the ISR")
	}
}

func (r *reader) logs() {
	r.b.RecoveryThreadsPerDataDir = r.int("num.recovery.threads.per.data.dir")
	r.b.RetentionCheckIntervalMs = r.long("log.retention.check.interval.ms")
	r.b.FlushSchedulerIntervalMs = r.long("log.flush.scheduler.interval.ms")
	r.b.ProducerIDExpirationMs = r.int("producer.id.expiration.ms")
	for _, name := range []string{"log.retention.ms", "log.retention.minutes", "log.retention.hours"} {
		if text := r.text(name); text == "0" || len(text) > 1 && text[0] == '-' && text != "-1" {
			r.fail("%s must be unlimited (-1) or, greater than or equal to 1", name)
		}
	}
	r.atLeast("log.roll.ms", 1)
	r.atLeast("log.roll.jitter.ms", 0)
}

// atLeast bounds a setting that need not have a value.
func (r *reader) atLeast(name string, low int64) {
	if r.text(name) != "" && r.long(name) < low {
		r.fail("%s must be greater than or equal to %d", name, low)
	}
}

func (r *reader) groups() {
	r.b.OffsetsTopicPartitions = r.int("offsets.topic.num.partitions")
	r.b.OffsetsTopicReplicationFactor = r.int("offsets.topic.replication.factor")
	r.b.OffsetsTopicSegmentBytes = r.int("offsets.topic.segment.bytes")
	r.b.OffsetsRetentionMinutes = r.int("offsets.retention.minutes")
	r.b.OffsetsRetentionCheckMs = r.long("offsets.retention.check.interval.ms")
	r.b.OffsetsCommitTimeoutMs = r.int("offsets.commit.timeout.ms")
	r.b.OffsetMetadataMaxBytes = r.int("offset.metadata.max.bytes")
	r.b.GroupMinSessionTimeoutMs = r.int("group.min.session.timeout.ms")
	r.b.GroupMaxSessionTimeoutMs = r.int("group.max.session.timeout.ms")
	r.b.GroupInitialRebalanceDelayMs = r.int("group.initial.rebalance.delay.ms")
	r.b.GroupMaxSize = r.int("group.max.size")
	if r.b.GroupMinSessionTimeoutMs > r.b.GroupMaxSessionTimeoutMs {
		r.fail("group.min.session.timeout.ms must not exceed group.max.session.timeout.ms")
	}
}

func (r *reader) control() {
	r.b.ControlledShutdownEnable = r.bool("controlled.shutdown.enable")
	r.b.BrokerHeartbeatIntervalMs = r.int("broker.heartbeat.interval.ms")
	r.b.BrokerSessionTimeoutMs = r.int("broker.session.timeout.ms")
	r.b.InitialRegistrationTimeoutMs = r.int("initial.broker.registration.timeout.ms")
	r.b.LeaseTTLMs = r.long("lease.ttl.ms")
	r.b.LeaseRenewMs = r.long("lease.renew.ms")
	r.b.MetadataLogRetentionMs = r.long("metadata.log.retention.ms")
	if 2*r.b.BrokerHeartbeatIntervalMs > r.b.BrokerSessionTimeoutMs {
		r.fail("broker.heartbeat.interval.ms must fit twice into broker.session.timeout.ms")
	}
	if 2*r.b.LeaseRenewMs > r.b.LeaseTTLMs-LeaseGuardMs(r.b.LeaseTTLMs) {
		r.fail("lease.renew.ms must fit twice into lease.ttl.ms less its guard of %d ms", LeaseGuardMs(r.b.LeaseTTLMs))
	}
}

// LeaseGuardMs is how long before ttl a lease holder steps down: a tenth of it, a second at least.
func LeaseGuardMs(ttlMs int64) int64 { return max(ttlMs/10, 1000) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
