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
	SocketSendBufferBytes            int // -1: the system's default
	SocketReceiveBufferBytes         int // -1: the system's default
	SocketRequestMaxBytes            int
	SocketListenBacklog              int
	QueuedMaxRequestBytes            int64 // -1: no limit
	MaxConnections                   int
	MaxConnectionsPerIP              int
	MaxConnectionsPerIPOverrides     map[string]int
	MaxConnectionCreationRate        int // a second
	ConnectionsMaxIdleMs             int64
	ConnectionFailedAuthDelayMs      int
	FetchMaxBytes                    int
	FetchSessionCacheSlots           int
	RequestTimeoutMs                 int
	LeaderImbalanceCheckSeconds      int64
	AutoLeaderRebalance              bool
	ControlledShutdownEnable         bool
	BrokerHeartbeatIntervalMs        int
	BrokerSessionTimeoutMs           int
	InitialRegistrationTimeoutMs     int
	RecoveryThreadsPerDataDir        int
	RetentionCheckIntervalMs         int64
	FlushSchedulerIntervalMs         int64
	FlushOffsetCheckpointMs          int
	FlushStartOffsetCheckpointMs     int
	ProducerIDExpirationMs           int
	HighWatermarkCheckpointMs        int64
	ReplicaLagTimeMaxMs              int64
	ReplicaFetchMaxBytes             int
	ReplicaFetchResponseMaxBytes     int
	ReplicaFetchMinBytes             int
	ReplicaFetchWaitMaxMs            int
	ReplicaFetchBackoffMs            int
	LeaderReplicationThrottledRate   int64
	FollowerReplicationThrottledRate int64
	QuotaWindowNum                   int
	QuotaWindowSeconds               int

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

	// Transactions.
	TransactionMaxTimeoutMs            int
	TransactionalIDExpirationMs        int
	TransactionTopicPartitions         int
	TransactionTopicReplicationFactor  int
	TransactionTopicMinISR             int
	TransactionTopicSegmentBytes       int
	TransactionPartitionVerification   bool
	TransactionAbortTimedOutIntervalMs int

	// The lease and the metadata log.
	LeaseTTLMs             int64
	LeaseRenewMs           int64
	MetadataLogRetentionMs int64

	// The tier.
	TierEnable bool

	static  map[string]setting
	cluster map[string]string // dynamic, all brokers
	broker  map[string]string // dynamic, this broker
}

// Listener is an address that the broker listens on or tells its clients.
type Listener struct {
	Name     string // PLAINTEXT in PLAINTEXT://host:9092
	Protocol string // PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
	Host     string // "": all addresses
	Port     int
}

// setting is a static value and where it was read.
type setting struct {
	value  string
	source string // Source.Name
}

// Setting is one line of the effective configuration for people; sensitive values are hidden.
type Setting struct {
	Name   string
	Value  string // Null when there is none
	Source string // Source.Name, "default" or "dynamic"
}
