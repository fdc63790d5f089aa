package main

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

func TestGarbageIsBoundedInBytes(t *testing.T) {
	const mib = 1 << 20
	for live, want := range map[uint64]int{0: 400, 10 * mib: 400, 64 * mib: 400, 128 * mib: 200, 256 * mib: 100, 512 * mib: 50, 8192 * mib: 50} {
		if got := gcPercentFor(live); got != want {
			t.Errorf("%d MiB live: %d, want %d", live/mib, got, want)
		}
	}
}

// With much alive each collection sets the percentage anew, and sets it back when it is gone.
func TestTheCollectorIsAdjusted(t *testing.T) {
	if os.Getenv("GOGC") != "" {
		t.Skip("GOGC is set")
	}
	const child = "TIDEMARK_TEST_GC"
	if os.Getenv(child) == "" { // settings of a whole process
		cmd := exec.Command(os.Args[0], "-test.run", "^TestTheCollectorIsAdjusted$")
		cmd.Env = append(os.Environ(), child+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	tuneMemory()
	percent := func() int {
		now := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(now)
		return int(now[0].Value.Uint64())
	}
	becomes := func(want int) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); percent() > want || percent() < want/2; runtime.GC() {
			if time.Now().After(deadline) {
				t.Fatalf("%d, want %d", percent(), want)
			}
		}
	}
	alive := make([]byte, 256<<20)
	becomes(100)
	runtime.KeepAlive(alive)
	becomes(gcPercent)
}

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

func TestTheControlGroupOfTheProcess(t *testing.T) {
	for groups, want := range map[string]string{
		"0::/system.slice/tidemark.service\n":   "/system.slice/tidemark.service",
		"12:memory:/old\n0::/user.slice/1000\n": "/user.slice/1000",
		"0::/\n":                                "/",
		"12:memory:/old\n":                      "/",
		"0::/../../other\n":                     "/other", // of a namespace that has been left
		"":                                      "/",
	} {
		if got := cgroupOf(groups); got != want {
			t.Errorf("%q: %s, want %s", groups, got, want)
		}
	}
}
