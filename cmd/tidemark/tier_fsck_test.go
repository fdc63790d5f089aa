package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAPartitionThatIsGoneFromTheBucketIsFound(t *testing.T) {
	dir := t.TempDir()
	flag := "--store=" + tieredBroker(t, dir, func(s session) {
		s.ok("", "topic create orders -p 3")
		s.ok(lines(0, 100), "produce orders -p 0")
		s.ok(lines(100, 200), "produce orders -p 1")
	})
	expect(t, status(t, 0, "tier", "fsck", flag).stdout, "All is well.") // orders/2 never had a record
	remove(t, dir, "orders.*/0")
	expect(t, status(t, 1, "tier", "fsck", flag).stdout, "manifest: orders/0: nothing of the partition is in the bucket", "1 findings are left, 1 of them about records")
	status(t, 1, "tier", "fsck", "--only", "orders/0", flag)
	status(t, 0, "tier", "fsck", "--only", "orders/1", flag)
}

// What only a leader can tell is no finding.
func TestAPartitionThatMayHaveNothingToUploadIsNoFinding(t *testing.T) {
	dir := t.TempDir()
	b, store := inProcess(t, dir, "tier.enable=true", "auto.create.topics.enable=false")
	s := session{t, b.Addresses()[0]}
	s.ok("", "topic create orders -p 2")
	s.ok(lines(0, 10), "produce orders -p 0")
	expect(t, status(t, 0, "tier", "fsck", "--only", "orders", "--store", store).stdout, "2 partitions have nothing in the bucket", "All is well.")
	closeBroker(t, b)
	if got := status(t, 0, "tier", "fsck", "--store", store).stdout; strings.Contains(got, "nothing in the bucket") {
		t.Errorf("after a clean stop fsck says\n%s", got)
	}
}

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
