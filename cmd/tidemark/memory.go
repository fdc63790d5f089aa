package main

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// gcPercent lets the heap grow to five times what lives before it is collected. A broker's live heap is a few megabytes, and most of
// what it allocates is gone with the request: at Go's 100 the collector took an eighth of the CPU of small produce requests.
const gcPercent = 400

// tuneMemory sets the collector where the environment (GOGC, GOMEMLIMIT) does not: half of the memory is left to the page cache, which
// is what consumers are served from.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if total := memoryTotal(); total > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(total / 2)
	}
}

// memoryTotal is what the machine or the control group has, in bytes; 0 if unknown.
func memoryTotal() int64 {
	total := int64(0)
	if info, err := os.ReadFile("/proc/meminfo"); err == nil {
		total = memTotalOf(string(info))
	}
	if limit, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(limit)), 10, 64); err == nil && (total == 0 || n < total) {
			total = n
		}
	}
	return total
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
