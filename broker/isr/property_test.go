package isr_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/broker/isr"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// A leader, its followers and a controller whose answers may be late, lost or never come. Whatever happens, each member of
// the ISR that the controller has decided holds everything below the leader's high watermark, which never goes back.
func TestHighWatermarkIsOnEveryMemberOfTheDecidedISR(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas := []wire.BrokerID{1, 2, 3}
		now := start
		logEnd := map[wire.BrokerID]wire.Offset{1: 10, 2: 10, 3: 10}
		decided := struct {
			epoch int32
			isr   []wire.BrokerID
		}{1, slices.Clone(replicas[:rapid.IntRange(1, 3).Draw(t, "in sync")])}
		minISR := rapid.IntRange(1, 3).Draw(t, "min ISR")
		s := isr.New(now, isr.Leadership{
			Self: 1, LeaderEpoch: 1, PartitionEpoch: decided.epoch, Replicas: replicas, ISR: decided.isr,
			EpochStart: 10, LogEndOffset: 10, HighWatermark: 5, MinISR: minISR, LagTimeMax: 30 * time.Second,
		})
		for _, broker := range replicas[1:] {
			s.SetLiveness(now, broker, isr.Liveness{Active: true, Epoch: 7})
		}
		high := s.HighWatermark()
		var asked []isr.Proposal // on their way to the controller
		var answers []func()     // on their way to the leader, in order

		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				logEnd[1] += wire.Offset(rapid.IntRange(1, 5).Draw(t, "records"))
				s.Appended(now, logEnd[1])
			},
			"fetch": func(t *rapid.T) {
				broker := rapid.SampledFrom(replicas[1:]).Draw(t, "follower")
				if _, err := s.Fetched(now, isr.Fetch{Broker: broker, BrokerEpoch: 7, LogEndOffset: logEnd[broker]}); err != nil {
					t.Fatal(err)
				}
				logEnd[broker] += min(wire.Offset(rapid.IntRange(0, 8).Draw(t, "received")), logEnd[1]-logEnd[broker])
			},
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second)
				s.Advance(now)
			},
			"propose": func(*rapid.T) {
				if p, ok := s.Tick(now); ok {
					asked = append(asked, p)
				}
			},
			"decide": func(t *rapid.T) {
				if len(asked) == 0 {
					t.Skip("nothing was asked")
				}
				p := asked[0]
				asked = asked[1:]
				fate := rapid.SampledFrom([]string{"decided", "answer lost", "request lost", "not attempted", "ineligible"}).Draw(t, "fate")
				refuse := func(code wire.Code) {
					answers = append(answers, func() { s.Refused(now, p.PartitionEpoch, code) })
				}
				switch {
				case fate == "request lost":
					refuse(wire.RequestTimedOut)
					return
				case fate == "not attempted":
					refuse(wire.OperationNotAttempted)
					return
				case p.PartitionEpoch != decided.epoch:
					refuse(wire.InvalidUpdateVersion)
					return
				case fate == "ineligible":
					refuse(wire.IneligibleReplica)
					return
				}
				decided.epoch++
				decided.isr = nil
				for _, m := range p.ISR {
					decided.isr = append(decided.isr, m.Broker)
				}
				if fate == "answer lost" {
					refuse(wire.RequestTimedOut)
					return
				}
				epoch, members := decided.epoch, decided.isr
				answers = append(answers, func() { s.Decided(now, p.PartitionEpoch, epoch, members) })
			},
			"answer": func(t *rapid.T) {
				if len(answers) == 0 {
					t.Skip("nothing was answered")
				}
				answers[0]()
				answers = answers[1:]
			},
			"image": func(*rapid.T) { s.Updated(now, decided.epoch, replicas, decided.isr) },
			"": func(t *rapid.T) {
				if s.HighWatermark() < high {
					t.Fatalf("high watermark went back from %d to %d", high, s.HighWatermark())
				}
				if moved := s.HighWatermark() > high; moved && len(s.ISR()) < minISR {
					t.Fatalf("high watermark moved to %d with %d of %d in sync", s.HighWatermark(), len(s.ISR()), minISR)
				}
				high = s.HighWatermark()
				for _, broker := range decided.isr {
					if logEnd[broker] < high {
						t.Fatalf("high watermark %d, but broker %d of the ISR %v ends at %d", high, broker, decided.isr, logEnd[broker])
					}
				}
			},
		})
	})
}
