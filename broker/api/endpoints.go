package api

import (
	"math"
	"strings"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// endpoint is where clients of one listener reach a broker.
type endpoint struct {
	id   wire.BrokerID
	host string
	port int32
	rack *string
}

// noEndpoint stands for "no such node", as Kafka writes it.
var noEndpoint = endpoint{id: wire.NoBroker, port: -1}

// endpointOf finds the address that b advertises on the listener on which the request came in; ok is false when it has none.
func (c *call) endpointOf(b *metadata.Broker) (e endpoint, ok bool) {
	for _, l := range b.Listeners {
		if l.Name == c.Session.Listener {
			return endpoint{id: b.ID, host: l.Host, port: int32(l.Port), rack: nullable(b.Rack)}, true
		}
	}
	return noEndpoint, false
}

// liveEndpoints are the brokers that clients may use, in order of their ids.
func (c *call) liveEndpoints(image *metadata.Image) []endpoint {
	live := make([]endpoint, 0, image.BrokerCount())
	for b := range image.Brokers() {
		if e, ok := c.endpointOf(b); ok && !b.Fenced {
			live = append(live, e)
		}
	}
	return live
}

// nullable is s as the protocol's nullable string: null when empty.
func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return text(s)
}

// text is s as a string that is never null. It is cut where the protocol can't hold it, which happens to messages that repeat a
// name of the request.
func text(s string) *string {
	if len(s) > math.MaxInt16 {
		s = strings.ToValidUTF8(s[:math.MaxInt16], "")
	}
	return &s
}

// brokerIDs copies ids into the protocol's form.
func brokerIDs(ids []wire.BrokerID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}

// fromBrokerIDs copies ids out of the protocol's form.
func fromBrokerIDs(ids []int32) []wire.BrokerID {
	out := make([]wire.BrokerID, len(ids))
	for i, id := range ids {
		out[i] = wire.BrokerID(id)
	}
	return out
}

// offlineReplicas are the replicas whose brokers are fenced or gone.
func offlineReplicas(image *metadata.Image, p *metadata.Partition) []int32 {
	var offline []int32
	for _, id := range p.Replicas {
		if b := image.Broker(id); b == nil || b.Fenced {
			offline = append(offline, int32(id))
		}
	}
	return offline
}
