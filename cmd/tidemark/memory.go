package main

import (
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
)

// The heap grows to five times what lives before it is collected, as long as little lives. A broker's live heap is a few megabytes, and most of
// what it allocates is gone with the request: at Go's 100 the collector took an eighth of the CPU of small produce requests. With
// the cache of the tier full of blocks, five times would be more than a gigabyte of garbage; what may grow is bounded in bytes then, unless
// so much lives that collections would come too often.
const (
	gcPercent      = 400
	gcPercentLeast = 50
	gcGrowth       = 256 << 20
)

// tuneMemory sets the collector where the environment (GOGC, GOMEMLIMIT) does not: half of the memory is left to the page cache, which
// is what consumers are served from.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
		adjustGC(gcPercent)
	}
	if total := memoryTotal(); total > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(total / 2)
	}
}

// adjustGC sets the percentage anew after each collection, for an object that nobody holds does not outlive one.
func adjustGC(now int) {
	type collected struct{ _ *byte } // a pointer, so that the object shares no memory with others
	runtime.AddCleanup(new(collected), func(now int) {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		if next := gcPercentFor(live[0].Value.Uint64()); next != now {
			debug.SetGCPercent(next)
			now = next
		}
		adjustGC(now)
	}, now)
}

// gcPercentFor is by what part of what lives the heap may grow.
func gcPercentFor(live uint64) int {
	return int(min(max(gcGrowth*100/max(live, 1), gcPercentLeast), gcPercent))
}

// memoryTotal is what the machine or the control group has, in bytes; 0 if unknown.
func memoryTotal() int64 {
	total := int64(0)
	if info, err := os.ReadFile("/proc/meminfo"); err == nil {
		total = memTotalOf(string(info))
	}
	group, _ := os.ReadFile("/proc/self/cgroup")
	for dir := cgroupOf(string(group)); ; dir = path.Dir(dir) {
		if limit, err := os.ReadFile(path.Join("/sys/fs/cgroup", dir, "memory.max")); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(limit)), 10, 64); err == nil && (total == 0 || n < total) {
				total = n
			}
		}
		if dir == "/" {
			return total
		}
	}
}

// cgroupOf is the control group in /proc/self/cgroup, whose ancestors have limits, too; "/" if it can't be told. A container sees its own as "/".
func cgroupOf(groups string) string {
	for line := range strings.Lines(groups) {
		if dir, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path.Join("/", dir)
		}
	}
	return "/"
}

// memTotalOf reads MemTotal of /proc/meminfo.
func memTotalOf(info string) int64 {
	for line := range strings.Lines(info) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "MemTotal:" && fields[2] == "kB" {
			kilobytes, _ := strconv.ParseInt(fields[1], 10, 64) // 0 where it is no number
			return kilobytes << 10
		}
	}
	return 0
}
