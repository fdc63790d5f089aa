package config

import (
	"strconv"
	"testing"
)

// number is the default of a broker setting.
func number(t *testing.T, name string) int64 {
	t.Helper()
	d, ok := Lookup(ResourceBroker, name)
	if !ok {
		t.Fatalf("%s is not defined", name)
	}
	n, err := strconv.ParseInt(d.Default, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The limits and the defaults fit together: what one lets through, the next can take.
func TestLimitsFitTogether(t *testing.T) {
	for _, relation := range []struct {
		why          string
		small, large int64
	}{
		{"a frame before authentication is smaller than after", number(t, "sasl.server.max.receive.size"), number(t, "socket.request.max.bytes")},
		{"the largest batch fits a request", number(t, "message.max.bytes"), number(t, "socket.request.max.bytes")},
		{"the largest batch fits a segment", number(t, "message.max.bytes"), number(t, "log.segment.bytes")},
		{"the largest batch fits a fetch", number(t, "message.max.bytes"), number(t, "fetch.max.bytes")},
		{"a follower's fetch fits a fetch", number(t, "replica.fetch.response.max.bytes"), number(t, "fetch.max.bytes")},
		{"a partition's share fits a follower's fetch", number(t, "replica.fetch.max.bytes"), number(t, "replica.fetch.response.max.bytes")},
		{"a batch unpacks into what may be unpacked", number(t, "message.max.bytes"), number(t, "max.decompressed.message.bytes")},
		{"a metadata entry fits a chunk of the object store", MetadataEntryBytesMax, number(t, "tier.chunk.bytes")},
		{"the largest CreateTopics fits the queue", PartitionsPerRequestMax, MetadataQueueMax},
		{"two heartbeats may be missed", 2 * number(t, "broker.heartbeat.interval.ms"), number(t, "broker.session.timeout.ms")},
		{"two renewals may be missed", 2 * number(t, "lease.renew.ms"), number(t, "lease.ttl.ms") - LeaseGuardMs(number(t, "lease.ttl.ms"))},
		{"a follower's wait is no lag", number(t, "replica.fetch.wait.max.ms"), number(t, "replica.lag.time.max.ms")},
		{"a commit is answered before the client gives up", number(t, "offsets.commit.timeout.ms"), number(t, "request.timeout.ms")},
	} {
		if relation.small > relation.large {
			t.Errorf("%s: %d > %d", relation.why, relation.small, relation.large)
		}
	}
}
