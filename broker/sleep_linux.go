package broker

import (
	"time"

	"golang.org/x/sys/unix"
)

// timeAsleep is how long the machine has slept since it started.
func timeAsleep() time.Duration {
	return clock(unix.CLOCK_BOOTTIME) - clock(unix.CLOCK_MONOTONIC)
}

// clock reads a clock that every Linux has; without it nothing can be said, and the watch stays silent.
func clock(id int32) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(id, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}
