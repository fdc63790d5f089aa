package main

import (
	"os"
	"runtime"
)

// tuneProcessors lets Go run one goroutine more at a time than there are cores, unless the environment (GOMAXPROCS) says how many. A system
// call that takes long, as an fdatasync does, keeps one of Go's processors for up to ten milliseconds, and so does a goroutine that computes: with
// few cores nobody would look for requests meanwhile. With one to spare the kernel shares out the cores, in fractions of a millisecond.
func tuneProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	}
}
