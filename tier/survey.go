package tier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/sidecar"
)

// Found is what the bucket holds of a partition.
type Found struct {
	LeaderEpoch wire.LeaderEpoch // of the newest entry of the manifest; wire.NoLeaderEpoch where there is no manifest
	LogStart    wire.Offset
	End         wire.Offset // the tiered end, exclusive
	Closed      bool        // the log ended there: nothing is missing
	Segments    int
	Bytes       int64 // of their .log objects
	// NextProducerID is above the ids of the producers as of the last segment's end; 0 where they are not known.
	NextProducerID wire.ProducerID
}

// Survey looks at what the bucket holds of a partition, for a cluster that has nothing else left (safety rule 30). It changes nothing.
func Survey(ctx context.Context, store object.Store, topic string, id wire.TopicID, partition int32) (Found, error) {
	ctx = object.WithCause(ctx, object.Cause{Kind: object.CauseManifest, Topic: topic})
	m, err := manifest.Open(ctx, store, manifest.Prefix(topic, id, partition), manifest.Options{})
	if err != nil {
		return Found{}, fmt.Errorf("read the manifest of %s-%d: %w", topic, partition, err)
	}
	s := m.State()
	if err := complete(ctx, store, m); err != nil {
		return Found{}, fmt.Errorf("read the manifest of %s-%d: %w", topic, partition, err)
	}
	found := Found{
		LeaderEpoch: s.LeaderEpoch(), LogStart: s.LogStart, End: s.End, Closed: s.Closed, Segments: s.Segments, Bytes: s.Bytes,
	}
	last, err := lastSegment(ctx, m, s)
	if err != nil {
		return Found{}, fmt.Errorf("read the manifest of %s-%d: %w", topic, partition, err)
	}
	if last != nil {
		found.NextProducerID = nextProducerID(ctx, store, m, *last)
	}
	return found, nil
}

var errForgotten = errors.New("the manifest has forgotten segments that are in the bucket")

// complete is an error where the newest entries of a manifest, or all, are gone. A leader uploads one segment after the other, so that two
// which begin at different offsets behind the end say that there were entries.
func complete(ctx context.Context, store object.Store, m *manifest.Manifest) error {
	s := m.State()
	first := wire.NoOffset
	for info, err := range store.List(ctx, m.Prefix()+"/", m.Key(manifest.Name{Base: s.End}, manifest.LogObject)) {
		if err != nil {
			return fmt.Errorf("look for segments behind its end: %w", err)
		}
		name, kind, ok := manifest.ParseKey(strings.TrimPrefix(info.Key, m.Prefix()+"/"))
		switch {
		case !ok || kind == manifest.PageObject:
			return nil // segments come first
		case kind != manifest.LogObject: // without its segment a sidecar is of no use
		case slices.ContainsFunc(s.Dropped, func(d manifest.Dropped) bool { return d.Name == name }): // by a cut
		case first == wire.NoOffset:
			first = name.Base
		case name.Base > first:
			return fmt.Errorf("%w: it ends at %d, and its newest entries, or all, are gone: `tidemark tier rebuild-manifest` makes it anew from the objects",
				errForgotten, s.End)
		}
	}
	return nil
}

// lastSegment is the newest live segment, nil without one.
func lastSegment(ctx context.Context, m *manifest.Manifest, s *manifest.State) (*manifest.Segment, error) {
	segments := s.Tail
	if len(segments) == 0 && len(s.Pages) > 0 {
		var err error
		if segments, err = m.Load(ctx, s.Pages[len(s.Pages)-1]); err != nil {
			return nil, err
		}
	}
	if len(segments) == 0 {
		return nil, nil
	}
	return &segments[len(segments)-1], nil
}

// nextProducerID is above the ids of the producers that a segment's sidecar knows. One that can't be read stops nobody: the metadata has
// every block of ids that was given out, so this only finds ids that a client has made up.
func nextProducerID(ctx context.Context, store object.Store, m *manifest.Manifest, s manifest.Segment) wire.ProducerID {
	data, _, err := object.Read(ctx, store, m.Key(s.Name, manifest.AuxObject), sidecar.BytesMax)
	if err != nil {
		return 0
	}
	aux, err := sidecar.Decode(data)
	if err != nil {
		return 0
	}
	snapshot, _ := aux.ProducerSnapshot()
	producers, err := log.DecodeProducerSnapshot(snapshot)
	if err != nil {
		return 0
	}
	var next wire.ProducerID
	for _, p := range producers {
		next = max(next, p.ID+1)
	}
	return next
}
