package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/tier/reasons"
)

// What stands in the way of uploads is what people read first.
func TestADamagedSegmentIsWhatAPartitionIsSaidToBe(t *testing.T) {
	x := reasons.Partition{Topic: "orders", Tiered: true, Live: true, TieredEnd: 6, End: 20, OldestMs: 1, Damaged: []reasons.Range{{Start: 6, End: 12}}}
	if got := brokerState(x); got != "a damaged segment holds back all from offset 6 on" {
		t.Errorf("status says %q", got)
	}
	var out bytes.Buffer
	explained{x}.write(newPage(&out))
	if !strings.Contains(out.String(), "damaged: the segment of offsets 6 to 11; nothing behind it is uploaded before retention has passed it") {
		t.Errorf("explain says\n%s", out.String())
	}
}

func TestWhatIsClosedWholeIsNotAfterItWasLedAgain(t *testing.T) {
	dir := t.TempDir()
	flag := "--store=" + tieredBroker(t, dir, func(s session) {
		s.ok("", "topic create orders")
		s.ok(lines(0, 100), "produce orders")
	})
	expect(t, status(t, 0, "tier", "status", "orders", flag).stdout, "closed whole: the log ends here")
	tieredBroker(t, dir, func(s session) {
		s.ok(lines(100, 200), "produce orders")
		expect(t, status(t, 0, "tier", "status", "orders", flag).stdout, "closed whole, and led again since: a broker may have more")
	})
	expect(t, status(t, 0, "tier", "status", "orders", flag).stdout, "closed whole: the log ends here")
	tieredBroker(t, dir, func(session) {})
	expect(t, status(t, 0, "tier", "status", "orders", flag).stdout, "closed whole: the log ends here") // nothing came
}
