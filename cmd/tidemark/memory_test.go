package main

import "testing"

func TestMemTotalIsRead(t *testing.T) {
	for info, want := range map[string]int64{
		"MemTotal:       24684084 kB\nMemFree:  1 kB\n": 24684084 << 10,
		"MemFree:  1 kB\n": 0,
		"MemTotal: lots\n": 0,
		"":                 0,
	} {
		if got := memTotalOf(info); got != want {
			t.Errorf("%q: %d, want %d", info, got, want)
		}
	}
}
