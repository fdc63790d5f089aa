//go:build !linux

package broker

import "time"

// timeAsleep is unknown: other systems are for development.
func timeAsleep() time.Duration { return 0 }
