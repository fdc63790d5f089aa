package main

import (
	"strings"
	"testing"
)

func TestFlagsThatCantBeMeantAreRefused(t *testing.T) {
	flag := "--store=" + tieredBroker(t, t.TempDir(), func(s session) { s.ok("", "topic create orders") })
	for _, c := range []struct {
		args string
		want string
	}{
		{"tier fsck --grace 59m", "--grace"},
		{"tier fsck --grace -1h", "--grace"},
		{"tier verify --grace 0s", "--grace"},
		{"tier fsck --level sample --sample 0", "--sample"},
		{"tier fsck --level sample --sample 101", "--sample"},
		{"tier cat orders -n -1", "--max"},
		{"tier cat orders --offset -1", "--offset"},
		{"tier explain orders --admin 127.0.0.1:1", "ask either"},
		{"tier status --admin 127.0.0.1:1", "ask either"},
		{"serve --read-only --grace -1h", "--grace"},
		{"serve --read-only --at 2199-01-01", "lies in the future"},
	} {
		if got := status(t, 2, append(strings.Fields(c.args), flag)...); !strings.Contains(got.stderr, c.want) {
			t.Errorf("%s: %s", c.args, got.stderr)
		}
	}
	expect(t, status(t, 2, "tier", "status").stderr, "--admin", "--store")
}
