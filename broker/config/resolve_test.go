package config

import (
	"reflect"
	"testing"
)

func equalTopics(a, b Topic) bool { return reflect.DeepEqual(a, b) }

func TestTopicTakesTheMostSpecificValue(t *testing.T) {
	b := mustParse(t, flags("log.roll.hours=2", "log.retention.minutes=3", "log.segment.bytes=2000000", "log.flush.scheduler.interval.ms=9", "message.max.bytes=5000"))
	b, err := b.WithDynamic(map[string]string{"message.max.bytes": "6000", "log.cleanup.policy": "compact"}, map[string]string{"message.max.bytes": "7000"})
	if err != nil {
		t.Fatal(err)
	}
	topic, err := ResolveTopic(b, map[string]string{"segment.bytes": "3000000", "compression.type": "zstd", "compressed.batch.validation": "header"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"topic", topic.SegmentBytes, 3000000},
		{"broker", topic.MaxMessageBytes, 7000},
		{"cluster", topic.CleanupCompact && !topic.CleanupDelete, true},
		{"static, in hours", topic.SegmentMs, int64(7_200_000)},
		{"static, in minutes", topic.RetentionMs, int64(180_000)},
		{"static, of another name", topic.FlushMs, int64(9)},
		{"default", topic.MinCleanableDirtyRatio, 0.5},
		{"text", topic.CompressionType, "zstd"},
		{"own", topic.CompressedBatchValidation, ValidateHeader},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
}

func TestDefaultTopic(t *testing.T) {
	topic, err := ResolveTopic(mustParse(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Topic{
		CleanupDelete: true, CompressionType: "producer", GzipLevel: -1, LZ4Level: 9, ZstdLevel: 3,
		DeleteRetentionMs: 86_400_000, FileDeleteDelayMs: 60_000, FlushMessages: 1<<63 - 1, FlushMs: 1<<63 - 1, IndexIntervalBytes: 4096,
		LocalRetentionBytes: -2, LocalRetentionMs: -2, MaxCompactionLagMs: 1<<63 - 1, MaxDecompressedBytes: 1<<31 - 9, MaxMessageBytes: 1_048_588,
		TimestampBeforeMaxMs: 1<<63 - 1, TimestampAfterMaxMs: 3_600_000, MinCleanableDirtyRatio: 0.5, MinInSyncReplicas: 1, RemoteCopyLagBytes: -1, RemoteStorageEnable: true,
		RetentionBytes: -1, RetentionMs: 604_800_000, SegmentBytes: 1 << 30, SegmentIndexBytes: 10 << 20, SegmentMs: 604_800_000,
	}
	if !equalTopics(topic, want) {
		t.Errorf("got %+v", topic)
	}
}

// A value that only a former version can have written does not keep the broker from its topics.
func TestBadStoredValuesFallToTheNextLayer(t *testing.T) {
	topic, err := ResolveTopic(mustParse(t), map[string]string{"segment.bytes": "3", "retention.ms": "5"})
	if err == nil || topic.SegmentBytes != 1<<30 || topic.RetentionMs != 5 {
		t.Errorf("segment.bytes %d, retention.ms %d, error %v", topic.SegmentBytes, topic.RetentionMs, err)
	}
	b, err := mustParse(t).WithDynamic(map[string]string{"message.max.bytes": "x", "num.partitions": "7"}, nil)
	if err == nil || b == nil || b.NumPartitions != 1 {
		t.Errorf("broker %v, error %v", b, err)
	}
	if topic, err := ResolveTopic(b, nil); err != nil || topic.MaxMessageBytes != 1_048_588 {
		t.Errorf("max.message.bytes %d, error %v", topic.MaxMessageBytes, err)
	}
}

func TestTierEnableIsTheDefaultOfTopics(t *testing.T) {
	b := mustParse(t, flags("tier.enable=true"))
	on, _ := ResolveTopic(b, nil)
	off, _ := ResolveTopic(b, map[string]string{"remote.storage.enable": "false"})
	if !on.RemoteStorageEnable || off.RemoteStorageEnable {
		t.Errorf("on %v, off %v", on.RemoteStorageEnable, off.RemoteStorageEnable)
	}
}
