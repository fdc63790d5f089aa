package broker

import "time"

// sleepMax is how far the clocks may drift apart before a leader has to ask whether it is one still. It is below the guard of the
// shortest lease.
const sleepMax = time.Second

// sleepWatch notices that the machine slept. The time that the loop counts (CLOCK_MONOTONIC) stands still meanwhile, while the
// leases that others see run out (safety.md 12).
type sleepWatch struct {
	slept func() time.Duration // since the machine started
	seen  time.Duration
}

func newSleepWatch(slept func() time.Duration) sleepWatch {
	return sleepWatch{slept: slept, seen: slept()}
}

// woke tells whether the machine has slept since the last call, for longer than can be passed over.
func (w *sleepWatch) woke() bool {
	slept := w.slept()
	if slept-w.seen <= sleepMax {
		return false
	}
	w.seen = slept
	return true
}
