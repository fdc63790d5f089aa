package isr_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tidemark-io/tidemark/broker/isr"
	"github.com/tidemark-io/tidemark/broker/wire"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestTranscripts runs testdata/*.txt. Each command may carry at=SECONDS since the start and prints what it returned and the
// high watermark.
//
//	lead self=1 replicas=(1,2,3) isr=(1,2,3) leo=10 hw=4 [min=1] [start=10] [epoch=5] [version=9]
//	live broker=2 [epoch=7] [active=false]
//	append leo=20
//	fetch broker=2 leo=20 [epoch=7] [logstart=0]
//	advance
//	tick
//	decided version=10 [asked=9] isr=(1,2)
//	updated version=10 [replicas=(1,2,3)] isr=(1,2)
//	refused version=10 code=107
//	min n=2
//	low logstart=3
func TestTranscripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d transcripts, err %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) { runTranscript(t, path) })
	}
}

func runTranscript(t *testing.T, path string) {
	var s *isr.State
	datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
		now := start.Add(time.Duration(number(t, d, "at", 0)) * time.Second)
		var out strings.Builder
		switch d.Cmd {
		case "lead":
			s = isr.New(now, isr.Leadership{
				Self:           wire.BrokerID(number(t, d, "self", 1)),
				LeaderEpoch:    wire.LeaderEpoch(number(t, d, "epoch", 5)),
				PartitionEpoch: int32(number(t, d, "version", 9)),
				Replicas:       brokers(t, d, "replicas"),
				ISR:            brokers(t, d, "isr"),
				EpochStart:     wire.Offset(number(t, d, "start", number(t, d, "leo", 0))),
				LogEndOffset:   wire.Offset(number(t, d, "leo", 0)),
				HighWatermark:  wire.Offset(number(t, d, "hw", 0)),
				MinISR:         number(t, d, "min", 1),
				LagTimeMax:     30 * time.Second,
			})
		case "live":
			fmt.Fprintf(&out, "moved=%v ", s.SetLiveness(now, wire.BrokerID(number(t, d, "broker", 0)), isr.Liveness{
				Active: !d.HasArg("active"), Epoch: wire.BrokerEpoch(number(t, d, "epoch", 7)),
			}))
		case "append":
			fmt.Fprintf(&out, "moved=%v ", s.Appended(now, wire.Offset(number(t, d, "leo", 0))))
		case "fetch":
			moved, err := s.Fetched(now, isr.Fetch{
				Broker:       wire.BrokerID(number(t, d, "broker", 0)),
				BrokerEpoch:  wire.BrokerEpoch(number(t, d, "epoch", 7)),
				LogEndOffset: wire.Offset(number(t, d, "leo", 0)),
				LogStart:     wire.Offset(number(t, d, "logstart", 0)),
			})
			fmt.Fprintf(&out, "moved=%v ", moved)
			if err != nil {
				fmt.Fprintf(&out, "err=%v ", err)
			}
		case "tick":
			if p, ok := s.Tick(now); ok {
				fmt.Fprintf(&out, "propose epoch=%d version=%d", p.LeaderEpoch, p.PartitionEpoch)
				for _, m := range p.ISR {
					fmt.Fprintf(&out, " %d/%d", m.Broker, m.Epoch)
				}
				out.WriteByte(' ')
			}
		case "decided":
			version := number(t, d, "version", 0)
			fmt.Fprintf(&out, "moved=%v ", s.Decided(now, int32(number(t, d, "asked", version-1)), int32(version), brokers(t, d, "isr")))
		case "updated":
			fmt.Fprintf(&out, "moved=%v ", s.Updated(now, int32(number(t, d, "version", 0)), brokers(t, d, "replicas"), brokers(t, d, "isr")))
		case "refused":
			fmt.Fprintf(&out, "moved=%v ", s.Refused(now, int32(number(t, d, "version", 0)), wire.Code(number(t, d, "code", 0))))
		case "advance":
			fmt.Fprintf(&out, "moved=%v ", s.Advance(now))
		case "min":
			fmt.Fprintf(&out, "moved=%v ", s.SetMinISR(now, number(t, d, "n", 0)))
		case "low":
			fmt.Fprintf(&out, "low=%d ", s.LowWatermark(wire.Offset(number(t, d, "logstart", 0))))
		default:
			d.Fatalf(t, "unknown command")
		}
		fmt.Fprintf(&out, "hw=%d", s.HighWatermark())
		if !s.EnoughInSync() {
			out.WriteString(" under-min-isr")
		}
		return out.String() + "\n"
	})
}

func number(t *testing.T, d *datadriven.TestData, key string, otherwise int) int {
	n := otherwise
	d.MaybeScanArgs(t, key, &n)
	return n
}

func brokers(t *testing.T, d *datadriven.TestData, key string) []wire.BrokerID {
	arg, ok := d.Arg(key)
	if !ok {
		return nil
	}
	ids := make([]wire.BrokerID, len(arg.Vals))
	for i := range arg.Vals {
		var n int
		arg.Scan(t, i, &n)
		ids[i] = wire.BrokerID(n)
	}
	return ids
}
