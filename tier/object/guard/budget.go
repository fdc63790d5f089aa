package guard

import (
	"sync"
	"time"
)

// budget is a token bucket that is drawn upon while the store fails, and by every try again.
type budget struct {
	rate, burst float64

	mu      sync.Mutex // guards what follows; a leaf, held for arithmetic only
	tokens  float64    // negative: so many are waiting
	at      time.Time  // of tokens
	failing bool
}

func newBudget(rate float64, burst int) *budget {
	return &budget{rate: rate, burst: float64(burst), tokens: float64(burst)}
}

// take takes a token if one is needed, and says how long to wait for it. An urgent try takes one without waiting. With false
// the wait would be longer than most, and nothing is taken.
func (b *budget) take(now time.Time, again, urgent bool, most time.Duration) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !again && !b.failing {
		return 0, true
	}
	if b.at.IsZero() {
		b.at = now
	}
	if gone := now.Sub(b.at); gone > 0 {
		b.tokens = min(b.burst, b.tokens+b.rate*gone.Seconds())
		b.at = now
	}
	if b.tokens < 1 {
		wait = time.Duration((1 - b.tokens) / b.rate * float64(time.Second))
	}
	if urgent {
		b.tokens = max(b.tokens-1, -b.burst)
		return 0, true
	}
	if wait > most {
		return 0, false
	}
	b.tokens--
	return wait, true
}

// giveBack returns the token of a try that was not made.
func (b *budget) giveBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens++
}

// note records whether the store has answered.
func (b *budget) note(answered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failing = !answered
}
