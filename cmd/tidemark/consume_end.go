package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// endIdle is how long a broker has to answer without a record before consume --until-end takes an end for reached: the last
	// offsets of a compacted topic may have none.
	endIdle = 3 * time.Second

	// answerAge is how old a broker's last answer may be, with a fetch on its way that waits for fetchWait. It is less than endIdle, so
	// that a read which takes long is never taken for one that found nothing.
	answerAge = 2 * time.Second
	fetchWait = 500 * time.Millisecond
)

// endOffsets is how far consume --until-end reads: by partition, what is left to reach. Without the flag it is nil.
type endOffsets map[kadm.Partition]int64

func (f *consumeFlags) ends(ctx context.Context, admin *kadm.Client, topics []string) (endOffsets, error) {
	if !f.untilEnd {
		return nil, nil
	}
	starts, err := listing(admin.ListStartOffsets(ctx, topics...))
	if err != nil {
		return nil, err
	}
	listed, err := listing(admin.ListEndOffsets(ctx, topics...))
	if err != nil {
		return nil, err
	}
	ends := make(endOffsets)
	for _, o := range listed.Offsets().Sorted() {
		if !f.wants(o.Partition) {
			continue
		}
		start, err := listedOffset(starts, o.Topic, o.Partition)
		if err != nil {
			return nil, fmt.Errorf("start of %s: %w", partitionName(o.Topic, o.Partition), err)
		}
		end, err := listedOffset(listed, o.Topic, o.Partition)
		if err != nil {
			return nil, fmt.Errorf("end of %s: %w", partitionName(o.Topic, o.Partition), err)
		}
		if end > start {
			ends[kadm.Partition{Topic: o.Topic, Partition: o.Partition}] = end
		}
	}
	return ends, nil
}

func (f *consumeFlags) wants(partition int32) bool {
	return len(f.partitions) == 0 || slices.Contains(f.partitions, partition)
}

func (e endOffsets) reached() bool { return len(e) == 0 }

// past tells whether the record came after the end.
func (e endOffsets) past(r *kgo.Record) bool {
	end, known := e[kadm.Partition{Topic: r.Topic, Partition: r.Partition}]
	return e != nil && (!known || r.Offset >= end)
}

func (e endOffsets) saw(r *kgo.Record) {
	p := kadm.Partition{Topic: r.Topic, Partition: r.Partition}
	if end, known := e[p]; known && r.Offset >= end-1 {
		delete(e, p)
	}
}

// silence tells an end that no record leads to from one that was not read yet: by the brokers that answer fetches, and have nothing.
type silence struct {
	mu       sync.Mutex
	answered map[int32]time.Time          // by broker, the last answer to a fetch
	assigned map[kadm.Partition]bool      // to this member of a group, at any time; without a group nil
	since    map[kadm.Partition]time.Time // from when on the partition's broker has answered, and had nothing
	now      func() time.Time
}

func newSilence(now func() time.Time, inGroup bool) *silence {
	s := &silence{answered: make(map[int32]time.Time), since: make(map[kadm.Partition]time.Time), now: now}
	if inGroup {
		s.assigned = make(map[kadm.Partition]bool)
	}
	return s
}

// OnBrokerE2E is a hook of the client.
func (s *silence) OnBrokerE2E(broker kgo.BrokerMetadata, key int16, call kgo.BrokerE2E) {
	if key != int16(kmsg.Fetch) || call.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered[broker.NodeID] = s.now()
}

func (s *silence) onAssigned(_ context.Context, _ *kgo.Client, assigned map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, partitions := range assigned {
		for _, p := range partitions {
			s.assigned[kadm.Partition{Topic: topic, Partition: p}] = true
		}
	}
	clear(s.since)
}

// broken is called when records came.
func (s *silence) broken() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.since)
}

// leaderOf is what the client knows of a partition's leader.
type leaderOf func(topic string, partition int32) (id, epoch int32, err error)

// short is the ends that may yet be reached, for people. It has to be asked more often than once in an answerAge.
func (s *silence) short(ends endOffsets, leader leaderOf) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var short []string
	now := s.now()
	for p, end := range ends {
		if _, began := s.since[p]; !began || !s.quiet(p, now, leader) {
			s.since[p] = now
		}
		if now.Sub(s.since[p]) < endIdle {
			short = append(short, fmt.Sprintf("%s-%d (ends at %d)", p.Topic, p.Partition, end))
		}
	}
	slices.Sort(short)
	return short
}

// quiet tells whether the partition is being read now. One that the group gave to another member is that member's to read.
func (s *silence) quiet(p kadm.Partition, now time.Time, leader leaderOf) bool {
	if s.assigned != nil && !s.assigned[p] {
		return len(s.assigned) > 0
	}
	id, _, err := leader(p.Topic, p.Partition)
	last, ok := s.answered[id]
	return err == nil && ok && now.Sub(last) < answerAge
}

func shortError(short []string, waited time.Duration) error {
	return fmt.Errorf("no record came for %v, and these ends are not reached: %s; --timeout sets how long to wait", waited, strings.Join(short, ", "))
}
