package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// noSpace is a full disk behind the standard output.
type noSpace struct{}

func (noSpace) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestAGroupReadsAgainWhatWasNotPrinted(t *testing.T) {
	address, _ := testBroker(t)
	s := session{t, address}
	s.ok("", "topic create t")
	s.ok("a\nb\n", "produce t")

	consume := strings.Fields("consume t -g g --from start -n 2 --bootstrap " + address)
	if status := run(t.Context(), consume, strings.NewReader(""), noSpace{}, io.Discard, func(string) string { return "" }); status != 1 {
		t.Errorf("status %d", status)
	}
	if got := s.ok("", "consume t -g g --from start -e"); got != "a\nb\n" {
		t.Errorf("consumed %q", got)
	}
}

func TestRecordsPastTheEndAreNotDone(t *testing.T) {
	ends := endOffsets{{Topic: "t", Partition: 0}: 2}
	record := func(partition int32, offset int64) *kgo.Record {
		return &kgo.Record{Topic: "t", Partition: partition, Offset: offset}
	}
	fetches := kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "t", Partitions: []kgo.FetchPartition{
		{Partition: 0, Records: []*kgo.Record{record(0, 0), record(0, 1), record(0, 2)}},
		{Partition: 1, Records: []*kgo.Record{record(1, 0)}}, // which was empty
	}}}}}
	written := 0
	done, err := ends.write(fetches, func(*kgo.Record) error { written++; return nil })
	if err != nil || written != 2 || len(done) != 2 || done[1].Offset != 1 || !ends.reached() {
		t.Errorf("%d written, done %v, left %v, %v", written, done, ends, err)
	}
}

func TestUntilEndWaitsForTheGroup(t *testing.T) {
	b, _ := inProcess(t, t.TempDir(), "group.initial.rebalance.delay.ms=3500")
	defer closeBroker(t, b)
	s := session{t, b.Addresses()[0]}
	s.ok("", "topic create t")
	s.ok("a\nb\n", "produce t")
	if got := s.ok("", "consume t -g g --from start -e"); got != "a\nb\n" {
		t.Errorf("consumed %q", got)
	}
}

func TestUntilEndFailsWhereTheEndIsNotReached(t *testing.T) {
	b, _ := inProcess(t, t.TempDir(), "group.initial.rebalance.delay.ms=60000")
	defer closeBroker(t, b)
	s := session{t, b.Addresses()[0]}
	s.ok("", "topic create t -p 2")
	s.ok("a\nb\n", "produce t -p 1")
	expect(t, s.fails("consume t -g g --from start -e --timeout 1s"), "these ends are not reached: t-1 (ends at 2)")
}

func TestUntilEndEndsWhereNoRecordLeads(t *testing.T) {
	address, _ := testBroker(t)
	s := session{t, address}
	s.ok("", "topic create t")
	s.ok("a\nb\n", "produce t")
	if got := s.ok("", "consume t --from end -e"); got != "" {
		t.Errorf("consumed %q", got)
	}
}

// What an end counts as after ten seconds without a record.
func TestSilence(t *testing.T) {
	const broker, other = 1, 2
	always := func(int) int32 { return broker }
	for _, c := range []struct {
		name     string
		group    bool
		assigned map[int]int32     // by half second
		answers  func(i int) int32 // which broker answers in each half second
		leader   func(i int) (int32, error)
		short    bool
	}{
		{name: "its broker has nothing", answers: always},
		{name: "nobody answers", answers: func(int) int32 { return 0 }, short: true},
		{name: "another broker answers", answers: func(int) int32 { return other }, short: true},
		{name: "its broker stopped to answer", answers: func(i int) int32 { return int32(min(max(0, 4-i), broker)) }, short: true},
		{name: "its broker was just back", answers: func(i int) int32 { return int32(min(max(0, i-17), broker)) }, short: true},
		{name: "its broker has been back for long", answers: func(i int) int32 { return int32(min(max(0, i-8), broker)) }},
		{name: "it has no leader", answers: always, leader: func(int) (int32, error) { return broker, kerr.LeaderNotAvailable }, short: true},
		{name: "the group gave it nothing", group: true, answers: always, short: true},
		{name: "the group gave it the partition", group: true, assigned: map[int]int32{5: 0}, answers: always},
		{name: "the group just gave it the partition", group: true, assigned: map[int]int32{1: 7, 18: 0}, answers: always, short: true},
		{name: "another member has the partition", group: true, assigned: map[int]int32{5: 7}, answers: func(int) int32 { return other }},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Unix(0, 0)
			s := newSilence(func() time.Time { return now }, c.group)
			ends := endOffsets{kadm.Partition{Topic: "t"}: 5}
			var short []string
			for i := range 20 {
				if p, ok := c.assigned[i]; ok {
					s.onAssigned(context.Background(), nil, map[string][]int32{"t": {p}})
				}
				if id := c.answers(i); id != 0 {
					s.OnBrokerE2E(kgo.BrokerMetadata{NodeID: id}, int16(kmsg.Fetch), kgo.BrokerE2E{})
				}
				s.OnBrokerE2E(kgo.BrokerMetadata{NodeID: broker}, int16(kmsg.Fetch), kgo.BrokerE2E{ReadErr: io.EOF})
				s.OnBrokerE2E(kgo.BrokerMetadata{NodeID: broker}, int16(kmsg.Metadata), kgo.BrokerE2E{})
				short = s.short(ends, func(string, int32) (int32, int32, error) {
					if c.leader != nil {
						id, err := c.leader(i)
						return id, 0, err
					}
					return broker, 0, nil
				})
				now = now.Add(fetchWait)
			}
			if want := []string{"t-0 (ends at 5)"}; c.short && !slices.Equal(short, want) || !c.short && len(short) > 0 {
				t.Errorf("short %v", short)
			}
		})
	}
}

// Without this it would wait for ever, and nobody knew for what.
func TestConsumeDoesNotWaitForWhatIsNotThere(t *testing.T) {
	address, _ := testBroker(t)
	s := session{t, address}
	s.ok("", "topic create t")
	for line, want := range map[string]string{
		"consume nope":      "topic nope: UNKNOWN_TOPIC_OR_PARTITION",
		"consume t nope":    "`tidemark topic list` shows the topics.",
		"consume nope -g g": "topic nope: UNKNOWN_TOPIC_OR_PARTITION",
		"consume t -p 0,99": "t-99: UNKNOWN_TOPIC_OR_PARTITION",
		"consume t --bootstrap 127.0.0.1:1 --timeout 1s": "No answer from 127.0.0.1:1.",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		got := tidemarkIn(ctx, map[string]string{"TIDEMARK_BOOTSTRAP": address}, strings.NewReader(""), strings.Fields(line)...)
		cancel()
		if got.status != 1 || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: status %d, %s", line, got.status, got.stderr)
		}
	}
	if topics := s.ok("", "topic list"); strings.Contains(topics, "nope") {
		t.Errorf("to look for a topic has created it:\n%s", topics)
	}
}

// Who says where it ends wants what is there.
func TestConsumeOfWhatIsThereBeginsAtTheStart(t *testing.T) {
	address, _ := testBroker(t)
	s := session{t, address}
	s.ok("", "topic create t")
	s.ok("a\nb\n", "produce t")
	for line, want := range map[string]string{"consume t -e": "a\nb\n", "consume t -n 1": "a\n", "consume t -e --from 1": "b\n"} {
		if got := s.ok("", line); got != want {
			t.Errorf("%s: %q", line, got)
		}
	}
}
