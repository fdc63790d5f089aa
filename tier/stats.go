package tier

import (
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/record"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Stats are the numbers of one led tiered partition.
type Stats struct {
	TopicPartition wire.TopicPartition
	TopicID        wire.TopicID
	Epoch          wire.LeaderEpoch
	Open           bool        // the manifest was read; without it what concerns the bucket is zero
	Held           bool        // it waits for its manifest, and serves nothing
	TieredEnd      wire.Offset // the first offset that is not in the bucket
	LogStart       wire.Offset
	RemoteSegments int
	RemoteBytes    int64         // of the segments' .log objects
	BehindBytes    int64         // on disk and not in the bucket; a segment that is there in part counts whole
	BehindSegments int           // of them, the sealed segments
	BehindAge      time.Duration // of the oldest record that is not in the bucket; 0 if there is none
	Damaged        int           // of those, the ones that can't be uploaded, and hold back what is behind them
	Lost           int64         // offsets above the log start that the manifest records as lost
	Err            error         // why the last try failed; nil after a success
	ErrSince       time.Time
	Stopped        bool // for good: another leader has taken over, or the manifest is not to be trusted
	Closed         bool // the manifest says that all of the log is in the bucket
}

// Stats are the numbers of the led tiered partitions, by topic and partition. It may read the disk.
func (m *Manager) Stats(now time.Time) []Stats {
	m.mu.Lock()
	led := make([]*partition, 0, len(m.partitions))
	for _, p := range m.partitions {
		led = append(led, p)
	}
	m.mu.Unlock()
	slices.SortFunc(led, func(a, b *partition) int { return comparePartitions(a.TopicPartition, b.TopicPartition) })
	var all []Stats
	for _, p := range led {
		if p.tiered() {
			all = append(all, m.stats(now, p))
		}
	}
	return all
}

// Led is how many partitions this broker leads, with those that are not tiered.
func (m *Manager) Led() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.partitions)
}

// Partition are those of one partition; false if this broker does not lead it, or it is not tiered.
func (m *Manager) Partition(now time.Time, tp wire.TopicPartition) (Stats, bool) {
	m.mu.Lock()
	p := m.partitions[tp]
	m.mu.Unlock()
	if p == nil || !p.tiered() {
		return Stats{}, false
	}
	return m.stats(now, p), true
}

func (m *Manager) stats(now time.Time, p *partition) Stats {
	s := Stats{TopicPartition: p.TopicPartition, TopicID: p.TopicID, Epoch: p.Epoch, LogStart: p.Log.StartOffset()}
	s.TieredEnd = s.LogStart
	m.mu.Lock()
	s.Held, s.Err, s.ErrSince, s.Stopped = p.held, p.err, p.errSince, p.stopped
	m.mu.Unlock()
	if s.Err == nil {
		s.ErrSince = time.Time{}
	}
	if state := p.state(); state != nil {
		s.Open, s.TieredEnd, s.Closed = true, state.End, state.Closed
		s.RemoteSegments, s.RemoteBytes = state.Segments, state.Bytes
		for _, l := range state.Lost {
			s.Lost += int64(l.End - l.Start)
		}
	}
	for _, segment := range p.Log.Segments() {
		if segment.Next > s.TieredEnd && segment.Size > 0 {
			s.BehindBytes += segment.Size
			if segment.Sealed {
				s.BehindSegments++
			}
		}
	}
	if s.BehindSegments > 0 && p.copied() {
		sealed, err := p.Log.SealedSegments(s.TieredEnd)
		if err == nil {
			for _, segment := range sealed {
				if segment.Damaged {
					s.Damaged++
				}
			}
		}
	}
	if s.BehindBytes > 0 {
		if oldest := p.timestampAt(max(s.TieredEnd, p.Log.LocalStartOffset())); oldest >= 0 {
			s.BehindAge = max(0, now.Sub(time.UnixMilli(oldest)))
		}
	}
	return s
}

// timestampAt is that of the first record at an offset or behind it, -1 where there is none. The disk is asked once an offset: the
// same one is asked for until it is in the bucket.
func (p *partition) timestampAt(offset wire.Offset) int64 {
	if known := p.first.Load(); known != nil && known.offset == offset {
		return known.timestamp
	}
	r, err := p.Log.Read(log.ReadRequest{From: offset, UpTo: p.Log.EndOffset(), MaxBytes: 1, MinOneBatch: true})
	if err != nil || r.Range.Length < record.HeaderSize {
		return -1
	}
	defer r.Range.Release()
	header := make(record.Batch, record.HeaderSize)
	if _, err := r.Range.File.ReadAt(header, r.Range.Offset); err != nil {
		return -1
	}
	timestamp := header.BaseTimestamp()
	p.first.Store(&firstRecord{offset, timestamp})
	return timestamp
}
