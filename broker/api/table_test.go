package api_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/api"
)

// What is served is what the protocol has: keys in order and once, names, and no version that can't be read or written.
func TestTheTableIsThatOfTheProtocol(t *testing.T) {
	names := map[string]string{"InitProducerId": "InitProducerID"} // Kafka's spelling, and kmsg's
	last := int16(-1)
	for _, e := range api.Table() {
		if int16(e.Key) <= last {
			t.Errorf("%s is out of order", e.Name)
		}
		last = int16(e.Key)
		request := kmsg.RequestForKey(last)
		if request == nil {
			t.Fatalf("%d %s: not known to kmsg", e.Key, e.Name)
		}
		name := e.Name
		if n, ok := names[name]; ok {
			name = n
		}
		if got := kmsg.NameForKey(last); got != name {
			t.Errorf("%d is %s, not %s", e.Key, got, e.Name)
		}
		if e.Min < 0 || e.Max < e.Min || e.Max > request.MaxVersion() || e.Max > request.ResponseKind().MaxVersion() {
			t.Errorf("%s is served in %d to %d, kmsg knows up to %d", e.Name, e.Min, e.Max, request.MaxVersion())
		}
		for v := e.Min; v <= e.Max; v++ {
			request.SetVersion(v)
			if api.FlexibleHeader(e.Key, v) != request.IsFlexible() {
				t.Errorf("%s %d: flexible header is %t", e.Name, v, api.FlexibleHeader(e.Key, v))
			}
		}
	}
	for _, key := range []int16{-1, 4, 127, 128, 1000} {
		if api.FlexibleHeader(wireKey(key), 0) {
			t.Errorf("key %d, which nobody serves, has a flexible header", key)
		}
	}
}

// BO-005: what ApiVersions announces is what is served; where it announces more, the connection closes.
func TestBO005OnlyWhatWorksIsAnnounced(t *testing.T) {
	r := newRig(t)
	answer := ask[*kmsg.ApiVersionsResponse](r, apiVersions(3))
	if len(answer.ApiKeys) != len(api.Table()) {
		t.Fatalf("%d keys are announced, %d served", len(answer.ApiKeys), len(api.Table()))
	}
	for i, e := range api.Table() {
		a := answer.ApiKeys[i]
		lowest := e.Min
		if e.Name == "Produce" {
			lowest = 0 // KAFKA-18659: librdkafka
		}
		if a.ApiKey != int16(e.Key) || a.MinVersion != lowest || a.MaxVersion != e.Max {
			t.Errorf("%s %d to %d is announced as %+v", e.Name, e.Min, e.Max, a)
		}
		if e.Name == "ApiVersions" {
			continue
		}
		for _, version := range []int16{e.Min - 1, e.Max + 1, -1} {
			if reply := r.send(e.Key, version, nil); reply.Outcome != api.Close {
				t.Errorf("%s %d: outcome %v", e.Name, version, reply.Outcome)
			}
		}
	}
	for _, key := range []int16{-1, 4, 24, 127, 128, 32767} {
		if reply := r.send(wireKey(key), 0, nil); reply.Outcome != api.Close {
			t.Errorf("key %d: outcome %v", key, reply.Outcome)
		}
	}
}
