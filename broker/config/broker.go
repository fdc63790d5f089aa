package config

import "github.com/tidemark-io/tidemark/broker/wire"

// Broker holds the effective settings of one broker: typed fields for those that code uses, and the text and source of
// all. It never changes after it was made. Times are in milliseconds, sizes in bytes, as in the settings themselves.
type Broker struct {
	NodeID              wire.BrokerID
	Rack                string // "": none
	LogDirs             []string
	Listeners           []Listener
	AdvertisedListeners []Listener // one for each of Listeners, in their order
	ClusterListener     Listener
	AdminListener       Listener

	StoreURL string

	// Topics.
	AutoCreateTopics         bool
	DeleteTopicEnable        bool
	NumPartitions            int
	DefaultReplicationFactor int
	MaxRequestPartitions     int // max.request.partition.size.limit

	// Network.
	SocketSendBufferBytes        int // -1: the system's default
	SocketReceiveBufferBytes     int // -1: the system's default
	SocketRequestMaxBytes        int
	QueuedMaxRequestBytes        int64 // -1: no limit
	MaxConnections               int
	MaxConnectionsPerIP          int
	MaxConnectionsPerIPOverrides map[string]int
	ConnectionsMaxIdleMs         int64
	RequestTimeoutMs             int

	// Logs and replication.
	RecoveryThreadsPerDataDir int
	RetentionCheckIntervalMs  int64
	FlushSchedulerIntervalMs  int64
	ProducerIDExpirationMs    int
	HighWatermarkCheckpointMs int64
	ReplicaLagTimeMaxMs       int64
	FetchMaxBytes             int
	FetchSessionCacheSlots    int

	// Membership.
	InitialRegistrationTimeoutMs int
	BrokerHeartbeatIntervalMs    int
	BrokerSessionTimeoutMs       int
	ControlledShutdownEnable     bool

	// Groups and offsets.
	OffsetsTopicPartitions        int
	OffsetsTopicReplicationFactor int
	OffsetsTopicSegmentBytes      int
	OffsetsRetentionMinutes       int
	OffsetsRetentionCheckMs       int64
	OffsetsCommitTimeoutMs        int
	OffsetMetadataMaxBytes        int
	GroupMinSessionTimeoutMs      int
	GroupMaxSessionTimeoutMs      int
	GroupInitialRebalanceDelayMs  int
	GroupMaxSize                  int

	// The lease and the metadata log.
	LeaseTTLMs             int64
	LeaseRenewMs           int64
	MetadataLogRetentionMs int64

	// The tier.
	TierEnable                 bool
	TierChunkBytes             int
	TierCacheBytes             int64
	TierCacheDir               string // "": in memory
	TierReadAheadBytes         int64
	TierUploadParallel         int
	TierUploadBytesPerSecond   int64
	TierFetchBytesPerSecond    int64
	TierMaxUnsealedMs          int64
	TierRecoveryOffsetGap      int64
	TierShutdownUploadMs       int64
	TierDeleteGraceMs          int64
	TierPricePut               float64 // dollars a request: tier.price.put
	TierPriceGet               float64 // dollars a request: tier.price.get
	TierPriceGBOut             float64 // dollars for 10^9 bytes: tier.price.gb.out
	MaxDecompressedBytes       int     // of a record: max.decompressed.message.bytes
	RemoteFetchMaxWaitMs       int
	RemoteListOffsetsTimeoutMs int // remote.list.offsets.request.timeout.ms
	RemoteReaderThreads        int // remote.log.reader.threads
	RemoteReaderMaxPending     int // remote.log.reader.max.pending.tasks

	values  map[string]string // effective, normalized; every definition has one
	static  map[string]setting
	cluster map[string]string // dynamic, all brokers
	broker  map[string]string // dynamic, this broker
}

// setting is a static value as it was written, and where.
type setting struct {
	value  string
	source string // Source.Name
}

// Setting is one line of the effective configuration for people; sensitive values are hidden.
type Setting struct {
	Name   string
	Value  string // Null when there is none
	Source string // Source.Name, "default", "cluster" or "broker"
}

// WithDynamic is b under the cluster's and the broker's own dynamic settings, as the metadata holds them. Values that do not
// pass, which only a former version can have written, are left out and named in the error; the result is usable even so.
func (b *Broker) WithDynamic(cluster, broker map[string]string) (*Broker, error) {
	return build(b.static, cluster, broker)
}

// Value is the effective text of a setting, Null where there is none, and the layer that it comes from.
func (b *Broker) Value(name string) (string, Origin) {
	d, known := brokerDefinition(name)
	if !known {
		return Null, OriginDefault
	}
	for _, layer := range b.layers() {
		if layer.origin < OriginStatic && d.Mode == ReadOnly {
			continue
		}
		if value, ok := layer.get(name); ok {
			if text, err := d.Normalize(value); err == nil {
				return text, layer.origin
			}
		}
	}
	return Null, OriginDefault
}

// layer is one source of values of a broker, the most specific one first.
type layer struct {
	origin Origin
	get    func(name string) (string, bool)
}

func (b *Broker) layers() []layer {
	dynamic := func(overrides map[string]string) func(string) (string, bool) {
		return func(name string) (string, bool) { v, ok := overrides[name]; return v, ok }
	}
	return []layer{
		{OriginBroker, dynamic(b.broker)},
		{OriginCluster, dynamic(b.cluster)},
		{OriginStatic, func(name string) (string, bool) { s, ok := b.static[name]; return s.value, ok }},
		{OriginDefault, func(name string) (string, bool) {
			d, ok := Lookup(ResourceBroker, name)
			if !ok || d.Default == Null {
				return "", false
			}
			return d.Default, true
		}},
	}
}

// Settings lists the effective configuration by name.
func (b *Broker) Settings() []Setting {
	var list []Setting
	for _, name := range b.names() {
		value, origin := b.Value(name)
		source := map[Origin]string{OriginBroker: "broker", OriginCluster: "cluster", OriginDefault: "default"}[origin]
		if origin == OriginStatic {
			source = b.static[name].source
		}
		if d, known := brokerDefinition(name); (!known || d.Sensitive()) && value != Null {
			value = "[hidden]"
		}
		list = append(list, Setting{Name: name, Value: value, Source: source})
	}
	return list
}

// names lists every setting of the broker: the defined ones and those that are set by pattern or unknown.
func (b *Broker) names() []string {
	all := make(map[string]bool)
	for _, d := range Definitions(ResourceBroker) {
		if !d.dynamicOnly {
			all[d.Name] = true
		}
	}
	for name := range b.static {
		all[name] = true
	}
	for _, overrides := range []map[string]string{b.cluster, b.broker} {
		for name := range overrides {
			all[name] = true
		}
	}
	return sortedKeys(all)
}
