package network

import (
	"sync"
	"time"
)

// logLinesPerSecond bounds what clients can make a server log.
const logLinesPerSecond = 10

// logGate lets so many lines through in each second and counts the others.
type logGate struct {
	mu         sync.Mutex // guards all below; a leaf
	second     int64
	lines      int
	suppressed int
}

// pass tells whether a line may be logged now, and how many were not since the last one.
func (g *logGate) pass(now time.Time) (ok bool, suppressed int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if second := now.Unix(); second != g.second {
		g.second, g.lines = second, 0
	}
	if g.lines >= logLinesPerSecond {
		g.suppressed++
		return false, 0
	}
	g.lines++
	suppressed, g.suppressed = g.suppressed, 0
	return true, suppressed
}
