package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// damage flips a byte of a file.
func damage(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// remove deletes the objects of the store that match.
func remove(t *testing.T, dir, pattern string) {
	t.Helper()
	for _, path := range objects(t, dir, pattern) {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestADamagedManifestHidesNoOther: what can be read is shown, and the exit status says that something can't.
func TestADamagedManifestHidesNoOther(t *testing.T) {
	dir := t.TempDir()
	flag := "--store=" + tieredBroker(t, dir, func(s session) {
		s.ok("", "topic create orders -p 2")
		s.ok(lines(0, 100), "produce orders -p 0")
		s.ok(lines(100, 200), "produce orders -p 1")
	})
	damage(t, objects(t, dir, "orders.*/0/manifest/*.json")[0])

	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"ls"}, "orders"},
		{[]string{"ls", "orders"}, "orders/1"},
		{[]string{"status", "orders"}, "orders/1"},
		{[]string{"explain", "orders"}, "orders/1, leader epoch"},
		{[]string{"cat", "orders"}, lines(100, 200)},
	} {
		got := status(t, 1, append(append([]string{"tier"}, c.args...), flag)...)
		expect(t, got.stdout, c.want)
		if said := got.stdout + got.stderr; !strings.Contains(said, "orders/0") || strings.Contains(said, "orders/0: orders/0") {
			t.Errorf("%v says of the damage\n%s", c.args, said)
		}
	}
	var topics []tierTopic
	if err := json.Unmarshal([]byte(status(t, 1, "tier", "ls", flag, "--json").stdout), &topics); err != nil || len(topics) != 1 || topics[0].Partitions != 2 || topics[0].Offsets != 100 {
		t.Errorf("%+v, %v", topics, err)
	}
	status(t, 1, "tier", "ls", "orders/0", flag)
	status(t, 0, "tier", "status", "orders/1", flag)
	expect(t, status(t, 0, "tier", "rebuild-manifest", "orders/0", flag).stdout, "has a manifest that can't be read. Nothing was written; --write --force")
}

func TestLostOffsetsAreNotCountedAsThere(t *testing.T) {
	dir := t.TempDir()
	tieredBroker(t, dir, func(s session) {
		s.ok("", "topic create orders")
		s.ok(lines(0, 100), "produce orders")
	})
	tieredBroker(t, dir, func(s session) { s.ok(lines(100, 130), "produce orders") })
	flag := "--store=" + tieredBroker(t, dir, func(s session) { s.ok(lines(130, 200), "produce orders") })
	remove(t, dir, "orders.*/0/00000000000000000100-*")
	expect(t, status(t, 0, "tier", "rebuild-manifest", "orders/0", "--write", "--force", flag).stdout, "lost: offsets 100 to 129")

	expect(t, status(t, 0, "tier", "ls", flag).stdout, "LOST")
	var topics []tierTopic
	if err := json.Unmarshal([]byte(status(t, 0, "tier", "ls", flag, "--json").stdout), &topics); err != nil || len(topics) != 1 || topics[0].Offsets != 170 || topics[0].Lost != 30 {
		t.Errorf("%+v, %v", topics, err)
	}
}
