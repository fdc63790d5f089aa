package config

// Topic holds the effective settings of one topic: Kafka's 37 topic configs as typed values. It is plain data, copied by
// value and never changed after it was made. Times are in milliseconds, sizes in bytes, as in the settings themselves.
type Topic struct {
	CleanupDelete  bool // cleanup.policy contains delete
	CleanupCompact bool // cleanup.policy contains compact

	CompressionType string // "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"
	GzipLevel       int
	LZ4Level        int
	ZstdLevel       int

	DeleteRetentionMs          int64
	DeadLetterQueueGroupEnable bool
	FileDeleteDelayMs          int64
	FlushMessages              int64
	FlushMs                    int64
	FollowerThrottledReplicas  []string
	LeaderThrottledReplicas    []string
	IndexIntervalBytes         int
	LocalRetentionBytes        int64 // -2: as RetentionBytes
	LocalRetentionMs           int64 // -2: as RetentionMs
	MaxCompactionLagMs         int64
	MaxDecompressedBytes       int
	MaxMessageBytes            int
	TimestampAppendTime        bool // message.timestamp.type is LogAppendTime
	TimestampBeforeMaxMs       int64
	TimestampAfterMaxMs        int64
	MinCleanableDirtyRatio     float64
	MinCompactionLagMs         int64
	MinInSyncReplicas          int
	Preallocate                bool
	RemoteCopyLagBytes         int64
	RemoteCopyLagMs            int64
	RemoteLogCopyDisable       bool
	RemoteLogDeleteOnDisable   bool
	RemoteStorageEnable        bool
	RetentionBytes             int64 // -1: no limit
	RetentionMs                int64 // -1: no limit
	SegmentBytes               int
	SegmentIndexBytes          int
	SegmentJitterMs            int64
	SegmentMs                  int64
	UncleanLeaderElection      bool

	// CompressedBatchValidation is Tidemark's own compressed.batch.validation.
	CompressedBatchValidation Validation
}

// Validation says how much of a compressed batch is looked at on produce.
type Validation int8

// The values of compressed.batch.validation.
const (
	ValidateFirst  Validation = iota // full for the first batch of each connection and codec and on compacted topics, else header
	ValidateFull                     // decompress and visit every record
	ValidateHeader                   // only what the batch header states
)
