package main

import (
	"os"
	"testing"
)

// TestAPartitionWithoutSegmentsGetsAManifest: where retention has taken all of them, the chain may still be damaged.
func TestAPartitionWithoutSegmentsGetsAManifest(t *testing.T) {
	dir := t.TempDir()
	store := tieredBroker(t, dir, func(s session) {
		s.ok("", "topic create orders")
		s.ok(lines(0, 100), "produce orders")
	})
	flag := "--store=" + store
	for _, pattern := range []string{"orders.*/0/manifest/*.json", "orders.*/0/*.aux", "orders.*/0/*.log"} {
		for _, object := range objects(t, dir, pattern) {
			if err := os.Remove(object); err != nil {
				t.Fatal(err)
			}
		}
	}
	expect(t, status(t, 0, "tier", "rebuild-manifest", "orders/0", flag).stdout, "--log-start says where it begins")
	expect(t, status(t, 2, "tier", "rebuild-manifest", "orders/0", "--write", flag).stderr, "--log-start does")
	expect(t, status(t, 0, "tier", "rebuild-manifest", "orders/0", "--write", "--log-start", "100", flag).stdout, "a new manifest of 0 segments, from offset 100 on")
	tieredBroker(t, dir, func(s session) { s.ok(lines(100, 200), "produce orders") })
	if got := status(t, 0, "tier", "cat", "orders", flag).stdout; got != lines(100, 200) {
		t.Errorf("afterwards the bucket has %d bytes of records", len(got))
	}
}
