package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestACheckOfNothingIsAMistake(t *testing.T) {
	dir := t.TempDir()
	flag := "--store=" + tieredBroker(t, dir, func(s session) {
		s.ok("", "topic create orders -p 2")
		s.ok(lines(0, 100), "produce orders -p 0")
	})
	for _, command := range []string{"fsck", "verify"} {
		for _, only := range []string{"nosuch", "orders/2"} {
			expect(t, status(t, 2, "tier", command, "--only", only, flag).stderr, "no topic or partition "+only)
		}
		status(t, 0, "tier", command, "--only", "orders/1", flag) // has nothing in the bucket
	}
	// A topic that the bucket alone has is checked.
	topics := filepath.Join(dir, "store", "topics")
	id := filepath.Ext(objects(t, dir, "orders.*")[0])
	if err := os.CopyFS(filepath.Join(topics, "former"+"."+strings.Repeat("A", len(id)-2)+"Q", "0"), os.DirFS(objects(t, dir, "orders.*/0")[0])); err != nil {
		t.Fatal(err)
	}
	expect(t, status(t, 1, "tier", "fsck", "--only", "former", flag).stdout, "topic: former/0")
}
