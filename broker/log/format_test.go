package log

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/broker/wire"
)

func TestCheckpointFormats(t *testing.T) {
	offsets := map[wire.TopicPartition]wire.Offset{{Topic: "b", Partition: 10}: 5, {Topic: "b", Partition: 9}: 0, {Topic: "a-x"}: 1 << 40}
	const want = "0\n3\na-x 0 1099511627776\nb 9 0\nb 10 5\n"
	if got := string(formatOffsetCheckpoint(offsets)); got != want {
		t.Errorf("offset checkpoint %q", got)
	}
	if got, err := ParseOffsetCheckpoint([]byte(want)); err != nil || !maps.Equal(got, offsets) {
		t.Errorf("read back %v, %v", got, err)
	}
	epochs := []EpochEntry{{0, 0}, {3, 17}}
	if got := string(formatEpochCheckpoint(epochs)); got != "0\n2\n0 0\n3 17\n" {
		t.Errorf("epoch checkpoint %q", got)
	}
	// As Kafka 4.4 writes them.
	if got, err := ParseEpochCheckpoint([]byte("0\n1\n0 0\n")); err != nil || !slices.Equal(got, epochs[:1]) {
		t.Errorf("%v, %v", got, err)
	}
	id, err := parsePartitionMetadata([]byte("version: 0\ntopic_id: oAD42iqRT2qubzFF7DhmXg"))
	if err != nil || id.String() != "oAD42iqRT2qubzFF7DhmXg" || string(formatPartitionMetadata(id)) != "version: 0\ntopic_id: oAD42iqRT2qubzFF7DhmXg" {
		t.Errorf("%s, %v", id, err)
	}
	meta, err := ParseMeta([]byte("#\n#Sun Nov 29 19:34:10 UTC 2026\nnode.id=1\ndirectory.id=fYCJeo4Mqe3U7G_L1WndKA\nversion=1\ncluster.id=bmk68NJ893Mss5MNYtjZ3w\n"))
	if err != nil || meta.BrokerID != 1 || meta.ClusterID != "bmk68NJ893Mss5MNYtjZ3w" || meta.DirectoryID.String() != "fYCJeo4Mqe3U7G_L1WndKA" {
		t.Errorf("%+v, %v", meta, err)
	}
}

func TestBadCheckpointsAreRefused(t *testing.T) {
	for _, bad := range []string{
		"", "0", "1\n0\n", "0\n-1\n", "0\n1\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na 0 1 2\n", "0\n1\na x 1\n", "0\n1\na 0 99999999999999999999\n", "0\n1\na 0 1\n\n", "\x00\x00",
	} {
		if got, err := ParseOffsetCheckpoint([]byte(bad)); err == nil {
			t.Errorf("%q gives %v", bad, got)
		}
	}
	for _, bad := range []string{"0\n2\n1 0\n1 5\n", "0\n2\n2 0\n1 5\n", "0\n2\n1 5\n2 4\n", "0\n1\n-1 0\n"} {
		if got, err := ParseEpochCheckpoint([]byte(bad)); err == nil {
			t.Errorf("%q gives %v", bad, got)
		}
	}
}

func FuzzCheckpoints(f *testing.F) {
	f.Add([]byte("0\n1\na 0 1\n"))
	f.Add([]byte("0\n2\n0 0\n3 17\n"))
	f.Add([]byte("0\n1\n0 5 7 100 200\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if offsets, err := ParseOffsetCheckpoint(data); err == nil {
			if again, err := ParseOffsetCheckpoint(formatOffsetCheckpoint(offsets)); err != nil || !maps.Equal(again, offsets) {
				t.Errorf("offsets %v become %v, %v", offsets, again, err)
			}
		}
		if epochs, err := ParseEpochCheckpoint(data); err == nil {
			if again, err := ParseEpochCheckpoint(formatEpochCheckpoint(epochs)); err != nil || !slices.Equal(again, epochs) {
				t.Errorf("epochs %v become %v, %v", epochs, again, err)
			}
		}
		if ranges, err := parseDamage(data); err == nil {
			var lines []damageLine
			for _, base := range slices.Sorted(maps.Keys(ranges)) {
				for _, d := range ranges[base] {
					lines = append(lines, damageLine{base, d})
				}
			}
			again, err := parseDamage(formatDamage(lines))
			if err != nil || !maps.EqualFunc(again, ranges, slices.Equal[[]damage]) {
				t.Errorf("damage %v becomes %v, %v", ranges, again, err)
			}
		}
		if id, err := parsePartitionMetadata(data); err == nil {
			if again, err := parsePartitionMetadata(formatPartitionMetadata(id)); err != nil || again != id {
				t.Errorf("topic id %s becomes %s, %v", id, again, err)
			}
		}
	})
}

func FuzzMeta(f *testing.F) {
	f.Add([]byte("#\nnode.id=1\ndirectory.id=fYCJeo4Mqe3U7G_L1WndKA\nversion=1\ncluster.id=bmk68NJ893Mss5MNYtjZ3w\ncluster.incarnation=3\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		meta, err := ParseMeta(data)
		if err != nil || bytes.ContainsAny([]byte(meta.ClusterID), "\r\n\v\f\u0085") {
			return
		}
		if again, err := ParseMeta(meta.format()); err != nil || again != meta {
			t.Errorf("%+v becomes %+v, %v", meta, again, err)
		}
	})
}

func FuzzProducerSnapshot(f *testing.F) {
	var s producerState
	f.Add(s.encode())
	for i := range wire.ProducerID(3) {
		s.follow(batch(2, 9, 1, from(i, 0, 4), transactional), 0)
	}
	f.Add(s.encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := DecodeProducerSnapshot(data)
		if err != nil {
			return
		}
		restored := restoreProducers(entries, 0, 0)
		again, err := DecodeProducerSnapshot(restored.encode())
		if err != nil || len(again) != len(restored.entries) {
			t.Errorf("%d entries become %d, %v", len(restored.entries), len(again), err)
		}
		restored.firstUnstable()
	})
}

func FuzzRecovery(f *testing.F) {
	b := batch(2, 1, 20)
	f.Add([]byte(b), byte(0))
	f.Add(append(bytes.Clone(b), b[:30]...), byte(1))
	f.Fuzz(func(t *testing.T, data []byte, stop byte) {
		mem := newMemWith(t, segmentFile(3, logSuffix), data)
		l := mustOpen(t, crashed(mem, testConfig(), Stop(stop%3), wire.Offset(stop)))
		checkLookups(t, l)
		end := l.EndOffset()
		if end == 1<<63-1 {
			return
		}
		if info, err := l.AppendAsLeader(testTime, batch(1, 1, 1), 1, Coordinator); err != nil || info.First != end {
			t.Errorf("append at %d: %+v, %v", end, info, err)
		}
	})
}
