package tier

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/plan"
	"github.com/tidemark-io/tidemark/tier/reasons"
)

// Explain says why the partitions of a topic that this broker leads are as they are, of all topics where the name is empty. It looks
// beside the jobs that are out, and so may see what one of them is about to change. It reads the disk, and pages of manifests.
func (m *Manager) Explain(ctx context.Context, now time.Time, topic string) ([]reasons.Partition, error) {
	m.mu.Lock()
	var led []*partition
	for _, p := range m.partitions {
		if topic == "" || p.Topic == topic {
			led = append(led, p)
		}
	}
	m.mu.Unlock()
	if len(led) == 0 && topic != "" {
		return nil, fmt.Errorf("%w: this broker leads no partition of %s", wire.UnknownTopicOrPartition, topic)
	}
	slices.SortFunc(led, func(a, b *partition) int { return comparePartitions(a.TopicPartition, b.TopicPartition) })
	list := make([]reasons.Partition, 0, len(led))
	for _, p := range led {
		v, lost, err := p.viewOutside(ctx, now)
		if err != nil {
			return nil, fmt.Errorf("explain %s-%d: %w", p.Topic, p.Partition, err)
		}
		e, s := reasons.Of(now, v), m.stats(now, p)
		e.Topic, e.TopicID, e.Partition, e.Live, e.Lost = p.Topic, p.TopicID, p.Partition, true, lost
		if s.BehindAge > 0 {
			e.OldestMs = now.Add(-s.BehindAge).UnixMilli()
		}
		if s.Err != nil {
			e.Error, e.SinceMs = s.Err.Error(), s.ErrSince.UnixMilli()
		}
		list = append(list, e)
	}
	return list, nil
}

// viewOutside is a view for people, made without what belongs to the job that is out: of what is in the bucket it has all.
func (p *partition) viewOutside(ctx context.Context, now time.Time) (v plan.View, lost []reasons.Range, err error) {
	v = plan.View{LeaderEpoch: p.Epoch, Internal: p.Internal, Confirmed: true, Config: p.planConfig()}
	if skew, ok := object.SkewOf(p.o.Store, now); ok {
		v.ClockKnown, v.ClockSkew = true, -skew.Ahead
	}
	if err := p.viewLocal(now, &v.Local); err != nil {
		return v, nil, err
	}
	m := p.manifest.Load()
	if m == nil {
		return v, nil, nil
	}
	s := m.State()
	var live []manifest.Segment
	for segment, err := range m.All(p.cause(ctx, object.CauseManifest)) {
		if err != nil {
			return v, nil, err
		}
		live = append(live, segment)
	}
	v.Bucket = plan.Bucket{
		Read: true, LogStart: s.ReadStart(), End: s.End, Oldest: remoteSegments(live), Segments: s.Segments, Bytes: s.Bytes,
		Tail: len(s.Tail), Closed: s.Closed,
	}
	for _, d := range s.Dropped {
		v.Bucket.Dropped = append(v.Bucket.Dropped, plan.Dropped{TimeMs: d.TimeMs})
	}
	for _, l := range s.Lost {
		lost = append(lost, reasons.Range(l))
	}
	return v, lost, nil
}
