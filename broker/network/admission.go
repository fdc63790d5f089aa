package network

import (
	"net/netip"
	"sync"
)

// admission counts connections against their limits.
type admission struct {
	mu     sync.Mutex // guards all below; a leaf
	limits ConnectionLimits
	total  int
	perIP  map[netip.Addr]int
	freed  chan struct{} // closed when waiting may have become pointless; nil while nobody waits
}

func newAdmission(limits ConnectionLimits) *admission {
	return &admission{limits: limits, perIP: map[netip.Addr]int{}}
}

// enter counts a connection in. If it may not be, either wait is nil and there are too many from its address, or wait
// tells when to ask again.
func (a *admission) enter(addr netip.Addr) (ok bool, wait <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maxPerIP, own := a.limits.Overrides[addr]
	if !own {
		maxPerIP = a.limits.MaxPerIP
	}
	if a.perIP[addr] >= maxPerIP {
		return false, nil
	}
	if a.total >= a.limits.Max {
		if a.freed == nil {
			a.freed = make(chan struct{})
		}
		return false, a.freed
	}
	a.total++
	a.perIP[addr]++
	return true, nil
}

// leave counts a connection out.
func (a *admission) leave(addr netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.total--
	if a.perIP[addr]--; a.perIP[addr] == 0 {
		delete(a.perIP, addr)
	}
	a.wakeLocked()
}

func (a *admission) set(limits ConnectionLimits) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limits = limits
	a.wakeLocked()
}

func (a *admission) wakeLocked() {
	if a.freed != nil {
		close(a.freed)
		a.freed = nil
	}
}

func (a *admission) count() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return int64(a.total)
}
