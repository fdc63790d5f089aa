package config

import (
	"errors"
	"slices"
	"strconv"
)

// ResolveTopic makes the effective settings of a topic: its own overrides over what the broker has (see WithDynamic) over
// the defaults. Overrides that do not pass, which only a former version can have written, are left out and named in the
// error; the Topic is usable even so.
func ResolveTopic(b *Broker, overrides map[string]string) (Topic, error) {
	texts := make(topicTexts, len(tables[ResourceTopic].sorted))
	var errs []error
	for _, d := range Definitions(ResourceTopic) {
		text, err := b.topicText(d, overrides)
		if err != nil {
			errs = append(errs, err)
		}
		texts[d.Name] = text
	}
	return texts.topic(), errors.Join(errs...)
}

// topicText is the effective text of one topic setting.
func (b *Broker) topicText(d *Definition, overrides map[string]string) (string, error) {
	var err error
	if value, ok := overrides[d.Name]; ok {
		var text string
		if text, err = d.Normalize(value); err == nil {
			return text, nil
		}
	}
	switch {
	case d.synonym != "":
		return b.fallback(d.synonym), err
	case d.Name == "remote.storage.enable":
		return strconv.FormatBool(b.TierEnable), err
	default:
		return d.Default, err
	}
}

// topicTexts holds the normalized text of every topic setting.
type topicTexts map[string]string

func (t topicTexts) bool(name string) bool     { return t[name] == "true" }
func (t topicTexts) int(name string) int       { return int(t.long(name)) }
func (t topicTexts) list(name string) []string { return SplitList(t[name]) }

func (t topicTexts) long(name string) int64 {
	n, _ := strconv.ParseInt(t[name], 10, 64)
	return n
}

func (t topicTexts) double(name string) float64 {
	f, _ := parseJavaDouble(t[name])
	return f
}

func (t topicTexts) topic() Topic {
	policy := t.list("cleanup.policy")
	return Topic{
		CleanupDelete:              slices.Contains(policy, "delete"),
		CleanupCompact:             slices.Contains(policy, "compact"),
		CompressionType:            t["compression.type"],
		GzipLevel:                  t.int("compression.gzip.level"),
		LZ4Level:                   t.int("compression.lz4.level"),
		ZstdLevel:                  t.int("compression.zstd.level"),
		DeleteRetentionMs:          t.long("delete.retention.ms"),
		DeadLetterQueueGroupEnable: t.bool("errors.deadletterqueue.group.enable"),
		FileDeleteDelayMs:          t.long("file.delete.delay.ms"),
		FlushMessages:              t.long("flush.messages"),
		FlushMs:                    t.long("flush.ms"),
		FollowerThrottledReplicas:  t.list("follower.replication.throttled.replicas"),
		LeaderThrottledReplicas:    t.list("leader.replication.throttled.replicas"),
		IndexIntervalBytes:         t.int("index.interval.bytes"),
		LocalRetentionBytes:        t.long("local.retention.bytes"),
		LocalRetentionMs:           t.long("local.retention.ms"),
		MaxCompactionLagMs:         t.long("max.compaction.lag.ms"),
		MaxDecompressedBytes:       t.int("max.decompressed.message.bytes"),
		MaxMessageBytes:            t.int("max.message.bytes"),
		TimestampAppendTime:        t["message.timestamp.type"] == "LogAppendTime",
		TimestampBeforeMaxMs:       t.long("message.timestamp.before.max.ms"),
		TimestampAfterMaxMs:        t.long("message.timestamp.after.max.ms"),
		MinCleanableDirtyRatio:     t.double("min.cleanable.dirty.ratio"),
		MinCompactionLagMs:         t.long("min.compaction.lag.ms"),
		MinInSyncReplicas:          t.int("min.insync.replicas"),
		Preallocate:                t.bool("preallocate"),
		RemoteCopyLagBytes:         t.long("remote.copy.lag.bytes"),
		RemoteCopyLagMs:            t.long("remote.copy.lag.ms"),
		RemoteLogCopyDisable:       t.bool("remote.log.copy.disable"),
		RemoteLogDeleteOnDisable:   t.bool("remote.log.delete.on.disable"),
		RemoteStorageEnable:        t.bool("remote.storage.enable"),
		RetentionBytes:             t.long("retention.bytes"),
		RetentionMs:                t.long("retention.ms"),
		SegmentBytes:               t.int("segment.bytes"),
		SegmentIndexBytes:          t.int("segment.index.bytes"),
		SegmentJitterMs:            t.long("segment.jitter.ms"),
		SegmentMs:                  t.long("segment.ms"),
		UncleanLeaderElection:      t.bool("unclean.leader.election.enable"),
		CompressedBatchValidation:  validations[t["compressed.batch.validation"]],
	}
}

var validations = map[string]Validation{"first": ValidateFirst, "full": ValidateFull, "header": ValidateHeader}
